package compat

import "testing"

func TestMulti(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("MULTI", "SET a 1", "INCR a", "GET zz", "OBJECT ENCODING a", "SCAN 0", "EXEC", "GET a")
		p.Do("MULTI", "SET a x", "INCR a", "SET b 2", "EXEC", "MGET a b")
		p.Do("MULTI", "SET a", "SET b 3", "EXEC", "GET b")
		p.Do("MULTI", "NOSUCH", "SET b 3", "EXEC", "GET b")
		p.Do("MULTI", "EXEC", "EXEC", "MULTI", "SET b 4", "DISCARD", "GET b", "DISCARD")
		p.Do("MULTI", "SELECT 1", "SET c 1", "EXEC", "GET c", "SELECT 0", "GET c")
		p.Do("MULTI", "OBJECT FOO", "EXEC", "MULTI", "OBJECT ENCODING", "EXEC")
	})
}

func TestWatch(t *testing.T) {
	both(t, func(p *pair) {
		o := p.other()
		for _, c := range []struct{ before, change string }{
			{"SET k v", "SET k v"}, {"SET k v", "SET other v"}, {"SET k v", "EXPIRE k 100"}, {"SET k v", "DEL k"},
			{"SET k v", "GET k"}, {"SET k v", "SET k w NX"}, {"SET k v", "FLUSHALL"},
			{"SET k v", "FLUSHDB"}, {"SET k v", "RENAME k j"}, {"SET k v", "PERSIST k"},
			{"SET k v EX 100", "PERSIST k"}, {"SET k v", "TOUCH k"}, {"SET k v", "APPEND k x"},
			{"SET k v", `SETRANGE k 0 ""`},
			{"SET k v", "EXPIRE k -1"}, {"SET k v", "MOVE k 1"}, {"SET k v", "COPY k j"}, {"SET k v", "GETEX k"},
			{"SET k v", "GETEX k EX 10"}, {"SET k v", "GETDEL k"},
			{"DEL k", "DEL k"}, {"DEL k", "SET k v"}, {"DEL k", "SET k v XX"}, {"DEL k", "FLUSHALL"},
			{"DEL k", "SETNX k v"}, {"SET j 1", "RENAME j k"}, {"SET j 1", "COPY j k REPLACE"},
			{"SET k v", "SWAPDB 0 1"},
		} {
			p.Do("FLUSHALL", c.before, "WATCH k")
			o.Do(c.change)
			p.Do("MULTI", "SET done 1", "EXEC", "EXISTS done")
		}
		// The key is absent when it is watched, is created, and is absent
		// again.
		for _, c := range [][]string{{"SET w 1", "DEL w"}, {"LPUSH w 1", "LPOP w"}, {"SET w 1 PX 1"},
			{"SET j 1", "RENAME j w", "RENAME w j"}, {"SET w 1", "MOVE w 1"}, {"SET w 1", "FLUSHALL"}, {"DEL w"},
			{"SET other 1", "DEL other"}, {"FLUSHALL"}} {
			p.Do("FLUSHALL", "WATCH w")
			o.Do(c...)
			o.DoUntil(":0", "EXISTS w")
			p.Do("MULTI", "SET done 1", "EXEC", "EXISTS done")
		}
		// The key has expired before it is watched.
		p.Do("FLUSHALL", "SET w 1 PX 1")
		o.DoUntil(":0", "EXISTS w")
		p.Do("WATCH w", "MULTI", "PING", "EXEC")
		// The client's own write counts. UNWATCH and DISCARD end the watch.
		p.Do("SET k v", "WATCH k", "SET k w", "MULTI", "PING", "EXEC", "WATCH k", "SET k x", "UNWATCH", "MULTI", "PING",
			"EXEC", "WATCH k", "MULTI", "DISCARD", "SET k y", "MULTI", "PING", "EXEC")
		// The key expires between WATCH and EXEC.
		p.Do("SET k v PX 1000", "WATCH k")
		o.DoUntil(":0", "EXISTS k")
		p.Do("MULTI", "SET done 2", "EXEC")
	})
}
