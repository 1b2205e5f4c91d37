package resp_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestFeature checks that a command that the feature version of the cluster does
// not include is refused: alone, in a pipeline, and in a transaction, which is then
// not executed.
func TestFeature(t *testing.T) {
	f := newFake(t)
	table := f.machine.Table()
	table.Find([]byte("incr")).Feature = fsm.MaxFeatures + 1
	table.Find([]byte("object")).FindSub([]byte("encoding")).Feature = fsm.MaxFeatures + 1
	table.Find([]byte("decr")).Feature = fsm.MaxFeatures
	c := dial(t, serve(t, f))
	refusal := func(name string) string {
		return fmt.Sprintf("-ERR '%s' needs feature version %d and the cluster uses %d: upgrade every node first", name, fsm.MaxFeatures+1, fsm.MaxFeatures)
	}
	featureError := refusal("incr")
	c.expect(
		"INCR n", featureError,
		"OBJECT ENCODING n", refusal("object encoding"),
	)
	c.send("SET k v", "INCR n", "GET k")
	c.want("+OK", featureError, "$1\nv")
	c.expect(
		"MULTI", "+OK",
		"SET k w", "+QUEUED",
		"INCR n", featureError,
		"EXEC", "-EXECABORT Transaction discarded because of previous errors.",
		"GET k", "$1\nv",
		"DECR n", ":-1",
	)
}
