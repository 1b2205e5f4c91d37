package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Internal commands about waiters. Nodes and leaders send them; no client can.
const (
	// UnwaitCommand ends a wait: origin, position. It answers how it ended: see
	// Unwaited.
	UnwaitCommand = "_unwait"
	// WaitedCommand forgets waiters, served or not: origin, position, and so on.
	WaitedCommand = "_waited"
	// HoldCommand is a leader's word on the waiters of a session: term, node, boot,
	// HoldOn, HoldOff, HoldEnd or HoldDrop. Of a term that is over it has no effect.
	HoldCommand = "_hold"
)

// What a leader may say of a session's waiters.
const (
	HoldOn  = "on"  // its node is not linked: nothing is given to them
	HoldOff = "off" // it is linked
	// HoldEnd: it was not linked for too long. Its waiters are forgotten, so that
	// those behind them are served; the clients of a node that lives wait again. The
	// replies of those that were served stay, because what they hold is nowhere else.
	HoldEnd = "end"
	// HoldDrop: it is never coming back. All its waiters are forgotten. Known from
	// FeatureMend on.
	HoldDrop = "drop"
)

var waitCommands = []Command{
	{Name: UnwaitCommand, Arity: 3, Flags: Internal | Write | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "origin position", Doc: "End the wait of a connection", Run: unwait},
	{Name: WaitedCommand, Arity: -3, Flags: Internal | Write | Fast, Group: "internal", Since: "holdfast", Complexity: "O(N)", Syntax: "origin position [origin position ...]", Doc: "Forget waiters that nobody waits for", Run: waited},
	{Name: HoldCommand, Arity: 5, Flags: Internal | Write | Fast, Group: "internal", Since: "holdfast", Complexity: "O(N)", Syntax: "term node boot <on | off | end | drop>", Doc: "Hold, serve or forget the waiters of a node", Run: hold},
}

// waiterNamed returns the waiter of the current session that two arguments name.
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

// unwait answers 1 if the waiter was still there, 0 if it is no more, and else
// the reply that it was served.
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

// Unwaited reads the answer to UnwaitCommand: reply is what the waiter was
// served before, nil if it was not; gone is true if there was no such waiter.
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

func hold(c *Ctx, args [][]byte) Reply {
	term, err1 := strconv.ParseUint(string(args[1]), 10, 64)
	boot, err2 := strconv.ParseUint(string(args[3]), 10, 64)
	w := &c.m.waits
	at, found := w.node(string(args[2]))
	if err1 != nil || err2 != nil || term != c.m.term || !found || w.nodes[at].id.Boot != boot {
		return Zero
	}
	c.change()
	switch id := w.nodes[at].id; string(args[4]) {
	case HoldOn:
		w.nodes[at].held = true
	case HoldOff:
		w.nodes[at].held = false
		list := w.of(id)
		slices.SortFunc(list, func(a, b *waiter) int { return cmp.Compare(a.pos, b.pos) })
		for _, n := range list {
			for _, k := range n.keys {
				c.ready(k)
				c.streamGone(k) // perhaps, meanwhile
			}
		}
	case HoldEnd:
		if c.m.features < FeatureMend || seeded("hold-forgets") {
			c.endWaits(id) // served ones too
		} else {
			c.endOpenWaits(id)
		}
	case HoldDrop:
		if c.m.features >= FeatureMend {
			c.endWaits(id)
		}
	}
	return One
}

// WaitState is what the machine knows of a wait.
type WaitState int

const (
	// WaitGone: there is no such waiter.
	WaitGone WaitState = iota
	// WaitOpen: it waits.
	WaitOpen
	// WaitServed: it was served, and its reply is kept.
	WaitServed
)

// Waiter tells what has become of a wait. The reply must not be changed.
func (m *Machine) Waiter(id SessionID, origin uint64, pos Pos) (state WaitState, reply []byte) {
	switch n := m.waits.find(id.NodeID, origin); {
	case n == nil || n.session != id || n.pos != pos:
		return WaitGone, nil
	case n.served:
		return WaitServed, n.reply
	}
	return WaitOpen, nil
}

// WaiterInfo is a waiter as others see it: its connection and its position name it
// within its session.
type WaiterInfo struct {
	Origin uint64
	Pos    Pos
	Served bool
}

// WaitersOf returns the waiters of a session, those served included.
func (m *Machine) WaitersOf(id SessionID) []WaiterInfo {
	var list []WaiterInfo
	for _, n := range m.waits.of(id) {
		list = append(list, WaiterInfo{n.origin, n.pos, n.served})
	}
	return list
}

// WaitSession is a session that has waiters.
type WaitSession struct {
	ID   SessionID
	Held bool
	// Open and Served count the waiters: those that wait, and those that were served
	// and whose node has not said yet that it has the reply.
	Open, Served int
}

// WaitSessions returns the sessions with waiters, sorted by node.
func (m *Machine) WaitSessions() []WaitSession {
	list := make([]WaitSession, len(m.waits.nodes))
	for i, s := range m.waits.nodes {
		list[i] = WaitSession{s.id, s.held, s.n - s.served, s.served}
	}
	return list
}

// Waiting returns the number of connections that wait, in the whole cluster.
func (m *Machine) Waiting() int { return m.waits.count }
