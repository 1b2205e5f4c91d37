package resp

import "github.com/holdfast-kv/holdfast/fsm"

// absentRows are the commands of a Redis server that have no function here but
// that an operator may try. The reply says what to do instead. COMMAND does not
// list them.
//
// Commands that a client library may probe for are not in this list. They get
// the reply for an unknown command, because client libraries detect missing
// features by that reply. SENTINEL is the main example: StackExchange.Redis
// treats a node that answers SENTINEL as a sentinel.
var absentRows = []row{
	absent("replicaof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("slaveof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("psync", "nodes replicate through another port"),
	absent("sync", "nodes replicate through another port"),
}

func absent(name, instead string) row {
	text := "ERR " + upper(name) + " is not supported: " + instead
	return row{
		cmd:    fsm.Command{Name: name, Arity: -1, Group: "server", Since: "holdfast", Complexity: "O(1)", Doc: "Refused"},
		words:  "admin noscript no_multi",
		hidden: true,
		run:    func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) },
	}
}
