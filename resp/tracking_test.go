package resp_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// invalid returns the RESP3 message that invalidates the given keys.
func invalid(keys ...string) string {
	return ">2\n$10\ninvalidate\n" + push("*", keys...)
}

func TestTracking_Modes(t *testing.T) {
	s := serve(t, newFake(t))
	w := dial(t, s)
	client := func(mode string) *client {
		c := dial(t, s)
		c.do("HELLO 3")
		c.expect("CLIENT TRACKING "+mode, "+OK")
		return c
	}
	// Each connection receives one invalidation of a changed key that it has read,
	// or, in mode BCAST, an invalidation of every changed key that has one of its
	// prefixes.
	normal, optin, optout, bcast, noloop := client("ON"), client("ON OPTIN"), client("ON OPTOUT"), client("ON BCAST PREFIX a PREFIX b NOLOOP"), client("ON NOLOOP")
	normal.expect("GET a1", "_", "MGET c1 c2", "*2\n_\n_")
	optin.expect("GET a1", "_", "CLIENT CACHING YES", "+OK", "GET b1", "_", "GET c1", "_")
	optout.expect("GET a1", "_", "CLIENT CACHING NO", "+OK", "GET b1", "_", "GET c1", "_")
	noloop.expect("GET a1", "_", "SET a1 v", "+OK") // NOLOOP: the node forgets the key without an invalidation
	for _, c := range []*struct {
		c    interface{ want(...string) }
		keys []string
	}{{normal, []string{"a1"}}, {optout, []string{"a1"}}, {bcast, []string{"a1"}}} {
		c.c.want(invalid(c.keys...))
	}
	w.send("SET a1 v", "SET b1 v", "SET c1 v", "SET a2 v")
	w.want("+OK", "+OK", "+OK", "+OK")
	optin.want(invalid("b1"))
	optout.want(invalid("c1"))
	normal.want(invalid("c1"))
	bcast.want(invalid("a1", "a2"), invalid("b1"))
	bcast.expect("SET a3 v", "+OK")
	w.expect("SET a4 v", "+OK", "FLUSHALL", "+OK")
	bcast.want(invalid("a4"))
	for _, c := range []interface{ want(...string) }{normal, optin, optout, bcast, noloop} {
		c.want(">2\n$10\ninvalidate\n_")
	}
	normal.expect("GET a1", "_", "CLIENT TRACKING OFF", "+OK")
	w.expect("SET a1 v", "+OK")
	normal.expect("PING", "+PONG")
}

// TestTracking_OwnChanges checks a connection that reads a key and changes it, in
// one pipeline or transaction. The connection receives an invalidation if the
// change follows the read, and no invalidation if the change precedes the read.
func TestTracking_OwnChanges(t *testing.T) {
	s := serve(t, newFake(t))
	c, w := dial(t, s), dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK")
	c.send("SET k 1", "GET k", "GET k")
	c.want("+OK", "$1\n1", "$1\n1")
	c.expect("PING", "+PONG", "SET k 2", "+OK") // now the change is reported
	c.want(invalid("k"))
	c.send("MULTI", "SET k 3", "GET k", "EXEC")
	c.want("+OK", "+QUEUED", "+QUEUED", "*2\n+OK\n$1\n3")
	w.expect("APPEND k x", ":2")
	c.want(invalid("k"))
	c.send("MULTI", "GET k", "APPEND k y", "EXEC")
	c.want("+OK", "+QUEUED", "+QUEUED", "*2\n$2\n3x\n:3", invalid("k"))
	c.expect("SET k 3x", "+OK")
	c.send("MULTI", "GET k", "TTL k", "EXEC", "GET k")
	c.want("+OK", "+QUEUED", "+QUEUED", "*2\n$2\n3x\n:-1", "$2\n3x")
	w.expect("EXPIRE k 100", ":1")
	c.want(invalid("k"))
	c.expect("CLIENT CACHING YES", "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.", "PING", "+PONG")
}

// TestTracking_ReadUnderWay checks a change that reaches this node while a read
// of the key is under way. The read returns the value from before or after the
// change.
func TestTracking_ReadUnderWay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change uint64 // log index of the change; the read is at log index 2
		sent   bool
	}{{"before", 2, false}, {"after", 3, true}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			s := serve(t, f)
			r := dial(t, s)
			r.do("HELLO 3")
			r.expect("CLIENT TRACKING ON", "+OK", "SET k v", "+OK")
			f.mu.Lock()
			f.before = func(*fsm.Group) error {
				f.listener.Applied(c.change, []fsm.Event{{Kind: fsm.EventChanged, Key: "k"}})
				return nil
			}
			f.mu.Unlock()
			r.send("GET k")
			r.want("$1\nv") // never after the invalidation of the value
			f.mu.Lock()
			f.before = nil
			f.mu.Unlock()
			if c.sent {
				r.want(invalid("k"))
			}
			r.expect("PING", "+PONG")
			f.listener.Applied(4, []fsm.Event{{Kind: fsm.EventChanged, Key: "k"}})
			if !c.sent {
				r.want(invalid("k"))
			}
			r.expect("PING", "+PONG")
		})
	}
}

// TestTracking_NoloopSameEntry checks that a connection in NOLOOP mode receives
// no invalidation for its own change, but receives one for the change by another
// connection in the same entry.
func TestTracking_NoloopSameEntry(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.do("HELLO 3")
	id, err := strconv.ParseUint(strings.Trim(c.do("CLIENT ID"), ":\n"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	c.expect("CLIENT TRACKING ON BCAST NOLOOP", "+OK")
	change := func(key string, origin uint64) fsm.Event {
		return fsm.Event{Kind: fsm.EventChanged, Key: key, Origin: origin}
	}
	f.listener.Applied(2, []fsm.Event{change("own", id), change("both", id), change("own", id), change("both", 0), change("too", 0), change("too", id)})
	c.want(invalid("both", "too"))
	c.expect("PING", "+PONG")
}

// TestTracking_NoloopBehind checks that a READONLY connection receives an
// invalidation for its own change, in NOLOOP mode too, because the value that it
// has read may be older than that change.
func TestTracking_NoloopBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string
		sent   bool
	}{
		{"READONLY first", []string{"READONLY", "CLIENT TRACKING ON BCAST NOLOOP"}, true},
		{"READONLY then", []string{"CLIENT TRACKING ON NOLOOP", "READONLY", "GET k"}, true},
		{"READONLY once", []string{"CLIENT TRACKING ON NOLOOP", "READONLY", "GET k", "READWRITE", "CLIENT TRACKING ON NOLOOP"}, true},
		{"never", []string{"CLIENT TRACKING ON NOLOOP", "GET k"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := dial(t, serve(t, newFake(t)))
			cl.do("HELLO 3")
			for _, line := range c.before {
				cl.do(line)
			}
			cl.expect("SET k v", "+OK")
			if c.sent {
				cl.want(invalid("k"))
			}
			cl.expect("PING", "+PONG")
		})
	}
}

// TestTracking_CachingOnce checks that CLIENT CACHING applies only to the next
// command or transaction, even if that command or transaction fails.
func TestTracking_CachingOnce(t *testing.T) {
	s := serve(t, newFake(t))
	c, w := dial(t, s), dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON OPTOUT", "+OK")
	for _, line := range []string{"GET", "NOSUCH", "GET x", "PING", "BLPOP list 0.001", "SUBSCRIBE", "EXEC"} {
		c.expect("CLIENT CACHING NO", "+OK")
		c.do(line)
		c.do("GET k")
		w.expect("SET k v", "+OK")
		c.want(invalid("k"))
	}
	c.send("CLIENT CACHING NO", "MULTI", "GET k", "NOSUCH", "GET k", "EXEC", "GET l")
	for range 7 {
		if _, err := c.reply(); err != nil {
			t.Fatal(err)
		}
	}
	w.expect("SET k w", "+OK", "SET l w", "+OK")
	c.want(invalid("l"))
}

// TestTracking_ReadInTransaction checks a transaction that reads a value and
// contains connection commands. These commands run before the replies are
// written, but they must not send an invalidation of the value ahead of the
// reply that contains it.
func TestTracking_ReadInTransaction(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "SET k v", "+OK")
	f.mu.Lock()
	f.before = func(*fsm.Group) error {
		f.listener.Applied(3, []fsm.Event{{Kind: fsm.EventChanged, Key: "k"}})
		return nil
	}
	f.mu.Unlock()
	c.send("MULTI", "GET k", "UNSUBSCRIBE x", "EXEC")
	c.want("+OK", "+QUEUED", "+QUEUED", "*2\n$1\nv\n>3\n$11\nunsubscribe\n$1\nx\n:0", invalid("k"))
}

func TestTracking_Redirect(t *testing.T) {
	s := serve(t, newFake(t))
	c, to, w := dial(t, s), dial(t, s), dial(t, s)
	id := strings.TrimPrefix(strings.TrimSpace(to.do("CLIENT ID")), ":")
	to.expect("SUBSCRIBE __redis__:invalidate", "*3\n$9\nsubscribe\n$20\n__redis__:invalidate\n:1")
	c.expect("CLIENT TRACKING ON REDIRECT 999", "-ERR The client ID you want redirect to does not exist", "CLIENT GETREDIR", ":-1",
		"CLIENT TRACKING ON REDIRECT "+id, "+OK", "CLIENT GETREDIR", ":"+id, "GET k", "$-1",
		"CLIENT TRACKINGINFO", "*6\n$5\nflags\n*1\n$2\non\n$8\nredirect\n:"+id+"\n$8\nprefixes\n*0")
	w.expect("SET k v", "+OK")
	to.want("*3\n$7\nmessage\n$20\n__redis__:invalidate\n*1\n$1\nk")
	c.do("HELLO 3")
	c.expect("GET k", "$1\nv")
	if err := to.conn.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the connection to be gone", func() bool { return !strings.Contains(w.do("CLIENT LIST"), "\nid="+id+" ") })
	w.expect("SET k w", "+OK")
	c.want(">2\n$21\ntracking-redir-broken\n:" + id)
	c.expect("CLIENT TRACKINGINFO", "%3\n$5\nflags\n~2\n$2\non\n$15\nbroken_redirect\n$8\nredirect\n:"+id+"\n$8\nprefixes\n*0")
}

func TestTracking_Errors(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect(
		"CLIENT TRACKING x", "-ERR syntax error", "CLIENT TRACKING ON FOO", "-ERR syntax error", "CLIENT TRACKING OFF", "+OK",
		"CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled",
		"CLIENT TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST",
		"CLIENT TRACKING ON BCAST PREFIX ab PREFIX a", "-ERR Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap.",
		"CLIENT CACHING YES", "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
		"CLIENT TRACKING ON OPTIN", "+OK",
		"CLIENT TRACKING ON OPTOUT", "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
		"CLIENT TRACKING ON BCAST", "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
		"CLIENT CACHING NO", "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
		"CLIENT CACHING YES", "+OK", "CLIENT TRACKINGINFO", "*6\n$5\nflags\n*3\n$2\non\n$5\noptin\n$11\ncaching-yes\n$8\nredirect\n:0\n$8\nprefixes\n*0",
		"RESET", "+RESET", "CLIENT TRACKINGINFO", "*6\n$5\nflags\n*1\n$3\noff\n$8\nredirect\n:-1\n$8\nprefixes\n*0",
	)
}
