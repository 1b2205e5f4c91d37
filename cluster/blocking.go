package cluster

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// waits is the set of the blocking commands of this node's clients. The waiters
// themselves are part of the replicated state (fsm/wait.go). waits finds out
// how each wait has ended, and passes the reply to the connection. To do so, it
// reads the node's own state machine whenever an entry has ended some of these
// waits, or a snapshot has replaced the state.
//
// The leader also sends the replies to the other nodes. They usually arrive a few
// milliseconds before the node has applied the entry that ended the wait.
//
// The state machine may contain waiters of this node for which no connection
// waits, because the reply has arrived or the client has disconnected. sweep sends
// a group that removes them.
type waits struct {
	machine   *machine.Machine
	forwarder *forwarder
	id        fsm.SessionID

	mu     sync.Mutex
	live   map[uint64]*wait // by origin (the number of the client's connection); added before the command is sent
	owners map[ownedLock][]uint64
	again  []uint64 // origins of waits whose owner has just got the lock
	sweeps int
	urgent bool  // a waiter that no connection waits for could still take elements
	forget *call // group in flight that sweep has sent, nil for none; used only by sweep
}

// ownedLock names the lock for which a client waits, and the owner that is to
// get it. The key is "" if the client does not wait for a lock.
type ownedLock struct {
	db         int
	key, owner string
}

// wait is one blocking command. waits.mu guards its fields.
type wait struct {
	// pos identifies the waiter. It is 0 until the reply to the command has
	// arrived.
	pos fsm.Pos
	// early is a reply that arrived before pos was known. earlyPos identifies
	// the waiter that gets this reply.
	early    []byte
	earlyPos fsm.Pos
	// own means that the reply must come from this node's own state machine,
	// and that replies from the leader are ignored. When the machine reports
	// the reply, it has already queued the events of the entry that served the
	// wait.
	own bool
	// claimed means that the reply may be a grant of a lock, which the
	// connection has to claim. The wait stays registered until the claim,
	// because otherwise sweep would pass the grant to the next waiter.
	claimed bool
	lock    ownedLock
	again   bool        // the owner got the lock before pos was known
	ended   bool        // out has received a value
	out     chan []byte // capacity 1: receives the reply, askAgain, or nil if the waiter is gone
}

// endLocked delivers the reply of a wait. waits.mu must be held.
func (ws *waits) endLocked(origin uint64, w *wait, reply []byte) {
	if w.ended {
		return
	}
	if !w.claimed || reply == nil {
		ws.removeLocked(origin, w)
	}
	w.ended = true
	w.out <- reply
}

func newWaits(m *machine.Machine, fw *forwarder) *waits {
	return &waits{
		machine: m, forwarder: fw, id: fw.id, live: make(map[uint64]*wait), owners: make(map[ownedLock][]uint64),
	}
}

// removeLocked removes a wait from live and owners. waits.mu must be held.
func (ws *waits) removeLocked(origin uint64, w *wait) {
	delete(ws.live, origin)
	if w.lock.key == "" {
		return
	}
	if left := without(ws.owners[w.lock], origin); len(left) > 0 {
		ws.owners[w.lock] = left
	} else {
		delete(ws.owners, w.lock)
	}
}

// begin registers a wait. It must be called before the command is sent, because
// sweep removes the waiters whose origin has no registered wait.
func (ws *waits) begin(origin uint64, own, claimed bool, lock ownedLock) *wait {
	w := &wait{own: own, claimed: claimed, lock: lock, out: make(chan []byte, 1)}
	ws.mu.Lock()
	if old := ws.live[origin]; old != nil {
		ws.removeLocked(origin, old)
	}
	ws.live[origin] = w
	if lock.key != "" {
		ws.owners[lock] = append(ws.owners[lock], origin)
	}
	ws.mu.Unlock()
	return w
}

// waiting records the log position that identifies the waiter, and delivers the
// reply if it has already arrived.
func (ws *waits) waiting(origin uint64, w *wait, pos fsm.Pos) {
	ws.mu.Lock()
	if w.pos = pos; w.earlyPos == pos {
		ws.endLocked(origin, w, w.early)
	}
	again := w.again
	ws.mu.Unlock()
	ws.look(origin, again)
}

// end removes a wait. If left is set, the state machine may still contain its
// waiter.
func (ws *waits) end(origin uint64, w *wait, left bool) {
	ws.mu.Lock()
	ws.urgent = ws.urgent || left
	if ws.live[origin] == w {
		ws.removeLocked(origin, w)
	}
	ws.mu.Unlock()
}

// askAgain is delivered to a wait for a lock if the owner has got the lock by
// another command. The connection must then end the wait and execute the
// command of the wait again.
var askAgain = []byte{}

// look reads the state of a wait from the machine. If the wait is over, look
// delivers its reply. If the wait is open and held is set, look delivers
// askAgain. held says that the owner for which the client asks has got the lock.
// look may be called at any time, and must be called whenever the state may have
// changed.
func (ws *waits) look(origin uint64, held bool) {
	ws.mu.Lock()
	w := ws.live[origin]
	if w == nil || w.pos == 0 || w.ended {
		if w != nil {
			w.again = w.again || held
		}
		ws.mu.Unlock()
		return
	}
	pos := w.pos
	ws.mu.Unlock()
	var state fsm.WaitState
	var reply []byte
	ws.machine.View(func(m *fsm.Machine) {
		if state = fsm.WaitOpen; m.Applied() >= pos.Index() {
			state, reply = m.Waiter(ws.id, origin, pos)
		}
	})
	switch {
	case state == fsm.WaitOpen && !held:
		return
	case state == fsm.WaitOpen:
		reply = askAgain
	}
	ws.mu.Lock()
	if ws.live[origin] == w {
		ws.endLocked(origin, w, reply)
	}
	ws.mu.Unlock()
}

// takeServed decodes a frame with a reply from the leader, and ends the wait to
// which the reply belongs.
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
		ws.endLocked(origin, w, bytes.Clone(payload[k+k2:]))
	case w.pos == 0: // the reply that gives the wait its position is on its way
		w.early, w.earlyPos = bytes.Clone(payload[k+k2:]), fsm.Pos(pos)
	}
	return nil
}

// woken is called for every applied entry except a TermStart, in log order: see
// leaderships.applied. list contains the waiters that the entry has served or
// ended.
func (ws *waits) woken(list []fsm.Woken) {
	for _, w := range list {
		if w.Session() == ws.id {
			ws.look(w.Origin(), false)
		}
	}
	ws.mu.Lock()
	again := ws.again
	ws.again = nil
	ws.mu.Unlock()
	for _, origin := range again {
		ws.look(origin, true)
	}
}

// granted notes which waits ask for a lock on behalf of an owner that has got
// the lock. Several connections can wait for one owner, because a client whose
// connection hangs asks again on another connection. When one of these
// connections gets the lock, the others get the same grant. granted is called
// for the events of an entry, before woken, with the lock of the machine held.
func (ws *waits) granted(list []fsm.LockEvent) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.owners) == 0 {
		return
	}
	for i := range list {
		if e := &list[i]; e.Kind == fsm.LockGranted {
			ws.again = append(ws.again, ws.owners[ownedLock{e.DB, e.Key, e.Owner}]...)
		}
	}
}

// restored is called when a snapshot has replaced the state.
func (ws *waits) restored() {
	ws.mu.Lock()
	origins := make([]uint64, 0, len(ws.live))
	for origin := range ws.live {
		origins = append(origins, origin)
	}
	ws.mu.Unlock()
	for _, origin := range origins {
		ws.look(origin, false)
	}
}

// giveUp ends the waits of clients, because this node was removed and no reply
// will arrive. The connections then run their commands again. These commands
// fail, and the connections report that the outcome is unknown.
func (ws *waits) giveUp() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for origin, w := range ws.live {
		if w.pos != 0 { // otherwise the command itself is still in flight
			ws.endLocked(origin, w, nil)
		}
	}
}

// Waiters whose replies have arrived may remain in the machine for keepSweeps
// sweeps, or until there are keepArrived such waiters. One group then removes as
// many of these waiters as one entry may remove: see Options.WaiterWork.
const (
	keepSweeps  = 10
	keepArrived = 128
)

// sweep removes the waiters for which no connection of this node waits. It does
// nothing while the group that it sent before is still in flight. It reports
// whether the state machine may have waiters of this node.
func (ws *waits) sweep() (waiters bool) {
	if ws.forget != nil {
		select {
		case <-ws.forget.done:
			ws.forget = nil
		default:
			return true
		}
	}
	ws.sweeps++
	rank := func(n fsm.WaiterInfo) int {
		if n.Served {
			return 1
		}
		return 0
	}
	var names []fsm.WaiterInfo
	ws.machine.View(func(m *fsm.Machine) { names = m.WaitersOf(ws.id) })
	if len(names) == 0 {
		return false
	}
	args := [][]byte{[]byte(fsm.WaitedCommand)}
	ws.mu.Lock()
	// Read the machine before live. A wait is registered in live before its
	// command is sent, so live contains the waits of all waiters that are not
	// abandoned.
	room, left := ws.forwarder.opts.waiterWork(), false
	// A waiter that was not served can still take elements, so it is removed first.
	slices.SortStableFunc(names, func(a, b fsm.WaiterInfo) int { return rank(a) - rank(b) })
	for _, n := range names {
		if w := ws.live[n.Origin]; w != nil && (w.pos == 0 || w.pos == n.Pos) {
			continue
		}
		if left = room < n.Work && len(args) > 1; left { // the next sweep removes the others
			break
		}
		room -= n.Work
		args = append(args, decimal(n.Origin), decimal(uint64(n.Pos)))
	}
	urgent := ws.urgent
	ws.urgent = left
	ws.mu.Unlock()
	if arrived := len(args) / 2; arrived == 0 || !urgent && arrived < keepArrived && ws.sweeps%keepSweeps != 0 {
		return true
	}
	ws.forget = ws.forwarder.housekeep(ws.machine.Table(), args)
	return true
}

// WaitsFor sets the lock for which the commands of the next calls of Block
// wait, and the owner that is to get it. The key is "" if they wait for no
// lock.
func (s *Session) WaitsFor(db int, key, owner string) { s.lock = ownedLock{db, key, owner} }

// Block executes a group whose only operation is a blocking command. origin is
// the number of the connection that sent the command. If fsm.Waiting accepts the
// reply, the command waits, and the connection must receive from Waited, or call
// Unblock or Abandon, before it continues. Any other reply is the final one, as
// with Do.
//
// If own is set, the reply arrives from Waited only after this node has applied
// the entry that served the command. OwnEventsDelivered then waits for the
// events of that entry too.
func (s *Session) Block(g *fsm.Group, origin uint64, own bool) ([]byte, error) {
	ws := s.node.waits
	w := ws.begin(origin, own, g.Feature >= fsm.FeatureLocks, s.lock)
	reply, err := s.Do(g, false, nil)
	pos, _, waiting := fsm.Waiting(reply)
	if err != nil || !waiting {
		// if the outcome is unknown, sweep removes a waiter that was left
		ws.end(origin, w, err != nil)
		return reply, err
	}
	s.wait, s.origin = w, origin
	ws.waiting(origin, w, pos)
	return reply, nil
}

// Waited returns a channel that receives the reply when the current wait is
// served. It receives nil if the cluster no longer has the waiter, because this
// node was not connected to the leader for too long, or because the rules of
// the client's user have changed. It also receives nil if this node was
// removed. It receives an empty reply if the owner has got the lock by another
// command. In each of these cases, the command must be executed again. After an
// empty reply, Unblock must end the wait first.
func (s *Session) Waited() <-chan []byte { return s.wait.out }

// Unblock ends the current wait. The reply is not nil if the cluster has
// already served the wait. Every error means that the outcome is unknown: the
// cluster may have served the blocking command before, even if it did not
// execute the command that ends the wait.
func (s *Session) Unblock() ([]byte, error) {
	w, ws := s.wait, s.node.waits
	left := true
	defer func() { ws.end(s.origin, w, left) }()
	var g fsm.Group
	g.Reset(2, s.origin)
	row := ws.machine.Table().Find([]byte(fsm.UnwaitCommand))
	g.Command(row, 0, [][]byte{nil, decimal(s.origin), decimal(uint64(w.pos))})
	answer, err := s.Do(&g, false, nil)
	if err == nil {
		reply, gone, err := fsm.Unwaited(answer)
		if err != nil {
			return nil, outcome.NewUnknown(err)
		}
		left = false
		if !gone {
			return reply, nil
		}
	}
	// If w.claimed is set, out may contain a grant. The client does not own the
	// lock until this node has claimed the grant.
	if !w.claimed {
		select {
		case reply := <-w.out: // the wait was served and then removed
			return reply, nil
		default:
		}
	}
	if err != nil { // sweep ends the wait when there is a leader
		return nil, outcome.NewUnknown(err)
	}
	return nil, nil
}

// Abandon ends the current wait of a client that has disconnected. It does not
// wait for the outcome.
func (s *Session) Abandon() {
	ws := s.node.waits
	ws.end(s.origin, s.wait, true)
	// Not UnwaitCommand: that would claim a grant of a lock.
	waited := [][]byte{[]byte(fsm.WaitedCommand), decimal(s.origin), decimal(uint64(s.wait.pos))}
	ws.forwarder.housekeep(ws.machine.Table(), waited)
}

// command submits internal commands and returns without waiting for their
// replies. The call's done channel receives a value when the call has ended,
// with the replies or with an error. A call that could not be sent within
// LeaderWait ends with an error.
func (fw *forwarder) command(table *fsm.Table, cmds ...[][]byte) *call {
	return fw.submit(&call{}, table, cmds)
}

// housekeep is like command, for commands of the node itself. A node that stops
// does not wait for their outcome.
func (fw *forwarder) housekeep(table *fsm.Table, cmds ...[][]byte) *call {
	return fw.submit(&call{housekeeping: true}, table, cmds)
}

func (fw *forwarder) submit(c *call, table *fsm.Table, cmds [][][]byte) *call {
	c.forwarder, c.body, c.done = fw, groupOf(table, cmds...), make(chan struct{}, 1)
	fw.write(c)
	return c
}

// groupOf returns a group of internal commands.
func groupOf(table *fsm.Table, cmds ...[][]byte) []byte {
	var group fsm.Group
	group.Reset(2, 0)
	for _, args := range cmds {
		group.Command(table.Find(args[0]), 0, args)
	}
	return group.Bytes()
}
