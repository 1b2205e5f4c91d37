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

// TestRandom sends random commands with a few keys to both servers. Times to
// live end far in the future or long ago, so that the replies do not depend on
// the time; the remaining times are compared with a tolerance. DBSIZE is left
// out, because Redis also counts expired keys that it has not deleted yet.
func TestRandom(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, uint64(p.proto)))
		for run := range *randomRuns {
			lines := []string{"FLUSHALL", "SELECT 0"}
			for range 200 {
				if rng.IntN(3) == 0 {
					lines = append(lines, randomCollectionLine(rng))
				} else {
					lines = append(lines, randomLine(rng))
				}
			}
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				a, okA := integer(redis[i])
				b, okB := integer(holdfast[i])
				if ttl := strings.Contains(line, "TTL") || strings.Contains(line, "EXPIRETIME"); ttl && okA && okB &&
					a >= 0 && b >= 0 && max(a-b, b-a) <= 2000 {
					continue
				}
				if strings.HasPrefix(line, "KEYS") || strings.HasPrefix(line, "SMEMBERS") ||
					strings.HasPrefix(line, "SINTER ") || strings.HasPrefix(line, "SUNION ") ||
					strings.HasPrefix(line, "SDIFF ") {
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
	// The times are almost always different, because whether GT applies to
	// equal times to live depends on the millisecond.
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
		return pick("SETEX ", "PSETEX ") + key() + " " + pick(far()+"000", "0", "-1", "x", "1.5",
			"9223372036854775807") + " " + val()
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
		return pick("EXPIRE ", "PEXPIRE ") + key() + " " + pick(far()+"000", far()+"000", "0", "-1", "x",
			"9223372036854775807", "-9223372036854775808") + pick("", "", " NX", " XX", " GT", " LT", " XX GT",
			" NX LT")
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

// TestRandom_Collections is like TestRandom, with fewer types of keys, so that
// more commands meet a key of the right type.
func TestRandom_Collections(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 77+uint64(p.proto)))
		for run := range *randomRuns {
			lines := []string{"FLUSHALL", "SELECT 0"}
			for range 250 {
				lines = append(lines, randomCollectionLine(rng))
			}
			for _, key := range []string{"h", "l", "s", "z"} {
				lines = append(lines, "TYPE "+key, "OBJECT ENCODING "+key)
			}
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				if strings.HasPrefix(line, "SMEMBERS") || strings.HasPrefix(line, "SINTER ") ||
					strings.HasPrefix(line, "SUNION ") || strings.HasPrefix(line, "SDIFF ") {
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

// randomCollectionLine draws a command on collections with a predictable
// result. Other tests compare commands with random results.
func randomCollectionLine(rng *rand.Rand) string {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	some := func(f func() string, n int) string {
		out := " " + f()
		for range rng.IntN(n) {
			out += " " + f()
		}
		return out
	}
	num := func() string {
		return pick("0", "1", "-1", "2", "-2", "3", "5", "-5", "100", "-100", "9223372036854775807",
			"-9223372036854775807", "x", "1.5")
	}
	val := func() string {
		return pick("a", "b", "c", "d", "e", "1", "2", "10", "-7", "x y", `""`, strings.Repeat("L", 70))
	}
	quoted := func() string {
		if v := val(); strings.Contains(v, " ") {
			return `"x y"`
		} else {
			return v
		}
	}
	score := func() string {
		return pick("0", "1", "2", "3", "-1", "0.1", "0.2", "1.5", "2.25", "inf", "-inf", "1e10", "123456789.123", "x",
			"0.30000000000000004")
	}
	key := func(own string) string {
		if rng.IntN(12) == 0 {
			return pick("h", "l", "s", "z", "t")
		}
		return pick(own, own+"2")
	}
	h, l, s, z := func() string { return key("h") }, func() string { return key("l") },
		func() string { return key("s") }, func() string { return key("z") }
	end := func() string { return pick("-inf", "+inf", "0", "1", "(1", "2", "(2", "x", "0.1", "(0.2") }
	lex := func() string { return pick("-", "+", "[a", "(b", "[c", "(d", "x") }
	limit := func() string { return pick("", "", " LIMIT 0 2", " LIMIT 1 -1", " LIMIT -1 5") }
	pairs := func(f func() string) string {
		out := ""
		for range 1 + rng.IntN(3) {
			out += " " + f() + " " + quoted()
		}
		return out
	}
	switch rng.IntN(62) {
	case 0, 1, 2:
		return pick("HSET ", "HSET ", "HMSET ") + h() + pairs(quoted)
	case 3:
		return "HSETNX " + h() + " " + quoted() + " " + quoted()
	case 4:
		return pick("HGET ", "HEXISTS ", "HSTRLEN ") + h() + " " + quoted()
	case 5:
		return "HMGET " + h() + some(quoted, 3)
	case 6, 7:
		return pick("HGETALL ", "HKEYS ", "HVALS ", "HLEN ") + pick("h3", "h3", "h3", "nokey")
	case 8:
		return "HLEN " + h()
	case 9:
		return "HDEL " + h() + some(quoted, 3)
	case 10:
		return "HINCRBY " + h() + " " + quoted() + " " + num()
	case 11:
		return "HINCRBYFLOAT " + h() + " " + quoted() + " " + pick("0.1", "1.5", "3", "-0.2", "1e5", "x")
	case 12:
		return "HSET h3 " + pick("a", "b", "c", "d") + " " + pick("1", "2", "x")
	case 13:
		return "HDEL h3 " + pick("a", "b", "c", "d")
	case 14, 15, 16:
		return pick("LPUSH ", "RPUSH ", "LPUSHX ", "RPUSHX ") + l() + some(quoted, 4)
	case 17:
		return pick("LPOP ", "RPOP ") + l() + pick("", "", " 2", " 0", " -1", " 3")
	case 18:
		return "LLEN " + l()
	case 19, 20:
		return "LRANGE " + l() + " " + num() + " " + num()
	case 21:
		return "LINDEX " + l() + " " + num()
	case 22:
		return "LSET " + l() + " " + num() + " " + quoted()
	case 23:
		return "LINSERT " + l() + " " + pick("BEFORE", "AFTER", "FOO") + " " + quoted() + " " + quoted()
	case 24:
		return "LREM " + l() + " " + num() + " " + quoted()
	case 25:
		return "LTRIM " + l() + " " + pick("0", "1", "-5", "-3") + " " + pick("-1", "4", "-2", "10")
	case 26:
		return "LPOS " + l() + " " + quoted() + pick("", " RANK "+num(), " COUNT "+num(), " RANK -1 COUNT 0",
			" MAXLEN "+num())
	case 27, 28:
		return "LMOVE " + l() + " " + l() + " " + pick("LEFT", "RIGHT") + " " + pick("LEFT", "RIGHT")
	case 29:
		return "RPOPLPUSH " + l() + " " + l()
	case 30, 31, 32:
		return "SADD " + s() + some(quoted, 4)
	case 33:
		return "SADD s3" + some(num, 4)
	case 34:
		return "SREM " + pick(s(), "s3") + some(quoted, 4)
	case 35:
		return pick("SCARD ", "SMEMBERS ") + pick(s(), "s3")
	case 36:
		return "SISMEMBER " + s() + " " + quoted()
	case 37:
		return "SMISMEMBER " + s() + some(quoted, 3)
	case 38:
		return "SMOVE " + pick(s(), "s3") + " " + pick(s(), "s3") + " " + quoted()
	case 39:
		return pick("SINTER", "SUNION", "SDIFF") + some(s, 3)
	case 40:
		return pick("SINTERSTORE ", "SUNIONSTORE ", "SDIFFSTORE ") + s() + some(s, 3)
	case 41:
		return "SINTERCARD 2 " + s() + " " + s() + pick("", " LIMIT 1", " LIMIT x")
	case 42, 43, 44, 45:
		return "ZADD " + z() + pick("", "", "", " NX", " XX", " GT", " LT", " CH", " GT CH", " XX LT CH", " NX GT",
			" INCR") + pairs(score)
	case 46:
		return "ZINCRBY " + z() + " " + score() + " " + quoted()
	case 47:
		return "ZREM " + z() + some(quoted, 3)
	case 48:
		return pick("ZSCORE ", "ZRANK ", "ZREVRANK ") + z() + " " + quoted()
	case 49:
		return pick("ZMSCORE ") + z() + some(quoted, 3)
	case 50:
		return "ZCARD " + z()
	case 51:
		return pick("ZCOUNT ", "ZREMRANGEBYSCORE ") + z() + " " + end() + " " + end()
	case 52, 53:
		return pick("ZRANGE ", "ZREVRANGE ") + z() + " " + num() + " " + num() + pick("", " WITHSCORES")
	case 54:
		return pick("ZRANGEBYSCORE ", "ZREVRANGEBYSCORE ") + z() + " " + end() + " " + end() + pick("",
			" WITHSCORES") + limit()
	case 55:
		return "ZRANGE " + z() + " " + end() + " " + end() + " BYSCORE" + pick("", " REV") + limit()
	case 56:
		return pick("ZREMRANGEBYRANK ") + z() + " " + num() + " " + num()
	case 57:
		return pick("ZPOPMIN ", "ZPOPMAX ") + z() + pick("", "", " 2", " 0", " x")
	case 58:
		return "ZADD lex 0 " + pick("a", "b", "c", "d", "aa", "cc")
	case 59:
		return pick("ZRANGEBYLEX ", "ZREVRANGEBYLEX ", "ZLEXCOUNT ", "ZREMRANGEBYLEX ") + "lex " + lex() + " " + lex()
	case 60:
		return pick("ZUNIONSTORE ", "ZINTERSTORE ") + z() + " 2 " + z() + " " + pick(z(), s()) + pick("",
			" WEIGHTS 2 0.5", " AGGREGATE MIN", " AGGREGATE MAX WEIGHTS 1 -1")
	}
	return pick("ZRANGESTORE z3 "+z()+" 0 2", "RENAME "+z()+" "+z(), "COPY "+l()+" "+l()+" REPLACE",
		"COPY "+s()+" "+s(), "COPY "+h()+" "+h(), "DEL "+h(), "MOVE "+l()+" 1",
		"OBJECT ENCODING "+pick(h(), s(), z(), l()), "TYPE "+pick(h(), s(), z(), l()), "EXISTS h l s z",
		"RENAME "+h()+" "+h())
}
