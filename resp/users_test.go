package resp_test

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// TestUsers_BeforeTheyAreConfirmed checks a node that was started without a
// password: it lets no client in before it has read the users of the cluster,
// and then requires the cluster's password.
func TestUsers_BeforeTheyAreConfirmed(t *testing.T) {
	f := newFake(t)
	a := dial(t, serve(t, f))
	a.expect("ACL SETUSER default >secret", "+OK")
	f.mu.Lock()
	users := f.machine.Users()
	f.watchers = nil
	f.before = func(g *fsm.Group) error {
		return outcome.NewNotExecuted(true, "no leader, the command was not executed")
	}
	f.mu.Unlock()

	// The node has applied nothing yet.
	f.hideUsers = true
	s := serveUnconfirmed(t, f)
	f.hideUsers = false
	c := dial(t, s)
	for _, cmd := range []string{"GET k", "INFO server", "CONFIG GET *", "CLIENT LIST", "ACL LIST", "AUTH x",
		"AUTH default x", "HELLO 2 AUTH default x", "SUBSCRIBE ch", "MONITOR"} {
		if got := c.do(cmd); !strings.HasPrefix(got, "-CLUSTERDOWN") {
			t.Errorf("%s before the users are known, without a leader: %q", cmd, got)
		}
	}
	c.expect("PING", "+PONG", "RESET", "+RESET") // the user after RESET is no more than before
	if got := c.do("GET k"); !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("GET after RESET: %q", got)
	}

	f.mu.Lock()
	f.before = nil
	f.mu.Unlock()
	c.expect("RESET", "+RESET", "GET k", "-NOAUTH Authentication required.", "AUTH wrong",
		"-WRONGPASS invalid username-password pair or user is disabled.", "AUTH secret", "+OK", "GET k", "$-1")
	if users.Version == 0 {
		t.Error("the cluster has no users")
	}
}

// TestUsers_ReplacedPassword checks the clients that log in to a node that has
// no leader, with a password that only this node accepts: they lose their
// connections as soon as the node has read the users of the cluster.
func TestUsers_ReplacedPassword(t *testing.T) {
	f := newFake(t)
	a := dial(t, serve(t, f))
	a.expect("ACL SETUSER default >new", "+OK", "ACL SETUSER other on >same +@all ~*", "+OK")
	f.mu.Lock()
	f.watchers = nil
	f.before = func(g *fsm.Group) error {
		return outcome.NewNotExecuted(true, "no leader, the command was not executed")
	}
	f.mu.Unlock()
	f.hideUsers = true
	s := serveUnconfirmed(t, f, withPassword("old"))
	f.hideUsers = false
	c := dial(t, s)
	c.expect("AUTH old", "+OK", "PING", "+PONG")
	f.mu.Lock()
	f.before = nil
	f.mu.Unlock()
	b := dial(t, s) // reads the users
	b.expect("AUTH old", "-WRONGPASS invalid username-password pair or user is disabled.", "AUTH new", "+OK")
	c.send("GET k")
	if got, err := c.reply(); err == nil {
		t.Errorf("GET with a replaced password: %q", got)
	}
}

// TestUsers_KeptPassword checks that a client that logs in before the users are
// confirmed keeps its connection if its password is that of the cluster.
func TestUsers_KeptPassword(t *testing.T) {
	f := newFake(t)
	dial(t, serve(t, f)).expect("CONFIG SET requirepass secret", "+OK")
	f.mu.Lock()
	f.watchers = nil
	f.before = func(g *fsm.Group) error {
		return outcome.NewNotExecuted(true, "no leader, the command was not executed")
	}
	f.mu.Unlock()
	f.hideUsers = true
	s := serveUnconfirmed(t, f, withPassword("secret"))
	f.hideUsers = false
	c := dial(t, s)
	c.expect("AUTH secret", "+OK")
	f.mu.Lock()
	f.before = nil
	f.mu.Unlock()
	dial(t, s).expect("AUTH secret", "+OK", "GET k", "$-1")
	c.expect("GET k", "$-1")
}

// TestUsers_Transaction checks a pipelined transaction that begins before the
// users are confirmed. It must not be executed in part, even if the users are
// confirmed in the middle of it.
func TestUsers_Transaction(t *testing.T) {
	f := newFake(t)
	c := dial(t, serveUnconfirmed(t, f))
	asked := 0
	noLeader := func(times int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		asked = 0
		f.before = func(*fsm.Group) error {
			if asked++; asked > times {
				return nil
			}
			return outcome.NewNotExecuted(true, "no leader")
		}
	}
	const refusal = "-CLUSTERDOWN no leader, the command was not executed"
	noLeader(math.MaxInt)
	c.send("MULTI", "SET a 1", "SET b 1", "EXEC")
	c.want("+OK", refusal, refusal, "-EXECABORT Transaction discarded because of: "+refusal[1:])
	if asked != 1 {
		t.Errorf("the transaction asked %d times for the users", asked)
	}
	c.expect("MULTI", "+OK", "DISCARD", "+OK", "DISCARD", "-ERR DISCARD without MULTI")
	noLeader(1)
	c.send("GET a", "MULTI", "SET a 2", "SET b 2", "EXEC")
	c.want(refusal, "+OK", "+QUEUED", "+QUEUED", "*2\n+OK\n+OK")
	c.expect("EXISTS a b", ":2")
}

// TestUsers_FirstCommandIsLarge checks that the first command of a client of a
// cluster without passwords may be longer than what a client may send before a
// login.
func TestUsers_FirstCommandIsLarge(t *testing.T) {
	f := newFake(t)
	c := dial(t, serveUnconfirmed(t, f))
	c.expect("RPUSH k"+strings.Repeat(" "+strings.Repeat("v", 1000), 100), ":100")
}

// TestUsers_OpenCluster checks that a client of a cluster without passwords need
// not log in, even if it has connected before the users were confirmed.
func TestUsers_OpenCluster(t *testing.T) {
	f := newFake(t)
	s := serveUnconfirmed(t, f)
	c := dial(t, s)
	c.expect("PING", "+PONG", "SELECT 0", "+OK", "CLIENT SETNAME c", "+OK", "SET k v", "+OK",
		"ACL WHOAMI", "$7\ndefault")
	b := dial(t, serve(t, f))
	b.expect("CONFIG SET requirepass secret", "+OK", "CONFIG GET requirepass", "*2\n$11\nrequirepass\n$0\n")
	c.expect("GET k", "$1\nv") // as in Redis, a client that was let in stays in
}
