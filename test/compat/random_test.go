package compat

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

var (
	randomSeed = flag.Uint64("random-seed", 1, "seed of TestRandom")
	randomRuns = flag.Int("random-runs", 40, "pipelines that TestRandom sends")
)

// TestRandom sends random commands over a few keys to both servers. Times to
// live are far away or long past, so that nothing depends on the moment; what
// is left of them is compared with a tolerance. DBSIZE is left out: Redis counts
// keys that have expired and are still there.
func TestRandom(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, uint64(p.proto)))
		for run := range *randomRuns {
			lines := []string{"FLUSHALL", "SELECT 0"}
			for range 200 {
				lines = append(lines, randomLine(rng))
			}
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				a, okA := integer(redis[i])
				b, okB := integer(holdfast[i])
				if ttl := strings.Contains(line, "TTL") || strings.Contains(line, "EXPIRETIME"); ttl && okA && okB && a >= 0 && b >= 0 && max(a-b, b-a) <= 2000 {
					continue
				}
				if strings.HasPrefix(line, "KEYS") {
					redis[i], holdfast[i] = sorted(redis[i]), sorted(holdfast[i])
				}
				p.compare(line, redis[i], holdfast[i])
			}
			if t.Failed() || p.t.Failed() {
				p.t.Fatalf("seed %d, pipeline %d:\n%s", *randomSeed, run, strings.Join(lines, "\n"))
			}
		}
	})
}

func randomLine(rng *rand.Rand) string {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	key := func() string { return pick("a", "b", "c", "d") }
	val := func() string {
		return pick("x", "yy", "0", "1", "-1", "10", "3.5", "9223372036854775807", `""`, `"a b"`, "abcdefghij")
	}
	num := func() string {
		return pick("0", "1", "-1", "2", "-3", "5", "100", "9223372036854775807", "-9223372036854775808", "x", "1.5")
	}
	// Hardly ever the same twice: whether GT holds for the same time to live
	// depends on the millisecond.
	far := func() string { return strconv.Itoa(100 + rng.IntN(1e6)) }
	at := func() string { return pick("1", "99999999999", "88888888888") }
	life := func() string {
		switch rng.IntN(8) {
		case 0, 1:
			return " EX " + far()
		case 2:
			return " PX " + far() + "000"
		case 3:
			return " EXAT " + at()
		case 4:
			return " EX " + num()
		}
		return ""
	}
	switch rng.IntN(38) {
	case 0, 1:
		return "SET " + key() + " " + val() + life()
	case 2:
		return "SET " + key() + " " + val() + pick("", " NX", " XX") + pick("", " GET") + pick("", " KEEPTTL", life())
	case 3:
		return "GET " + key()
	case 4:
		return "SETNX " + key() + " " + val()
	case 5:
		return pick("SETEX ", "PSETEX ") + key() + " " + pick(far()+"000", "0", "-1", "x", "1.5", "9223372036854775807") + " " + val()
	case 6:
		return "GETSET " + key() + " " + val()
	case 7:
		return "GETDEL " + key()
	case 8:
		return "GETEX " + key() + pick("", " PERSIST", life(), life())
	case 9:
		return "MGET " + key() + " " + key() + " " + key()
	case 10:
		return pick("MSET ", "MSETNX ") + key() + " " + val() + " " + key() + " " + val()
	case 11:
		return pick("INCR ", "DECR ") + key()
	case 12:
		return pick("INCRBY ", "DECRBY ") + key() + " " + num()
	case 13:
		return "INCRBYFLOAT " + key() + " " + pick(num(), "0.1", "1e3", "-2.5")
	case 14:
		return "APPEND " + key() + " " + val()
	case 15:
		return "STRLEN " + key()
	case 16:
		return pick("GETRANGE ", "SUBSTR ") + key() + " " + num() + " " + num()
	case 17:
		return "SETRANGE " + key() + " " + pick("0", "1", "5", "20", "-1", "x") + " " + val()
	case 18:
		return pick("DEL ", "UNLINK ") + key() + " " + key()
	case 19:
		return pick("EXISTS ", "TOUCH ") + key() + " " + key()
	case 20, 21, 22:
		return pick("EXPIRE ", "PEXPIRE ") + key() + " " + pick(far()+"000", far()+"000", "0", "-1", "x", "9223372036854775807", "-9223372036854775808") + pick("", "", " NX", " XX", " GT", " LT", " XX GT", " NX LT")
	case 23, 24:
		return "EXPIREAT " + key() + " " + at() + pick("", "", " NX", " XX", " GT", " LT", " XX LT")
	case 25:
		return "PEXPIREAT " + key() + " " + at() + "000" + pick("", " NX", " XX", " GT", " LT")
	case 26, 27:
		return pick("TTL ", "PTTL ", "EXPIRETIME ", "PEXPIRETIME ") + key()
	case 28:
		return "PERSIST " + key()
	case 29:
		return "TYPE " + key()
	case 30:
		return pick("RENAME ", "RENAMENX ") + key() + " " + key()
	case 31:
		return "COPY " + key() + " " + key() + pick("", " REPLACE", " DB 1", " DB 1 REPLACE")
	case 32:
		return "MOVE " + key() + " " + pick("0", "1")
	case 33:
		return "KEYS " + pick("*", "?", "a*", "[a-c]")
	case 34:
		return pick("KEYS *", "SELECT 0", "SELECT 1", "SWAPDB 0 1")
	case 35:
		if rng.IntN(5) == 0 {
			return pick("FLUSHDB", "FLUSHALL")
		}
		return "OBJECT ENCODING nokey"
	case 36:
		return "SETRANGE " + key() + " " + strconv.Itoa(rng.IntN(30)) + " " + val()
	}
	return fmt.Sprintf("SET %s %d", key(), rng.IntN(20000)-10000)
}
