package checker

import (
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// MaxOpsPerKey limits the history of one key. The checker's memory grows with
// the square of the length, and its time grows faster. A recorder must change
// to a new key before it reaches the limit.
const MaxOpsPerKey = 400

// LinearResult is the result of Linear.
type LinearResult struct {
	Keys, Ops  int
	Violations []Violation
	// Bad contains the histories of the keys that were not linearizable, not
	// decided in time, or too long. Draw draws one of these histories.
	Bad map[string][]*Op
}

// Linear checks that each key is linearizable. limit bounds the search for one
// key. health determines when a key must be gone.
func Linear(ops []Op, health *Health, limit time.Duration) LinearResult {
	byKey := make(map[string][]*Op)
	var keys []string
	for i := range ops {
		o := &ops[i]
		// A refused command was not executed, so its value must not explain
		// what a read returns. A read without a reply says nothing.
		if o.Outcome == Refused || o.Outcome == Unknown && o.Kind.Reads() {
			continue
		}
		if byKey[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	res := LinearResult{Keys: len(keys), Bad: make(map[string][]*Op)}
	sort.Strings(keys)
	model := keyModel(health)
	for _, key := range keys {
		history := byKey[key]
		res.Ops += len(history)
		bad := ""
		if len(history) > MaxOpsPerKey {
			bad = fmt.Sprintf("%d commands on one key are more than can be checked (%d)", len(history), MaxOpsPerKey)
		} else {
			switch porcupine.CheckOperationsTimeout(model, operations(history), limit) {
			case porcupine.Illegal:
				bad = fmt.Sprintf("no order of its %d commands explains all replies", len(history))
			case porcupine.Unknown:
				bad = fmt.Sprintf("not decided within %v (%d commands)", limit, len(history))
			}
		}
		if bad != "" {
			from, to := span(history)
			res.Violations = append(res.Violations, Violation{"linearizable", key, bad, from, to})
			res.Bad[key] = history
		}
	}
	return res
}

func operations(history []*Op) []porcupine.Operation {
	all := make([]porcupine.Operation, len(history))
	for i, o := range history {
		all[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Return: int64(o.end())}
	}
	return all
}

func span(history []*Op) (from, to time.Duration) {
	from = Forever
	for _, o := range history {
		from = min(from, o.Call)
		if o.Outcome == Done {
			to = max(to, o.Return)
		}
	}
	return from, to
}

// Draw writes porcupine's page about one key. The page shows the longest order
// that explains a part of the history, and where that order ends. In porcupine,
// the operations of one client must not overlap. A command of unknown outcome
// never ends, so Draw assigns each of these commands to a client of its own.
func Draw(w io.Writer, history []*Op, health *Health, limit time.Duration) error {
	model := keyModel(health)
	all := operations(history)
	highest := 0
	for _, o := range all {
		highest = max(highest, o.ClientId)
	}
	for i := range all {
		if all[i].Return == int64(Forever) {
			highest++
			all[i].ClientId = highest
		}
	}
	_, info := porcupine.CheckOperationsVerbose(model, all, limit)
	return porcupine.Visualize(model, info, w)
}
