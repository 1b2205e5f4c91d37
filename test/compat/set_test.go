package compat

import (
	"fmt"
	"strings"
	"testing"
)

func TestSets(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SCARD s", "SMEMBERS s", "SISMEMBER s a", "SMISMEMBER s a b", "SREM s a", "SPOP s", "SPOP s 1", "SPOP s 0",
			"SRANDMEMBER s", "SRANDMEMBER s 1", "SRANDMEMBER s 0", "SMOVE s d a", "SADD s a", "SADD s a b a c",
			"SADD s b")
		p.DoSorted("SMEMBERS s")
		p.Do("SCARD s", "SISMEMBER s a", "SISMEMBER s zz", "SMISMEMBER s a zz b", "SREM s a zz", "SREM s b c",
			"EXISTS s", "TYPE s", `SADD s ""`, "SMEMBERS s", `SISMEMBER s ""`, `SREM s ""`, "EXISTS s",
			"SADD i 3 1 2 -5 10 -10 0", "SMEMBERS i", "OBJECT ENCODING i", "SISMEMBER i 1", "SISMEMBER i 01",
			"SISMEMBER i x", `SISMEMBER i ""`, "SISMEMBER i -", "SREM i 01 x 3", "SMEMBERS i",
			"SADD i 9223372036854775807 -9223372036854775808 9223372036854775806", "SMEMBERS i",
			"OBJECT ENCODING i", "SADD i 9223372036854775808", "OBJECT ENCODING i", "SREM i 9223372036854775808",
			"OBJECT ENCODING i", "SCARD i", "SADD j 1 x", "OBJECT ENCODING j", "SADD k 01", "OBJECT ENCODING k",
			"SADD m -0", "OBJECT ENCODING m")
		p.DoSorted("SMEMBERS i")
		p.Do("SADD", "SADD s", "SREM s", "SCARD", "SISMEMBER s", "SISMEMBER s a b", "SMISMEMBER s", "SMEMBERS",
			"SMEMBERS a b", "SPOP", "SPOP s 1 2", "SRANDMEMBER", "SRANDMEMBER s 1 2", "SMOVE a b", "SINTER", "SUNION",
			"SDIFF", "SINTERSTORE a", "SUNIONSTORE a", "SDIFFSTORE a", "SINTERCARD 1", "SSCAN s")
		p.Do("SADD e a", "EXPIRE e 100", "SADD e b", "SREM e a", "TTL e", "SREM e b", "SADD e a", "TTL e")
	})
}

func TestSet_Random(t *testing.T) {
	both(t, func(p *pair) {
		for _, count := range strange {
			p.Do("DEL s", "SPOP s "+count, "SRANDMEMBER s "+count, "SADD s only")
			if len(count) < 12 {
				p.Do("SRANDMEMBER s " + count)
			}
			p.Do("SPOP s "+count, "EXISTS s")
		}
		p.Do("SADD one a", "HSET onehash f v", "ZADD onezset 1 m", "SRANDMEMBER one -262145",
			"HRANDFIELD onehash -262145", "ZRANDMEMBER onezset -262145 WITHSCORES", "SRANDMEMBER one -262144")
		p.Do("DEL s", "SADD s only", "SRANDMEMBER s", "SRANDMEMBER s -3", "SRANDMEMBER s 3", "SPOP s", "EXISTS s",
			"SADD s 1 2 3", "SPOP s 3", "EXISTS s", "SADD s 1 2 3", "SRANDMEMBER s 3", "SPOP s 2147483648", "EXISTS s",
			"SADD s a b c")
		p.DoSorted("SRANDMEMBER s 5", "SPOP s 3")
		for i := range 600 {
			p.setup(fmt.Sprintf("SADD s %d", i))
		}
		p.Do("OBJECT ENCODING s", "COPY s c")
		for _, line := range []string{"SPOP s 100", "SRANDMEMBER c 100", "SRANDMEMBER c -100"} {
			redis, holdfast := p.ask(line)
			a, _ := elements(redis[0])
			b, list := elements(holdfast[0])
			if a != b || len(list) != 100 {
				t.Errorf("%s: redis %q, holdfast %q and %d elements", line, a, b, len(list))
			}
			seen := make(map[string]bool)
			for _, e := range list {
				seen[e] = true
			}
			if len(seen) != 100 && !strings.Contains(line, "-") {
				t.Errorf("%s: %d different elements", line, len(seen))
			}
		}
		p.Do("SCARD s", "SCARD c")
		p.setup("SPOP s 500")
		p.Do("EXISTS s")
	})
}

func TestSmove(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SADD a 1 2 x", "SMOVE a b 1", "SMOVE a b 1", "SMOVE a b zz", "SMEMBERS b", "SMOVE a a 2", "SMOVE a a zz",
			"SMOVE a b x", "SMOVE a b 2", "EXISTS a", "SCARD b", "OBJECT ENCODING b", "SMOVE nokey b 1", "SET k v",
			"SMOVE k b 1", "SMOVE b k 1", "SMOVE nokey k 1", "SMOVE k nokey 1", "SMOVE k k 1",
			"SADD c 1", "SMOVE b c 1", "SCARD b", "SMEMBERS c")
	})
}

func TestSet_Operations(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SADD a 1 2 3 4 5", "SADD b 4 5 6 7", "SADD c 5 x y", "SADD d x y z", "SET k v", "RPUSH l a")
		for _, keys := range []string{"a", "a b", "b a", "a a", "a b c", "c a", "c d", "d c", "nokey", "a nokey",
			"nokey a", "nokey nokey", "a k", "k a", "nokey k", "k nokey", "a nokey l", "b a a b", "c c", "a b c d"} {
			p.DoSorted("SINTER "+keys, "SUNION "+keys, "SDIFF "+keys)
			p.Do(fmt.Sprintf("SINTERCARD %d %s", len(strings.Fields(keys)), keys),
				fmt.Sprintf("SINTERCARD %d %s LIMIT 1", len(strings.Fields(keys)), keys))
			for _, name := range []string{"SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"} {
				p.Do("SET dst old EX 100", name+" dst "+keys, "TYPE dst", "TTL dst", "OBJECT ENCODING dst")
				p.Do("DEL dst", "COPY a dst", name+" dst "+keys+" dst", "SCARD dst")
				p.Do("DEL dst", name+" dst "+keys, "EXISTS dst")
				if redis, _ := p.ask("TYPE dst"); redis[0] == "+set\r\n" {
					p.DoSorted("SMEMBERS dst")
				}
			}
		}
		p.Do("SUNION a b", "SINTER a b", "SDIFF a b") // sets of integers are sorted
		for _, line := range []string{"0 a", "-1 a", "x a", "2 a", "1 a b", "1 a LIMIT", "1 a LIMIT 2", "1 a LIMIT 0",
			"1 a LIMIT -1", "1 a LIMIT x", "1 a FOO 1", "1 a LIMIT 1 LIMIT 2", "2 a b LIMIT 100",
			"9223372036854775807 a", "99999999999999999999 a", "1 a limit 3"} {
			p.Do("SINTERCARD " + line)
		}
	})
}

func TestSet_WrongType(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v", "HSET h f v", "RPUSH l a", "ZADD z 1 a", "SADD s a")
		for _, key := range []string{"k", "h", "l", "z"} {
			for _, line := range []string{"SADD % a", "SREM % a", "SCARD %", "SISMEMBER % a", "SMISMEMBER % a",
				"SMEMBERS %", "SPOP %", "SPOP % 1", "SPOP % 0", "SPOP % x", "SRANDMEMBER %", "SRANDMEMBER % 1",
				"SRANDMEMBER % x", "SINTER %", "SUNION %", "SDIFF %", "SINTER nokey %", "SINTERCARD 1 %",
				"SINTERCARD 2 nokey %",
				"SINTERSTORE d %", "SUNIONSTORE d %", "SDIFFSTORE d %", "SSCAN % 0", "SSCAN % x"} {
				p.Do(strings.ReplaceAll(line, "%", key))
			}
		}
		p.Do("GET s", "INCR s", "LPUSH s x", "HSET s f v", "SET s v GET", "SUNIONSTORE k s", "TYPE k", "SET s v",
			"GET s")
	})
}

func TestSet_Encoding(t *testing.T) {
	both(t, func(p *pair) {
		for i := range 512 {
			p.setup(fmt.Sprintf("SADD s %d", i*7919%1000-500))
		}
		p.Do("OBJECT ENCODING s", "SMEMBERS s", "SSCAN s 0", "SSCAN s 0 COUNT 3", "SCARD s", "COPY s c",
			"SADD s 100000", "OBJECT ENCODING s", "SCARD s", "OBJECT ENCODING c", "SADD c x", "OBJECT ENCODING c",
			"OBJECT ENCODING s", "SREM c x", "OBJECT ENCODING c", "SUNIONSTORE d s c", "OBJECT ENCODING d",
			"SINTERSTORE d s c", "OBJECT ENCODING d")
		for _, options := range []string{"", " COUNT 1", " COUNT 700", " MATCH *7*"} {
			redis, holdfast := scanAll(t, p.redis, "SSCAN s", options),
				scanAll(t, p.holdfast, "SSCAN s", options)
			if redis != holdfast {
				t.Errorf("SSCAN%s to the end: redis %q, holdfast %q", options, redis, holdfast)
			}
		}
		p.Do("SSCAN nokey 0", "SSCAN nokey x", "SSCAN s x", "SSCAN s 0 FOO", "SSCAN s 0 COUNT 0", "SSCAN s 0 TYPE set",
			"SADD i 1 2 10", "SSCAN i 0", "SSCAN i 0 MATCH 1*", "SSCAN i 7")
	})
}
