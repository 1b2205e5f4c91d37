package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("LLEN l", "LPOP l", "RPOP l", "LPOP l 1", "LPOP l 0", "LRANGE l 0 -1", "LINDEX l 0", "LINDEX l x",
			"LSET l 0 a", "LSET l x a", "LINSERT l BEFORE a b", "LINSERT l FOO a b", "LREM l 0 a", "LREM l x a",
			"LTRIM l 0 1", "LTRIM l x 1",
			"LPUSHX l a", "RPUSHX l a", "EXISTS l", "LPOS l a", "LPOS l a COUNT 1", "LMOVE l m LEFT RIGHT",
			"LMOVE l m FOO RIGHT", "LMOVE l m LEFT FOO", "RPOPLPUSH l m")
		p.Do("LPUSH l a b c", "RPUSH l x y z", "LRANGE l 0 -1", "LLEN l", "LPUSHX l p q", "RPUSHX l r s",
			"LRANGE l 0 -1", "TYPE l", "OBJECT ENCODING l", "LPOP l", "RPOP l", "LPOP l 2", "RPOP l 2", "LPOP l 0",
			"RPOP l 0", "LPOP l -1", "LPOP l x", "LPOP l 1 2",
			"RPOP l 1 2", "LPOP l 9223372036854775807", "EXISTS l", `RPUSH l "" ""`, "LRANGE l 0 -1", "LPOP l 5",
			"EXISTS l", "RPUSH l a b c d e", "LSET l 0 A", "LSET l -1 E", "LSET l 5 x", "LSET l -6 x", "LSET l x y",
			"LSET nokey 0 x", "LRANGE l 0 -1",
			"LINSERT l BEFORE b B", "LINSERT l after b C", "LINSERT l BEFORE nope x", "LINSERT l AFTER E end",
			"LRANGE l 0 -1", "RPOP l 3", "LRANGE l 0 -1", "RPOP l 100", "EXISTS l")
		p.Do("LPUSH", "LPUSH l", "RPUSH l", "LPUSHX l", "RPUSHX", "LPOP", "RPOP", "LLEN", "LLEN l x", "LRANGE l 0",
			"LINDEX l", "LSET l 0", "LINSERT l BEFORE a", "LREM l 0", "LTRIM l 0", "LPOS l", "LMOVE l m LEFT",
			"RPOPLPUSH l")
		p.Do("RPUSH l a", "EXPIRE l 100", "RPUSH l b", "LPOP l", "TTL l", "LPOP l", "RPUSH l a", "TTL l")
	})
}

func TestList_Indexes(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("RPUSH l 0 1 2 3 4 5 6 7 8 9")
		numbers := append([]string{"2", "5", "9", "10", "11", "-2", "-9", "-10", "-11", "100", "-100"}, strange...)
		for _, a := range numbers {
			p.DoPipelined("LINDEX l " + a)
			for _, b := range numbers {
				p.DoPipelined("LRANGE l "+a+" "+b, "COPY l m REPLACE", "LTRIM m "+a+" "+b, "LRANGE m 0 -1", "EXISTS m")
			}
		}
	})
}

func TestLrem(t *testing.T) {
	both(t, func(p *pair) {
		for _, count := range append([]string{"2", "3", "-2", "-3", "100", "-100"}, strange...) {
			p.DoPipelined("DEL l", "RPUSH l a b a c a b a", "LREM l "+count+" a", "LRANGE l 0 -1",
				"LREM l "+count+" zz", "LREM l "+count+" a", "LRANGE l 0 -1")
		}
		p.Do("DEL l", "RPUSH l a a", "LREM l 0 a", "EXISTS l")
	})
}

func TestLpos(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("RPUSH l a b c 1 2 3 c c")
		for _, options := range []string{"", " RANK 1", " RANK 2", " RANK 4", " RANK -1", " RANK -2", " RANK -4",
			" RANK 0", " RANK x", " RANK -9223372036854775808", " RANK 9223372036854775807", " RANK", " COUNT 0",
			" COUNT 1", " COUNT 2", " COUNT 9", " COUNT -1",
			" COUNT x", " COUNT", " RANK 2 COUNT 0", " RANK -1 COUNT 2", " RANK -2 COUNT 0", " MAXLEN 0", " MAXLEN 1",
			" MAXLEN 3", " MAXLEN 7", " MAXLEN -1", " MAXLEN x", " MAXLEN 3 COUNT 0", " MAXLEN 3 COUNT 0 RANK -1",
			" RANK -1 MAXLEN 1", " FOO", " FOO 1", " rank 2 count 1 maxlen 0"} {
			p.Do("LPOS l c"+options, "LPOS l zz"+options, "LPOS l a"+options, "LPOS nokey c"+options)
		}
	})
}

func TestLmove(t *testing.T) {
	both(t, func(p *pair) {
		for _, from := range []string{"LEFT", "RIGHT", "left"} {
			for _, to := range []string{"LEFT", "RIGHT", "right"} {
				p.Do("DEL l m", "RPUSH l a b c", "LMOVE l m "+from+" "+to, "LMOVE l m "+from+" "+to,
					"LMOVE l l "+from+" "+to, "LMOVE m m "+from+" "+to, "LRANGE l 0 -1", "LRANGE m 0 -1",
					"LMOVE l m "+from+" "+to, "EXISTS l", "LMOVE l m "+from+" "+to, "LRANGE m 0 -1")
			}
		}
		p.Do("RPUSH r a b c", "RPOPLPUSH r q", "RPOPLPUSH r r", "RPOPLPUSH r q", "RPOPLPUSH r q", "RPOPLPUSH r q",
			"LRANGE q 0 -1", "EXISTS r", "RPUSH one x", "LMOVE one one LEFT RIGHT", "RPOPLPUSH one one",
			"LRANGE one 0 -1")
	})
}

func TestList_WrongType(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v", "HSET h f v", "SADD s a", "ZADD z 1 a", "RPUSH l a")
		for _, key := range []string{"k", "h", "s", "z"} {
			for _, line := range []string{"LPUSH % a", "RPUSH % a", "LPUSHX % a", "RPUSHX % a", "LPOP %", "LPOP % x",
				"RPOP % 1", "LPOP % 0", "LLEN %", "LRANGE % 0 1", "LRANGE % x 1", "LINDEX % 0", "LINDEX % x",
				"LSET % 0 a", "LSET % x a", "LINSERT % BEFORE a b",
				"LREM % 0 a", "LREM % x a", "LTRIM % 0 1", "LPOS % a", "LPOS % a RANK 0", "LMOVE % l LEFT LEFT",
				"LMOVE l % LEFT LEFT", "LMOVE nokey % LEFT LEFT", "RPOPLPUSH % l", "RPOPLPUSH l %",
				"LMOVE % % LEFT LEFT"} {
				p.Do(strings.ReplaceAll(line, "%", key))
			}
		}
		p.Do("LRANGE l 0 -1", "GET l", "INCR l", "SET l v GET", "APPEND l x", "SET l v", "GET l")
	})
}

// TestList_Long makes random changes to a list of many nodes.
func TestList_Long(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(5, uint64(p.proto)))
		var lines []string
		for i := range 3000 {
			at := rng.IntN(3000) - 1500
			switch rng.IntN(9) {
			case 0, 1:
				lines = append(lines, fmt.Sprintf("LPUSH l %d %d", i, i+1))
			case 2, 3:
				lines = append(lines, fmt.Sprintf("RPUSH l %d %d", i, i+1))
			case 4:
				lines = append(lines, fmt.Sprintf("LINSERT l BEFORE %d new", i-rng.IntN(50)))
			case 5:
				lines = append(lines, fmt.Sprintf("LSET l %d set%d", at, i))
			case 6:
				lines = append(lines, fmt.Sprintf("LREM l %d %d", rng.IntN(3)-1, i-rng.IntN(50)))
			case 7:
				lines = append(lines, fmt.Sprintf("LINDEX l %d", at),
					fmt.Sprintf("LRANGE l %d %d", at, at+rng.IntN(100)), fmt.Sprintf("LPOS l %d RANK -1", i-20))
			case 8:
				lines = append(lines, "LMOVE l l RIGHT LEFT", "RPOP l 2")
			}
		}
		p.DoPipelined(append(lines, "LRANGE l 0 -1", "LTRIM l 100 -100", "LRANGE l 0 -1", "LTRIM l 5 9",
			"LRANGE l 0 -1")...)
	})
}
