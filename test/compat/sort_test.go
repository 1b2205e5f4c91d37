package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSort(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SORT l", "SORT_RO l", "RPUSH l 3 1 2 10 -5 1", "SORT l", "SORT l DESC", "SORT l ALPHA",
			"SORT l ALPHA DESC", "SORT l desc ASC", "SORT_RO l LIMIT 1 2", "SORT l BY nosort", "SORT l BY nosort DESC",
			`SORT l BY ""`, "SORT l BY nosort LIMIT 2 2", "SORT l BY nosort GET # GET nokey_* GET x LIMIT 1 1",
			"OBJECT ENCODING l",
			"SET s v", "SORT s", "SORT_RO s", "HSET h f v", "SORT h", "XADD x 1-1 a b", "SORT x", "SORT s LIMIT a b",
			"SORT s foo", "SORT nokey BY w_* GET v_*")
		for _, limit := range []string{"0 0", "0 1", "0 -1", "-1 2", "1 -1", "5 1", "6 6", "99 99", "-99 99",
			"3 9223372036854775807", "9223372036854775807 1", "-9223372036854775808 1", "0 9223372036854775808",
			"1.0 2", "a b", "1", ""} {
			for _, rest := range []string{"", "BY nosort", "ALPHA", "DESC", "STORE out"} {
				p.Do("SORT l " + rest + " LIMIT " + limit)
			}
		}
		p.Do("LRANGE out 0 -1")
		p.DoError("SORT", "SORT_RO", "SORT l BY", "SORT l GET", "SORT l STORE", "SORT l LIMIT", "SORT l LIMIT 1",
			"SORT l FOO", "SORT_RO l STORE out", "SORT l ASC DESC x", "SORT l BY a LIMIT 1 2 STORE")
		p.Do("SORT l LIMIT STORE 1", "SORT l BY STORE STORE x", "SORT l STORE a STORE b", "EXISTS a", "LRANGE b 0 -1")
	})
}

// TestSort_Weights checks which weights are numbers. Redis uses strtod.
func TestSort_Weights(t *testing.T) {
	both(t, func(p *pair) {
		for _, weight := range []string{`""`, "1", "-1", "+5", "1.", ".5", ".", "-", "1e3", "1e", "1e-310", "5e-324",
			"2.2250738585072014e-308", "1e-400", "1e400", "-1e400", "0e-999", "0x10", "0X1P3", "0x", "0x1p",
			"0x1p-1074", "inf", "-Infinity", "infinit", "nan", "1_0", "1d", `" 1"`, `"\t\n1"`, `"1 "`, `" "`,
			`"1\x00x"`, `"\x001"`, "a", "9223372036854775807", "9223372036854775808", "0.1", "-0"} {
			p.setup("DEL l", "RPUSH l "+weight+" 0.75 -2")
			p.setup("SET w_0.75 " + weight)
			for _, line := range []string{"SORT l", "SORT l DESC", "SORT l STORE out", "SORT l BY w_*"} {
				p.setup("INCRBYFLOAT x 0.5") // resets errno in Redis, which SORT checks but does not reset
				p.Do(line)
			}
		}
	})
}

func TestSort_Patterns(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("RPUSH l 1 2 3 4", "MSET w_1 4 w_2 3 w_3 2 w_4 1", "MSET v_1 a v_2 b v_4 d", "HSET h_1 f 9 g x",
			"HSET h_2 f 7", "HSET h_3 f 8", "SADD set_1 x", "MSET *->1 star 1->x arrow x*1 second",
			"HSET deep_1_end a->b 5", "MSET 1x 1 2x 2 3x x")
		for _, pattern := range []string{"w_*", "v_*", "h_*->f", "h_*->g", "h_*->", "h_*->nofield", "h_*", "set_*",
			"set_*->f", "#", "*", "**", "*->1", "*x", "x**", "no", "w_1", "->*", "h_*->f->g", "deep_*_end->a->b", "#*",
			"*#", `""`} {
			p.Do("SORT l GET "+pattern, "SORT l BY "+pattern, "SORT l DESC BY "+pattern, "SORT l ALPHA BY "+pattern,
				"SORT l ALPHA DESC BY "+pattern, "SORT_RO l BY "+pattern+" GET # GET "+pattern,
				"SORT l GET "+pattern+" GET # STORE out", "LRANGE out 0 -1", "SORT l BY "+pattern+" STORE out",
				"LRANGE out 0 -1")
		}
		p.Do("SORT l BY w_* BY nosort", "SORT l BY nosort BY w_*", "SORT l BY w_* LIMIT 1 2 GET v_*",
			"SORT l STORE l BY w_*", "LRANGE l 0 -1", "SORT l STORE w_1", "TYPE w_1", "SORT nokey STORE w_1",
			"EXISTS w_1", "SORT nokey STORE w_1", "SET w_2 x EX 100", "SORT l STORE w_2", "TTL w_2")
	})
}

func TestSort_Types(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SADD ints 5 3 1 -7", "SADD words c a b 9 77", "ZADD z 3 a 1 b 2 c 2 d", "ZADD nums 9 3 8 1 7 2",
			`RPUSH bytes a "a\x00c" "a\x00b" "\xff" A B b ""`)
		p.Do("SORT ints", "SORT ints BY nosort", "SORT ints BY nosort DESC", "SORT ints BY nosort STORE out",
			"LRANGE out 0 -1", "SORT ints BY nosort DESC LIMIT 1 2 STORE out", "LRANGE out 0 -1",
			"SORT words", "SORT words ALPHA", "SORT words ALPHA DESC LIMIT 1 3", "SORT words BY nosort STORE out",
			"LRANGE out 0 -1", "SORT words BY nosort DESC LIMIT 0 2 GET # STORE out", "LRANGE out 0 -1",
			"SORT z", "SORT z ALPHA", "SORT z BY nosort", "SORT z BY nosort DESC", "SORT z BY nosort LIMIT 1 2",
			"SORT z BY nosort DESC LIMIT 1 2 GET #", "SORT z BY nosort ALPHA STORE out", "LRANGE out 0 -1", "SORT nums",
			"SORT nums DESC LIMIT 0 2",
			"SORT bytes ALPHA", "SORT bytes ALPHA DESC", "SORT bytes ALPHA STORE out", "LRANGE out 0 -1",
			`EVAL "return redis.call('sort', KEYS[1], 'by', 'nosort')" 1 words`,
			`EVAL "return redis.call('sort', KEYS[1], 'by', 'nosort', 'desc')" 1 ints`,
			`EVAL_RO "return redis.call('sort_ro', KEYS[1])" 1 ints`,
			`EVAL_RO "return redis.pcall('sort', KEYS[1])['err']" 1 ints`)
		p.DoSorted("SORT words BY nosort")
		p.Do("MULTI", "SORT ints", "SORT ints STORE out", "EXEC", "MULTI", "SORT ints LIMIT 0 1", "EXEC")
	})
}

// TestSort_Random sorts random lists with different weights and options.
func TestSort_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	both(t, func(p *pair) {
		for range 60 {
			p.setup("DEL l")
			for range random.IntN(20) {
				n := random.IntN(12)
				p.setup(fmt.Sprintf("RPUSH l %d", n), fmt.Sprintf("SET w_%d %d", n, random.IntN(5)),
					fmt.Sprintf("HSET h_%d f %c", n, 'a'+rune(random.IntN(3))))
			}
			line := "SORT l"
			alpha := ""
			for _, option := range []string{"DESC", "GET #", "GET w_*", "GET h_*->f"} {
				if random.IntN(2) == 0 {
					line += " " + option
				}
			}
			if random.IntN(2) == 0 {
				alpha = " ALPHA"
			}
			p.Do(line+" BY w_*"+alpha, line+alpha+fmt.Sprintf(" LIMIT %d %d", random.IntN(10), random.IntN(10)),
				line+" ALPHA BY h_*->f", line+" STORE out ALPHA BY h_*->f", "LRANGE out 0 -1")
		}
	})
}

// TestSort_Keys checks the keys that COMMAND GETKEYS reports.
func TestSort_Keys(t *testing.T) {
	both(t, func(p *pair) {
		for _, rest := range []string{"", "BY x GET y STORE a STORE b", "LIMIT 1 STORE", "BY STORE x",
			"LIMIT STORE 1 STORE x", "STORE", "GET STORE STORE d", "ASC STORE d", "LIMIT STORE"} {
			p.Do("COMMAND GETKEYS SORT l "+rest, "COMMAND GETKEYSANDFLAGS SORT l "+rest,
				"COMMAND GETKEYS SORT_RO l "+rest)
		}
		p.Do("COMMAND INFO SORT SORT_RO")
	})
}

// TestSort_Users checks that patterns need the right to read all keys.
func TestSort_Users(t *testing.T) {
	both(t, func(p *pair) {
		q := p.other()
		p.setup("RPUSH l 3 1 2", "SET w_1 5")
		for _, rules := range []string{"~l", "~* -@all +sort", "%R~l %W~o", "%R~*", "%W~* %R~l", "~** ~l",
			"~l (+sort %R~*)", "~l (+@all %R~* %W~o)", "~l (+get ~*)"} {
			p.setup("DEL o", "ACL DELUSER sorter", "ACL SETUSER sorter on nopass +@all "+rules)
			q.setup("AUTH sorter x")
			q.Do("SORT l", "SORT l BY w_*", "SORT l BY nosort", "SORT l GET #", "SORT l BY nosort GET w_*",
				"SORT_RO l BY w_*", "SORT_RO l GET x", "SORT l STORE o", "SORT l BY w_* STORE o", "SORT l BY w_* foo",
				"SORT l foo BY w_*", "SORT l LIMIT a b BY w_*")
			if !strings.Contains(rules, "-@all") {
				q.Do("MULTI", "SORT l BY w_*", "SORT l", "SORT l STORE l GET #", "EXEC",
					`EVAL "return redis.call('sort', 'l')" 0`, `EVAL "return redis.call('sort', 'l', 'by', 'w_*')" 0`)
			}
			q.setup("AUTH default x")
		}
		p.setup("ACL DELUSER sorter")
	})
}
