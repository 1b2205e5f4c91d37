package checker

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// Push is an attempt to append a unique element to a queue. A queue is a list.
type Push struct {
	Queue, ID    string
	Client       int
	Call, Return time.Duration
	Outcome      Outcome
}

// Take is an attempt to take the first element of a queue, with a blocking or a
// nonblocking command.
type Take struct {
	Queue        string
	To           string // the list to which the command moves the element, "" if it only removes it
	ID           string // the element that the client received, "" for none
	Client       int
	Node         string
	Call, Return time.Duration // Return is valid only for Done and Refused
	Outcome      Outcome
	// Blocks says that the command waits if the queue is empty.
	Blocks bool
	// Waiting is a time at which the client is known to have been a waiter in
	// the cluster, 0 if no such time is known.
	Waiting time.Duration
	Error   string // error text, if not Done
}

func (k *Take) String() string {
	what := "took " + k.ID
	switch {
	case k.Outcome == Refused:
		what = "was refused"
	case k.Outcome == Unknown:
		what = "does not know what it took"
	case k.ID == "":
		what = "took nothing"
	}
	return fmt.Sprintf("client %d at %s, from %v to %v, %s", k.Client, k.Node, k.Call, k.Return, what)
}

// Queues checks queues. The argument takes must contain every take from these
// queues. The argument left is the final content of the lists, including the
// lists that elements were moved to. Queues does not check a queue that is
// missing from left.
//
//   - An acknowledged element was taken once or is left. It may be missing only
//     if a client that could have received it does not know what it took.
//   - A refused push or take has no effect. A push or take of unknown outcome
//     takes effect at most once.
//   - Of two elements, the one that was pushed first is taken first.
//   - A waiting client receives an element that is in the queue. This is
//     checked only for clients that waited while the cluster was healthy.
//   - Of two waiting clients, the one that came first is served first. health
//     says when clients may lose their positions: during faults and changes of
//     leader. Without health, neither of the last two rules is checked.
func Queues(pushes []Push, takes []Take, left map[string][]string, health *Health) (checked int, bad []Violation) {
	for _, q := range queuesOf(pushes, takes) {
		if _, read := left[q.name]; !read {
			continue
		}
		q.left = left
		q.health = health
		checked += len(q.pushes) + len(q.takes)
		q.check()
		bad = append(bad, q.bad...)
	}
	return checked, bad
}

// queue is the part of the history about one queue.
type queue struct {
	name   string
	pushes map[string]*Push
	takes  []*Take
	left   map[string][]string
	health *Health

	removed map[string][]*Take  // takes that only removed an element, by element
	moved   map[string][]*Take  // takes that moved an element, by element
	stays   map[string][]string // lists that contain an element at the end, by element
	bad     []Violation
}

func queuesOf(pushes []Push, takes []Take) []*queue {
	byName := make(map[string]*queue)
	get := func(name string) *queue {
		q := byName[name]
		if q == nil {
			q = &queue{name: name, pushes: make(map[string]*Push), removed: make(map[string][]*Take),
				moved: make(map[string][]*Take), stays: make(map[string][]string)}
			byName[name] = q
		}
		return q
	}
	for i := range pushes {
		p := &pushes[i]
		get(p.Queue).pushes[p.ID] = p
	}
	for i := range takes {
		q := get(takes[i].Queue)
		q.takes = append(q.takes, &takes[i])
	}
	all := make([]*queue, 0, len(byName))
	for _, q := range byName {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b *queue) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return all
}

func (q *queue) say(from, to time.Duration, format string, args ...any) {
	q.bad = append(q.bad, Violation{"queue", q.name, fmt.Sprintf(format, args...), from, to})
}

func (q *queue) check() {
	q.index()
	q.elements()
	q.missing()
	q.fifo()
	q.unserved()
	q.firstComeFirstServed()
}

// index records the outcome of each element.
func (q *queue) index() {
	lists := map[string]bool{q.name: true}
	for _, k := range q.takes {
		if k.To != "" {
			lists[k.To] = true
		}
		switch {
		case k.Outcome != Done || k.ID == "":
		case k.To == "":
			q.removed[k.ID] = append(q.removed[k.ID], k)
		default:
			q.moved[k.ID] = append(q.moved[k.ID], k)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, id := range q.left[name] {
			if _, ours := q.pushes[id]; ours || name == q.name {
				q.stays[id] = append(q.stays[id], name)
			}
		}
	}
}

// elements checks each element that was pushed, taken or left.
func (q *queue) elements() {
	seen := make(map[string]bool)
	for id := range q.removed {
		seen[id] = true
	}
	for id := range q.moved {
		seen[id] = true
	}
	for id := range q.stays {
		seen[id] = true
	}
	unexplained := make([]string, 0)
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		var from, to time.Duration
		if p := q.pushes[id]; p == nil {
			q.say(0, 0, "%s was in the queue, but no client pushed it", id)
		} else if from, to = p.Call, p.Return; p.Outcome == Refused {
			q.say(from, to, "the push of %s was refused as not executed, but it was executed", id)
		}
		if n := len(q.removed[id]) + len(q.stays[id]); n > 1 {
			q.say(from, to, "%s occurs %d times: taken by %v, left in %v", id, n, q.removed[id], q.stays[id])
		}
		if n := len(q.moved[id]); n > 1 {
			q.say(from, to, "%s was moved %d times: %v", id, n, q.moved[id])
		}
		for _, k := range q.moved[id] {
			if !slices.Contains(q.stays[id], k.To) {
				q.say(k.Call, k.Return, "%s is not in %s, to which it was moved: %v", id, k.To, k)
			}
		}
		for _, name := range q.stays[id] {
			if name != q.name && len(q.moved[id]) == 0 {
				unexplained = append(unexplained, id)
			}
		}
	}
	// If no client received an element that was moved, a take of unknown
	// outcome must have moved it. Each such take explains one element.
	var unknown []*Take
	for _, k := range q.takes {
		if k.Outcome == Unknown && k.To != "" {
			unknown = append(unknown, k)
		}
	}
	for _, id := range q.unmatched(unexplained, unknown) {
		q.say(q.pushes[id].Call, Forever,
			"%s was moved to another list, but no client received it, and no take of unknown outcome explains the move",
			id)
	}
}

// missing finds acknowledged elements that no client received, that are in no
// list, and that no take of unknown outcome can have removed.
func (q *queue) missing() {
	var ids []string
	for id, p := range q.pushes {
		if p.Outcome == Done && len(q.removed[id])+len(q.stays[id]) == 0 {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	var unknown []*Take
	for _, k := range q.takes {
		if k.Outcome == Unknown && k.To == "" {
			unknown = append(unknown, k)
		}
	}
	for _, id := range q.unmatched(ids, unknown) {
		p := q.pushes[id]
		q.say(p.Call, q.deadline(p),
			"%s was acknowledged and is missing; %d elements are missing, and %d takes have an unknown outcome",
			id, len(ids), len(unknown))
	}
}

// deadline returns the latest time at which an element can have been taken: at
// that time, a client received an element that was pushed later.
func (q *queue) deadline(p *Push) time.Duration {
	end := Forever
	for _, all := range []map[string][]*Take{q.removed, q.moved} {
		for id, takes := range all {
			if later := q.pushes[id]; later != nil && p.Return < later.Call {
				end = min(end, takes[0].Return)
			}
		}
	}
	return end
}

// unmatched pairs each of the elements with a take that may have taken it, for
// as many elements as possible. It returns the elements without a take. A take
// may have taken an element only if it was sent before the deadline of the
// element.
func (q *queue) unmatched(ids []string, takes []*Take) (left []string) {
	by := make(map[*Take]string)
	deadlines := make(map[string]time.Duration)
	for _, id := range ids {
		if q.pushes[id] != nil {
			deadlines[id] = q.deadline(q.pushes[id])
		}
	}
	var explain func(id string, tried map[*Take]bool) bool
	explain = func(id string, tried map[*Take]bool) bool {
		for _, k := range takes {
			if tried[k] || k.Call >= deadlines[id] {
				continue
			}
			tried[k] = true
			if other, taken := by[k]; !taken || explain(other, tried) {
				by[k] = id
				return true
			}
		}
		return false
	}
	for _, id := range ids {
		if q.pushes[id] != nil && !explain(id, make(map[*Take]bool)) {
			left = append(left, id)
		}
	}
	return left
}

// delivery is an element with the take whose reply contained it.
type delivery struct {
	p *Push
	k *Take
}

func (q *queue) deliveries() []delivery {
	var all []delivery
	for _, takes := range []map[string][]*Take{q.removed, q.moved} {
		for id, k := range takes {
			if p := q.pushes[id]; p != nil {
				all = append(all, delivery{p, k[0]})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].p.ID < all[j].p.ID })
	return all
}

// fifo checks the order in which elements were taken. It finds an element whose
// take was answered before the take of an element in front of it was sent. The
// push of the element in front must be acknowledged: a push of unknown outcome
// may have taken effect at any later time.
func (q *queue) fifo() {
	all := q.deliveries()
	for _, a := range all {
		for _, b := range all {
			if a.p.Outcome == Done && a.p.Return < b.p.Call && b.k.Return < a.k.Call {
				q.say(b.k.Call, a.k.Return, "%s was pushed after %s and taken before it: %v; %v",
					b.p.ID, a.p.ID, b.k, a.k)
			}
		}
	}
}

// unserved finds clients that waited and received nothing, although an element
// was in the queue all the time.
func (q *queue) unserved() {
	gone := make(map[string]time.Duration) // earliest time at which each element can have been taken
	for _, d := range q.deliveries() {
		gone[d.p.ID] = d.k.Call
	}
	for _, k := range q.takes {
		if !k.Blocks || k.Outcome != Done || k.ID != "" || !q.health.Well(k.Call, k.Return) {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(q.pushes)) {
			p := q.pushes[id]
			at, taken := gone[id]
			there := taken && at > k.Return || slices.Contains(q.stays[id], q.name)
			if p.Outcome == Done && p.Return < k.Call && there {
				q.say(k.Call, k.Return, "%s was in the queue all the time: %v", id, k)
				break
			}
		}
	}
}

// firstComeFirstServed checks the order of waiting clients. Client a came
// before client b if a was a waiter in the cluster before b sent its command.
// Client b was served first if it received an element that was pushed before
// the element that a received.
func (q *queue) firstComeFirstServed() {
	all := q.deliveries()
	for _, a := range all {
		if a.k.Waiting == 0 || !a.k.Blocks {
			continue
		}
		for _, b := range all {
			if a.k.Waiting < b.k.Call && b.p.Outcome == Done && b.p.Return < a.p.Call &&
				q.health.Well(a.k.Call, max(a.k.Return, b.k.Return)) {
				q.say(a.k.Call, a.k.Return,
					"a client that came later was served first: %v, which was in the queue at %v; %v",
					a.k, a.k.Waiting, b.k)
			}
		}
	}
}
