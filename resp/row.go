package resp

import (
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// row is a command that concerns the connection or the node, not data. The
// embedded fsm.Command carries what COMMAND prints; its Run stays nil.
type row struct {
	cmd fsm.Command
	// run answers. A reply of kind none writes nothing.
	run func(c *conn, args [][]byte) fsm.Reply
	// noAuth rows may be used before the connection has authenticated.
	noAuth bool
	// inMulti rows are run at once inside MULTI instead of being queued.
	inMulti bool
}

func sessionFamilies() [][]row {
	return [][]row{
		connectionRows,
		clientRows,
		transactionRows,
		commandRows,
		serverRows,
		adminRows,
	}
}

// sessionTable indexes the session rows. It panics on a name that stands twice
// or in the machine's table too: a mistake in the program.
func sessionTable(table *fsm.Table) map[string]*row {
	rows := make(map[string]*row)
	for _, family := range sessionFamilies() {
		for i := range family {
			r := family[i]
			if rows[r.cmd.Name] != nil || table.Find([]byte(r.cmd.Name)) != nil {
				panic(fmt.Sprintf("resp: command %q stands in the tables twice", r.cmd.Name))
			}
			r.cmd.IndexSub()
			rows[r.cmd.Name] = &r
		}
	}
	return rows
}

func (s *Server) findRow(name []byte) *row {
	if len(name) > 32 {
		return nil
	}
	return s.rows[strings.ToLower(string(name))]
}

func upper(s string) string { return strings.ToUpper(s) }

// SessionRows returns the rows of the commands that resp answers, for the
// documentation.
func SessionRows() []fsm.Command {
	var out []fsm.Command
	for _, family := range sessionFamilies() {
		for _, r := range family {
			out = append(out, r.cmd)
		}
	}
	return out
}
