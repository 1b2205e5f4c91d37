package compat

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// tracker returns a pair in RESP3 that has turned tracking on.
func (p *pair) tracker(options string) *pair {
	p.t.Helper()
	c := newPair(p.t, 3)
	c.Do(strings.TrimSpace("CLIENT TRACKING ON " + options))
	return c
}

// quiet checks that the servers have sent no push: the reply of PING must come
// first.
func (p *pair) quiet() { p.t.Helper(); p.Do("PING") }

// invalidates lets the client tracker read, and then lets writer write once.
// The servers must send n invalidations.
func invalidates(writer, tracker *pair, reads []string, write string, n int) {
	writer.t.Helper()
	tracker.Do(reads...)
	writer.Do(write)
	tracker.pushes(n)
	tracker.quiet()
}

// TestTracking compares invalidations byte by byte, in the default mode.
func TestTracking(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	c := w.tracker("")
	invalidates(w, c, []string{"GET k"}, "SET k v", 1)
	invalidates(w, c, nil, "SET k v", 0)
	invalidates(w, c, []string{"GET k", "GET k"}, "SET k v NX", 0)
	invalidates(w, c, nil, "EXPIRE k 100", 1)
	invalidates(w, c, []string{"TTL k"}, "PERSIST k", 1)
	invalidates(w, c, []string{"EXISTS k", "TYPE k"}, "APPEND k x", 1)
	invalidates(w, c, []string{"STRLEN k"}, "DEL k", 1)
	invalidates(w, c, []string{"STRLEN k"}, "DEL k", 0)
	invalidates(w, c, nil, "SET k v", 1)
	invalidates(w, c, []string{"MGET k l m"}, "MSET k 1 m 2", 2)
	invalidates(w, c, []string{"HGETALL h"}, "HSET h f v", 1)
	invalidates(w, c, []string{"HGET h f"}, "HDEL h f", 1)
	invalidates(w, c, []string{"LRANGE li 0 -1"}, "RPUSH li a", 1)
	invalidates(w, c, []string{"SMEMBERS s"}, "SADD s a", 1)
	invalidates(w, c, []string{"SINTER s s2"}, "SADD s2 a", 1)
	invalidates(w, c, []string{"ZSCORE z a"}, "ZADD z 1 a", 1)
	invalidates(w, c, []string{"GET k", "GET n"}, "RENAME k n", 2)
	invalidates(w, c, []string{"GET n", "GET copy"}, "COPY n copy", 1)
	invalidates(w, c, []string{"GET copy"}, "MOVE copy 3", 1)
	invalidates(w, c, []string{"GET n"}, "GETDEL n", 1)
	invalidates(w, c, []string{"GETRANGE x 0 1", "SCARD y"}, "FLUSHDB", 1)
	invalidates(w, c, []string{"GET x"}, "FLUSHALL", 1)
	invalidates(w, c, []string{"KEYS *", "DBSIZE", "SCAN 0"}, "SET x 1", 0)
	// tracking ignores the number of the database
	invalidates(w, c, []string{"SELECT 1", "GET x", "SELECT 0"}, "SET x 2", 1)
}

func TestTracking_Streams(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	c := w.tracker("")
	// For streams, Redis sends invalidations for changes to entries, not to
	// groups.
	invalidates(w, c, []string{"XRANGE st - +", "XLEN st"}, "XADD st 1-1 f v", 1)
	invalidates(w, c, []string{"XINFO STREAM st", "XINFO GROUPS st"}, "XGROUP CREATE st g 0", 0)
	invalidates(w, c, nil, "XREADGROUP GROUP g a STREAMS st >", 0)
	invalidates(w, c, []string{"XPENDING st g"}, "XACK st g 1-1", 0)
	invalidates(w, c, nil, "XSETID st 5-5", 0)
	invalidates(w, c, nil, "XDEL st 1-1", 1)
	invalidates(w, c, []string{"XINFO GROUPS st"}, "XGROUP DESTROY st g", 0)
	invalidates(w, c, nil, "DEL st", 1)
	invalidates(w, c, []string{"XLEN st"}, "XGROUP CREATE st g $ MKSTREAM", 1)
	invalidates(w, c, []string{"XREAD COUNT 1 STREAMS st 0", "OBJECT ENCODING st"}, "DEL st", 1)
}

func TestTracking_Scripts(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	c := w.tracker("")
	// These reads and changes happen in scripts.
	invalidates(w, c, []string{`EVAL "return redis.call('GET', KEYS[1])" 1 k`}, "SET k v", 1)
	invalidates(w, c, []string{`EVAL "redis.call('SET', KEYS[1], '1') return redis.call('GET', KEYS[1])" 1 k`},
		"SET k 2", 1)
	invalidates(w, c, []string{`EVAL_RO "return redis.call('GET', KEYS[1])" 1 k`},
		`EVAL "return redis.call('SET', KEYS[1], ARGV[1])" 1 k v`, 1)
	invalidates(w, c, []string{`EVAL "return redis.call('SET', KEYS[1], '1')" 1 k`}, "SET k 2", 0)
	// A script that reads counts as a read of exactly the keys with which it
	// was called.
	invalidates(w, c, []string{`EVAL "return redis.call('GET', KEYS[1])" 2 k l`}, "MSET k 3 l 3", 2)
	invalidates(w, c, []string{`EVAL "return redis.call('GET', 'undeclared')" 1 k`}, "SET undeclared v", 0)
	invalidates(w, c, nil, "SET k 4", 1)
	// A transaction contains a script and the read of a key.
	c.DoPipelined("MULTI", `EVAL "return redis.call('SET', KEYS[1], '1')" 1 l`, "GET k", "EXEC")
	invalidates(w, c, nil, "SET k 3", 1)
	// The key expires.
	invalidates(w, c, []string{"SET e v PX 400", "GET e"}, "PING", 1)
	// The connection itself changes the key, with several commands.
	c.Do("GET k", "SET k 1")
	c.pushes(1)
	c.Do("INCR k", "GET k")
	c.quiet()
	c.DoPipelined("MULTI", "GET k", "SET k 5", "GET k", "EXEC")
	c.pushes(1)
	w.Do("SET k 6")
	c.pushes(1)
	c.quiet()
	c.Do("CLIENT TRACKING OFF", "GET k")
	w.Do("SET k 7")
	c.quiet()
}

func TestTracking_OptIn(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	optin := w.tracker("OPTIN")
	invalidates(w, optin, []string{"GET k"}, "SET k 1", 0)
	invalidates(w, optin, []string{"CLIENT CACHING YES", "GET k", "GET l"}, "MSET k 1 l 1", 1)
	invalidates(w, optin, []string{"CLIENT CACHING YES", "CLIENT GETNAME", "CLIENT TRACKINGINFO", "GET k"},
		"SET k 1", 1)
	invalidates(w, optin, []string{"CLIENT CACHING YES", "PING", "GET k"}, "SET k 1", 0)
	optin.DoPipelined("CLIENT CACHING YES", "MULTI", "GET k", "PTTL k", "GET l", "EXEC", "GET m")
	invalidates(w, optin, nil, "MSET k 1 l 1 m 1", 2)
	invalidates(w, optin, []string{"MULTI", "CLIENT CACHING YES", "GET k", "EXEC"}, "SET k 1", 1)
	invalidates(w, optin, []string{"MULTI", "GET k", "EXEC"}, "SET k 1", 0)
	invalidates(w, optin, []string{"WATCH k", "MULTI", "CLIENT CACHING YES", "GET l", "EXEC"}, "SET l 1", 1)
	invalidates(w, optin, []string{"CLIENT TRACKING OFF"}, "SET k 1", 0)
	invalidates(w, optin, []string{"MULTI", "CLIENT TRACKING ON", "GET k", "CLIENT TRACKINGINFO", "EXEC",
		"CLIENT TRACKINGINFO"},
		"SET k 1", 1)
	invalidates(w, optin, []string{"MULTI", "CLIENT TRACKING OFF", "GET k", "CLIENT TRACKING ON", "EXEC",
		"CLIENT TRACKINGINFO"},
		"SET k 1", 0)
	invalidates(w, optin, []string{"CLIENT TRACKING OFF"}, "SET k 1", 0)
}

func TestTracking_OptOut(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	optout := w.tracker("OPTOUT NOLOOP")
	invalidates(w, optout, []string{"GET k", "CLIENT CACHING NO", "CLIENT TRACKINGINFO", "GET l"}, "MSET k 1 l 1", 1)
	// CLIENT CACHING applies only to the next command, even if the server
	// refuses that command.
	for _, refused := range []string{"GET", "NOSUCH", "BLPOP nokey 0.01"} {
		invalidates(w, optout, []string{"CLIENT CACHING NO", refused, "GET k"}, "SET k 1", 1)
	}
	invalidates(w, optout, []string{"GET k", "SET k 2"}, "SET k 3", 0)
	invalidates(w, optout, []string{"GET k", "GET l", "SET l 2"}, "MSET k 3 l 3", 1)
	invalidates(w, optout, []string{"CLIENT TRACKING OFF"}, "SET k 1", 0)
}

func TestTracking_Broadcast(t *testing.T) {
	w := newPair(t, 3)
	w.setup("FLUSHALL")
	bcast := w.tracker("BCAST PREFIX user: PREFIX item:")
	invalidates(w, bcast, nil, "SET user:1 v", 1)
	invalidates(w, bcast, nil, "SET other v", 0)
	invalidates(w, bcast, nil, "MSET user:2 v item:1 v user:1 w x y", 2)
	invalidates(w, bcast, []string{"CLIENT TRACKINGINFO"}, "DEL user:1 user:2 user:3", 1)
	invalidates(w, bcast, nil, "FLUSHALL", 1)
	bcast.Do("SET user:1 v")
	bcast.pushes(1)
	invalidates(w, bcast, []string{"CLIENT TRACKING OFF", "CLIENT TRACKING ON BCAST NOLOOP", "SET user:1 v"},
		"SET any v", 1)
	bcast.Do("CLIENT TRACKINGINFO", "RESET", "CLIENT TRACKINGINFO")
}

// TestTracking_Pieces compares the order of replies and invalidations of
// pipelines with slow scripts, which are executed in pieces. Each invalidation
// of the connection's own writes follows the reply of its command.
func TestTracking_Pieces(t *testing.T) {
	const slow = `EVAL "for i = 1, 300000 do end return redis.call('SET', KEYS[1], ARGV[1])" 1 `
	for _, lines := range [][]string{
		{"GET k", slow + "k 1", "GET k", "SET k 2", "GET k", "PING"},
		{"MGET k l", "SET k 1", slow + "l 1", "MGET k l", slow + "k 2", "SET l 2", "PING"},
		{"MGET k l", "MULTI", "SET k 1", slow + "l 1", "EXEC", "GET k", slow + "k 2", "PING"},
	} {
		p := newPair(t, 3)
		p.setup("FLUSHALL")
		p.Do("CLIENT TRACKING ON")
		p.compare(strings.Join(lines, "; "), p.stream(p.redis, lines, "end"), p.stream(p.holdfast, lines, "end"))
	}
}

// TestTracking_Redirect is like TestTracking, with invalidations that go to
// another connection.
func TestTracking_Redirect(t *testing.T) {
	for _, proto := range []int{2, 3} {
		w, c, to := newPair(t, 2), newPair(t, 2), newPair(t, proto)
		w.setup("FLUSHALL")
		// The ids of connections differ between the servers.
		redis, holdfast := to.ask("CLIENT ID")
		each := func(line string) {
			t.Helper()
			for _, end := range []struct {
				c  *conn
				id string
			}{{c.redis, redis[0]}, {c.holdfast, holdfast[0]}} {
				got, err := end.c.do(respwire.Words(line + strings.Trim(end.id, ":\r\n")))
				if err != nil || got[0] != "+OK\r\n" {
					t.Fatalf("%s: %q, %v", line, got, err)
				}
			}
		}
		each("CLIENT TRACKING ON REDIRECT ")
		if proto == 2 {
			c.Do("GET k")
			w.Do("SET k v") // the other connection has no subscription yet
			// The node handles events in the order of the log, so it has
			// handled the event of SET when another connection gets a later
			// message.
			later := newPair(t, 2)
			later.Do("SUBSCRIBE later")
			w.Do("PUBLISH later m")
			later.pushes(1)
			to.quiet()
			to.Do("SUBSCRIBE __redis__:invalidate")
		}
		c.Do("GET k")
		w.Do("SET k v")
		to.pushes(1)
		c.Do("GET k", "SET k w")
		to.pushes(1)
		if proto == 2 { // in RESP3, Redis sends a null of RESP2 to the tracking connection
			w.Do("FLUSHALL")
			to.pushes(1)
		}
		c.quiet()
		to.Do("RESET")
		c.Do("CLIENT TRACKING OFF", "CLIENT GETREDIR")
	}
}

// TestTracking_Refusals compares the errors of the commands about tracking.
func TestTracking_Refusals(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("CLIENT TRACKINGINFO", "CLIENT GETREDIR", "CLIENT TRACKING OFF",
			"CLIENT TRACKING ON BCAST PREFIX a PREFIX b", "CLIENT TRACKINGINFO", "CLIENT GETREDIR",
			"CLIENT TRACKING ON BCAST PREFIX c", "CLIENT TRACKINGINFO", "CLIENT TRACKING ON BCAST PREFIX ab",
			"CLIENT TRACKING ON BCAST PREFIX a",
			"CLIENT TRACKING ON", "CLIENT TRACKING OFF", "CLIENT TRACKINGINFO",
			"CLIENT TRACKING ON NOLOOP", "CLIENT TRACKINGINFO", "CLIENT TRACKING ON", "CLIENT TRACKINGINFO",
			"CLIENT CACHING YES", "CLIENT CACHING NO", "CLIENT TRACKING ON OPTIN", "CLIENT TRACKINGINFO",
			"CLIENT CACHING NO", "CLIENT CACHING YES", "CLIENT TRACKINGINFO", "CLIENT TRACKING ON OPTOUT",
			"CLIENT TRACKING OFF",
			"CLIENT TRACKING ON OPTOUT", "CLIENT CACHING YES", "CLIENT CACHING NO", "CLIENT TRACKINGINFO",
			"CLIENT TRACKING OFF", "CLIENT TRACKINGINFO")
		p.DoError("CLIENT TRACKING", "CLIENT TRACKING x", "CLIENT TRACKING ON x", "CLIENT TRACKING ON REDIRECT",
			"CLIENT TRACKING ON REDIRECT x", "CLIENT TRACKING ON REDIRECT 99999", "CLIENT TRACKING ON REDIRECT 0",
			"CLIENT TRACKING ON REDIRECT -1",
			"CLIENT TRACKING ON PREFIX", "CLIENT TRACKING ON PREFIX a", "CLIENT TRACKING ON BCAST OPTIN",
			"CLIENT TRACKING ON BCAST OPTOUT", "CLIENT TRACKING ON OPTIN OPTOUT",
			"CLIENT TRACKING ON BCAST PREFIX a PREFIX ab", "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
			"CLIENT TRACKING ON BCAST PREFIX a PREFIX a", "CLIENT CACHING", "CLIENT CACHING x", "CLIENT CACHING YES",
			"CLIENT CACHING YES NO", "CLIENT TRACKINGINFO x", "CLIENT GETREDIR x")
		p.Do("CLIENT TRACKING ON OPTIN")
		p.DoError("CLIENT CACHING x", "CLIENT TRACKING ON BCAST")
		p.Do("RESET", "CLIENT TRACKINGINFO", "CONFIG GET tracking-table-max-keys")
	})
}
