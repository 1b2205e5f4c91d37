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
			t.Errorf("%s before the node knows the users, without a leader: got %q, want CLUSTERDOWN", cmd, got)
		}
	}
	c.expect("PING", "+PONG", "RESET", "+RESET") // RESET gives the client no more rights
	if got := c.do("GET k"); !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("GET after RESET: got %q, want CLUSTERDOWN", got)
	}

	f.mu.Lock()
	f.before = nil
	f.mu.Unlock()
	c.expect("RESET", "+RESET", "GET k", "-NOAUTH Authentication required.", "AUTH wrong",
		"-WRONGPASS invalid username-password pair or user is disabled.", "AUTH secret", "+OK", "GET k", "$-1")
	if users.Version == 0 {
		t.Error("the cluster has no users, want the default user that ACL SETUSER changed")
	}
}

// TestACLLog_LongKey checks that an entry of ACL LOG keeps only the beginning of a
// long key that a client was not allowed to read.
func TestACLLog_LongKey(t *testing.T) {
	s := serve(t, newFake(t))
	admin, ann := dial(t, s), dial(t, s)
	admin.expect("ACL SETUSER ann on >x ~user:* +get", "+OK")
	ann.expect("AUTH ann x", "+OK")
	if got := ann.do("GET " + strings.Repeat("k", 100_000)); !strings.HasPrefix(got, "-NOPERM") {
		t.Fatalf("GET of a forbidden key returned %q, want NOPERM", got)
	}
	log := admin.do("ACL LOG 1")
	if !strings.Contains(log, "\n"+strings.Repeat("k", 1024)+"…\n") || len(log) > 2000 {
		t.Errorf("ACL LOG returned %q, want an entry with the first 1024 bytes of the key", log)
	}
}

// TestPermits checks that Permits applies the rules of the user, and that it adds no
// entry to the ACL log.
func TestPermits(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.expect("ACL SETUSER ann on >x ~user:* +get +client|list", "+OK")
	for _, q := range []struct {
		user, command string
		want          bool
	}{
		{"ann", "GET user:1", true}, {"ann", "get user:1", true}, {"ann", "GET secret", false}, {"ann", "SET user:1 v", false},
		{"ann", "CLIENT LIST", true}, {"ann", "CLIENT KILL", false}, {"ann", "NOSUCH", false}, {"default", "SET k v", true},
		{"nobody", "GET user:1", false},
	} {
		if got := s.Permits(q.user, strings.Fields(q.command)...); got != q.want {
			t.Errorf("%s may run %s: %v, want %v", q.user, q.command, got, q.want)
		}
	}
	c.expect("ACL LOG", "*0")
	if list := s.ClientList(); strings.Count(list, "\n") != 1 || !strings.Contains(list, "cmd=acl|log") {
		t.Errorf("clients: %q", list)
	}
}

// TestPermits_LockList checks that LOCK LIST, which returns the values of keys that
// are locks, needs the permission to read all keys.
func TestPermits_LockList(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.expect("ACL SETUSER bob on nopass +@all ~app:*", "+OK", "ACL SETUSER eve on nopass +@all %R~*", "+OK",
		"SET secret v NX PX 60000", "+OK")
	refused := "NOPERM LOCK LIST needs the permission to read all keys (~* or %R~*)"
	b := dial(t, s)
	b.expect("AUTH bob x", "+OK", "LOCK LIST", "-"+refused, "LOCK TOKEN app:1", "$-1")
	b.expect("MULTI", "+OK", "LOCK LIST", "+QUEUED", "EXEC", "*1\n-"+refused)
	e := dial(t, s)
	e.expect("AUTH eve x", "+OK")
	if got := e.do("LOCK LIST"); !strings.Contains(got, "secret") {
		t.Errorf("LOCK LIST of a user that may read all keys returned %q, want the lock \"secret\"", got)
	}
}

// TestLockHelp checks that LOCK HELP is made from the rows of the subcommands.
func TestLockHelp(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	help := c.do("LOCK HELP")
	for _, want := range []string{"LIST [MATCH pattern]", "locks that are held", "HISTORY key", "TOKEN key [owner]"} {
		if !strings.Contains(help, want) {
			t.Errorf("LOCK HELP lacks %q: %q", want, help)
		}
	}
}

// TestClientList_Commands checks that the list of clients for the dashboard
// contains the number of commands that each connection has sent, and that
// CLIENT LIST does not contain this number.
func TestClientList_Commands(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.expect("PING", "+PONG", "GET k", "$-1")
	if got := c.do("CLIENT LIST"); strings.Contains(got, "commands=") {
		t.Errorf("CLIENT LIST has the field commands, which Redis does not have: %q", got)
	}
	if list := s.ClientList(); !strings.HasSuffix(list, " commands=3\n") {
		t.Errorf("clients: %q", list)
	}
}

// TestUsers_ReplacedPassword checks a client that logs in while its node has no
// leader, with a password that only this node accepts. It loses its connection as
// soon as the node has read the users of the cluster.
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
	b := dial(t, s) // makes the node read the users
	b.expect("AUTH old", "-WRONGPASS invalid username-password pair or user is disabled.", "AUTH new", "+OK")
	c.send("GET k")
	if got, err := c.reply(); err == nil {
		t.Errorf("a client whose password was replaced got %q, want the end of its connection", got)
	}
}

// TestUsers_KeptPassword checks a client that logs in before the users are
// confirmed, with the password of the cluster. It keeps its connection.
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

// TestUsers_LoginWithoutLeader checks the replies to logins without a leader. If
// the node cannot check the password, the reply says so. If the node knows the
// password, it accepts the login.
func TestUsers_LoginWithoutLeader(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	a := dial(t, s)
	a.expect("ACL SETUSER app on >pw +@all ~*", "+OK")
	f.mu.Lock()
	f.before = func(*fsm.Group) error { return outcome.NewNotExecuted(true, "no leader") }
	f.mu.Unlock()
	const unchecked = "-CLUSTERDOWN no leader, so this node cannot check the user and the password"
	a.expect("AUTH nobody pw", unchecked, "AUTH app wrong", unchecked, "HELLO 3 AUTH nobody pw", unchecked,
		"AUTH app pw", "+OK", "GET k", "-CLUSTERDOWN no leader, the command was not executed")
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
		t.Errorf("the transaction asked %d times for the users, want once", asked)
	}
	c.expect("MULTI", "+OK", "DISCARD", "+OK", "DISCARD", "-ERR DISCARD without MULTI")
	noLeader(1)
	c.send("GET a", "MULTI", "SET a 2", "SET b 2", "EXEC")
	c.want(refusal, "+OK", "+QUEUED", "+QUEUED", "*2\n+OK\n+OK")
	c.expect("EXISTS a b", ":2")
}

// TestUsers_FirstCommandIsLarge checks a cluster without passwords. There, the
// first command of a client may be longer than the limit that applies before a
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
	c.expect("GET k", "$1\nv") // as in Redis, a client that was let in stays authenticated
}
