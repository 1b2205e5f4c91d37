package resp_test

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// A killed connection whose command is delayed is still listed. CLIENT KILL
// does not count it again.
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
