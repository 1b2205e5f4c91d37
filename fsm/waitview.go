package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// These are the internal commands about waiters. Nodes and leaders send them;
// clients cannot.
const (
	// UnwaitCommand ends a wait. Its arguments are origin and position.
	// Unwaited reads its answer.
	UnwaitCommand = "_unwait"
	// WaitedCommand removes waiters, served or not. Its arguments are origin
	// and position of each waiter.
	WaitedCommand = "_waited"
	// SuspendCommand lets the leader change the waiters of a session. Its
	// arguments are the leader's term, node, boot, and one of SuspendOn,
	// SuspendOff, SuspendEnd and SuspendDrop. It has no effect if the term is
	// over.
	SuspendCommand = "_hold"
)

// These are the last arguments of SuspendCommand.
const (
	SuspendOn  = "on"  // the node is not connected: its waiters are served nothing
	SuspendOff = "off" // the node is connected
	// SuspendEnd: the node was not connected for too long. Its open waiters are
	// removed, so that the waiters behind them are served. If the node is still
	// running, its clients wait again. The replies of its served waiters stay,
	// because they exist nowhere else.
	SuspendEnd = "end"
	// SuspendDrop: the node never comes back. All its waiters are removed. This
	// argument exists from FeatureMend on.
	SuspendDrop = "drop"
)

var waitCommands = []Command{
	{
		Name: UnwaitCommand, Run: unwait, Arity: 3, Flags: Internal | Write | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "origin position",
		Doc:        "End the wait of a connection",
	},
	{
		Name: WaitedCommand, Run: waited, Arity: -3, Flags: Internal | Write | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N)",
		Syntax:     "origin position [origin position ...]",
		Doc:        "Remove waiters whose clients do not wait any more",
	},
	{
		Name: SuspendCommand, Run: suspend, Arity: 5, Flags: Internal | Write | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N)",
		Syntax:     "term node boot <on | off | end | drop>",
		Doc:        "Suspend, serve or remove the waiters of a node",
	},
}

// waiterNamed returns the waiter of the current session with the given origin
// and position, nil if there is none.
func (c *Ctx) waiterNamed(origin, pos []byte) *waiter {
	o, err1 := strconv.ParseUint(string(origin), 10, 64)
	p, err2 := strconv.ParseUint(string(pos), 10, 64)
	if err1 != nil || err2 != nil {
		return nil
	}
	if n := c.m.waits.find(c.sender.NodeID, o); n != nil && n.session == c.sender && n.pos == Pos(p) {
		return n
	}
	return nil
}

// unwait answers 1 if the waiter was still waiting, 0 if there is no such
// waiter, and otherwise the reply that the waiter was served.
func unwait(c *Ctx, args [][]byte) Reply {
	n := c.waiterNamed(args[1], args[2])
	if n == nil {
		return Zero
	}
	c.change()
	c.forget(n)
	if n.served {
		return Bulk(string(n.reply))
	}
	return One
}

// Unwaited reads the answer to UnwaitCommand. reply is what the waiter was
// served, nil if it was not served. gone is true if there was no such waiter.
func Unwaited(answer []byte) (reply []byte, gone bool, err error) {
	switch string(answer) {
	case ":0\r\n":
		return nil, true, nil
	case ":1\r\n":
		return nil, false, nil
	}
	var size int
	if _, err := fmt.Sscanf(string(answer[:min(len(answer), 24)]), "$%d\r\n", &size); err != nil {
		return nil, false, fmt.Errorf("answer %.40q to the end of a wait: %w", answer, ErrFormat)
	}
	body := answer[len("$\r\n")+len(strconv.Itoa(size)):]
	if len(body) != size+2 {
		return nil, false, fmt.Errorf("answer of %d bytes to the end of a wait: %w", len(answer), ErrFormat)
	}
	return body[:size], false, nil
}

func waited(c *Ctx, args [][]byte) Reply {
	for rest := args[1:]; len(rest) > 1; rest = rest[2:] {
		if n := c.waiterNamed(rest[0], rest[1]); n != nil {
			c.change()
			c.forget(n)
		}
	}
	return OK
}

func suspend(c *Ctx, args [][]byte) Reply {
	term, err1 := strconv.ParseUint(string(args[1]), 10, 64)
	boot, err2 := strconv.ParseUint(string(args[3]), 10, 64)
	w := &c.m.waits
	at, found := w.node(string(args[2]))
	if err1 != nil || err2 != nil || term != c.m.term || !found || w.nodes[at].id.Boot != boot {
		return Zero
	}
	c.change()
	switch id := w.nodes[at].id; string(args[4]) {
	case SuspendOn:
		w.nodes[at].suspended = true
	case SuspendOff:
		w.nodes[at].suspended = false
		list := w.of(id)
		slices.SortFunc(list, func(a, b *waiter) int { return cmp.Compare(a.pos, b.pos) })
		for _, n := range list {
			for _, k := range n.keys {
				c.ready(k)
				c.streamGone(k) // the stream may have been removed in the meantime
			}
		}
	case SuspendEnd:
		if c.m.features < FeatureMend {
			c.endWaits(id) // served waiters too
		} else {
			c.endOpenWaits(id)
		}
	case SuspendDrop:
		if c.m.features >= FeatureMend {
			c.endWaits(id)
		}
	}
	return One
}

// WaitState is the state of a wait.
type WaitState int

const (
	// WaitGone: the machine has no such waiter.
	WaitGone WaitState = iota
	// WaitOpen: the waiter waits.
	WaitOpen
	// WaitServed: the waiter was served, and its reply is kept.
	WaitServed
)

// Waiter returns the state of a wait, and its reply if it was served. The
// caller must not change the reply.
func (m *Machine) Waiter(id SessionID, origin uint64, pos Pos) (state WaitState, reply []byte) {
	switch n := m.waits.find(id.NodeID, origin); {
	case n == nil || n.session != id || n.pos != pos:
		return WaitGone, nil
	case n.served:
		return WaitServed, n.reply
	}
	return WaitOpen, nil
}

// WaiterInfo describes a waiter. The number of its connection (Origin) and its
// position identify it within its session.
type WaiterInfo struct {
	Origin uint64
	Pos    Pos
	Served bool
}

// WaitersOf returns the waiters of a session, including served ones.
func (m *Machine) WaitersOf(id SessionID) []WaiterInfo {
	var list []WaiterInfo
	for _, n := range m.waits.of(id) {
		list = append(list, WaiterInfo{n.origin, n.pos, n.served})
	}
	return list
}

// WaitSession is a session that has waiters.
type WaitSession struct {
	ID        SessionID
	Suspended bool
	// Open is the number of waiters that wait. Served is the number of waiters
	// that were served and whose node has not confirmed yet that it received
	// the reply.
	Open, Served int
}

// WaitSessions returns the sessions with waiters, sorted by node.
func (m *Machine) WaitSessions() []WaitSession {
	list := make([]WaitSession, len(m.waits.nodes))
	for i, s := range m.waits.nodes {
		list[i] = WaitSession{s.id, s.suspended, s.n - s.served, s.served}
	}
	return list
}

// Waiting returns the number of waiting connections in the whole cluster.
func (m *Machine) Waiting() int { return m.waits.count }
