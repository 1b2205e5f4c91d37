package compat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// subscriber is a connection to each server that receives messages.
type subscriber struct {
	p     *pair // receives messages
	other *pair // sends commands
	n     int   // number of fence messages so far
}

// listen returns a subscriber to patterns. p sends the commands.
func (p *pair) listen(patterns ...string) *subscriber {
	p.t.Helper()
	e := &subscriber{p: newPair(p.t, p.proto), other: p}
	for _, pattern := range append(patterns, "fence") {
		e.p.Do("PSUBSCRIBE " + pattern)
	}
	return e
}

// received returns the messages since the last call. It publishes a fence
// message and reads until that message arrives.
func (e *subscriber) received() (redis, holdfast []string) {
	e.p.t.Helper()
	e.n++
	fence := fmt.Sprintf("fence-%d", e.n)
	e.other.setup("PUBLISH fence " + fence)
	until := func(c *conn) (got []string) {
		for {
			push, err := c.receive()
			if err != nil {
				e.p.t.Fatalf("waiting for %s after %q: %v", fence, got, err)
			}
			if strings.Contains(push, fence) {
				return got
			}
			got = append(got, push)
		}
	}
	return until(e.p.redis), until(e.p.holdfast)
}

// knows reports whether Holdfast has a command.
func (e *subscriber) knows(name string) bool {
	got, err := e.other.holdfast.do([]string{"COMMAND", "INFO", name})
	if err != nil {
		e.p.t.Fatal(err)
	}
	_, info := elements(got[0])
	return info[0][0] == '*' && info[0][1] != '-'
}

// Do sends lines. After each line it compares the reply and the messages that
// the line has caused.
func (e *subscriber) Do(lines ...string) {
	e.p.t.Helper()
	for _, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		if !e.knows(name) { // an unknown command causes no messages
			continue
		}
		e.other.Do(line)
		redis, holdfast := e.received()
		if !slices.Equal(redis, holdfast) {
			e.p.t.Errorf("%s\n  redis    sends %q\n  holdfast sends %q", line, redis, holdfast)
		}
	}
}

// TestNotify compares keyspace notifications, command by command.
func TestNotify(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("CONFIG SET notify-keyspace-events KEAn")
		e := p.listen("__key*")
		e.Do(
			// strings
			"SET a 1", "SET a 2", "SET a 3 EX 100", "SET a 4 KEEPTTL", "SET a 5 XX GET", "SET a 6 NX",
			"SET b 1 PX 100000 NX", "SET b 2 XX PX 100000",
			"SETNX a 1", "SETNX c 1", "SETEX c 100 v", "PSETEX c 100000 v", "GETSET c w", "GETSET new v", "GETDEL new",
			"GETDEL new", "GETEX c EX 100", "GETEX c PERSIST", "GETEX c", "GETEX nokey EX 1",
			"GETEX c PXAT 99999999999999", "MSET a 1 d 2", "MSETNX a 1 e 2", "MSETNX e 1 f 2", "APPEND a x",
			"APPEND g x", "SETRANGE g 3 abc", "SETRANGE g 0 \"\"", "SETRANGE nokey 0 \"\"", "SETRANGE h 2 x",
			"INCR n", "INCR n", "INCRBY n 5", "DECR n", "DECRBY n 2", "INCRBYFLOAT n 1.5", "INCRBYFLOAT nn 1.5",
			"INCR a", "GET a", "STRLEN a", "MGET a b",
			// generic
			"DEL a b nokey", "UNLINK c d", "DEL nokey", "SET a 1", "RENAME a b", "SET a 2", "RENAME a b",
			"RENAMENX b a", "SET b 1", "RENAMENX a b", "RENAME a a", "COPY a c", "COPY a c", "COPY a c REPLACE",
			"COPY a z DB 1", "MOVE a 1", "MOVE a 1", "MOVE nokey 1",
			"TOUCH b", "EXISTS b", "TYPE b", "PERSIST b", "EXPIRE b 100", "EXPIRE b 200 GT", "EXPIRE b 100 GT",
			"PEXPIRE b 100000", "PERSIST b", "EXPIREAT b 99999999999", "PEXPIREAT b 99999999999999", "EXPIRE nokey 10",
			"EXPIRE b -1", "EXPIREAT b 1", "SET b 1", "PEXPIREAT b 1", "SET b 1", "GETEX b EXAT 1",
			`RESTORE r 0 "\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\b\xb9"`,
			`RESTORE r 100000 "\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\b\xb9" REPLACE`,
			`RESTORE r 0 "\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\b\xb9"`,
			`RESTORE r 1 "\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\b\xb9" REPLACE ABSTTL`,
			`RESTORE r 1 "\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\b\xb9" ABSTTL`, "DUMP b",
			// hashes
			"HSET h f v", "DEL h", "HSET h f v", "HSET h f w g x", "HSETNX h f v", "HSETNX h i v", "HMSET h j v",
			"HINCRBY h n 1", "HINCRBYFLOAT h n 1.5", "HINCRBY hh n 1", "HINCRBYFLOAT hhh n 1.5", "HDEL h f nof",
			"HDEL h nof", "HDEL hh n", "HGET h g", "HGETALL h",
			// lists
			"RPUSH l a b c d", "LPUSH l z", "LPUSHX l y", "RPUSHX nokey y", "RPUSHX l e", "LSET l 0 q", "LSET l 0 q",
			"LINSERT l BEFORE a x", "LINSERT l AFTER nope x", "LREM l 1 x", "LREM l 1 nope", "LTRIM l 0 100",
			"LTRIM l 1 2", "LPOP l", "RPOP l", "RPOP l", "RPUSH l a b c d e f", "LPOP l 2", "RPOP l 2", "LPOP l 0",
			"RPOPLPUSH l m", "LMOVE l m LEFT RIGHT", "LPUSH l a", "LMOVE l l LEFT RIGHT", "RPOPLPUSH l l",
			"LTRIM m 5 10", "RPUSH l2 a b", "LMPOP 2 nokey l2 LEFT COUNT 1", "LMPOP 1 l2 RIGHT COUNT 5",
			"LMPOP 1 l2 RIGHT", "LPOP l 100",
			// sets
			"SADD s a b c", "SADD s a", "SREM s a", "SREM s nope", "SADD s a", "SMOVE s t a", "SMOVE s t nope",
			"SADD s a", "SMOVE s t a", "SMOVE t t a", "SADD u b c d", "SINTERSTORE x s u", "SINTERSTORE x s u",
			"SUNIONSTORE x s u", "SDIFFSTORE x u s", "SINTERSTORE x nokey s", "SINTERSTORE x nokey s", "SREM s b c",
			"SADD s a", "SPOP s", "SADD s a", "SPOP s 3", "SPOP s", "SMOVE u nokey2 d", "SADD one a", "SMOVE one two a",
			// sorted sets
			"ZADD y 1 a 2 b 3 c", "ZADD y 1 a", "ZADD y XX CH 5 a", "ZADD y INCR 1 a", "ZADD y NX 1 a",
			"ZADD y XX INCR 1 nope", "ZINCRBY y 1 a", "ZINCRBY yy 1 a", "ZREM y a nope", "ZREM y nope",
			"ZADD y 1 a 4 d 5 e 6 f", "ZPOPMIN y", "ZPOPMAX y", "ZPOPMIN nokey", "ZREMRANGEBYRANK y 0 0",
			"ZREMRANGEBYSCORE y 4 4", "ZREMRANGEBYLEX y - +", "ZREMRANGEBYLEX y - +", "ZADD y 1 a 2 b",
			"ZADD w 1 b 2 c", "ZUNIONSTORE v 2 y w", "ZINTERSTORE v 2 y w", "ZDIFFSTORE v 2 y w",
			"ZINTERSTORE v 2 y nokey", "ZINTERSTORE v 2 y nokey", "ZRANGESTORE v y 0 -1", "ZRANGESTORE v y 5 6",
			"ZRANGESTORE v y 5 6", "ZMPOP 1 y MIN COUNT 1", "ZMPOP 1 y MAX COUNT 5", "ZADD y 1 a", "ZPOPMIN y 5",
			"ZADD y 1 a", "ZREMRANGEBYRANK y 0 -1",
			// HyperLogLog and geospatial commands
			"PFADD hll", "PFADD hll a b", "PFADD hll a", "PFCOUNT hll", "PFMERGE hll2 hll", "PFMERGE hll hll",
			"PFDEBUG TODENSE hll2", "PFDEBUG GETREG hll", "PFADD x a",
			"GEOADD g2 1 1 a 2 2 b", "GEOADD g2 1 1 a", "GEOADD g2 CH 3 3 a", "GEOADD g2 XX 1 1 c", "GEOPOS g2 a",
			"GEORADIUS g2 3 3 1 km", "GEORADIUS g2 3 3 1 km STORE g3", "GEORADIUS g2 3 3 1 km STOREDIST g3",
			"GEORADIUSBYMEMBER g2 a 1 km STORE g4", "GEOSEARCHSTORE g3 g2 FROMMEMBER a BYRADIUS 1000 km",
			"GEORADIUS g2 60 3 1 km STORE g3", "GEORADIUS g2 60 3 1 km STORE g3",
			"GEOSEARCHSTORE g4 nokey FROMLONLAT 1 1 BYBOX 1 1 m", "GEOSEARCHSTORE g4 nokey FROMLONLAT 1 1 BYBOX 1 1 m",
			// streams and their groups
			"XGROUP CREATE st g $ MKSTREAM", "XGROUP CREATE st g $", "XGROUP CREATE st h 0", "XADD st 1-1 f v",
			"XADD st MAXLEN 1 1-2 f v", "XREADGROUP GROUP g a STREAMS st >", "XREADGROUP GROUP g a STREAMS st 0",
			"XREADGROUP GROUP g b STREAMS st >", "XREADGROUP GROUP g b STREAMS st 0", "XCLAIM st g c 0 1-2",
			"XCLAIM st g d 0 9-9", "XAUTOCLAIM st g e 0 0", "XACK st g 1-2", "XACK st g 1-2",
			"XGROUP SETID st g 0", "XGROUP CREATECONSUMER st g a", "XGROUP CREATECONSUMER st g z",
			"XGROUP DELCONSUMER st g z", "XGROUP DELCONSUMER st g z", "XGROUP DESTROY st g", "XGROUP DESTROY st g",
			"XSETID st 5-5", "XPENDING st h", "XINFO GROUPS st", "XDEL st 1-2", "XTRIM st MAXLEN 0", "DEL st",
			// whole databases, transactions, messages, and wrong types
			"SET x v", "LPUSH x a", "SELECT 1", "SET q v", "SELECT 0", "SWAPDB 0 1", "SWAPDB 0 1", "FLUSHDB",
			"FLUSHALL",
			`EVAL "redis.call('SET', KEYS[1], '1') redis.call('EXPIRE', KEYS[1], 100) redis.call('GET', KEYS[1]) return redis.call('DEL', KEYS[1], KEYS[2])" 2 k none`,
			"SET i 10", "SETBIT bits 7 1", "SETBIT bits 7 0",
			"BITFIELD bf GET u8 0", "BITFIELD bf SET u8 0 0", "BITFIELD bf SET u8 0 1 INCRBY u8 0 1",
			"BITFIELD bf INCRBY u8 0 0", "BITFIELD bf OVERFLOW FAIL SET u8 0 256",
			"BITFIELD bf2 OVERFLOW FAIL SET u8 0 256", "BITFIELD bf2 OVERFLOW FAIL SET u8 8 256",
		)
		// Redis notices the expiry of the key only at the next access.
		p.Do("SET b 2 EXAT 1", "GET b", "SET b 1", "SET b 2 EXAT 1", "GET b")
		e.Do("PING")
		p.DoPipelined("MULTI", "SET a 1", "INCR a", "DEL a", "EXEC")
		e.Do("PING")
		for _, set := range []string{"", "K", "E", "KE", "A", "KA", "Kg", "E$", "Kl", "Ex", "KEgs", "g$lshzxetdKE",
			"KEx$", "KEn", "EKxeghlszt$d"} {
			p.Do("CONFIG SET notify-keyspace-events \""+set+"\"", "CONFIG GET notify-keyspace-events")
			e.Do("SET k v", "SET k v", "DEL k", "RPUSH l a", "LPOP l", "SADD s a", "ZADD z 1 a", "HSET h f v",
				"DEL s z h")
		}
		p.DoError("CONFIG SET notify-keyspace-events KEq", "CONFIG SET notify-keyspace-events ?")
		p.Do("CONFIG GET notify-keyspace-events", "CONFIG SET notify-keyspace-events \"\"")
	})
}

// TestNotify_Expired checks that an expired key causes a message even if no
// client accesses the key.
func TestNotify_Expired(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("CONFIG SET notify-keyspace-events Ex")
		e := p.listen("__key*")
		p.Do("SET a v PX 30", "RPUSH l a", "PEXPIRE l 60")
		for _, c := range []*conn{e.p.redis, e.p.holdfast} {
			expired := make(map[string]bool) // Redis expires the keys in an arbitrary order
			for range 2 {
				got, err := c.receive()
				_, key, ok := strings.Cut(got, "__keyevent@0__:expired\r\n$1\r\n")
				if err != nil || !ok {
					t.Errorf("got %q, %v, want the event of an expired key", got, err)
				}
				expired[key] = true
			}
			if !expired["a\r\n"] || !expired["l\r\n"] {
				t.Errorf("expired: %v, want a and l", expired)
			}
		}
		e.Do("GET a", "CONFIG SET notify-keyspace-events \"\"")
	})
}
