package compat

import "testing"

func TestStream(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("XLEN s", "XADD s 1-1 f v", "XADD s 1-1 f v", "XADD s 1-0 f v", "XADD s 0-0 f v", "XADD s 1-2 f v g w",
			"XADD s 2 f v", "XADD s 2-* f v", "XADD s 1-* f v", "XADD s 5-* f v", "XADD s x f v", "XADD s 1-x f v",
			"XADD s - f v", "XADD s + f v", "XADD s 01-1 f v",
			"XLEN s", "TYPE s", "OBJECT ENCODING s", "XRANGE s - +", "XREVRANGE s + -", "XADD n NOMKSTREAM * f v",
			"XADD n NOMKSTREAM 1-1 f v", "EXISTS n", "XADD s NOMKSTREAM 9-9 f v")
		p.Do("XADD m MAXLEN 2 1-1 a 1", "XADD m MAXLEN 2 1-2 a 2", "XADD m MAXLEN = 2 1-3 a 3", "XRANGE m - +",
			"XADD m MINID 1-3 1-4 a 4", "XRANGE m - +", "XADD m MAXLEN 0 1-5 a 5", "XLEN m", "EXISTS m", "XRANGE m - +",
			"XADD m 1-5 a 6", "XADD m 1-6 a 6", "XADD m MAXLEN ~ 1000 1-7 a 7", "XLEN m")
		for _, o := range []string{"MAXLEN", "MAXLEN x", "MAXLEN -1", "MAXLEN = x", "MINID x", "MAXLEN 1 MINID 1",
			"MINID 1 MAXLEN 2", "LIMIT 1", "MAXLEN 5 LIMIT 1", "MAXLEN ~ 5 LIMIT -1", "MAXLEN ~ 5 LIMIT x", "FOO 1",
			"MAXLEN ~", "MAXLEN ="} {
			p.Do("XADD m "+o+" 7-* f v", "XTRIM m "+o, "DEL m", "XTRIM m "+o)
		}
		p.DoError("XADD s 9-10 f", "XADD s 9-10", "XADD s", "XADD s 9-10 f v g", "XADD s NOMKSTREAM 9-10 f", "XTRIM s",
			"XTRIM s MAXLEN", "XLEN", "XRANGE s -", "XDEL s", "XREAD STREAMS", "XREAD COUNT 1 STREAMS s")
		p.Do("XADD t 1-1 a b", "XADD t 2-1 a b", "XADD t 3-1 a b", "XTRIM t MAXLEN ~ 1", "XTRIM t MINID ~ 3",
			"XTRIM t MINID ~ 6 LIMIT 2", "XTRIM t MINID ~ 6", "XADD t MAXLEN ~ 0 9-1 a b", "XLEN t", "XADD t 10-1 a b",
			"XTRIM t MAXLEN ~ 0", "XINFO STREAM t")
		p.Do("XTRIM t MAXLEN = 0 LIMIT 0", "XTRIM t MAXLEN 0 LIMIT 1", "XTRIM t LIMIT 0", "XTRIM t LIMIT 1",
			"XADD t LIMIT 0 11-1 a b", "XADD t LIMIT 1 11-1 a b", "XADD t MAXLEN 0 LIMIT 0 11-1 a b",
			"XADD t k1 0-2 a ab", "XADD t MAXLEN 1 LIMIT 5 x a b", "XADD t LIMIT 1 *", "XADD t k1 0-2")
		p.Do("XSETID t \" 11\"", "XREAD STREAMS t \" 1\"", "XDEL t \" 5-5\"", "XADD t \" 12-\\t1\" a b", "XRANGE t - +")
		p.Do("XDEL s 1-1 1-2 7-7", "XDEL s 1-1", "XDEL nokey 1-1", "XDEL s x", "XDEL s 2", "XRANGE s - +", "XLEN s",
			"XTRIM s MAXLEN 1", "XTRIM s MAXLEN 1", "XTRIM s MINID 100", "XTRIM s MINID = 0", "XLEN s", "EXISTS s",
			"XADD s 3-3 f v", "XTRIM nokey MAXLEN 1")
		p.setup("SET k v", "RPUSH l a")
		p.Do("XADD k 1-1 f v", "XLEN k", "XRANGE k - +", "XDEL k 1-1", "XTRIM k MAXLEN 0", "XREAD STREAMS k 0",
			"LPUSH s x", "GET s", "XINFO STREAM k", "XINFO STREAM nokey", "XINFO GROUPS s", "XINFO GROUPS nokey",
			"XINFO FOO", "XINFO STREAM", "XINFO GROUPS k")
		p.Do("DEL s", "XADD s 18446744073709551615-18446744073709551615 f v", "XADD s * f v",
			"XADD s 18446744073709551615-* f v", "XREAD STREAMS s 0",
			"XREAD STREAMS s 18446744073709551615-18446744073709551615",
			"XRANGE s (18446744073709551615-18446744073709551615 +", "XRANGE s - (0-0",
			"XADD s 18446744073709551616-1 f v")
		p.Do("DEL s", "XADD s 1-1 f v EX", "XADD s 1-1 f v", "EXPIRE s 100", "XADD s 1-2 f v", "TTL s", "COPY s c",
			"XADD c 5-5 f v", "XLEN s", "XLEN c", "RENAME c d", "XRANGE d - +", "XINFO STREAM d", "XDEL d 1-1",
			"XINFO STREAM d", "XTRIM d MAXLEN 0", "XINFO STREAM d", "COPY d e", "XINFO STREAM e")
		p.DoSorted("KEYS *")
	})
}

func TestXrange(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("XADD s 1-1 a 1", "XADD s 1-2 a 2", "XADD s 2-0 a 3", "XADD s 2-5 a 4", "XADD s 3-1 a 5")
		ids := []string{"-", "+", "0", "1", "2", "3", "4", "1-1", "1-2", "2-0", "2-3", "(1-1", "(2", "(3-1", "(0-0",
			"(-", "(+", "(", "x", "1-x", "-1", `""`, "1-", "18446744073709551615", "18446744073709551616"}
		for _, a := range ids {
			for _, b := range ids {
				p.DoPipelined("XRANGE s "+a+" "+b, "XREVRANGE s "+a+" "+b, "XRANGE s "+a+" "+b+" COUNT 2",
					"XREVRANGE s "+a+" "+b+" COUNT 2")
			}
		}
		for _, o := range []string{"COUNT", "COUNT 0", "COUNT -1", "COUNT x", "COUNT 100", "FOO", "FOO 1",
			"COUNT 1 COUNT 3", "COUNT 1 FOO"} {
			p.Do("XRANGE s - + "+o, "XREVRANGE s + - "+o, "XRANGE nokey - + "+o)
		}
	})
}

func TestXread(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("XADD s 1-1 a 1", "XADD s 1-2 a 2", "XADD r 5-5 b 1")
		for _, line := range []string{"STREAMS s 0", "STREAMS s 1-1", "STREAMS s 1-2", "STREAMS s $", "STREAMS s +",
			"STREAMS s -", "STREAMS s >", "STREAMS s x", "STREAMS s r 0 0", "STREAMS s r $ 0", "STREAMS r s 9 1-1",
			"STREAMS nokey 0", "STREAMS nokey $", "COUNT 1 STREAMS s 0", "COUNT 0 STREAMS s 0", "COUNT -1 STREAMS s 0",
			"COUNT x STREAMS s 0", "COUNT 1 STREAMS s r 0 0", "STREAMS s r 0", "STREAMS s", "FOO 1 STREAMS s 0",
			"BLOCK x STREAMS s 0", "BLOCK -1 STREAMS s 0", "BLOCK 1 STREAMS s $", "BLOCK 1 STREAMS s 0",
			"BLOCK 1 COUNT 1 STREAMS s r 0 $", "block 1 streams nokey $", "BLOCK 1.5 STREAMS s $", "COUNT 1 BLOCK 1",
			"BLOCK 1 STREAMS s >"} {
			p.Do("XREAD " + line)
		}
		p.Do("MULTI", "XREAD BLOCK 0 STREAMS s $", "XREAD BLOCK 0 STREAMS s 0", "EXEC",
			"COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0")
		s := newScenario(p)
		s.play("a> XREAD BLOCK 0 STREAMS s $", "b> XREAD BLOCK 0 COUNT 1 STREAMS none s $ $",
			"c> XREAD BLOCK 0 STREAMS none 0", "XADD s 2-1 f v", "a<", "b<",
			"XADD none 1-1 f v", "c<", "a> XREAD BLOCK 0 STREAMS s 9-9", "XADD s 9-8 f v", "XADD s 9-9 f v", "MULTI",
			"XADD s 10-1 f v", "XADD s 10-2 f v", "XADD s MAXLEN 1 10-3 f v", "EXEC", "a<",
			"a> XREAD BLOCK 0 STREAMS t $", "XADD u 1-1 f v", "RENAME u t", "a<", "a> XREAD BLOCK 200 STREAMS s $",
			"a<", "a> XREAD BLOCK 0 STREAMS w $", "b> BLPOP w 0", "RPUSH w 1", "b<", "XADD w 1-1 f v", "a<")
	})
}
