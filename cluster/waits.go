package cluster

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// waits are the blocking commands of this node's clients. Who waits is part of
// the replicated state (fsm/wait.go); this is where each learns how it has ended.
// The node looks into its own machine for that, whenever an entry has ended waits
// of its own, or a snapshot took the place of the log.
//
// The leader tells as well, which is a few milliseconds faster.
//
// What the machine holds of this node and nobody here waits for any more, be it
// because the reply has arrived or because the client is gone, is forgotten by a
// group that sweep sends.
type waits struct {
	machine *machine
	gateway *gateway
	id      fsm.SessionID

	mu     sync.Mutex
	live   map[uint64]*wait // by origin, from before the command is sent
	sweeps int
	urgent bool  // there is perhaps a waiter that takes elements for nobody
	forget *call // under way, nil for none
}

// wait is one blocking command.
type wait struct {
	pos fsm.Pos // names the waiter; 0 while it is not known
	// early came before the name was known, for the waiter earlyPos.
	early    []byte
	earlyPos fsm.Pos
	// own: the reply is to come from this node's own machine, which has noted the
	// events of the entry then; what the leader tells before that is ignored.
	own bool
	out chan []byte // capacity 1: the reply, nil if the waiter is gone
}

func newWaits(m *machine, g *gateway) *waits {
	return &waits{machine: m, gateway: g, id: g.id, live: make(map[uint64]*wait)}
}

// begin must come before the command is sent: what the machine holds for an
// origin that nobody has begun a wait for is forgotten.
func (ws *waits) begin(origin uint64, own bool) *wait {
	w := &wait{own: own, out: make(chan []byte, 1)}
	ws.mu.Lock()
	ws.live[origin] = w
	ws.mu.Unlock()
	return w
}

// waiting gives a wait the name of its waiter.
func (ws *waits) waiting(origin uint64, w *wait, pos fsm.Pos) {
	ws.mu.Lock()
	if w.pos = pos; w.earlyPos == pos {
		delete(ws.live, origin)
		w.out <- w.early
	}
	ws.mu.Unlock()
	ws.look(origin)
}

// end forgets a wait. If it left is true, the machine has perhaps still a waiter.
func (ws *waits) end(origin uint64, w *wait, left bool) {
	ws.mu.Lock()
	ws.urgent = ws.urgent || left
	if ws.live[origin] == w {
		delete(ws.live, origin)
	}
	ws.mu.Unlock()
}

// look asks the machine how a wait stands, and ends it if it is over. It may be
// called at any time, and must be called when the answer may have changed.
func (ws *waits) look(origin uint64) {
	ws.mu.Lock()
	w := ws.live[origin]
	if w == nil || w.pos == 0 {
		ws.mu.Unlock()
		return
	}
	pos := w.pos
	ws.mu.Unlock()
	var state fsm.WaitState
	var reply []byte
	ws.machine.view(func(m *fsm.Machine) {
		if state = fsm.WaitOpen; m.Applied() >= pos.Index() {
			state, reply = m.Waiter(ws.id, origin, pos)
		}
	})
	if state == fsm.WaitOpen {
		return
	}
	ws.mu.Lock()
	if ws.live[origin] == w {
		delete(ws.live, origin)
		w.out <- reply
	}
	ws.mu.Unlock()
}

// takeServed decodes a served frame and ends the wait that it is about.
func (ws *waits) takeServed(payload []byte) error {
	origin, k := binary.Uvarint(payload)
	pos, k2 := binary.Uvarint(payload[max(k, 0):])
	if k <= 0 || k2 <= 0 {
		return errFrame
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.live[origin]
	switch {
	case w == nil, w.own:
	case w.pos == fsm.Pos(pos):
		delete(ws.live, origin)
		w.out <- bytes.Clone(payload[k+k2:])
	case w.pos == 0: // the answer that gives it its name is on its way
		w.early, w.earlyPos = bytes.Clone(payload[k+k2:]), fsm.Pos(pos)
	}
	return nil
}

// woken is called by the machine for every entry, in order.
func (ws *waits) woken(list []fsm.Woken) {
	for i := range list {
		if list[i].Session == ws.id {
			ws.look(list[i].Origin)
		}
	}
}

// restored is called when a snapshot has taken the place of the state.
func (ws *waits) restored() {
	ws.mu.Lock()
	origins := make([]uint64, 0, len(ws.live))
	for origin := range ws.live {
		origins = append(origins, origin)
	}
	ws.mu.Unlock()
	for _, origin := range origins {
		ws.look(origin)
	}
}

// Replies that have arrived may stay in the machine for keepSweeps sweeps, or
// until there are keepArrived of them: one group forgets them all.
const (
	keepSweeps  = 10
	keepArrived = 128
)

// sweep forgets the waiters of which nobody here knows.
func (ws *waits) sweep() {
	if ws.forget != nil {
		select {
		case <-ws.forget.done:
			ws.forget = nil
		default:
			return
		}
	}
	ws.sweeps++
	var names []fsm.WaiterInfo
	ws.machine.view(func(m *fsm.Machine) { names = m.WaitersOf(ws.id) })
	if len(names) == 0 {
		return
	}
	args := [][]byte{[]byte(fsm.WaitedCommand)}
	ws.mu.Lock()
	for _, n := range names { // looked up before live: a wait begins there first
		if w := ws.live[n.Origin]; w == nil || w.pos != 0 && w.pos != n.Pos {
			args = append(args, decimal(n.Origin), decimal(uint64(n.Pos)))
		}
	}
	urgent := ws.urgent
	ws.urgent = false
	ws.mu.Unlock()
	if arrived := len(args) / 2; arrived == 0 || !urgent && arrived < keepArrived && ws.sweeps%keepSweeps != 0 {
		return
	}
	ws.forget = ws.gateway.command(ws.machine.table, args)
}

// Block runs a group whose only operation is a blocking command of connection
// origin. If the reply is one that fsm.Waiting reads, the command waits: then the
// connection must hear from Waited, or call Unblock or Abandon, before it goes on.
// If not, it is as with Do. If own is set, the reply comes from Waited when this node
// has applied the entry that served the command, so that ToldOwn waits for the events
// of that entry too.
func (s *Session) Block(g *fsm.Group, origin uint64, own bool) ([]byte, error) {
	ws := s.node.waits
	w := ws.begin(origin, own)
	reply, err := s.Do(g, false, nil)
	pos, _, waiting := fsm.Waiting(reply)
	if err != nil || !waiting {
		ws.end(origin, w, err != nil) // if the outcome is unknown, sweep finds what it left
		return reply, err
	}
	s.wait, s.origin = w, origin
	ws.waiting(origin, w, pos)
	return reply, nil
}

// Waited returns a channel on which the reply comes when the present wait is
// served, or nil when the cluster no longer knows of it: the command must then be
// run again. That happens to a node that had no way to the leader for too long.
func (s *Session) Waited() <-chan []byte { return s.wait.out }

// Unblock ends the present wait. The reply is not nil if it had been served. The
// outcome of an error is always unknown: that the end of the wait was not executed
// says nothing of the blocking command, which may have been served before.
func (s *Session) Unblock() ([]byte, error) {
	w, ws := s.wait, s.node.waits
	left := true
	defer func() { ws.end(s.origin, w, left) }()
	var g fsm.Group
	g.Reset(2, s.origin)
	g.Command(ws.machine.table.Find([]byte(fsm.UnwaitCommand)), 0, [][]byte{nil, decimal(s.origin), decimal(uint64(w.pos))})
	answer, err := s.Do(&g, false, nil)
	if err == nil {
		reply, gone, err := fsm.Unwaited(answer)
		if err != nil {
			return nil, Unknown(err)
		}
		left = false
		if !gone {
			return reply, nil
		}
	}
	select {
	case reply := <-w.out: // served, and forgotten since
		return reply, nil
	default:
	}
	if err != nil { // sweep ends the wait when there is a leader
		if seeded.On(seeded.UnblockRefused) {
			return nil, err
		}
		return nil, Unknown(err)
	}
	return nil, nil
}

// Abandon ends the present wait of a client that has gone, without waiting for
// the outcome.
func (s *Session) Abandon() {
	ws := s.node.waits
	ws.end(s.origin, s.wait, true)
	ws.gateway.command(ws.machine.table, [][]byte{[]byte(fsm.UnwaitCommand), decimal(s.origin), decimal(uint64(s.wait.pos))})
}

// command sends internal commands and returns without waiting for their answer,
// which the call's done tells of. They are lost when there is no leader.
func (g *gateway) command(table *fsm.Table, cmds ...[][]byte) *call {
	var group fsm.Group
	group.Reset(2, 0)
	for _, args := range cmds {
		group.Command(table.Find(args[0]), 0, args)
	}
	c := &call{gateway: g, body: group.Bytes(), done: make(chan struct{}, 1)}
	g.write(c)
	return c
}
