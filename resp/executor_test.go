package resp_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// failing makes the groups of a fake cluster fail.
type failing struct {
	armed  atomic.Bool
	skip   atomic.Int32 // number of groups that still succeed
	writes atomic.Int32 // groups with writes that ran since fail was called
	err    error
}

// fail makes all groups after the next n fail with err.
func (f *failing) fail(n int32, err error) {
	f.err = err
	f.skip.Store(n)
	f.writes.Store(0)
	f.armed.Store(true)
}

func (f *failing) before(g *fsm.Group) error {
	if !f.armed.Load() {
		return nil
	}
	if f.skip.Add(-1) < 0 {
		return f.err
	}
	if g.Write {
		f.writes.Add(1)
	}
	return nil
}

// TestExecutor runs client commands that consist of several groups, and makes
// each command fail at each of its groups in turn. Once a group with a write has
// run, the reply must not say that the command was not executed.
func TestExecutor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup []string
		run   []string // the command whose reply is checked
		seed  bool     // the node has an ACL file that is not in the cluster yet
	}{
		{name: "ACL SETUSER", run: []string{"ACL SETUSER bob on nopass +@all"}},
		{name: "ACL SETUSER with an ACL file", run: []string{"ACL SETUSER bob on nopass +@all"}, seed: true},
		{name: "ACL DELUSER", setup: []string{"ACL SETUSER bob on nopass"}, run: []string{"ACL DELUSER bob"}},
		{name: "ACL DELUSER with an ACL file", run: []string{"ACL DELUSER bob"}, seed: true},
		{name: "CONFIG SET requirepass", run: []string{"CONFIG SET requirepass secret"}},
		{name: "CONFIG SET two", run: []string{"CONFIG SET notify-keyspace-events KEA requirepass secret"}},
		{name: "EXEC with connection commands", setup: []string{"MULTI", "SET k v", "ACL SETUSER bob on", "CONFIG GET notify-keyspace-events", "SUBSCRIBE c"}, run: []string{"EXEC"}},
		{name: "EXEC of connection commands", setup: []string{"MULTI", "ACL SETUSER bob on", "ACL SETUSER bob off"}, run: []string{"EXEC"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := int32(0); ; n++ {
				fake, f := newFake(t), &failing{}
				fake.before = f.before
				s := serve(t, fake, func(c *resp.Config) {
					if tc.seed {
						c.Users = []*acl.User{acl.NewDefault(resp.NewCatalog(fake.machine.Table()), "")}
					}
				})
				c := dial(t, s)
				for _, line := range tc.setup {
					c.do(line)
				}
				f.fail(n, outcome.ErrNoLeader)
				reply := c.do(tc.run[0])
				f.armed.Store(false)
				failed := f.skip.Load() < 0
				switch wrote := f.writes.Load() > 0; {
				case !failed:
					if n < 2 {
						t.Errorf("%s runs %d groups, want at least 2", tc.name, n)
					}
					return
				case wrote && strings.Contains(reply, "-CLUSTERDOWN"), wrote && strings.Contains(reply, "not executed"):
					t.Errorf("%d groups ran, but the reply says that the command was not executed: %q", n, reply)
				case wrote && !strings.Contains(reply, "-UNKNOWN"), !wrote && !strings.Contains(reply, "-CLUSTERDOWN no leader, the command was not executed"):
					t.Errorf("after %d groups (a write among them: %v) the reply is %q, want UNKNOWN after a write, otherwise CLUSTERDOWN", n, wrote, reply)
				}
			}
		})
	}
}

// TestExecutor_Pipeline checks that the outcome of a command in a pipeline does not
// depend on whether earlier commands of the pipeline were executed.
func TestExecutor_Pipeline(t *testing.T) {
	fake, f := newFake(t), &failing{}
	fake.before = f.before
	c := dial(t, serve(t, fake))
	f.fail(3, outcome.ErrNoLeader) // the groups of SETUSER: read the users, change one, read the users
	c.send("ACL SETUSER bob on", "SET k v", "ACL SETUSER bob off")
	c.want("+OK", "-CLUSTERDOWN no leader, the command was not executed", "-CLUSTERDOWN no leader, the command was not executed")
}

// TestExecutor_Executed checks a CONFIG SET whose change of a user was certainly
// executed, but whose later step failed. The reply must say that the command was
// executed, and the node must apply the other setting of the command.
func TestExecutor_Executed(t *testing.T) {
	fake, f := newFake(t), &failing{}
	fake.before = f.before
	c := dial(t, serve(t, fake))
	f.fail(2, outcome.ErrNoLeader)
	want := "-UNKNOWN the command was executed, but this node has not read the change yet\n"
	if got := c.do("CONFIG SET requirepass secret slowlog-max-len 7"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.armed.Store(false)
	c.expect("CONFIG GET slowlog-max-len", "*2\n$15\nslowlog-max-len\n$1\n7", "CONFIG GET requirepass", "*2\n$11\nrequirepass\n$0\n")
}

// TestExecutor_Block checks that the outcome of a blocking command is unknown if
// a later step fails. A command that waits may be served at any time, so the
// reply must not say that the command was not executed.
func TestExecutor_Block(t *testing.T) {
	for _, tc := range []struct{ name, end string }{
		{"the wait is ended", "CLIENT UNBLOCK %s"},
		{"the command is run again", ""},
	} {
		for _, cause := range []error{outcome.ErrNoLeader, outcome.ErrClosed, outcome.ErrUnknown, errors.New("broken")} {
			t.Run(fmt.Sprintf("%s, %v", tc.name, cause), func(t *testing.T) {
				fake, f := newFake(t), &failing{}
				fake.before = f.before
				s := serve(t, fake)
				c, other := dial(t, s), dial(t, s)
				id := strings.Trim(c.do("CLIENT ID"), ":\n")
				c.send("BLMOVE a b LEFT LEFT 0")
				awaitBlocked(t, other, "1")
				f.fail(0, cause)
				if tc.end != "" {
					other.expect(fmt.Sprintf(tc.end, id), ":1")
				} else {
					fake.forgetWaiter(t, id)
				}
				c.want("-UNKNOWN outcome of the command is unknown, read the key before you try again")
			})
		}
	}
}

// forgetWaiter informs the connection with the given id that the cluster has
// dropped its waiter.
func (f *fakeCluster) forgetWaiter(t testing.TB, id string) {
	t.Helper()
	origin, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits[origin] <- nil
}
