package compat

import (
	"fmt"
	"testing"
	"time"
)

// ttlSetups are commands after which the key k is absent, exists without a time
// to live, or exists with one.
var ttlSetups = []string{"DEL k", "SET k v", "SET k v EX 100", "SET k v EXAT 99999999999"}

func TestExpire(t *testing.T) {
	both(t, func(p *pair) {
		for _, options := range []string{"", " NX", " XX", " GT", " LT", " XX GT", " XX LT", " GT XX", " NX NX",
			" NX XX", " NX GT", " NX LT", " GT LT", " FOO", " NX FOO", " XX GT LT", " nx", " EX"} {
			for _, ttl := range []string{"60000", "200000", "100000000000", "0", "-1", "abc", `""`, "1.5",
				"9223372036854775807", "9223372036854775", "-9223372036854775808", "99999999999999999999"} {
				for _, name := range []string{"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"} {
					for _, life := range ttlSetups {
						// The key is created again because the previous command
						// may have deleted it on one server only.
						p.DoPipelined("SET k v", life, name+" k "+ttl+options, "EXISTS k")
						p.DoApprox(1000, "PTTL k")
					}
				}
			}
		}
	})
}

// TestExpire_SameMoment checks GT and LT with the absolute time that the key
// already has.
func TestExpire_SameMoment(t *testing.T) {
	both(t, func(p *pair) {
		at := time.Now().Add(time.Hour).Unix()
		p.Do("SET k v")
		for _, life := range []string{fmt.Sprintf("EXPIREAT k %d", at), fmt.Sprintf("PEXPIREAT k %d", at*1000),
			fmt.Sprintf("SET k v EXAT %d", at)} {
			for _, option := range []string{"GT", "LT", "NX", "XX"} {
				for _, d := range []int64{-1, 0, 1} {
					p.Do(life, fmt.Sprintf("EXPIREAT k %d %s", at+d, option), "EXPIRETIME k", "PEXPIRETIME k")
				}
			}
		}
		p.Do("SET k v PXAT 9223372036854775807", "PEXPIREAT k 9223372036854775806 LT", "PEXPIRETIME k",
			"PEXPIREAT k 9223372036854775807 GT", "PEXPIRETIME k", "EXPIRETIME k")
		p.DoApprox(1000, "PTTL k", "TTL k")
	})
}

func TestTTL(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("TTL k", "PTTL k", "EXPIRETIME k", "PEXPIRETIME k", "PERSIST k", "SET k v", "TTL k", "PTTL k",
			"EXPIRETIME k", "PEXPIRETIME k", "PERSIST k", "EXPIRE k 100", "TTL k")
		p.DoApprox(1000, "PTTL k")
		p.DoApprox(1, "EXPIRETIME k")
		p.DoApprox(1000, "PEXPIRETIME k")
		p.Do("PERSIST k", "TTL k", "PERSIST k", "EXPIREAT k 4000000000", "EXPIRETIME k", "PEXPIRETIME k",
			"PEXPIREAT k 4000000000499", "EXPIRETIME k", "PEXPIRETIME k", "PEXPIREAT k 4000000000500", "EXPIRETIME k")
		// TTL rounds to the nearest second. On a slow machine, the rounded values
		// stay the same for the first 400 ms.
		for _, ms := range []int{1450, 1950, 100450, 100950} {
			p.Do(fmt.Sprintf("SET k v PX %d", ms), "TTL k")
		}
	})
}

// TestExpiry checks that commands on strings and on keys treat an expired key
// as absent.
func TestExpiry(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SET a 1 PX 20", "SET b 2", "PEXPIRE b 20", "SETEX c 100 3", "SET d 4 PX 20")
		for _, key := range []string{"a", "b", "d"} {
			p.DoUntil(":0", "EXISTS "+key)
		}
		p.Do("GET a", "TTL a", "PTTL a", "TYPE a", "STRLEN a", "EXPIRE a 100", "PERSIST a", "GETDEL a", "DEL a",
			"RENAME a x", "COPY a x", "MGET a b c d", "KEYS *", "SCAN 0", "RANDOMKEY", "OBJECT ENCODING a",
			"SETNX a 2", "TTL a", "GET a", "INCR b", "TTL b", "SET d 5 GET", "SET e 1 XX", "APPEND d x")
	})
}
