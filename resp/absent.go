package resp

import "github.com/holdfast-kv/holdfast/fsm"

// absentRows are commands of a Redis server that make no sense here, and that an
// operator may try: the answer says what to do instead. COMMAND does not list
// them. What a client may probe for is not among them: it gets the answer for an
// unknown command, by which clients detect missing features. (SENTINEL above all:
// StackExchange.Redis takes a node that answers it for a sentinel.)
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
