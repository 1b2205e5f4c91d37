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
	randomSeed = flag.Uint64("random-seed", 1, "seed of the random tests")
	randomRuns = flag.Int("random-runs", 40, "number of pipelines that a random test sends")
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
	// The range is wide, so that two times are almost never equal: whether
	// EXPIRE GT replaces an equal time to live depends on the millisecond.
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

// TestRandom_Collections is like TestRandom, but sends only commands on
// collections, so that more commands meet a key of the right type.
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

// A collectionDraw draws commands on collections, and their arguments.
type collectionDraw struct{ *rand.Rand }

func (d collectionDraw) pick(words ...string) string { return words[d.IntN(len(words))] }

// some draws between one and n words, and puts a blank before each of them.
func (d collectionDraw) some(word func() string, n int) string {
	out := " " + word()
	for range d.IntN(n) {
		out += " " + word()
	}
	return out
}

func (d collectionDraw) num() string {
	return d.pick("0", "1", "-1", "2", "-2", "3", "5", "-5", "100", "-100", "9223372036854775807",
		"-9223372036854775807", "x", "1.5")
}

// quoted draws a value and returns it as one word of a command line.
func (d collectionDraw) quoted() string {
	return d.pick("a", "b", "c", "d", "e", "1", "2", "10", "-7", `"x y"`, `""`, strings.Repeat("L", 70))
}

func (d collectionDraw) score() string {
	return d.pick("0", "1", "2", "3", "-1", "0.1", "0.2", "1.5", "2.25", "inf", "-inf", "1e10", "123456789.123", "x",
		"0.30000000000000004")
}

// key draws a key for the type whose letter is own, and sometimes a key for any
// type.
func (d collectionDraw) key(own string) string {
	if d.IntN(12) == 0 {
		return d.pick("h", "l", "s", "z", "t")
	}
	return d.pick(own, own+"2")
}

func (d collectionDraw) set() string { return d.key("s") }

func (d collectionDraw) end() string {
	return d.pick("-inf", "+inf", "0", "1", "(1", "2", "(2", "x", "0.1", "(0.2")
}

func (d collectionDraw) lex() string { return d.pick("-", "+", "[a", "(b", "[c", "(d", "x") }

func (d collectionDraw) limit() string {
	return d.pick("", "", " LIMIT 0 2", " LIMIT 1 -1", " LIMIT -1 5")
}

// pairs draws up to three pairs, each of a word and a value.
func (d collectionDraw) pairs(word func() string) string {
	out := ""
	for range 1 + d.IntN(3) {
		out += " " + word() + " " + d.quoted()
	}
	return out
}

// randomCollectionLine draws a collection command whose result is predictable.
// Other tests cover the commands whose results are random.
func randomCollectionLine(rng *rand.Rand) string {
	d := collectionDraw{rng}
	switch n := rng.IntN(62); {
	case n < 14:
		return d.hashLine(n)
	case n < 30:
		return d.listLine(n - 14)
	case n < 42:
		return d.setLine(n - 30)
	case n < 61:
		return d.zsetLine(n - 42)
	}
	return d.pick("ZRANGESTORE z3 "+d.key("z")+" 0 2", "RENAME "+d.key("z")+" "+d.key("z"),
		"COPY "+d.key("l")+" "+d.key("l")+" REPLACE",
		"COPY "+d.key("s")+" "+d.key("s"), "COPY "+d.key("h")+" "+d.key("h"),
		"DEL "+d.key("h"), "MOVE "+d.key("l")+" 1",
		"OBJECT ENCODING "+d.pick(d.key("h"), d.key("s"), d.key("z"), d.key("l")),
		"TYPE "+d.pick(d.key("h"), d.key("s"), d.key("z"), d.key("l")), "EXISTS h l s z",
		"RENAME "+d.key("h")+" "+d.key("h"))
}

// hashLine returns command number n of those on hashes, with random arguments.
func (d collectionDraw) hashLine(n int) string {
	switch n {
	case 0, 1, 2:
		return d.pick("HSET ", "HSET ", "HMSET ") + d.key("h") + d.pairs(d.quoted)
	case 3:
		return "HSETNX " + d.key("h") + " " + d.quoted() + " " + d.quoted()
	case 4:
		return d.pick("HGET ", "HEXISTS ", "HSTRLEN ") + d.key("h") + " " + d.quoted()
	case 5:
		return "HMGET " + d.key("h") + d.some(d.quoted, 3)
	case 6, 7:
		return d.pick("HGETALL ", "HKEYS ", "HVALS ", "HLEN ") + d.pick("h3", "h3", "h3", "nokey")
	case 8:
		return "HLEN " + d.key("h")
	case 9:
		return "HDEL " + d.key("h") + d.some(d.quoted, 3)
	case 10:
		return "HINCRBY " + d.key("h") + " " + d.quoted() + " " + d.num()
	case 11:
		return "HINCRBYFLOAT " + d.key("h") + " " + d.quoted() + " " + d.pick("0.1", "1.5", "3", "-0.2", "1e5", "x")
	case 12:
		return "HSET h3 " + d.pick("a", "b", "c", "d") + " " + d.pick("1", "2", "x")
	}
	return "HDEL h3 " + d.pick("a", "b", "c", "d")
}

// listLine returns command number n of those on lists, with random arguments.
func (d collectionDraw) listLine(n int) string {
	switch n {
	case 0, 1, 2:
		return d.pick("LPUSH ", "RPUSH ", "LPUSHX ", "RPUSHX ") + d.key("l") + d.some(d.quoted, 4)
	case 3:
		return d.pick("LPOP ", "RPOP ") + d.key("l") + d.pick("", "", " 2", " 0", " -1", " 3")
	case 4:
		return "LLEN " + d.key("l")
	case 5, 6:
		return "LRANGE " + d.key("l") + " " + d.num() + " " + d.num()
	case 7:
		return "LINDEX " + d.key("l") + " " + d.num()
	case 8:
		return "LSET " + d.key("l") + " " + d.num() + " " + d.quoted()
	case 9:
		return "LINSERT " + d.key("l") + " " + d.pick("BEFORE", "AFTER", "FOO") + " " + d.quoted() + " " + d.quoted()
	case 10:
		return "LREM " + d.key("l") + " " + d.num() + " " + d.quoted()
	case 11:
		return "LTRIM " + d.key("l") + " " + d.pick("0", "1", "-5", "-3") + " " + d.pick("-1", "4", "-2", "10")
	case 12:
		return "LPOS " + d.key("l") + " " + d.quoted() +
			d.pick("", " RANK "+d.num(), " COUNT "+d.num(), " RANK -1 COUNT 0", " MAXLEN "+d.num())
	case 13, 14:
		return "LMOVE " + d.key("l") + " " + d.key("l") + " " + d.pick("LEFT", "RIGHT") + " " + d.pick("LEFT", "RIGHT")
	}
	return "RPOPLPUSH " + d.key("l") + " " + d.key("l")
}

// setLine returns command number n of those on sets, with random arguments.
func (d collectionDraw) setLine(n int) string {
	switch n {
	case 0, 1, 2:
		return "SADD " + d.key("s") + d.some(d.quoted, 4)
	case 3:
		return "SADD s3" + d.some(d.num, 4)
	case 4:
		return "SREM " + d.pick(d.key("s"), "s3") + d.some(d.quoted, 4)
	case 5:
		return d.pick("SCARD ", "SMEMBERS ") + d.pick(d.key("s"), "s3")
	case 6:
		return "SISMEMBER " + d.key("s") + " " + d.quoted()
	case 7:
		return "SMISMEMBER " + d.key("s") + d.some(d.quoted, 3)
	case 8:
		return "SMOVE " + d.pick(d.key("s"), "s3") + " " + d.pick(d.key("s"), "s3") + " " + d.quoted()
	case 9:
		return d.pick("SINTER", "SUNION", "SDIFF") + d.some(d.set, 3)
	case 10:
		return d.pick("SINTERSTORE ", "SUNIONSTORE ", "SDIFFSTORE ") + d.key("s") + d.some(d.set, 3)
	}
	return "SINTERCARD 2 " + d.key("s") + " " + d.key("s") + d.pick("", " LIMIT 1", " LIMIT x")
}

// zsetLine returns command number n of those on sorted sets, with random
// arguments.
func (d collectionDraw) zsetLine(n int) string {
	switch n {
	case 0, 1, 2, 3:
		return "ZADD " + d.key("z") +
			d.pick("", "", "", " NX", " XX", " GT", " LT", " CH", " GT CH", " XX LT CH", " NX GT", " INCR") +
			d.pairs(d.score)
	case 4:
		return "ZINCRBY " + d.key("z") + " " + d.score() + " " + d.quoted()
	case 5:
		return "ZREM " + d.key("z") + d.some(d.quoted, 3)
	case 6:
		return d.pick("ZSCORE ", "ZRANK ", "ZREVRANK ") + d.key("z") + " " + d.quoted()
	case 7:
		return d.pick("ZMSCORE ") + d.key("z") + d.some(d.quoted, 3)
	case 8:
		return "ZCARD " + d.key("z")
	case 9:
		return d.pick("ZCOUNT ", "ZREMRANGEBYSCORE ") + d.key("z") + " " + d.end() + " " + d.end()
	case 10, 11:
		return d.pick("ZRANGE ", "ZREVRANGE ") + d.key("z") + " " + d.num() + " " + d.num() + d.pick("", " WITHSCORES")
	case 12:
		return d.pick("ZRANGEBYSCORE ", "ZREVRANGEBYSCORE ") + d.key("z") + " " + d.end() + " " + d.end() + d.pick("",
			" WITHSCORES") + d.limit()
	case 13:
		return "ZRANGE " + d.key("z") + " " + d.end() + " " + d.end() + " BYSCORE" + d.pick("", " REV") + d.limit()
	case 14:
		return d.pick("ZREMRANGEBYRANK ") + d.key("z") + " " + d.num() + " " + d.num()
	case 15:
		return d.pick("ZPOPMIN ", "ZPOPMAX ") + d.key("z") + d.pick("", "", " 2", " 0", " x")
	case 16:
		return "ZADD lex 0 " + d.pick("a", "b", "c", "d", "aa", "cc")
	case 17:
		return d.pick("ZRANGEBYLEX ", "ZREVRANGEBYLEX ", "ZLEXCOUNT ", "ZREMRANGEBYLEX ") +
			"lex " + d.lex() + " " + d.lex()
	}
	return d.pick("ZUNIONSTORE ", "ZINTERSTORE ") + d.key("z") + " 2 " + d.key("z") + " " +
		d.pick(d.key("z"), d.key("s")) +
		d.pick("", " WEIGHTS 2 0.5", " AGGREGATE MIN", " AGGREGATE MAX WEIGHTS 1 -1")
}
