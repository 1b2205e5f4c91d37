package attack

import "time"

// Leadership is the time in which a node led a term, as far as it was observed:
// from the first to the last answer in which the node said that it led.
type Leadership struct {
	Node string        `json:"node"`
	Term uint64        `json:"term"`
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// addLeadership adds the report of a node, at the time now, that the node leads
// a term. A deposed leader that has not noticed the change reports an older term
// than that of the last leadership. Its report adds nothing.
func addLeadership(all []Leadership, node string, term uint64, now time.Duration) []Leadership {
	if n := len(all); n > 0 {
		switch last := &all[n-1]; {
		case term < last.Term:
			return all
		case term == last.Term && node == last.Node:
			last.To = now
			return all
		}
	}
	return append(all, Leadership{Node: node, Term: term, From: now, To: now})
}
