package compat

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDel(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("DEL k", "DEL k k", "SET a 1", "SET b 2", "DEL a a b c", "DEL", "UNLINK k", "SET a 1", "UNLINK a a",
			"UNLINK",
			"EXISTS k k", "SET a 1", "EXISTS a a b", "EXISTS", "TOUCH k", "TOUCH a a b", "TOUCH", "TYPE a", "TYPE k",
			"TYPE", "TYPE a b")
	})
}

func TestRename(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("RENAME k x", "RENAMENX k x", "RENAME k k", "RENAMENX k k", "SET k v EX 100", "RENAME k k", "RENAMENX k k",
			"RENAME k x", "EXISTS k")
		p.DoApprox(1000, "PTTL x")
		p.Do("SET y w", "RENAME x y", "GET y", "SET x 1", "RENAMENX x y", "RENAMENX x z", "GET z", "TTL z", "RENAME k",
			"RENAME", "RENAMENX a", "RENAME a b c",
			"SET from 1", "SET to 2 EX 100", "RENAME from to", "TTL to", "GET to")
	})
}

func TestCopy(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("COPY k x", "SET k v EX 100", "COPY k x", "GET x")
		p.DoApprox(1000, "PTTL x")
		p.Do("COPY k x", "COPY k x REPLACE", "COPY k k", "COPY k k REPLACE", "COPY k k DB 1", "COPY k k DB 0",
			"COPY k k DB 1", "COPY k k DB 1 REPLACE", "COPY k x DB 99",
			"COPY k x DB -1", "COPY k x DB 16", "COPY k x DB y", "COPY k x DB 99999999999", "COPY k x DB",
			"COPY k x FOO", "COPY k x replace db 2", "COPY nokey x DB y",
			"COPY nokey nokey", "COPY k", "COPY", "COPY k x DB 1 DB 3", "COPY k x REPLACE REPLACE", "SELECT 1", "GET k",
			"SELECT 2", "GET x", "SELECT 3", "GET x",
			"SELECT 0", "SET x old EX 100", "SET plain 1", "COPY plain x REPLACE", "TTL x", "GET x")
	})
}

func TestMove(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("MOVE k 1", "SET k v EX 100", "MOVE k 0", "MOVE k 1", "EXISTS k", "SELECT 1", "GET k")
		p.DoApprox(1000, "PTTL k")
		p.Do("SELECT 0", "SET k w", "MOVE k 1", "GET k", "MOVE k x", "MOVE k 99", "MOVE k -1", "MOVE k 99999999999",
			"MOVE nokey 0", "MOVE nokey x", "MOVE k", "MOVE")
	})
}

func TestSwapdb(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SET k zero EX 100", "SELECT 1", "SET k one", "SET j one EX 200", "SWAPDB 0 1", "GET k", "GET j")
		p.DoApprox(1000, "PTTL k")
		p.Do("SELECT 0", "GET k", "TTL k", "GET j", "SWAPDB 0 0", "SWAPDB 0 x", "SWAPDB x 0", "SWAPDB 0 99",
			"SWAPDB 99 0", "SWAPDB -1 0", "SWAPDB 0 99999999999", "SWAPDB 0", "SWAPDB 3 4",
			"DBSIZE", "SELECT 1", "DBSIZE", "SET soon v PX 30", "SWAPDB 1 2", "SELECT 2")
		p.DoUntil("nil", "GET soon")
		p.Do("DBSIZE", "KEYS *")
	})
}

func TestFlush(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("MSET a 1 b 2", "SET c 3 EX 100", "SELECT 1", "SET d 4 EX 100", "DBSIZE", "FLUSHDB", "DBSIZE", "SELECT 0",
			"DBSIZE", "SET d 4 EX 100", "FLUSHDB SYNC", "DBSIZE",
			"FLUSHDB FOO", "FLUSHDB ASYNC SYNC", "FLUSHALL FOO", "SET a 1", "FLUSHALL ASYNC", "DBSIZE", "FLUSHALL sync",
			"FLUSHDB async", "FLUSHALL ASYNC ASYNC", "DBSIZE x", "EXISTS a")
	})
}

// TestTime checks that the times of both servers differ by at most a second.
func TestTime(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("TIME x")
		redis, holdfast := p.ask("TIME")
		var at [2]int64
		for i, raw := range []string{redis[0], holdfast[0]} {
			head, elems := elements(raw)
			if head != "*2\r\n" || len(elems) != 2 {
				t.Fatalf("TIME answers %q", raw)
			}
			for _, e := range elems {
				_, digits, _ := strings.Cut(strings.TrimSpace(e), "\r\n")
				n, err := strconv.ParseInt(digits, 10, 64)
				if err != nil {
					t.Fatalf("TIME answers %q: %v", raw, err)
				}
				at[i] = at[i]*1e6 + n
			}
		}
		if d := time.Duration(at[0]-at[1]) * time.Microsecond; d.Abs() > time.Second {
			t.Errorf("TIME: redis %d, holdfast %d", at[0], at[1])
		}
	})
}

func TestArity(t *testing.T) {
	both(t, func(p *pair) {
		p.DoError("FOO bar baz", "foo", "OBJECT", "SET", "GET", "DEL", "EXISTS", "MSET a", "EXPIRE k", "SCAN", "KEYS",
			"KEYS a b", "RANDOMKEY x", "TTL", "PTTL a b", "PERSIST", "EXPIRETIME", "PEXPIRETIME a b")
	})
}
