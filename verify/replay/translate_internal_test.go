package replay

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestReserved checks that reserved recognizes a SET NX or SETNX that the state
// machine refused, although the key is absent, because a client waits for the
// lock. A redis-server would execute such a command.
func TestReserved(t *testing.T) {
	for _, tc := range []struct {
		kind  string
		args  []string
		reply fsm.Reply
		want  bool
	}{
		{"none", []string{"set", "k", "v", "NX", "PX", "9"}, fsm.Null, true},
		{"none", []string{"SETNX", "k", "v"}, fsm.Zero, true},
		{"string", []string{"set", "k", "v", "nx"}, fsm.Null, false},
		{"lock", []string{"setnx", "k", "v"}, fsm.Zero, false},
		{"none", []string{"set", "k", "v", "XX"}, fsm.Null, false},
		{"none", []string{"set", "k", "v", "NX", "GET"}, fsm.Null, false}, // SET has written the absent key
		{"string", []string{"set", "k", "v", "NX"}, fsm.OK, false},
		{"string", []string{"setnx", "k", "v"}, fsm.One, false},
	} {
		tr := translator{kind: func(int, string) string { return tc.kind }}
		name := "set"
		if len(tc.args) == 3 {
			name = "setnx"
		}
		if got := tr.reserved(name, tc.args, tc.reply); got != tc.want {
			t.Errorf("%v of a key of the type %s: %v, want %v", tc.args, tc.kind, got, tc.want)
		}
	}
}
