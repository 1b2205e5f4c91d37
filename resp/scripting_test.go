package resp_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// TestSessionCommands_InScripts checks that the state machine knows which
// connection commands scripts may not call. A script must get the error that a
// command is not allowed in scripts, not that the command does not exist.
func TestSessionCommands_InScripts(t *testing.T) {
	allowed := map[string]bool{"ping": true, "echo": true, "select": true}
	for _, cmd := range resp.ConnectionCommands() {
		if fsm.SessionCommand(cmd.Name) == allowed[cmd.Name] {
			t.Errorf("fsm.SessionCommand(%s) is %v, want the opposite", cmd.Name, allowed[cmd.Name])
		}
	}
}
