package compat

import "testing"

func TestSet_KeyAbsent(t *testing.T) {
	both(t, func(p *pair) {
		for _, line := range []string{
			"SET k v", "SET k v NX", "SET k v XX", "SET k v GET", "SET k v NX GET", "SET k v XX GET", "SET k v EX 10",
			"SET k v PX 10000", "SET k v EX 0", "SET k v EX -1", "SET k v PX 0", "SET k v PX -1", "SET k v EX abc",
			"SET k v EX 1.5",
			"SET k v EX", "SET k v EXAT 1", "SET k v PXAT 1", "SET k v EXAT 0", "SET k v EXAT -5", "SET k v PXAT abc",
			"SET k v KEEPTTL",
			"SET k v KEEPTTL EX 10", "SET k v EX 10 KEEPTTL", "SET k v EX 10 PX 10", "SET k v PX 10 PX 20000",
			"SET k v EX 10 EX 0",
			"SET k v EX 10 EX x", "SET k v NX XX", "SET k v XX NX", "SET k v NX NX", "SET k v XX XX", "SET k v GET GET",
			"SET k v KEEPTTL KEEPTTL", "SET k v FOO", "SET k v NX FOO", "SET k v PERSIST",
			"SET k v EX 9223372036854775807",
			"SET k v PX 9223372036854775807", "SET k v EX 9223372036854775", "SET k v EX 9223372036854776",
			"SET k v PXAT 9223372036854775807",
			"SET k v EXAT 9223372036854775807", "SET k v EXAT 9223372036854775", "SET k v nx px 5000",
			"SET k v px 5000 nx", "SET k v eX 5 gEt",
			"SET k v ex", "SET k v n", "SET k v nxx", `SET k v ""`, `SET "" ""`, `SET k "\x00\xff\r\n"`, "set k v",
			"sEt k v", "SET k v EX +5",
			"SET k v EX 05", `SET k v EX " 5"`, "SET k v EX 99999999999999999999", "SET", "SET k",
			"SET k v NX EX 10 GET KEEPTTL",
		} {
			p.Do("DEL k", line, "EXISTS k", "GET k")
			p.DoApprox(1000, "PTTL k")
		}
	})
}

func TestSet_KeyPresent(t *testing.T) {
	both(t, func(p *pair) {
		for _, line := range []string{
			"SET k v", "SET k v NX", "SET k v XX", "SET k v GET", "SET k v NX GET", "SET k v XX GET", "SET k v KEEPTTL",
			"SET k v KEEPTTL GET",
			"SET k v KEEPTTL XX", "SET k v EX 10", "SET k v NX EX 10", "SET k v XX EX 10", "SET k v GET EX 10",
			"SET k v EXAT 1", "SET k v NX EXAT 1",
			"SET k v XX PXAT 1 GET", "SET k v EX 0 NX", "SET k v EX x NX", "SET k v EXAT 99999999999",
			"SET k v PXAT 99999999999999",
		} {
			p.Do("SET k old", line, "GET k")
			p.DoApprox(1000, "PTTL k")
			p.Do("PEXPIRETIME nokey")
			p.Do("SET k old EX 100", line, "GET k")
			p.DoApprox(1000, "PTTL k")
			p.DoApprox(5000, "PEXPIRETIME k")
		}
	})
}

func TestGet(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("GET k", "SET k v", "GET k", "get k", "GET", "GET a b", "MGET k", "MGET k x k", "MGET", `SET k "a\r\nb"`,
			"GET k", "MGET k nokey",
			"STRLEN k", "STRLEN x", "STRLEN", "STRLEN a b")
	})
}

func TestSetnx(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SETNX k v", "SETNX k w", "GET k", "SETNX k", "SETNX", "SETNX k v w", "PTTL k")
	})
}

func TestSetex(t *testing.T) {
	both(t, func(p *pair) {
		for _, ttl := range []string{"10", "0", "-1", "x", `""`, "1.5", "9223372036854775807", "9223372036854775",
			"9223372036854776", "99999999999999999999"} {
			p.Do("DEL k", "SETEX k "+ttl+" v", "GET k")
			p.DoApprox(1000, "PTTL k")
			p.Do("SET k old", "PSETEX k "+ttl+"000 v", "PSETEX k "+ttl+" v")
			p.DoApprox(1000, "TTL k")
		}
		p.Do("SETEX k 10", "SETEX", "PSETEX k 10", "PSETEX k 10 v w")
	})
}

func TestGetset(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("GETSET k a", "GETSET k b", "GET k", "EXPIRE k 100", "GETSET k c", "TTL k", "GETSET k", "GETSET",
			"GETDEL k", "GETDEL k", "GET k", "GETDEL", "GETDEL a b")
	})
}

func TestGetex(t *testing.T) {
	both(t, func(p *pair) {
		for _, options := range []string{
			"", " EX 10", " PX 10000", " EXAT 99999999999", " PXAT 99999999999999", " EXAT 1", " PXAT 1", " PERSIST",
			" EX 0", " EX -1", " EX x", " EX",
			" EX 10 PERSIST", " PERSIST EX 10", " PERSIST PERSIST", " KEEPTTL", " NX", " GET", " FOO", " EX 10 PX 10",
			" EX 10 EX 20",
			" PX 9223372036854775807", " EXAT 0", " persist", " eX 7", " IFEQ v",
		} {
			p.Do("DEL k", "GETEX k"+options)
			p.Do("SET k v", "GETEX k"+options, "EXISTS k")
			p.DoApprox(1000, "PTTL k")
			p.Do("SET k v EX 100", "GETEX k"+options, "EXISTS k")
			p.DoApprox(1000, "PTTL k")
		}
		p.Do("GETEX")
	})
}

func TestMset(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("MSET a 1 b 2", "MGET a b", "MSET a", "MSET a 1 b", "MSET", "MSET a 1 a 2", "GET a", "MSETNX a 1 c 2",
			"GET c", "MSETNX c 1 d 2",
			"MSETNX e 1 e 2", "GET e", "MSETNX a", "MSETNX a 1 b", "MSETNX", "EXPIRE a 100", "MSET a 3", "TTL a",
			"MGET a b c d e f")
	})
}

func TestAppend(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("APPEND k v", "APPEND k w", "GET k", `APPEND k ""`, "APPEND k", "APPEND", "APPEND n 1", "APPEND n 2",
			"INCR n", "GET n",
			`APPEND e ""`, "EXISTS e", "GET e", "EXPIRE k 100", "APPEND k x")
		p.DoApprox(1000, "PTTL k")
	})
}

func TestRanges(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("GETRANGE k 0 -1", "SET k 0123456789")
		numbers := []string{"0", "1", "5", "9", "10", "11", "-1", "-2", "-9", "-10", "-11", "-100", "100",
			"9223372036854775807", "-9223372036854775808"}
		for _, start := range numbers {
			for _, end := range numbers {
				p.DoPipelined("GETRANGE k "+start+" "+end, "SUBSTR k "+start+" "+end)
			}
		}
		p.Do("GETRANGE k x 1", "GETRANGE k 1 x", "GETRANGE nokey x 1", "GETRANGE k 0", "SUBSTR k 0", "SUBSTR k 0 x",
			"GETRANGE k 0 99999999999999999999",
			`SET e ""`, "GETRANGE e 0 -1", "GETRANGE e 0 0", "GETRANGE e -1 -1")
	})
}

func TestSetrange(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SETRANGE k 2 x", "GET k", "SETRANGE k 0 abcdef", "GET k", "SETRANGE k 2 XY", "GET k", "SETRANGE k 10 z",
			"GET k", `SETRANGE k 100 ""`,
			`SETRANGE nokey 5 ""`, "EXISTS nokey", "SETRANGE k -1 x", `SETRANGE k -1 ""`, "SETRANGE k x x",
			"SETRANGE k 1", "SETRANGE",
			"SETRANGE k 600000000 x", `SETRANGE k 600000000 ""`, "SETRANGE nokey 600000000 x",
			"SETRANGE k 9223372036854775807 x",
			"SETRANGE k 99999999999999999999 x", "EXPIRE k 100", "SETRANGE k 0 q")
		p.DoApprox(1000, "PTTL k")
	})
}

// TestLimits checks the limits of 8 MiB per value and 512 KiB per key.
func TestLimits(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SETRANGE k 8388607 x", "STRLEN k", "SETRANGE k 8388607 y", "STRLEN k",
			"SETRANGE k 8388608 x", "APPEND k x8M", "DEL k", "SET "+longKey+" v", "SET "+longKey[1:]+" v",
			"GET "+longKey[1:], "GET "+longKey[2:])
	})
}
