package fsm

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/btree"
)

// Waiting is replicated state: a blocking command that finds nothing leaves a
// waiter in the machine. So there is one order of waiters for each key, whichever
// node their clients are connected to, and it survives a change of leader.
//
// Waiters are served after the operation (a command, a transaction, a script)
// that gave a key a value, in the order in which they came, as Redis does it. The
// reply of a waiter that was served stays until its node has said that it has it,
// has started anew, or was removed from the cluster: a node that missed the moment,
// because it was cut off, or behind and got a snapshot, finds it there.
//
// A session whose node is not linked to the leader is held: its waiters keep
// their places, and keep those behind them waiting, but nothing is given to a
// client that is perhaps no more. The leader says who is held; a new leader's term
// begins with all of them held.

// Limits of what may wait at a time, in the whole cluster.
const (
	maxWaiters     = 1 << 17
	maxWaiterBytes = 64 << 20
	// waiterOverhead is what a word costs beside its bytes.
	waiterOverhead = 64
)

const (
	msgWaiters    = "ERR too many clients wait in blocking commands"
	msgSuperseded = "ERR a later start of this node has clients that wait"
)

// waits is who waits for what.
type waits struct {
	conns  *btree.BTreeG[*waiter] // by node and connection, those served included
	queues *btree.BTreeG[queued]  // those who wait, by key and position
	nodes  []waitNode             // that have waiters, sorted by id
	count  int                    // waiters in queues
	bytes  int
}

// waitNode is a node that has waiters. They are all of one session from
// FeatureMend on; before, id is the session of the first of them.
type waitNode struct {
	id   SessionID
	held bool
	n    int // waiters, those served included
	// served are those that were served.
	served int
}

// waiter is a connection in a blocking command. It is replaced and never changed.
type waiter struct {
	session SessionID
	origin  uint64
	pos     Pos // of the command: names the waiter, and is its place in all queues
	db      int
	proto   int
	typ     typ       // of the values that it can take
	args    [][]byte  // the command
	keys    []waitKey // the queues that it stands in
	served  bool      // it has left the queues, reply is what it gets
	reply   []byte
}

type waitKey struct {
	db  int
	key string
}

// queued is a waiter in one of its queues.
type queued struct {
	waitKey
	pos Pos
	w   *waiter
}

func newWaits() waits {
	return waits{
		conns: btree.NewBTreeGOptions(func(a, b *waiter) bool {
			return cmp.Or(strings.Compare(a.session.NodeID, b.session.NodeID), cmp.Compare(a.origin, b.origin)) < 0
		}, btree.Options{NoLocks: true}),
		queues: btree.NewBTreeGOptions(func(a, b queued) bool {
			return cmp.Or(cmp.Compare(a.db, b.db), strings.Compare(a.key, b.key), cmp.Compare(a.pos, b.pos)) < 0
		}, btree.Options{NoLocks: true}),
	}
}

// fork returns a copy whose further life is its own, in O(1).
func (w *waits) fork() waits {
	f := *w
	f.conns, f.queues, f.nodes = w.conns.IsoCopy(), w.queues.IsoCopy(), slices.Clone(w.nodes)
	return f
}

func newWaiter(id SessionID, origin uint64, pos Pos, db, proto int, args [][]byte, b blocking) *waiter {
	n := &waiter{session: id, origin: origin, pos: pos, db: db, proto: proto, typ: b.typ}
	for _, a := range args {
		n.args = append(n.args, bytes.Clone(a))
	}
	seen := make(map[string]bool, len(b.keys))
	for _, key := range b.keys {
		if k := string(key); !seen[k] {
			seen[k] = true
			n.keys = append(n.keys, waitKey{db, k})
		}
	}
	return n
}

func (n *waiter) size() int {
	size := 0
	for _, a := range n.args {
		size += len(a) + waiterOverhead
	}
	return size
}

// blocking is what a blocking command asks for.
type blocking struct {
	typ     typ
	keys    [][]byte
	timeout int64 // milliseconds, 0 for ever
	// take does the command to a key that holds a value of the type. It answers
	// None if that is not what is waited for.
	take func(c *Ctx, key []byte) Reply
	// none is the reply where the command may not wait.
	none Reply
	// resume are the last arguments with which the command is to be run again: see
	// ResumeArgs.
	resume []string
	// gone, if it is an error, ends the wait when a key holds no value of the type
	// any more.
	gone Reply
}

// block runs a blocking command: at once, if it can, or as a waiter.
func (c *Ctx) block(args [][]byte, b blocking) Reply {
	w := &c.m.waits
	for _, key := range b.keys {
		o, wrong := c.lookupType(key, b.typ)
		switch {
		case wrong:
			return Error(msgWrongType)
		case o != nil && (c.atomic || !w.wanted(waitKey{c.db, o.key}, b.typ)):
			return b.take(c, key)
		}
	}
	if c.atomic {
		return b.none
	}
	return c.wait(args, b)
}

// wait leaves a waiter.
func (c *Ctx) wait(args [][]byte, b blocking) Reply {
	w := &c.m.waits
	n := newWaiter(c.sender, c.r.origin, c.pos, c.db, c.proto, args, b)
	if w.count >= maxWaiters || w.bytes+n.size() > maxWaiterBytes {
		return Error(msgWaiters)
	}
	if c.m.features >= FeatureMend && !seeded("superseded-runs") && !c.only(n.session) {
		return Error(msgSuperseded)
	}
	// A connection waits for one thing at a time: what it waited for before is
	// over, or it would not ask for more.
	if old := w.find(n.session.NodeID, n.origin); old != nil {
		c.forget(old)
	}
	w.add(n)
	if c.m.features < FeatureMend {
		b.resume = nil
	}
	return Raw(appendWaiting(nil, n.pos, b.timeout, b.resume))
}

// appendWaiting encodes the answer to a blocking command that waits. It is for
// the node that holds the connection; no client ever sees it.
func appendWaiting(dst []byte, pos Pos, timeout int64, resume []string) []byte {
	dst = strconv.AppendUint(append(dst, '@'), uint64(pos), 10)
	dst = strconv.AppendInt(append(dst, ' '), timeout, 10)
	for _, word := range resume {
		dst = append(append(dst, ' '), word...)
	}
	return append(dst, '\r', '\n')
}

// Waiting reads the answer to a group whose only operation is a blocking command.
// ok is true if the command waits: pos names its waiter, timeout is how long it
// may wait in milliseconds, 0 for ever.
func Waiting(reply []byte) (pos Pos, timeout int64, ok bool) {
	line, end := bytes.CutSuffix(reply, []byte("\r\n"))
	if !end || len(line) == 0 || line[0] != '@' {
		return 0, 0, false
	}
	p, rest, _ := bytes.Cut(line[1:], []byte(" "))
	t, _, _ := bytes.Cut(rest, []byte(" "))
	n, err1 := strconv.ParseUint(string(p), 10, 64)
	timeout, err2 := strconv.ParseInt(string(t), 10, 64)
	return Pos(n), timeout, err1 == nil && err2 == nil
}

// ResumeArgs returns the arguments with which a command that waits, and whose waiter
// the cluster has forgotten, must be run again. They are args, except for an XREAD
// that asked for what comes after "$": that meant the end of the stream when the
// command began to wait, and entries may have come since. reply is the one that
// Waiting has read. changed is false if they are args.
func ResumeArgs(args [][]byte, reply []byte) (resume [][]byte, changed bool) {
	words := bytes.Fields(reply)
	if len(words) <= 2 || len(words)-2 > len(args) {
		return args, false
	}
	resume = slices.Clone(args)
	for i := 2; i < len(words); i++ {
		resume[len(args)-len(words)+i] = bytes.Clone(words[i])
	}
	return resume, true
}

// find returns the waiter of a node's connection, nil if there is none.
func (w *waits) find(node string, origin uint64) *waiter {
	n, _ := w.conns.Get(&waiter{session: SessionID{NodeID: node}, origin: origin})
	return n
}

// node returns the session of a node with waiters.
func (w *waits) node(id string) (at int, found bool) {
	return slices.BinarySearchFunc(w.nodes, id, func(n waitNode, id string) int { return strings.Compare(n.id.NodeID, id) })
}

// held reports whether a session is held.
func (w *waits) held(id SessionID) bool {
	at, found := w.node(id.NodeID)
	return found && w.nodes[at].held
}

// add adds a waiter, behind all that are there.
func (w *waits) add(n *waiter) {
	w.conns.Set(n)
	at, found := w.node(n.session.NodeID)
	if !found {
		w.nodes = slices.Insert(w.nodes, at, waitNode{id: n.session})
	}
	w.nodes[at].n++
	if n.served {
		w.nodes[at].served++
		return
	}
	for _, k := range n.keys {
		w.queues.Set(queued{k, n.pos, n})
	}
	w.count++
	w.bytes += n.size()
}

// dequeue takes a waiter out of its queues. Those behind it may have waited for
// it alone, if it was held: their keys are looked at again.
func (c *Ctx) dequeue(n *waiter) {
	w := &c.m.waits
	for _, k := range n.keys {
		w.queues.Delete(queued{k, n.pos, nil})
		c.ready(k)
	}
	w.count--
	w.bytes -= n.size()
}

// forget removes a waiter, served or not.
func (c *Ctx) forget(n *waiter) {
	if !n.served {
		c.dequeue(n)
	}
	w := &c.m.waits
	w.conns.Delete(n)
	at, _ := w.node(n.session.NodeID)
	if n.served {
		w.nodes[at].served--
	}
	if w.nodes[at].n--; w.nodes[at].n == 0 {
		w.nodes = slices.Delete(w.nodes, at, at+1)
	}
}

// first returns the first waiter of a queue behind a position.
func (w *waits) first(k waitKey, behind Pos) (n *waiter) {
	w.queues.Ascend(queued{k, behind + 1, nil}, func(q queued) bool {
		if q.waitKey == k {
			n = q.w
		}
		return false
	})
	return n
}

// wanted reports whether somebody waits for a value of type t in a key. If it
// holds one all the same, then they are held, and who comes now stands behind them.
func (w *waits) wanted(k waitKey, t typ) bool {
	if w.queues.Len() == 0 {
		return false
	}
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		if n.typ == t {
			return true
		}
	}
	return false
}

// readyKey is a key that somebody waits for and that is to be looked at when the
// operation is over.
type readyKey struct {
	waitKey
	gone bool // it held a stream: those who read for a group are told if it holds none
}

// ready notes that a key is to be looked at when the operation is over, if
// anybody waits for it.
func (c *Ctx) ready(k waitKey) { c.look(readyKey{k, false}) }

// streamGone notes that a key has lost the stream that it held.
func (c *Ctx) streamGone(k waitKey) { c.look(readyKey{k, true}) }

func (c *Ctx) look(k readyKey) {
	if c.m.waits.queues.Len() == 0 || c.readyKeys[k] || c.m.waits.first(k.waitKey, 0) == nil {
		return
	}
	if c.readyKeys == nil {
		c.readyKeys = make(map[readyKey]bool)
	}
	c.readyKeys[k] = true
	c.readyList = append(c.readyList, k)
}

// keysOf returns the keys of a database that somebody waits for.
func (w *waits) keysOf(db int) []waitKey {
	var keys []waitKey
	w.queues.Ascend(queued{waitKey{db, ""}, 0, nil}, func(q queued) bool {
		if q.db == db && (len(keys) == 0 || keys[len(keys)-1] != q.waitKey) {
			keys = append(keys, q.waitKey)
		}
		return q.db == db
	})
	return keys
}

// readyDB is told of a database that was exchanged as a whole.
func (c *Ctx) readyDB(db int) {
	for _, k := range c.m.waits.keysOf(db) {
		c.ready(k)
	}
}

// losesStreams is told of a database that is about to lose all its keys.
func (c *Ctx) losesStreams(db int) {
	for _, k := range c.m.waits.keysOf(db) {
		if o := c.m.dbs[db].get([]byte(k.key)); o != nil && o.typ == typeStream {
			c.streamGone(k)
		}
	}
}

// of returns the waiters of a session.
func (w *waits) of(id SessionID) []*waiter {
	var list []*waiter
	w.conns.Ascend(&waiter{session: id}, func(n *waiter) bool {
		if n.session == id {
			list = append(list, n)
		}
		return n.session == id
	})
	return list
}

// serveWaiters gives what there is now to those who wait for it. It runs after
// every operation; serving can make other keys ready (BLMOVE).
func (c *Ctx) serveWaiters() {
	if len(c.readyList) == 0 {
		return
	}
	db, proto, session := c.db, c.proto, c.session
	c.session = -1 // it is not the connection that gave who takes
	for len(c.readyList) > 0 {
		list := c.readyList
		c.readyList, c.readyKeys = nil, nil
		for _, k := range list {
			c.db = k.db
			if k.gone {
				c.endGroupReads(k.waitKey)
			} else {
				c.serveQueue(k.waitKey)
			}
		}
	}
	c.db, c.proto, c.session = db, proto, session
}

func (c *Ctx) serveQueue(k waitKey) {
	w := &c.m.waits
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		o := c.lookup([]byte(k.key))
		switch {
		case o == nil:
			return
		case o.typ != n.typ:
			continue
		case w.held(n.session):
			return
		}
		c.setPlace(c.place + 1)
		c.proto = n.proto
		c.serving = n
		taken := n.blocking(c.m.table).take(c, []byte(k.key))
		c.serving = nil
		if taken.kind != kindNone { // else not yet what it waits for
			c.serve(n, taken)
		}
	}
}

// endGroupReads tells those who read from a key for a group that it holds no
// stream any more.
func (c *Ctx) endGroupReads(k waitKey) {
	if o := c.lookup([]byte(k.key)); o != nil && o.typ == typeStream {
		return
	}
	w := &c.m.waits
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		if n.typ != typeStream || w.held(n.session) {
			continue
		}
		if b := n.blocking(c.m.table); b.gone.IsError() {
			c.serve(n, b.gone)
		}
	}
}

// blocking returns what the waiter waits for.
func (n *waiter) blocking(t *Table) blocking {
	b, _ := t.Find(n.args[0]).block(n.args)
	return b
}

// serve ends a wait with a reply.
func (c *Ctx) serve(n *waiter, r Reply) {
	reply := r.Append(nil, n.proto)
	c.tracedServe(n, r)
	c.dequeue(n)
	w := &c.m.waits
	w.conns.Set(&waiter{session: n.session, origin: n.origin, pos: n.pos, served: true, reply: reply})
	at, _ := w.node(n.session.NodeID)
	w.nodes[at].served++
	c.woken(n, reply)
}

// Woken names a connection whose wait has ended, and its waiter. Reply is what it
// was served, nil if the waiter is no more; it must not be changed.
type Woken struct {
	Session SessionID
	Origin  uint64
	Pos     Pos
	Reply   []byte
}

func (c *Ctx) woken(n *waiter, reply []byte) {
	c.m.woken = append(c.m.woken, Woken{n.session, n.origin, n.pos, reply})
}

// endWaits forgets all waiters of a session. A node that lives is told, and lets
// its clients wait again.
func (c *Ctx) endWaits(id SessionID) {
	for _, n := range c.m.waits.of(id) {
		c.forget(n)
		c.woken(n, nil)
	}
}

// endOpenWaits forgets the waiters of a session that were not served.
func (c *Ctx) endOpenWaits(id SessionID) {
	for _, n := range c.m.waits.of(id) {
		if !n.served {
			c.forget(n)
			c.woken(n, nil)
		}
	}
}

// speaks is told of a session that speaks: waiters of an older start of its node
// have nobody who waits.
func (c *Ctx) speaks(id SessionID) {
	w := &c.m.waits
	if len(w.nodes) == 0 {
		return
	}
	if at, found := w.node(id.NodeID); found && w.nodes[at].id.Boot < id.Boot {
		c.endWaits(w.nodes[at].id)
	}
}

// only makes sure that waiters of a node are of one start, which is that of id:
// those of earlier starts are ended. It reports false if there are waiters of a
// later one.
func (c *Ctx) only(id SessionID) bool {
	c.speaks(id)
	w := &c.m.waits
	at, found := w.node(id.NodeID)
	return !found || w.nodes[at].id == id
}

// endSuperseded ends the waits of all starts of a node but the latest that has
// any. Before FeatureMend the waiters of two starts could mix.
func (c *Ctx) endSuperseded() {
	w := &c.m.waits
	latest := make([]uint64, len(w.nodes))
	w.conns.Scan(func(n *waiter) bool {
		at, _ := w.node(n.session.NodeID)
		latest[at] = max(latest[at], n.session.Boot)
		return true
	})
	var ended []*waiter
	w.conns.Scan(func(n *waiter) bool {
		if at, _ := w.node(n.session.NodeID); n.session.Boot < latest[at] {
			ended = append(ended, n)
		}
		return true
	})
	for _, n := range ended {
		c.forget(n)
		c.woken(n, nil)
	}
	for at := range w.nodes { // each has still the waiters of its latest start
		w.nodes[at].id.Boot = latest[at]
	}
}

// holdAll holds all sessions: which nodes are linked to the new leader is not
// known yet.
func (w *waits) holdAll() {
	for i := range w.nodes {
		w.nodes[i].held = true
	}
}
