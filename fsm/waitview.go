package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// These are the internal commands about waiters. Nodes and leaders send them;
// clients cannot.
const (
	// UnwaitCommand ends a wait, or claims the grant of a lock that the waiter was
	// served. Its arguments are the origin and the position of the waiter.
	// Unwaited decodes its reply.
	UnwaitCommand = "_unwait"
	// WaitedCommand removes waiters, served or not. Its arguments are the
	// origin and the position of each waiter.
	WaitedCommand = "_waited"
	// SuspendCommand lets the leader change the waiters of a session. Its
	// arguments are the term of the leader, the node id and the boot count of
	// the session, and one of SuspendOn, SuspendOff, SuspendEnd, SuspendDrop
	// and SuspendPass. The command has no effect in a later term.
	//
	// From FeatureParts on, the names of waiters may follow SuspendEnd or
	// SuspendDrop: the origin and the position of each, in the order of the
	// origins. The command then removes no other waiters. So the leader can
	// divide the removal of many waiters over several entries.
	SuspendCommand = "_hold"
	// UndeliveredCommand ends a grant of a lock, because the reply with the grant
	// could not be sent to its client. Its arguments are the key and the token. It
	// has no effect if the grant was renewed or has ended. It exists from
	// FeatureShared on.
	UndeliveredCommand = "_undelivered"
)

// These are the values of the fourth argument of SuspendCommand, which decides about
// the waiters.
const (
	SuspendOn  = "on"  // the node is not connected: none of its waiters is served
	SuspendOff = "off" // the node is connected
	// SuspendEnd: the node was disconnected for too long. Its open waiters are
	// removed, so that the waiters behind them are served. A waiter that was
	// served a grant of a lock is also removed, if the node has not claimed the
	// grant. If the node is still running, its clients wait again. The replies of
	// the other served waiters stay, because they exist nowhere else.
	SuspendEnd = "end"
	// SuspendDrop: this start of the node never comes back. All its waiters are
	// removed. This argument exists from FeatureMend on.
	SuspendDrop = "drop"
	// SuspendPass: the node has been disconnected for a short time. Its waiters
	// stay, but waiters of other nodes get the locks that they wait for. This
	// argument exists from FeatureLocks on.
	SuspendPass = "pass"
)

var waitCommands = []Command{
	{
		Name: UnwaitCommand, Run: unwait, Arity: 3, Flags: Internal | Write | Fast,
		Work:  WorkHooks{Steps: waitedWork},
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "origin position",
		Doc:        "End the wait of a connection",
	},
	{
		Name: WaitedCommand, Run: waited, Arity: -3, Flags: Internal | Write | Fast,
		Work:  WorkHooks{Steps: waitedWork, PerArgument: StepsPerKey},
		Group: "internal", Since: "holdfast",
		Complexity: "O(N)",
		Syntax:     "origin position [origin position ...]",
		Doc:        "Remove waiters whose clients no longer wait",
	},
	{
		Name: UndeliveredCommand, Run: undelivered, Arity: 3, Flags: Internal | Write | Fast,
		Required: Required{Feature: FeatureShared},
		Group:    "internal", Since: "holdfast",
		Complexity: "O(log(N))",
		Syntax:     "key token",
		Doc:        "End a grant of a lock that could not be delivered to its client",
	},
	{
		Name: SuspendCommand, Run: suspend, Arity: -5, Flags: Internal | Write | Fast,
		Required: Required{FeatureOf: suspendFeature},
		Work: WorkHooks{
			Steps: suspendWork, Depends: namesWaiters, PerArgument: StepsPerKey,
		},
		Group: "internal", Since: "holdfast",
		Complexity: "O(N)",
		Syntax:     "term node boot <on | off | pass | end | drop> [origin position ...]",
		Doc:        "Suspend, resume or remove the waiters of a node",
	},
}

// named returns the waiter of a session with the given origin and position, or
// nil if there is none.
func (w *waits) named(id SessionID, origin, pos []byte) *waiter {
	o, err1 := strconv.ParseUint(string(origin), 10, 64)
	p, err2 := strconv.ParseUint(string(pos), 10, 64)
	if err1 != nil || err2 != nil {
		return nil
	}
	if n := w.find(id.NodeID, o); n != nil && n.session == id && n.pos == Pos(p) {
		return n
	}
	return nil
}

// chosen returns the waiters that a call of SuspendCommand may remove: those
// that it names, or all waiters of the session if it names none. It skips names
// that are not in the order of the origins, so the list contains no waiter
// twice.
func (w *waits) chosen(id SessionID, args [][]byte) (list []*waiter) {
	if !namesWaiters(args) {
		return w.of(id)
	}
	for rest := args[suspendArgs:]; len(rest) > 1; rest = rest[2:] {
		n := w.named(id, rest[0], rest[1])
		if n != nil && (len(list) == 0 || n.origin > list[len(list)-1].origin) {
			list = append(list, n)
		}
	}
	return list
}

// unwait returns 1 if the waiter was still waiting. It returns 0 if there is no
// such waiter, or if the waiter was served a grant that has ended. Otherwise, it
// returns the reply that the waiter was served.
func unwait(c *Ctx, args [][]byte) Reply {
	n := c.m.waits.named(c.sender, args[1], args[2])
	if n == nil {
		return Zero
	}
	c.Change()
	if n.grant != nil {
		return c.claim(n)
	}
	c.lockTimedOut(n)
	c.forget(n)
	if n.served {
		return Bulk(string(n.reply))
	}
	return One
}

// waitedWork returns the work of removing the waiters that a call of UnwaitCommand
// or WaitedCommand names. It is estimated because the waits of many clients may
// end at the same time.
func waitedWork(w *Weigher, args [][]byte) (steps int) {
	for rest := args[1:]; len(rest) > 1; rest = rest[2:] {
		if n := w.m.waits.named(w.sender, rest[0], rest[1]); n != nil {
			steps += n.removalWork()
		}
	}
	return steps
}

// suspendArgs is the number of arguments of SuspendCommand before the names of
// waiters.
const suspendArgs = 5

// namesWaiters reports whether a call of SuspendCommand names waiters.
func namesWaiters(args [][]byte) bool { return len(args) > suspendArgs }

func suspendFeature(args [][]byte) int {
	if namesWaiters(args) {
		return FeatureParts
	}
	return 0
}

// suspendWork returns the work of removing the waiters that a call of
// SuspendCommand names.
func suspendWork(w *Weigher, args [][]byte) (steps int) {
	boot, err := strconv.ParseUint(string(args[3]), 10, 64)
	if err != nil || !namesWaiters(args) {
		return 0
	}
	for _, n := range w.m.waits.chosen(SessionID{NodeID: string(args[2]), Boot: boot}, args) {
		steps += n.removalWork()
	}
	return steps
}

// removalWork returns the work of removing a waiter and of reporting this to
// its node. If the waiter was served a grant that is not claimed, the removal also
// ends the grant.
func (n *waiter) removalWork() int {
	steps := (1 + len(n.keys)) * StepsPerWait / 2
	if n.grant != nil {
		steps += stepsPassOn
	}
	return steps
}

// stepsPassOn is the work of ending a grant and of reporting its end.
const stepsPassOn = 1800

// Unwaited reads the answer to UnwaitCommand. reply is the reply that was served to
// the waiter, nil if the waiter was not served. gone is true if there was no such
// waiter, or if the grant that it was served has ended.
func Unwaited(answer []byte) (reply []byte, gone bool, err error) {
	switch string(answer) {
	case ":0\r\n":
		return nil, true, nil
	case ":1\r\n":
		return nil, false, nil
	}
	var size int
	if _, err := fmt.Sscanf(string(answer[:min(len(answer), 24)]), "$%d\r\n", &size); err != nil {
		return nil, false, fmt.Errorf("malformed reply %.40q to _unwait: %w", answer, ErrFormat)
	}
	body := answer[len("$\r\n")+len(strconv.Itoa(size)):]
	if len(body) != size+2 {
		return nil, false, fmt.Errorf("malformed reply of %d bytes to _unwait: %w", len(answer), ErrFormat)
	}
	return body[:size], false, nil
}

func waited(c *Ctx, args [][]byte) Reply {
	for rest := args[1:]; len(rest) > 1; rest = rest[2:] {
		if n := c.m.waits.named(c.sender, rest[0], rest[1]); n != nil {
			c.Change()
			c.forget(n)
		}
	}
	return OK
}

func undelivered(c *Ctx, args [][]byte) Reply {
	token, err := strconv.ParseUint(string(args[2]), 10, 64)
	if err != nil {
		return Zero
	}
	c.passOn(&provisional{lockQueue(c.db, string(args[1])), Pos(token)})
	return OK
}

func suspend(c *Ctx, args [][]byte) Reply {
	term, err1 := strconv.ParseUint(string(args[1]), 10, 64)
	boot, err2 := strconv.ParseUint(string(args[3]), 10, 64)
	w := &c.m.waits
	at, found := w.node(string(args[2]))
	if err1 != nil || err2 != nil || term != c.m.term || !found || w.nodes[at].id.Boot != boot ||
		suspendFeature(args) > c.m.features {
		return Zero
	}
	c.Change()
	switch id := w.nodes[at].id; string(args[4]) {
	case SuspendOn:
		w.nodes[at].suspended = true
		w.endResumption(id)
	case SuspendPass:
		if c.m.features >= FeatureLocks {
			w.nodes[at].suspended, w.nodes[at].passed = true, true
			w.endResumption(id)
			var ready []readyKey
			for _, n := range w.of(id) {
				if n.forLock() && c.mayServe(n, n.keys[0]) {
					ready = append(ready, readyKey{waitKey: n.keys[0]})
				}
			}
			c.markMany(slices.Values(ready))
		}
	case SuspendOff:
		w.nodes[at].suspended, w.nodes[at].passed = false, false
		w.overtaken.reset()
		if w.nodes[at].weight > 2*fewReady && c.m.features >= FeatureDeferred {
			c.resume(id)
			break
		}
		list := w.of(id)
		slices.SortFunc(list, func(a, b *waiter) int { return cmp.Compare(a.pos, b.pos) })
		for _, n := range list {
			c.checkAgain(n, c.markReady)
		}
	case SuspendEnd:
		if c.m.features < FeatureMend {
			c.endWaits(w.of(id)) // served waiters too
		} else {
			c.endOpenWaits(w.chosen(id, args))
		}
	case SuspendDrop:
		if c.m.features >= FeatureMend {
			c.endWaits(w.chosen(id, args))
		}
	}
	return One
}

// WaitState is the state of a wait.
type WaitState int

const (
	// WaitGone: the machine has no such waiter.
	WaitGone WaitState = iota
	// WaitOpen: the waiter has not been served yet.
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
// position identify it within its session. Work is the number of steps that its
// removal may take.
type WaiterInfo struct {
	Origin uint64
	Pos    Pos
	Served bool
	Work   int
}

// WaitersOf returns the waiters of a session, including served ones.
func (m *Machine) WaitersOf(id SessionID) []WaiterInfo {
	var list []WaiterInfo
	for _, n := range m.waits.of(id) {
		list = append(list, WaiterInfo{n.origin, n.pos, n.served, n.removalWork()})
	}
	return list
}

// EndList returns waiters that the leader may name in a call of SuspendCommand,
// in the order of their connections. It leaves out connections whose number is
// below first. If served is false, it skips the waiters that SuspendEnd does
// not remove. work is the number of steps that the removal of the waiters may
// take. EndList returns at least one waiter, unless there is none. next is the
// connection with which the next list begins, or 0 if this list is the last
// one. left is the part of work that remains. It is negative if the first waiter
// takes more steps than work.
func (m *Machine) EndList(
	id SessionID, first uint64, served bool, work int,
) (list []WaiterInfo, next uint64, left int) {
	m.waits.conns.Ascend(&waiter{session: id, origin: first}, func(n *waiter) bool {
		switch steps := n.removalWork(); {
		case n.session != id:
			return false
		case !served && !n.open():
		case len(list) > 0 && steps > work:
			next = n.origin
			return false
		default:
			work -= steps
			list = append(list, WaiterInfo{n.origin, n.pos, n.served, n.removalWork()})
		}
		return true
	})
	return list, next, work
}

// WaitSession is a session that has waiters.
type WaitSession struct {
	ID        SessionID
	Suspended bool
	// Open is the number of waiters that were not served. Served is the number of
	// served waiters. A served waiter stays until its node has confirmed that it
	// received the reply.
	Open, Served int
	// Locks is the number of waiters for locks: the open ones, and those whose
	// grant the node has not claimed. Passed reports whether they are passed
	// over, so that other waiters get the locks.
	Locks  int
	Passed bool
}

// WaitSessions returns the sessions with waiters, sorted by node.
func (m *Machine) WaitSessions() []WaitSession {
	list := make([]WaitSession, len(m.waits.nodes))
	for i, s := range m.waits.nodes {
		list[i] = WaitSession{s.id, s.suspended, s.n - s.served, s.served, s.locks, s.passed}
	}
	return list
}

// Waiting returns the number of waiting connections in the whole cluster.
func (m *Machine) Waiting() int { return m.waits.count }

// These are the flags of a waiter in a snapshot.
const (
	flagServed    = 1
	flagRESP3     = 2
	flagSuspended = 4 // the session of the waiter is suspended
	// flagMixed: the node has waiters of several starts, and the waiter is not
	// of the start that is recorded for the node. The boot count of the
	// recorded start follows. See FeatureMend.
	flagMixed = 8
	// flagUser: the user of the waiting client follows the arguments. It is set
	// from FeatureBudget on.
	flagUser = 16
	// flagGrant: the waiter was served a grant of a lock that is not claimed. The
	// lock and the token follow the position.
	flagGrant = 32
	// flagPassed: see waitNode.passed.
	flagPassed = 64
)

// waiters writes the waiters and returns their number.
func (w *snapshotWriter) waiters(waits *waits) (written uint64) {
	waits.conns.Scan(func(n *waiter) bool {
		at, _ := waits.node(n.session.NodeID)
		w.waiter(n, &waits.nodes[at])
		written++
		return w.err == nil
	})
	return written
}

func (w *snapshotWriter) waiter(n *waiter, node *waitNode) {
	var flags byte
	if n.served {
		flags |= flagServed
	}
	if n.proto >= 3 {
		flags |= flagRESP3
	}
	if node.suspended {
		flags |= flagSuspended
	}
	if node.id != n.session {
		flags |= flagMixed
	}
	if n.user != "" {
		flags |= flagUser
	}
	if n.grant != nil {
		flags |= flagGrant
	}
	if node.passed {
		flags |= flagPassed
	}
	b := append(w.b, recordWaiter, flags)
	b = codec.AppendString(b, n.session.NodeID)
	b = binary.AppendUvarint(b, n.session.Boot)
	if node.id != n.session {
		b = binary.AppendUvarint(b, node.id.Boot)
	}
	b = binary.AppendUvarint(b, n.origin)
	b = binary.AppendUvarint(b, uint64(n.pos))
	if g := n.grant; g != nil {
		b = codec.AppendString(append(b, byte(g.db)), g.key)
		b = binary.AppendUvarint(b, uint64(g.token))
	}
	if n.served {
		w.b = binary.AppendUvarint(b, uint64(len(n.reply)))
		for reply := n.reply; len(reply) > 0; {
			part := reply[:min(len(reply), snapshotBlock)]
			reply = reply[len(part):]
			w.b = codec.AppendString(append(w.b, recordServed), part)
			w.cut()
		}
		return
	}
	b = binary.AppendUvarint(b, uint64(n.db))
	b = binary.AppendUvarint(b, uint64(len(n.args)))
	for _, a := range n.args {
		b = codec.AppendString(b, a)
	}
	if n.user != "" {
		b = codec.AppendString(b, n.user)
	}
	if n.forLock() {
		b = binary.AppendVarint(b, n.since)
	}
	w.b = b
	w.cut()
}

// waits reads a waiter.
func (l *snapshotLoader) waits(d *codec.Decoder) error {
	w := &l.m.waits
	flags := d.Byte()
	suspended, passed := flags&flagSuspended != 0, flags&flagPassed != 0
	n := &waiter{session: SessionID{NodeID: string(d.Bytes()), Boot: d.Uvarint()}}
	node := n.session
	if flags&flagMixed != 0 {
		if node.Boot = d.Uvarint(); d.Err == nil && node == n.session {
			return fmt.Errorf("waiter of %s: %w", n.session, ErrFormat)
		}
	}
	n.origin, n.pos, n.served = d.Uvarint(), Pos(d.Uvarint()), flags&flagServed != 0
	if flags > flagServed|flagRESP3|flagSuspended|flagMixed|flagUser|flagGrant|flagPassed ||
		flags&flagUser != 0 && (l.m.features < FeatureBudget || n.served) ||
		flags&flagGrant != 0 && (l.m.features < FeatureLocks || !n.served) ||
		passed && (l.m.features < FeatureLocks || !suspended) {
		return fmt.Errorf("waiter with flags %#x: %w", flags, ErrVersion)
	}
	if flags&flagGrant != 0 {
		n.grant = &provisional{lockQueue(int(d.Byte()), string(d.Bytes())), Pos(d.Uvarint())}
		if n.grant.db >= Databases {
			return fmt.Errorf("grant of a lock in db %d: %w", n.grant.db, ErrFormat)
		}
	}
	if n.served {
		l.waiter, l.owed = n, d.Uvarint()
		if l.owed == 0 || l.owed > 2*MaxReplyBytes {
			return fmt.Errorf("reply of %d bytes to a waiter: %w", l.owed, ErrFormat)
		}
	} else {
		var err error
		if n, err = readWaiter(d, n, l.m.table, flags); err != nil {
			return err
		}
	}
	if d.Err != nil {
		return fmt.Errorf("waiter: %w", d.Err)
	}
	at, found := w.node(n.session.NodeID)
	if found && (w.nodes[at].id != node || w.nodes[at].suspended != suspended || w.nodes[at].passed != passed) ||
		w.find(n.session.NodeID, n.origin) != nil {
		return fmt.Errorf("waiter %d of %s: %w", n.origin, n.session, ErrFormat)
	}
	w.add(n)
	w.nodes[at].id, w.nodes[at].suspended, w.nodes[at].passed = node, suspended, passed
	return nil
}

// readWaiter reads the command of a waiter that has not been served.
func readWaiter(d *codec.Decoder, n *waiter, table *Table, flags byte) (*waiter, error) {
	db, argc := d.Uvarint(), d.Uvarint()
	if d.Err != nil || db >= Databases || argc == 0 || argc > uint64(len(d.Rest)) {
		return nil, fmt.Errorf("waiter in db %d: %w", db, ErrFormat)
	}
	args := make([][]byte, argc)
	for i := range args {
		args[i] = d.Bytes()
	}
	var user string
	if flags&flagUser != 0 {
		if user = string(d.Bytes()); d.Err == nil && user == "" {
			return nil, fmt.Errorf("waiter of a user without a name: %w", ErrFormat)
		}
	}
	if d.Err != nil {
		return nil, d.Err
	}
	cmd := table.Find(args[0])
	if cmd != nil {
		cmd = cmd.Routed(args)
	}
	if cmd == nil || cmd.Wait.Block == nil || !cmd.ArityOK(len(args)) {
		return nil, fmt.Errorf("waiter in command %.40q: %w", args[0], ErrVersion)
	}
	b, fail := cmd.Wait.Block(args)
	if fail.IsError() {
		return nil, fmt.Errorf("waiter in command %q: %s: %w", args[0], fail.Text(), ErrFormat)
	}
	proto := 2
	if flags&flagRESP3 != 0 {
		proto = 3
	}
	w := newWaiter(n.session, n.origin, n.pos, int(db), proto, args, b)
	w.user = user
	if b.Lock {
		w.since = d.Varint()
	}
	return w, d.Err
}
