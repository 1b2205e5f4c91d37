package compat

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestHLL(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("PFCOUNT k", "PFADD k", "PFADD k", "GET k", "STRLEN k", "OBJECT ENCODING k", "TYPE k", "PFCOUNT k",
			"PFADD k a b c", "PFADD k a b c", "GET k", `PFADD e ""`, "GET e", "PFDEBUG DECODE k", "PFDEBUG ENCODING k",
			"PFDEBUG GETREG k", "GET k", "PFDEBUG ENCODING k", "PFDEBUG TODENSE k", "PFDEBUG TODENSE e",
			"PFDEBUG TODENSE e", "GET e", "PFDEBUG DECODE e", "pfdebug getreg e", "PFDEBUG encoding e", "PFADD e a",
			"PFADD e a", "GET e", "STRLEN e", "PFCOUNT e k none")
		p.Do("PFMERGE d", "GET d", "PFMERGE d none none2", "GET d", "PFMERGE d k", "GET d", "PFADD s x y z",
			"PFADD s2 x y w", "PFMERGE d2 s s2 s", "GET d2", "PFCOUNT d2 s", "PFCOUNT s s s", "PFMERGE s s2", "GET s",
			"PFMERGE s s", "GET s", "PFMERGE s2 k", "GET s2", "PFCOUNT s2 s", "EXISTS none none2")
		p.Do("PFADD t a", "EXPIRE t 100", "PFADD t b", "TTL t", "PFMERGE t s", "TTL t", "PFDEBUG TODENSE t", "TTL t",
			"COPY t t2", "PFADD t2 c d e f", "GET t2", "PFCOUNT t2 t", "GET t", "APPEND t x", "PFCOUNT t", "PFADD t a",
			"SETRANGE e 0 h", "PFADD e x", "SETRANGE e 0 H", "PFADD e x y", "GETRANGE e 0 99", "SETRANGE e 4 2",
			"PFCOUNT e none", "SETRANGE e 4 1", "PFADD e x", "PFCOUNT e none", "PFMERGE e none", "PFDEBUG TODENSE e",
			"PFDEBUG DECODE e")
		p.setup("DEL none", "FLUSHALL")
		p.Do("MULTI", "PFADD m a b", "PFCOUNT m", "PFMERGE m2 m", "PFDEBUG DECODE m2", "EXEC",
			`EVAL "return {redis.call('pfadd','l','x','y'), redis.call('pfcount','l'), redis.call('pfmerge','l2','l','m')}" 0`, "GET l2", "PFSELFTEST")
		p.DoError("PFADD", "PFCOUNT", "PFMERGE", "PFDEBUG", "PFDEBUG ENCODING", "PFDEBUG ENCODING a b", "PFSELFTEST x")
		p.Do("COMMAND GETKEYS PFADD k a b", "COMMAND GETKEYS PFCOUNT a b", "COMMAND GETKEYSANDFLAGS PFMERGE a b c",
			"COMMAND GETKEYSANDFLAGS PFCOUNT a b", "COMMAND GETKEYSANDFLAGS PFDEBUG DECODE a")
	})
}

// TestHLL_Cache checks the cached count in the header, which PFCOUNT updates in
// Redis.
func TestHLL_Cache(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("PFADD counted a b c", "GETRANGE counted 0 -1", "PFCOUNT counted", "PFCOUNT counted", "GET counted",
			evalCount, "PFADD counted d", "GETRANGE counted 15 -1")
		// Both servers use a cached count, even if a client has written the
		// bytes of the count.
		p.Do(`SET k "HYLL\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x7f\xff"`, "PFCOUNT k", "PFCOUNT k none",
			"PFADD k", "PFCOUNT k", `SETRANGE k 8 "\xff\xff\xff\xff\xff\xff\xff\x7f"`, "PFCOUNT k", "PFADD k a",
			"GET k", "PFMERGE k none", "PFCOUNT k none", "GET k",
			`SET k "HYLL\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x7f\xff"`, "PFMERGE k", "GET k",
			`SET k "HYLL\x01abc\x05\x00\x00\x00\x00\x00\x00\x00\x7f\xff"`, "PFDEBUG TODENSE k", "GET k", "PFCOUNT k",
			"PFADD k x", "GET k")
	})
}

func TestHLL_WrongType(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("RPUSH l a", "SET s hello", "SET n 123", `SET e ""`, "PFADD k a")
		header := `HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`
		values := map[string]string{
			"l": "", "s": "", "n": "", "e": "",
			"short": "HYLL", "magic": "hyll" + header[4:] + `\x7f\xff`,
			"encoding": "HYLL" + `\x02` + header[8:] + `\x7f\xff`, "dense": "HYLL" + `\x00` + header[8:] + `\x7f\xff`,
			"bare": header, "few": header + `\x7f\xfe`, "many": header + `\x7f\xff\x00`,
			"runs": header + `\x7f\xf0\x84\x84`, "twice": header + `\x7f\xff\x7f\xff`,
			"nine":  header + `\x40\x00\x40\x00\x40\x00\x83\x87\x7f\x00`,
			"whole": header + `\x40\x00\x40\x00\x80\x80\x80\x83\x86\x86\x86\xfc\xff` + `\x7f\xeb`,
		}
		for key, value := range values {
			if value != "" {
				p.setup("SET " + key + ` "` + value + `"`)
			}
			for _, line := range []string{"PFCOUNT %", "PFCOUNT % k", "PFCOUNT k %", "PFCOUNT none %", "PFMERGE d %",
				"PFMERGE % k", "PFMERGE d k %", "PFADD %", "PFDEBUG DECODE %", "PFDEBUG ENCODING %", "PFDEBUG FOO %",
				"PFDEBUG TODENSE %", "PFDEBUG GETREG %"} {
				p.Do(strings.ReplaceAll(line, "%", key), "DEL d")
				if value != "" {
					p.setup("SET " + key + ` "` + value + `"`)
				}
			}
		}
		for i := range 300 {
			for _, key := range []string{"few", "many", "runs", "twice", "nine", "whole"} {
				p.setup("SET " + key + ` "` + values[key] + `"`)
				p.Do(fmt.Sprintf("PFADD %s e%d", key, i), "GET "+key)
			}
		}
		p.Do("PFDEBUG FOO none", "PFDEBUG DECODE none", "PFDEBUG GETREG none", "PFDEBUG TODENSE none",
			"PFDEBUG ENCODING none", "PFMERGE s k", "PFMERGE l k", "PFMERGE none s")
	})
}

// TestHLL_Registers runs PFCOUNT on registers with every value from 0 to 63,
// including the values that no hash produces.
func TestHLL_Registers(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 90+uint64(p.proto)))
		for most := range 64 {
			for _, least := range []int{0, most / 2, most} {
				b := []byte("HYLL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80")
				for range 12288 / 3 {
					v := 0
					for range 4 {
						v = v<<6 | least + rng.IntN(most-least+1)
					}
					b = append(b, byte(v), byte(v>>8), byte(v>>16))
				}
				p.Do("SET k "+strconv.Quote(string(b)), "PFCOUNT k none", "PFCOUNT k")
			}
		}
	})
}

// TestRandom_HLL adds random elements to values in both encodings. It compares all
// bytes of the values after their headers.
func TestRandom_HLL(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 500+uint64(p.proto)))
		keys := []string{"a", "b", "c", "d"}
		pick := func() string { return keys[rng.IntN(len(keys))] }
		for run := range *randomRuns {
			lines := []string{"FLUSHALL"}
			range_ := []int{50, 2000, 100_000, 1 << 40}[run%4]
			for range 150 {
				switch n := rng.IntN(20); {
				case n < 14:
					line := "PFADD " + pick()
					for range rng.IntN(1 << rng.IntN(8)) {
						line += fmt.Sprintf(" %x", rng.IntN(range_))
					}
					lines = append(lines, line)
				case n < 16:
					lines = append(lines, "PFMERGE "+pick()+" "+pick()+" "+pick())
				case n < 17:
					lines = append(lines, "PFCOUNT "+pick()+" "+pick())
				case n < 18:
					lines = append(lines, "PFDEBUG DECODE "+pick())
				case n < 19 && rng.IntN(8) == 0:
					lines = append(lines, []string{"DEL ", "PFDEBUG TODENSE "}[rng.IntN(2)]+pick())
				default:
					key := pick() // compare the value without its header, because Redis may have cached a count in it
					lines = append(lines, "PFCOUNT "+key, "GETRANGE "+key+" 16 -1")
				}
			}
			for _, key := range keys {
				lines = append(lines, "GETRANGE "+key+" 16 -1", "PFADD "+key+" last", "PFCOUNT "+key, "STRLEN "+key)
			}
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				p.compare(line, redis[i], holdfast[i])
			}
			if p.t.Failed() {
				p.t.Fatalf("seed %d:\n%s", *randomSeed, strings.Join(lines, "\n"))
			}
		}
	})
}
