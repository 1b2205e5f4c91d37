package compat

import (
	"fmt"
	"strings"
	"testing"
)

// strange are texts on which number parsers disagree.
var strange = []string{
	"0", "-0", "1", "-1", "+1", "01", "1.5", "-1.5", ".5", "5.", "1e3", "1e400", "1e-400", "inf", "-inf", "+inf",
	"Infinity", "nan", "0x10", "x", `""`, `" 1"`, `"1 "`, `"1\x00"`,
	"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775807",
	"99999999999999999999", "3.0", "0.1",
}

func TestHash(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("HGET h f", "HGETALL h", "HLEN h", "HKEYS h", "HVALS h", "HEXISTS h f", "HSTRLEN h f", "HMGET h a b",
			"HDEL h f", "HSET h a 1 b 2 c 3", "HSET h a 4 d 5", "HSET h a 4 a 5", "HSET h a", "HSET h a 1 b",
			"HGET h a", "HGET h zz", "HGETALL h", "HLEN h", "HKEYS h", "HVALS h", "HEXISTS h a", "HEXISTS h zz",
			"HSTRLEN h a", "HSTRLEN h zz", "HMGET h a zz b a", "HMSET h x 1 y 2", "HMSET h x", "HMSET h x 1 y",
			"HMSET h x 3 x 4",
			"HSETNX h a 9", "HSETNX h n 9", "HSETNX new n 9", "HGETALL new", "TYPE new", "OBJECT ENCODING h",
			"HDEL h a b zz a", "HGETALL h", "HDEL h c d x y n", "EXISTS h", `HSET h "" ""`, "HGETALL h", `HGET h ""`,
			`HDEL h ""`, "EXISTS h",
			"HSET", "HSET h", "HGET h", "HGET h a b", "HMGET h", "HDEL h", "HLEN", "HLEN h x", "HKEYS", "HVALS",
			"HGETALL", "HEXISTS h", "HSTRLEN h", "HSETNX h a", "HSETNX h a b c", "HINCRBY h a", "HINCRBYFLOAT h a",
			"HRANDFIELD", "HSCAN h")
		p.Do("HSET h a 1", "EXPIRE h 100", "HSET h b 2", "HDEL h a", "TTL h", "HDEL h b", "TTL h", "HSET h a 1",
			"TTL h")
	})
}

func TestHash_WrongType(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v", "RPUSH l a", "SADD s a", "ZADD z 1 a", "HSET h f v")
		for _, key := range []string{"k", "l", "s", "z"} {
			for _, line := range []string{
				"HSET % f v", "HSET % f", "HSETNX % f v", "HGET % f", "HMSET % f v", "HMSET % f", "HMGET % f",
				"HGETALL %", "HDEL % f", "HEXISTS % f", "HINCRBY % f 1", "HINCRBY % f x", "HINCRBYFLOAT % f 1",
				"HINCRBYFLOAT % f x",
				"HLEN %", "HKEYS %", "HVALS %", "HSTRLEN % f", "HRANDFIELD %", "HRANDFIELD % 1", "HRANDFIELD % x",
				"HRANDFIELD % 1 FOO", "HSCAN % 0", "HSCAN % x", "HSCAN % 0 FOO",
			} {
				p.Do(strings.ReplaceAll(line, "%", key))
			}
		}
		for _, line := range []string{
			"GET h", "GETSET h v", "GETDEL h", "GETEX h", "GETEX h EX 10", "APPEND h x", "STRLEN h", "GETRANGE h 0 1",
			"SETRANGE h 0 x", "INCR h", "INCRBYFLOAT h 1", "SET h v GET", "SET h v NX", "SETNX h v", "MGET h",
			"MSETNX h v",
			"TYPE h", "SET h v", "GET h",
		} {
			p.Do(line)
		}
	})
}

func TestHincrby(t *testing.T) {
	both(t, func(p *pair) {
		for _, v := range strange {
			p.DoPipelined("DEL h", "HINCRBY h f "+v, "HGET h f", "HSET h f 10", "HINCRBY h f "+v, "HGET h f",
				"HSET h f "+v, "HINCRBY h f 1", "HINCRBY h f -1", "HGET h f", "OBJECT ENCODING h")
			p.DoPipelined("DEL h", "HINCRBYFLOAT h f "+v, "HGET h f", "HSET h f 10.5", "HINCRBYFLOAT h f "+v,
				"HGET h f", "HSET h f "+v, "HINCRBYFLOAT h f 1", "HINCRBYFLOAT h f -0.1", "HGET h f", "EXISTS h")
		}
	})
}

func TestHrandfield(t *testing.T) {
	both(t, func(p *pair) {
		for _, count := range append(strange, "4611686018427387903", "4611686018427387904", "-4611686018427387903",
			"-4611686018427387904") {
			if len(count) < 12 {
				p.Do("HRANDFIELD h " + count)
			}
			p.Do("HRANDFIELD h "+count+" WITHVALUES", "HRANDFIELD h "+count+" FOO",
				"HRANDFIELD h "+count+" WITHVALUES x")
		}
		p.Do("HRANDFIELD h", "HSET h f v", "HRANDFIELD h", "HRANDFIELD h 0", "HRANDFIELD h 1", "HRANDFIELD h 5",
			"HRANDFIELD h -3", "HRANDFIELD h 5 WITHVALUES", "HRANDFIELD h -3 withvalues", "HRANDFIELD h 0 WITHVALUES",
			"HSET h g w")
		p.DoSorted("HRANDFIELD h 2", "HRANDFIELD h 9")
	})
}

// TestHash_Encoding checks that a small hash keeps the insertion order in both
// servers, and compares a large hash without the order.
func TestHash_Encoding(t *testing.T) {
	both(t, func(p *pair) {
		for i := range 512 {
			p.Do(fmt.Sprintf("HSET h f%d %d", i, i))
		}
		p.Do("OBJECT ENCODING h", "HGETALL h", "HKEYS h", "HVALS h", "HSCAN h 0", "HDEL h f3", "HSET h f3 again",
			"HSET h f5 changed", "HGETALL h", "COPY h c", "OBJECT ENCODING c", "HGETALL c")
		p.Do("HSET h one more", "OBJECT ENCODING h", "HLEN h", "HGET h f77")
		p.DoSorted("HKEYS h", "HVALS h")
		for i := range 512 {
			p.Do(fmt.Sprintf("HDEL h f%d", i))
		}
		p.Do("OBJECT ENCODING h", "HGETALL h", "COPY h d", "OBJECT ENCODING d", "HDEL h one")
		long, longer := strings.Repeat("x", 64), strings.Repeat("x", 65)
		for _, line := range []string{"HSET h " + long + " " + long, "HSET h a " + longer, "HSET h " + longer + " a",
			"HSETNX h a " + longer, "HSET h a 1 a " + longer + " a 2"} {
			p.Do("DEL h", "HSET h b 1", line, "OBJECT ENCODING h", "OBJECT REFCOUNT h", "OBJECT FREQ h")
		}
		p.Do("DEL h", "HINCRBY h "+longer+" 1", "OBJECT ENCODING h", "DEL h", "HINCRBYFLOAT h "+longer+" 1",
			"OBJECT ENCODING h")
	})
}

func TestHscan(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("HSCAN h 0", "HSCAN h x", "HSCAN h 0 FOO", "HSCAN h 0 COUNT x", "HSET h a 1 b 2 ab 3", "HSCAN h 0",
			"HSCAN h 5", "HSCAN h x", "HSCAN h 0 FOO", "HSCAN h 0 COUNT x", "HSCAN h 0 COUNT 0", "HSCAN h 0 COUNT",
			"HSCAN h 0 COUNT 1",
			"HSCAN h 0 MATCH a*", "HSCAN h 0 MATCH zz", "HSCAN h 0 TYPE string", "HSCAN h 0 MATCH * COUNT 2",
			"HSCAN h 0 match b count 7", "HSCAN h -1", `HSCAN h ""`)
		for i := range 500 {
			p.setup(fmt.Sprintf("HSET h f%d %d", i, i))
		}
		for _, options := range []string{"", " COUNT 1", " COUNT 700", " MATCH *7*"} {
			redis, holdfast := scanAll(t, p.redis, "HSCAN h", options),
				scanAll(t, p.holdfast, "HSCAN h", options)
			if redis != holdfast {
				t.Errorf("HSCAN%s to the end: redis %q, holdfast %q", options, redis, holdfast)
			}
		}
	})
}
