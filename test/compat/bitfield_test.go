package compat

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestBitfield(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("RPUSH l x")
		for _, ops := range []string{"", "GET u8 0", "GET u63 3", "GET u64 0", "GET i64 1", "GET i65 0", "GET u0 0",
			"GET i0 0", "GET x8 0", "GET U8 0", "GET u08 0", "GET u 0", `GET "" 0`, "GET u-1 0", "GET u8 -1",
			"GET u8 +1", "GET u8 #1", "GET u8 #x", "GET u8 #-1", "GET u8 #", "GET u8 x", "GET u8 4294967296",
			"GET u8 9223372036854775807", "GET u8 #9223372036854775807", "FOO", "GET u8", "SET u8 0", "SET u8 0 x",
			"SET x 0 x", "SET u8 x x", "OVERFLOW", "OVERFLOW FOO", "OVERFLOW SAT", "overflow sat get u8 0",
			"GET u8 0 0", "GET u8 0 SET u8 0 1", "INCRBY u8 0", "INCRBY u8 0 x",
			"SET u8 0 255 GET u8 0", "INCRBY u8 0 1", "OVERFLOW SAT INCRBY u8 0 1000", "OVERFLOW FAIL INCRBY u8 0 1000",
			"OVERFLOW FAIL SET u8 0 256", "SET u8 0 256", "SET i8 0 128", "OVERFLOW SAT SET i8 0 200 SET i8 0 -200",
			"SET u8 0 -1", "OVERFLOW SAT SET u8 0 -1", "OVERFLOW SAT INCRBY u8 0 -1000",
			"OVERFLOW FAIL INCRBY u8 0 -1000", "INCRBY u8 0 -1000", "SET i8 0 -9223372036854775808",
			"OVERFLOW SAT SET i8 0 -9223372036854775808", "OVERFLOW FAIL SET i8 0 -9223372036854775808",
			"OVERFLOW SAT SET u63 0 -9223372036854775808",
			"INCRBY i64 0 9223372036854775807 INCRBY i64 0 1 OVERFLOW SAT INCRBY i64 0 -9223372036854775808 INCRBY " +
				"i64 0 -9223372036854775808", "OVERFLOW SAT INCRBY i64 0 9223372036854775807 INCRBY i64 0 " +
				"9223372036854775807 OVERFLOW FAIL INCRBY i64 0 1 GET i64 0",
			"INCRBY u63 0 9223372036854775807 INCRBY u63 0 1", "SET u1 7 1 SET u1 6 1 SET i1 5 1 GET i1 5",
			"SET u5 #3 17 GET u5 15 INCRBY i5 #3 9 OVERFLOW SAT INCRBY i5 #3 30", "SET u8 100 0",
			"SET u16 13 4660 GET u16 13 GET u8 16",
			"OVERFLOW WRAP INCRBY i5 3 100 OVERFLOW SAT INCRBY i5 3 100 OVERFLOW FAIL INCRBY i5 3 100"} {
			for _, key := range []string{"k", "none", "l", "text"} {
				p.setup("DEL k text", `SET k "\xf0\x0f\xaa\x55\x00\xff\x80\x01\x7f\xfe"`, "SET text 12345")
				p.Do("BITFIELD "+key+" "+ops, "BITFIELD_RO "+key+" "+ops, "GET "+key, "BITFIELD "+key+" "+ops,
					"GET "+key, "EXISTS none", "DEL none")
			}
		}
		p.DoError("BITFIELD", "BITFIELD_RO")
		p.Do("COMMAND GETKEYS BITFIELD k GET u8 0", "COMMAND GETKEYSANDFLAGS BITFIELD k GET u8 0 OVERFLOW SAT",
			"COMMAND GETKEYSANDFLAGS BITFIELD k GET u8 0 SET u8 0 1", "COMMAND GETKEYSANDFLAGS BITFIELD k FOO",
			"COMMAND GETKEYSANDFLAGS BITFIELD_RO k GET u8 0", "MULTI", "BITFIELD m SET u8 0 1",
			"BITFIELD_RO m GET u8 0", "EXEC",
			`EVAL "return redis.call('bitfield','m','incrby','u8','0','5','overflow','fail','incrby','u8','0','500')" 0`)
	})
}

func TestRandom_Bitfield(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 400+uint64(p.proto)))
		number := func() string {
			if rng.IntN(2) == 0 {
				return strconv.Itoa(rng.IntN(600) - 300)
			}
			return strconv.FormatInt(int64(rng.Uint64())>>rng.IntN(64), 10)
		}
		for range *randomRuns {
			lines := []string{"FLUSHALL"}
			for range 50 {
				line := "BITFIELD k"
				for range 1 + rng.IntN(4) {
					bits := 1 + rng.IntN(64)
					field := fmt.Sprintf("i%d", bits)
					if bits < 64 && rng.IntN(2) == 0 {
						field = fmt.Sprintf("u%d", bits)
					}
					where := field + []string{" ", " #"}[rng.IntN(2)] + strconv.Itoa(rng.IntN(20))
					line += []string{"", " OVERFLOW WRAP", " OVERFLOW SAT", " OVERFLOW FAIL"}[rng.IntN(4)]
					line += []string{" GET " + where, " SET " + where + " " + number(),
						" INCRBY " + where + " " + number()}[rng.IntN(3)]
				}
				lines = append(lines, line)
			}
			lines = append(lines, "GET k")
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				p.compare(line, redis[i], holdfast[i])
			}
			if t.Failed() || p.t.Failed() {
				p.t.Fatalf("seed %d:\n%s", *randomSeed, strings.Join(lines, "\n"))
			}
		}
	})
}
