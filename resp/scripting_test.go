package resp_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// TestSessionCommands_InScripts holds the names that the machine refuses to
// scripts against the rows: a script must be told that a command is not for it,
// not that there is none.
func TestSessionCommands_InScripts(t *testing.T) {
	allowed := map[string]bool{"ping": true, "echo": true, "select": true}
	for _, cmd := range resp.SessionRows() {
		if fsm.SessionCommand(cmd.Name) == allowed[cmd.Name] {
			t.Errorf("%s: fsm.SessionCommand says %v", cmd.Name, allowed[cmd.Name])
		}
	}
}
