package compat

import (
	"strings"
	"testing"
)

func TestObject(t *testing.T) {
	both(t, func(p *pair) {
		for _, value := range []string{
			"0", "10", "9999", "10000", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
			"01", "-0", "1.5", `""`, "abc", `" 1"`,
			strings.Repeat("x", 44), strings.Repeat("x", 45), strings.Repeat("1", 20), strings.Repeat("1", 19),
		} {
			for _, line := range []string{"SET k " + value, "SETNX k " + value, "MSET k " + value, "APPEND k " + value,
				"SETRANGE k 0 " + value, "GETSET k " + value, "SETEX k 100 " + value} {
				p.DoPipelined("DEL k", line, "OBJECT ENCODING k", "OBJECT REFCOUNT k", "OBJECT FREQ k")
			}
		}
		p.Do("SET k 10", "APPEND k 1", "OBJECT ENCODING k", "INCR k", "OBJECT ENCODING k", "APPEND k 2", "RENAME k j",
			"OBJECT ENCODING j", "COPY j c", "OBJECT ENCODING c", "EXPIRE j 100", "OBJECT ENCODING j",
			"SET f 1.5", "INCRBYFLOAT f 0.1", "OBJECT ENCODING f", `SETRANGE j 0 ""`, "OBJECT ENCODING j",
			"SETRANGE j 0 1", "OBJECT ENCODING j", "OBJECT REFCOUNT j", "SET j 1 KEEPTTL", "OBJECT ENCODING j")
		p.Do("OBJECT ENCODING nokey", "OBJECT REFCOUNT nokey", "OBJECT IDLETIME nokey", "OBJECT FREQ nokey",
			"OBJECT HELP", "OBJECT help", "OBJECT FOO", "OBJECT FOO k", "OBJECT ENCODING", "OBJECT ENCODING a b",
			"OBJECT IDLETIME", "OBJECT REFCOUNT a b", "OBJECT FREQ", "OBJECT HELP x", "object encoding k")
		p.Do("INCRBYFLOAT whole 3", "OBJECT ENCODING whole", "SET n 5", "COPY n copied", "OBJECT REFCOUNT copied")
		p.Do("SET k idle")
		p.DoApprox(1, "OBJECT IDLETIME k")
	})
}
