package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// op is one command on one key.
type op struct {
	kind string // set, setnx, get, getset, del, cad (compare and delete)
	key  string
	arg  string
}

// outcome is what the client was told.
type outcome struct {
	known bool // false: the command may have been executed, now or later, or not
	value string
	null  bool
	n     int64
}

// register is the model of a key: a value, or absent. Values are unique, so a
// reply says which write it saw.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		var keys []string
		for _, o := range history {
			key := o.Input.(op).key
			if byKey[key] == nil {
				keys = append(keys, key)
			}
			byKey[key] = append(byKey[key], o)
		}
		var parts [][]porcupine.Operation
		for _, key := range keys {
			parts = append(parts, byKey[key])
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		value, in, out := state.(string), input.(op), output.(outcome)
		absent := value == ""
		// An unknown outcome agrees with anything. That the command did not run at
		// all is covered too: its end is open, so it can stand after all others.
		switch in.kind {
		case "get":
			return sameValue(out, value), value
		case "set":
			return true, in.arg
		case "getset":
			return !out.known || sameValue(out, value), in.arg
		case "setnx":
			if absent {
				return !out.known || out.n == 1, in.arg
			}
			return !out.known || out.n == 0, value
		case "del":
			return !out.known || (out.n == 1) == !absent, ""
		case "cad":
			if value == in.arg {
				return !out.known || out.n == 1, ""
			}
			return !out.known || out.n == 0, value
		}
		panic("linear: no such operation: " + in.kind)
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(op), output.(outcome)
		what := fmt.Sprintf("%s %s %s", in.kind, in.key, in.arg)
		switch {
		case !out.known:
			return what + " -> ?"
		case out.null:
			return what + " -> nil"
		case out.value != "":
			return what + " -> " + out.value
		}
		return fmt.Sprintf("%s -> %d", what, out.n)
	},
}

func sameValue(out outcome, value string) bool {
	if value == "" {
		return out.null
	}
	return !out.null && out.value == value
}
