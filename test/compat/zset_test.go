package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// scores are texts on which number parsers disagree, and doubles that are hard
// to print.
var scores = append([]string{
	"1e17", "123456789012345678", "12345678901234567", "99999999999999999", "100000000000000000", "9007199254740993",
	"1e21", "1e22", "1e300", "-1e300", "1e308", "1.7976931348623157e308", "1.8e308", "4.9e-324", "1e-310", "2e-324",
	"3.3333333333333335", "0.1", "0.30000000000000004", "1e-5", "0.0001",
	"-0.0", "0x1p3", "0x", "0x1p", "1p3", "1_0", "1e", "e3", ".", "-", "+", "- 1", "nan(1)", "infinit", "INF",
	"-Infinity", "0e0", "0x0", "0x0p5", "00", "0e400", "1.5e3", "2.5E+2", "17179869184.5", "1234567.125", "0x1p-1080",
	"0x1p1024",
}, strange...)

func TestZadd(t *testing.T) {
	both(t, func(p *pair) {
		for _, s := range scores {
			p.DoPipelined("DEL z", "ZADD z "+s+" m", "ZSCORE z m", "ZRANGE z 0 -1 WITHSCORES", "ZADD z 1 m",
				"ZINCRBY z "+s+" m", "ZADD z INCR "+s+" m", "ZSCORE z m", "ZMSCORE z m n", "ZSCAN z 0", "ZPOPMIN z",
				"ZADD z "+s+" m 2 n", "ZADD z 2 n "+s+" m", "ZCARD z", "ZINCRBY z "+s+" new", "ZRANGE z 0 -1",
				"ZPOPMAX z 1")
		}
		for _, o := range []string{"", " NX", " XX", " GT", " LT", " CH", " INCR", " NX XX", " NX GT", " NX LT",
			" GT LT", " XX GT", " XX LT", " NX CH", " XX CH", " GT CH", " LT CH", " XX GT CH", " NX INCR", " XX INCR",
			" GT INCR", " LT INCR", " INCR CH", " nx ch", " FOO", " NX NX", " XX GT INCR"} {
			for _, pairs := range []string{"1 m", "2 m", "3 m", "-1 m", "0 m", "1 m 5 n", "2 m 2 m", "3 m 1 m", "5 new",
				"x m", "1", "", "1 m 2", "1 m x n", "inf m", "-inf m", "nan m"} {
				p.DoPipelined("DEL z", "ZADD z"+o+" "+pairs, "ZRANGE z 0 -1 WITHSCORES", "EXISTS z", "DEL z",
					"ZADD z 2 m 4 n inf i", "ZADD z"+o+" "+pairs, "ZRANGE z 0 -1 WITHSCORES")
			}
		}
		for _, n := range []string{"40546912194016392", "9007199254740993", "4503599627370497", "99999999999999999",
			"100000000000000000", "-12345678901234567", "1e16", "1.7976931348623157e308"} {
			p.Do("DEL z", "ZADD z "+n+" m", "ZSCORE z m", "ZRANGE z 0 -1 WITHSCORES", "ZSCAN z 0", "ZINCRBY z 3 m",
				"ZPOPMIN z")
		}
		p.Do("DEL z", "ZADD z 1 a 0 b", "ZINTER 1 z WEIGHTS -0 WITHSCORES", "ZUNION 2 z z WEIGHTS -0 -0 WITHSCORES",
			"ZINTER 3 z z z WEIGHTS 1 2 -5 AGGREGATE MIN WITHSCORES", "ZINTERCARD 3 z z z", "ZINTERCARD 2 z z LIMIT 1",
			"ZDIFF 3 z nokey nokey WITHSCORES", "ZDIFF 2 z z", "ZADD i inf a 1 b",
			"ZINTER 2 i i WEIGHTS inf 0 WITHSCORES", "ZINTER 3 i i z WEIGHTS 1 0 2 WITHSCORES",
			"ZINTER 2 i z WEIGHTS 0 1 AGGREGATE MIN WITHSCORES",
			"ZINTER 3 z i i WEIGHTS 1 0 0 AGGREGATE MAX WITHSCORES", "ZUNION 2 i i WEIGHTS inf 0 WITHSCORES", "DEL i")
		p.Do("DEL z", "ZADD z inf m", "ZINCRBY z -inf m", "ZADD z INCR -inf m", "ZADD z NX INCR -inf m",
			"ZINCRBY z inf m", "ZADD z -0 n", "ZADD z 0 n", "ZSCORE z n", "ZADD z CH -0 n", "ZINCRBY z -0 n",
			"ZADD y 1 a", "EXPIRE y 100", "ZADD y 2 b", "TTL y", "ZREM y a b", "ZADD y 1 a", "TTL y",
			"ZADD", "ZADD z", "ZADD z 1", "ZINCRBY z 1", "ZREM z", "ZSCORE z", "ZMSCORE z", "ZCARD", "ZCOUNT z 1",
			"ZRANK z", "ZREVRANK z", "ZRANGE z 0", "ZRANGESTORE a b 0", "ZRANGEBYSCORE z 0", "ZREVRANGEBYSCORE z 0",
			"ZRANGEBYLEX z -", "ZREVRANGEBYLEX z -", "ZREVRANGE z 0", "ZLEXCOUNT z -", "ZREMRANGEBYSCORE z 0",
			"ZREMRANGEBYRANK z 0", "ZREMRANGEBYLEX z -", "ZPOPMIN", "ZPOPMAX", "ZRANDMEMBER", "ZUNIONSTORE d 1",
			"ZINTERSTORE d 1", "ZSCAN z")
	})
}

func TestZset(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("ZCARD z", "ZSCORE z a", "ZMSCORE z a b", "ZRANK z a", "ZREVRANK z a", "ZREM z a", "ZCOUNT z 0 1",
			"ZCOUNT z x 1", "ZLEXCOUNT z - +", "ZLEXCOUNT z x +", "ZRANGE z 0 -1", "ZPOPMIN z", "ZPOPMAX z 2",
			"ZPOPMIN z 0", "ZPOPMIN z -1", "ZPOPMIN z x", "ZPOPMIN z 1 2", "ZRANDMEMBER z", "ZRANDMEMBER z 1",
			"ZRANDMEMBER z 1 WITHSCORES",
			"ZREMRANGEBYSCORE z 0 1", "ZREMRANGEBYRANK z 0 1", "ZREMRANGEBYLEX z - +", "ZSCAN z 0", "ZINCRBY z 1 a",
			"TYPE z", "OBJECT ENCODING z", "ZADD z 2 b 2 B 2 bb 3 c", "ZRANGE z 0 -1", "ZRANK z a", "ZRANK z b",
			"ZRANK z zz", "ZREVRANK z a", "ZREVRANK z zz", "ZSCORE z zz", "ZMSCORE z zz a", "ZREM z zz a zz",
			"ZREM z b B bb c", "EXISTS z",
			"ZADD z 1 a 2 b 3 c 4 d", "ZPOPMIN z", "ZPOPMAX z", "ZPOPMIN z 1", "ZPOPMAX z 5", "EXISTS z",
			"ZADD z 1 a 2 b", "ZPOPMAX z 0", "ZPOPMIN z 9223372036854775807", "EXISTS z", `ZADD z 1 ""`, `ZSCORE z ""`,
			"ZRANGE z 0 -1", "ZADD z 2 b", "ZREVRANGE z 0 -1 WITHSCORES", "ZREVRANGE z 0 0",
			"ZPOPMIN z 9223372036854775808", "ZADD z -51117559617560288 a 99999999999999999 b 9007199254740993 c",
			"ZRANGE z 0 -1 WITHSCORES")
		for _, count := range append(strange, "4611686018427387903", "4611686018427387904") {
			p.Do("DEL y", "ZRANDMEMBER y "+count, "ZADD y 1 m", "ZRANDMEMBER y "+count+" FOO")
			if len(count) < 12 {
				p.Do("ZRANDMEMBER y "+count, "ZRANDMEMBER y "+count+" WITHSCORES")
			}
		}
		p.Do("ZRANDMEMBER y", "ZRANDMEMBER y 0 WITHSCORES", "ZRANDMEMBER y -2 withscores",
			"ZRANDMEMBER y -4611686018427387904 WITHSCORES", "ZRANDMEMBER y 1 WITHSCORES x")
	})
}

func TestZrange(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ZADD z -inf lo -1 neg 0 zero 0.5 half 1 a 1 b 1 c 2 d 3 e inf hi",
			"ZADD lex 0 a 0 aa 0 b 0 c 0 d 0 dd 0 e", `ZADD lex 0 "" 0 "\xff"`)
		ends := []string{"-inf", "+inf", "inf", "0", "1", "(1", "(0", "2", "(2", "5", "-5", "(-inf", "(inf", "x", "(",
			`""`, "nan", "(x", "1.5", " 1", "1e400", "-1e400", "((1", "[1", `"1\x00x"`, `" 1"`, `"1 "`, "0x1", "1e-400",
			"- 1"}
		for _, lo := range ends {
			for _, hi := range ends {
				p.DoPipelined("ZCOUNT z "+lo+" "+hi, "ZRANGEBYSCORE z "+lo+" "+hi,
					"ZREVRANGEBYSCORE z "+lo+" "+hi+" WITHSCORES", "ZRANGE z "+lo+" "+hi+" BYSCORE LIMIT 1 2",
					"ZRANGE z "+lo+" "+hi+" BYSCORE REV", "COPY z y REPLACE", "ZREMRANGEBYSCORE y "+lo+" "+hi,
					"ZRANGE y 0 -1", "ZRANGESTORE y z "+lo+" "+hi+" BYSCORE", "EXISTS y")
			}
		}
		bounds := []string{"-", "+", "[a", "(a", "[b", "(d", "[d", "[zz", "(", "[", "x", `""`, "[aa", "(\xff", "--",
			"+x"}
		for _, lo := range bounds {
			for _, hi := range bounds {
				p.DoPipelined("ZLEXCOUNT lex "+lo+" "+hi, "ZRANGEBYLEX lex "+lo+" "+hi, "ZREVRANGEBYLEX lex "+lo+" "+hi,
					"ZRANGE lex "+lo+" "+hi+" BYLEX LIMIT 1 2", "ZRANGE lex "+lo+" "+hi+" BYLEX REV LIMIT 1 -1",
					"COPY lex y REPLACE", "ZREMRANGEBYLEX y "+lo+" "+hi, "ZRANGE y 0 -1",
					"ZRANGESTORE y lex "+lo+" "+hi+" BYLEX REV", "EXISTS y")
			}
		}
		numbers := append([]string{"2", "5", "9", "10", "-2", "-10", "-11", "100", "-100"}, strange...)
		for _, a := range numbers {
			for _, b := range numbers {
				p.DoPipelined("ZRANGE z "+a+" "+b, "ZREVRANGE z "+a+" "+b, "ZRANGE z "+a+" "+b+" REV WITHSCORES",
					"COPY z y REPLACE", "ZREMRANGEBYRANK y "+a+" "+b, "ZRANGE y 0 -1", "ZRANGESTORE y z "+a+" "+b,
					"ZRANGE y 0 -1", "ZRANGESTORE y z "+a+" "+b+" REV", "ZRANGE y 0 -1",
					"ZRANGEBYSCORE z -inf inf LIMIT "+a+" "+b, "ZREVRANGEBYSCORE z inf -inf LIMIT "+a+" "+b,
					"ZRANGEBYLEX lex - + LIMIT "+a+" "+b, "ZREVRANGEBYLEX lex + - LIMIT "+a+" "+b)
			}
		}
		for _, o := range []string{"WITHSCORES", "withscores withscores", "BYSCORE", "BYLEX", "BYSCORE BYLEX",
			"BYLEX BYSCORE", "BYSCORE BYSCORE", "REV", "REV REV", "LIMIT 0 1", "LIMIT 0 -1", "LIMIT 0", "LIMIT",
			"LIMIT x 1", "LIMIT 0 x", "BYSCORE LIMIT 0 1", "BYLEX WITHSCORES", "BYSCORE WITHSCORES LIMIT 1 1", "FOO",
			"LIMIT 0 1 LIMIT 2 2", "BYSCORE LIMIT 0 1 LIMIT 2 2"} {
			for _, line := range []string{"ZRANGE z 0 2", "ZREVRANGE z 0 2", "ZRANGEBYSCORE z 0 2",
				"ZREVRANGEBYSCORE z 2 0", "ZRANGEBYLEX lex - +", "ZREVRANGEBYLEX lex + -", "ZRANGESTORE y z 0 2",
				"ZRANGE lex - +", "ZRANGE nokey 0 2", "ZRANGEBYSCORE nokey 0 2", "ZRANGESTORE y nokey 0 2",
				"ZRANGESTORE y lex - +"} {
				p.Do(line + " " + o)
			}
		}
		p.Do("SET y v EX 100", "ZRANGESTORE y z 0 2", "TTL y", "TYPE y", "OBJECT ENCODING y", "ZRANGESTORE y nokey 0 2",
			"EXISTS y", "ZRANGESTORE z z 0 2", "ZRANGE z 0 -1 WITHSCORES")
	})
}

func TestZstore(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ZADD a 1 x 2 y 3 z", "ZADD b 10 x 20 y 0.1 w", "ZADD c inf x -inf y", "ZADD d -inf x inf y 0.2 w",
			"SADD s x w q", "SADD i 1 2 3", "SET k v", "RPUSH l a")
		for _, sources := range []string{"1 a", "2 a b", "2 b a", "3 a b s", "2 a a", "2 c d", "3 b d c", "1 s",
			"2 s i", "1 nokey", "2 a nokey", "2 nokey a", "2 a k", "1 l", "0 a", "-1 a", "x a", "2 a", "3 a b",
			"9223372036854775807 a", "1 a b"} {
			n := strings.Count(sources, " ")
			for _, o := range []string{"", " WEIGHTS" + strings.Repeat(" 2", n), " WEIGHTS" + strings.Repeat(" 0", n),
				" WEIGHTS" + strings.Repeat(" -1.5", n), " WEIGHTS" + strings.Repeat(" inf", n), " WEIGHTS 1",
				" WEIGHTS x x x", " WEIGHTS nan", " AGGREGATE SUM", " AGGREGATE MIN", " aggregate max",
				" AGGREGATE FOO", " AGGREGATE", " FOO", " WITHSCORES",
				" AGGREGATE MAX WEIGHTS" + strings.Repeat(" 3", n),
				" WEIGHTS" + strings.Repeat(" 3", n) + " AGGREGATE MIN"} {
				for _, name := range []string{"ZUNIONSTORE", "ZINTERSTORE"} {
					p.DoPipelined("SET dst v EX 100", name+" dst "+sources+o, "TYPE dst", "TTL dst", "DEL dst",
						name+" dst "+sources+o, "ZRANGE dst 0 -1 WITHSCORES", "OBJECT ENCODING dst",
						"COPY a dst REPLACE", name+" dst "+sources+o)
				}
			}
		}
		for _, sources := range []string{"1 a", "2 a b", "2 b a", "3 a b s", "2 a a", "3 b d c", "1 s", "2 i s",
			"1 nokey", "2 a nokey", "2 nokey a", "2 a k", "1 l", "0 a", "-1 a", "x a", "2 a", "3 a b",
			"9223372036854775807 a", "1 a b"} {
			n := strings.Count(sources, " ")
			for _, o := range []string{"", " WITHSCORES", " WITHSCORES withscores",
				" WEIGHTS" + strings.Repeat(" 2", n), " WITHSCORES WEIGHTS" + strings.Repeat(" 2", n),
				" AGGREGATE MAX WITHSCORES", " WEIGHTS x", " AGGREGATE FOO", " FOO", " LIMIT 1", " LIMIT 0",
				" LIMIT -1", " LIMIT x", " LIMIT", " LIMIT 1 LIMIT 2"} {
				for _, name := range []string{"ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"} {
					p.Do(name + " " + sources + o)
				}
				p.DoPipelined("SET dst v EX 100", "ZDIFFSTORE dst "+sources+o, "TYPE dst", "TTL dst",
					"ZRANGE dst 0 -1 WITHSCORES", "COPY a dst REPLACE", "ZDIFFSTORE dst "+sources)
			}
		}
		p.DoError("ZUNION 1", "ZINTER", "ZDIFF 1", "ZINTERCARD 1", "ZDIFFSTORE d 1")
		p.Do("COMMAND GETKEYS ZUNION 2 a b WEIGHTS 1 2", "COMMAND GETKEYS ZDIFFSTORE d 2 a b",
			"COMMAND GETKEYS ZINTERCARD 1 a LIMIT 1", "ZDIFFSTORE a 2 a b", "ZRANGE a 0 -1 WITHSCORES",
			"ZADD a 1 x 2 y 3 z")
		p.Do("ZUNIONSTORE a 2 a b", "ZRANGE a 0 -1 WITHSCORES", "ZINTERSTORE b 2 b a WEIGHTS 2 3",
			"ZRANGE b 0 -1 WITHSCORES", "ZADD o 0.1 m 0.3 n", "ZADD p 0.2 m", "ZADD q 0.7 m 1 n 2 r",
			"ZUNIONSTORE dst 3 q p o", "ZRANGE dst 0 -1 WITHSCORES", "ZINTERSTORE dst 3 q p o",
			"ZRANGE dst 0 -1 WITHSCORES")
	})
}

func TestZset_WrongType(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v", "HSET h f v", "RPUSH l a", "SADD s a", "ZADD z 1 a")
		for _, key := range []string{"k", "h", "l", "s"} {
			for _, line := range []string{"ZADD % 1 a", "ZADD % x a", "ZADD % XX 1 a", "ZREM % a", "ZSCORE % a",
				"ZMSCORE % a", "ZCARD %", "ZCOUNT % 0 1", "ZCOUNT % x 1", "ZRANK % a", "ZREVRANK % a", "ZINCRBY % 1 a",
				"ZRANGE % 0 1", "ZRANGE % x 1", "ZRANGESTORE d % 0 1", "ZRANGEBYSCORE % 0 1", "ZREVRANGEBYSCORE % 0 1",
				"ZRANGEBYLEX % - +", "ZREVRANGEBYLEX % + -",
				"ZREVRANGE % 0 1", "ZLEXCOUNT % - +", "ZREMRANGEBYSCORE % 0 1", "ZREMRANGEBYRANK % 0 1",
				"ZREMRANGEBYLEX % - +", "ZPOPMIN %", "ZPOPMIN % 0", "ZPOPMAX % 1", "ZPOPMAX % x", "ZRANDMEMBER %",
				"ZRANDMEMBER % 1", "ZRANDMEMBER % x", "ZSCAN % 0", "ZSCAN % x"} {
				p.Do(strings.ReplaceAll(line, "%", key))
			}
		}
		for _, line := range []string{"GET z", "INCR z", "LPUSH z x", "HSET z f v", "SADD z a", "SINTER z",
			"SET z v GET", "ZRANGESTORE k z 0 1", "TYPE k", "SET z v", "GET z"} {
			p.Do(line)
		}
	})
}

func TestZset_Encoding(t *testing.T) {
	both(t, func(p *pair) {
		for i := range 128 {
			p.setup(fmt.Sprintf("ZADD z %d m%d", i*37%50, i))
		}
		p.Do("OBJECT ENCODING z", "ZSCAN z 0", "ZSCAN z 0 COUNT 2 MATCH *7*", "COPY z c", "ZADD z 5 m5",
			"OBJECT ENCODING z", "ZADD z 5 one", "OBJECT ENCODING z", "ZRANGE z 0 -1 WITHSCORES", "ZREM z one",
			"OBJECT ENCODING z", "OBJECT ENCODING c", "ZRANGESTORE d z 0 -1", "OBJECT ENCODING d",
			"ZUNIONSTORE e 2 z c", "OBJECT ENCODING e", "ZADD c 1 extra", "ZUNIONSTORE e 2 z c", "OBJECT ENCODING e",
			"ZCARD z", "ZCARD c")
		for _, options := range []string{"", " COUNT 1", " COUNT 700", " MATCH *7*"} {
			redis, holdfast := scanAll(t, p.redis, "ZSCAN z", options),
				scanAll(t, p.holdfast, "ZSCAN z", options)
			if redis != holdfast {
				t.Errorf("ZSCAN%s to the end: redis %q, holdfast %q", options, redis, holdfast)
			}
		}
		long, longer := strings.Repeat("x", 64), strings.Repeat("x", 65)
		p.Do("ZADD f 1 "+long, "OBJECT ENCODING f", "ZADD f 1 "+longer, "OBJECT ENCODING f", "ZADD g 1 "+longer,
			"OBJECT ENCODING g", "ZREM f "+longer, "OBJECT ENCODING f", "ZSCAN nokey 0", "ZSCAN f x", "ZSCAN f 0 FOO",
			"ZSCAN c 0 COUNT 0")
	})
}

// TestZset_Long makes random changes to a sorted set of many nodes.
func TestZset_Long(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(6, uint64(p.proto)))
		var lines []string
		for range 3000 {
			m, s := rng.IntN(1500), rng.IntN(300)
			switch rng.IntN(8) {
			case 0, 1, 2:
				lines = append(lines, fmt.Sprintf("ZADD z %d %d %d %d", s, m, s+1, m+1))
			case 3:
				lines = append(lines, fmt.Sprintf("ZINCRBY z %d.25 %d", s, m))
			case 4:
				lines = append(lines, fmt.Sprintf("ZREM z %d", m), fmt.Sprintf("ZSCORE z %d", m+1))
			case 5:
				lines = append(lines, fmt.Sprintf("ZRANK z %d", m), fmt.Sprintf("ZREVRANK z %d", m),
					fmt.Sprintf("ZCOUNT z %d %d", s, s+40))
			case 6:
				lines = append(lines, fmt.Sprintf("ZRANGEBYSCORE z %d +inf LIMIT 3 10", s),
					fmt.Sprintf("ZRANGE z %d %d WITHSCORES", m, m+10),
					fmt.Sprintf("ZREVRANGE z %d %d WITHSCORES", m, m+10))
			case 7:
				lines = append(lines, "ZPOPMIN z 2", "ZPOPMAX z", fmt.Sprintf("ZREMRANGEBYRANK z %d %d", m, m+2))
			}
		}
		p.DoPipelined(append(lines, "ZRANGE z 0 -1 WITHSCORES", "ZREMRANGEBYSCORE z 50 (200",
			"ZRANGE z 0 -1 WITHSCORES")...)
	})
}
