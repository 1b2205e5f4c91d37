package resp_test

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestClientKill_Twice kills a connection whose command is delayed. CLIENT LIST
// may still show this connection, but a second CLIENT KILL does not count it
// again.
func TestClientKill_Twice(t *testing.T) {
	s := serve(t, newFake(t))
	c, other := dial(t, s), dial(t, s)
	id := strings.TrimSuffix(strings.TrimPrefix(c.do("CLIENT ID"), ":"), "\n")
	other.expect("CLIENT PAUSE 600000 WRITE", "+OK")
	c.send("SET k v")
	testutil.Eventually(t, "the command to be delayed", func() bool {
		return strings.Contains(other.do("CLIENT LIST ID "+id), " cmd=set ")
	})
	other.expect("CLIENT KILL ID "+id, ":1", "CLIENT KILL ID "+id, ":0", "CLIENT UNPAUSE", "+OK")
}

// TestClientKill_PausedWrite checks that a write that waits for the end of a CLIENT
// PAUSE is not executed when its connection is killed.
func TestClientKill_PausedWrite(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	other := dial(t, s)
	other.expect("CLIENT PAUSE 600000 WRITE", "+OK")
	for _, command := range []string{"SET k v", "BLPOP q 0"} {
		c := dial(t, s)
		id := strings.TrimSpace(strings.TrimPrefix(c.do("CLIENT ID"), ":"))
		c.send(command)
		name, _, _ := strings.Cut(strings.ToLower(command), " ")
		testutil.Eventually(t, "the command to be delayed", func() bool {
			return strings.Contains(other.do("CLIENT LIST ID "+id), " cmd="+name+" ")
		})
		other.expect("CLIENT KILL ID "+id, ":1")
		c.closed()
		testutil.Eventually(t, "the connection to end", func() bool {
			return !strings.Contains(other.do("CLIENT LIST ID "+id), "id="+id)
		})
	}
	if n := len(f.groups()); n != 0 {
		t.Errorf("%d groups ran during the pause, want none", n)
	}
	other.expect("CLIENT UNPAUSE", "+OK", "GET k", "$-1")
}

// TestDeletedUser_PausedWrite checks that a write that waits for the end of a CLIENT
// PAUSE is not executed when its user is deleted through another node.
func TestDeletedUser_PausedWrite(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	paused, other := dial(t, s), dial(t, serve(t, f))
	other.expect("ACL SETUSER bob on nopass +@all ~* &*", "+OK")
	paused.expect("CLIENT PAUSE 600000 WRITE", "+OK")
	c := dial(t, s)
	c.expect("AUTH bob x", "+OK")
	id := strings.TrimSpace(strings.TrimPrefix(c.do("CLIENT ID"), ":"))
	c.send("SET k v")
	testutil.Eventually(t, "the command to be delayed", func() bool {
		return strings.Contains(paused.do("CLIENT LIST ID "+id), " cmd=set ")
	})
	other.expect("ACL DELUSER bob", ":1")
	c.closed()
	testutil.Eventually(t, "the connection to end", func() bool {
		return !strings.Contains(paused.do("CLIENT LIST ID "+id), "id="+id)
	})
	paused.expect("CLIENT UNPAUSE", "+OK", "GET k", "$-1")
}
