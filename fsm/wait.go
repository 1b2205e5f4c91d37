package fsm

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/tidwall/btree"
)

// Waiting is replicated state: a blocking command that finds nothing leaves a
// waiter in the machine. So each key has one order of waiters, independent of
// the nodes that their clients are connected to, and the order survives a
// change of leader.
//
// Waiters are served after the operation (a command, a transaction, a script)
// that gave a key a value or freed a lock. The waiters for one key are served in
// the order of their arrival, as in Redis. From FeatureDeferred on, later entries
// may serve some of them: see serve.go. The reply of a served waiter is kept until
// its node has confirmed that it received the reply, has started again, or was
// removed from the cluster. A node may miss the entry that serves its waiter,
// because it was cut off, or received a snapshot in place of the entry. It then
// finds the reply in the state.
//
// A session is suspended while its node is not connected to the leader. Its
// waiters keep their positions, but the machine serves none of them, because
// their clients may no longer exist. The waiters behind them keep waiting too,
// unless they wait for a lock and the leader has sent SuspendPass for the session.
// The leader suspends and resumes sessions. Every term begins with all sessions
// suspended.

const msgSuperseded = "ERR a later start of this node has clients that wait"

// waits are the waiters, by connection and by key.
type waits struct {
	conns    *btree.BTreeG[*waiter] // by node and connection, including served waiters
	queues   *btree.BTreeG[queued]  // open waiters, by key and position
	nodes    []waitNode             // nodes that have waiters, sorted by id
	count    int                    // number of open waiters
	bytes    int
	locks    int                    // number of open waiters for locks
	deferred deferred               // keys whose waiters later entries will check
	revoked  revoked                // users whose waits later entries will end
	resumed  []resumption           // sessions whose waiters later entries will check
	users    btree.Map[string, int] // sum of waiter.weight of the open waiters, by user
	overtaken
}

// waitNode is a node that has waiters. From FeatureMend on, all its waiters
// belong to one session. Before FeatureMend, id is the session of the first
// waiter.
type waitNode struct {
	id        SessionID
	suspended bool
	n         int // number of waiters, including served ones
	// served is the number of served waiters.
	served int
	// locks is the number of waiters for locks: the open ones, and those whose
	// grant is provisional.
	locks int
	// passed is set if the node has been disconnected for so long that other
	// waiters get the locks that its waiters wait for.
	passed bool
	weight int // sum of waiter.weight of the open waiters
}

// waiter is a connection in a blocking command. It is replaced and never
// changed, because clones share it.
type waiter struct {
	session SessionID
	origin  uint64
	pos     Pos // position of the command; identifies the waiter and orders all queues
	db      int
	proto   int
	typ     keyspace.Type // type of the values that the command accepts
	user    string        // user of the client, "" if unknown: see endWaitsOf
	args    [][]byte      // the command and its arguments
	keys    []waitKey     // the keys that the waiter waits for; it is in the queue of each of them
	served  bool          // the waiter has left the queues, and reply is its reply
	reply   []byte
	since   int64        // lease clock at which a wait for a lock began
	grant   *provisional // grant of a lock that was served and is not claimed yet, nil for none
}

// waitKey identifies a queue. If lock is set, its waiters wait for the lock
// with this key, and otherwise for values of the key.
type waitKey struct {
	db   int
	key  string
	lock bool
}

// queued is a waiter in one of its queues.
type queued struct {
	waitKey
	pos Pos
	w   *waiter
}

func newWaits() waits {
	return waits{
		deferred: newDeferred(),
		conns: btree.NewBTreeGOptions(func(a, b *waiter) bool {
			return cmp.Or(strings.Compare(a.session.NodeID, b.session.NodeID), cmp.Compare(a.origin, b.origin)) < 0
		}, btree.Options{NoLocks: true}),
		queues: btree.NewBTreeGOptions(func(a, b queued) bool {
			order := cmp.Or(cmp.Compare(a.db, b.db), strings.Compare(a.key, b.key))
			if order == 0 && a.lock != b.lock {
				return b.lock
			}
			return cmp.Or(order, cmp.Compare(a.pos, b.pos)) < 0
		}, btree.Options{NoLocks: true}),
	}
}

// clone returns an independent copy. Its time does not depend on the number of
// waiters.
func (w *waits) clone() waits {
	f := *w
	f.conns, f.queues, f.nodes = w.conns.IsoCopy(), w.queues.IsoCopy(), slices.Clone(w.nodes)
	f.users = *w.users.IsoCopy()
	f.deferred, f.revoked, f.resumed = w.deferred.clone(), w.revoked.clone(), slices.Clone(w.resumed)
	f.overtaken = overtaken{} // the copy finds its own
	return f
}

func newWaiter(id SessionID, origin uint64, pos Pos, db, proto int, args [][]byte, b BlockingCall) *waiter {
	n := &waiter{session: id, origin: origin, pos: pos, db: db, proto: proto, typ: b.Type}
	for _, a := range args {
		n.args = append(n.args, bytes.Clone(a))
	}
	seen := make(map[string]bool, len(b.Keys))
	for _, key := range b.Keys {
		if k := string(key); !seen[k] {
			seen[k] = true
			n.keys = append(n.keys, waitKey{db, k, b.Lock})
		}
	}
	return n
}

func (n *waiter) size() int {
	size := len(n.user)
	for _, a := range n.args {
		size += len(a) + waiterOverhead
	}
	return size
}

// BlockingCall is a decoded blocking command.
type BlockingCall struct {
	Type    keyspace.Type
	Keys    [][]byte
	Timeout int64 // milliseconds, 0 for no limit
	// Take executes the command on a key that has a value of the type, or on a
	// lock that the command may take. If the value contains nothing for the
	// command, Take returns the constant None.
	Take func(c *Ctx, key []byte) Reply
	// None is the reply of a command that finds nothing and must not wait.
	None Reply
	// Resume replaces the last arguments if the command is executed again: see
	// ResumeArgs.
	Resume []string
	// Gone, if it is an error, is the reply that ends the wait when a key no
	// longer has a value of Type.
	Gone Reply
	// Lock is set for a command that waits for a lock. Such a command waits
	// until the key is absent, or until it may join the holders that the key
	// has. It then gives the key a value. Joins reports whether the command may
	// join the holders of o.
	Lock  bool
	Joins func(c *Ctx, o *keyspace.Object) bool
}

// forLock reports whether an open waiter waits for a lock.
func (n *waiter) forLock() bool { return len(n.keys) > 0 && n.keys[0].lock }

// Block executes a blocking command. If no key has a value that the command may
// take, Block leaves a waiter, or returns b.None if the command must not wait.
func (c *Ctx) Block(args [][]byte, b BlockingCall) Reply {
	w := &c.m.waits
	for _, key := range b.Keys {
		o, wrong := c.LookupType(key, b.Type)
		switch {
		case wrong:
			return Error(MsgWrongType)
		case o != nil && (c.atomic || !w.wanted(waitKey{db: c.db, key: o.Key}, b.Type)):
			return b.Take(c, key)
		}
	}
	if c.atomic {
		return b.None
	}
	return c.Wait(args, b)
}

// Wait creates a waiter and returns the reply for the node of the connection.
// The node decodes it with Waiting.
func (c *Ctx) Wait(args [][]byte, b BlockingCall) Reply {
	w := &c.m.waits
	n := newWaiter(c.sender, c.r.origin, c.pos, c.db, c.proto, args, b)
	if c.m.features >= FeatureBudget {
		n.user = c.r.user
	}
	if b.Lock {
		n.since = c.now
	}
	if w.count >= maxWaiters || w.bytes+n.size() > maxWaiterBytes {
		return Error(msgWaiters)
	}
	if c.m.features >= FeatureMend && !c.replaceStart(n.session) {
		return Error(msgSuperseded)
	}
	// A connection waits in one blocking command at a time. If it has sent
	// another one, its earlier wait has ended, so the old waiter is removed.
	if old := w.find(n.session.NodeID, n.origin); old != nil {
		c.forget(old)
	}
	if msg := c.overweight(n); msg != "" {
		return Error(msg)
	}
	w.add(n)
	if b.Lock { // the end of the earlier wait may have freed the lock
		c.ready(n.keys[0])
	}
	if c.m.features < FeatureMend {
		b.Resume = nil
	}
	return Raw(appendWaiting(nil, n.pos, b.Timeout, b.Resume))
}

// appendWaiting encodes the answer to a blocking command that waits. The node
// of the connection reads it; clients never receive it.
func appendWaiting(dst []byte, pos Pos, timeout int64, resume []string) []byte {
	dst = strconv.AppendUint(append(dst, '@'), uint64(pos), 10)
	dst = strconv.AppendInt(append(dst, ' '), timeout, 10)
	for _, arg := range resume {
		dst = append(append(dst, ' '), arg...)
	}
	return append(dst, '\r', '\n')
}

// Waiting reads the answer to a group whose only operation is a blocking
// command. ok is true if the command waits. Then pos identifies its waiter, and
// timeout is the maximum wait in milliseconds, 0 for no limit.
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

// ResumeArgs returns the arguments with which the node executes a command again
// after its waiter was removed. They equal args, and changed is false, unless
// the command is an XREAD with the ID "$". "$" meant the end of the stream when
// the command began to wait. Entries may have been added since, so ResumeArgs
// replaces "$" with the ID that it meant. reply is the answer that Waiting has
// read.
func ResumeArgs(args [][]byte, reply []byte) (resume [][]byte, changed bool) {
	fields := bytes.Fields(reply)
	if len(fields) <= 2 || len(fields)-2 > len(args) {
		return args, false
	}
	resume = slices.Clone(args)
	for i := 2; i < len(fields); i++ {
		resume[len(args)-len(fields)+i] = bytes.Clone(fields[i])
	}
	return resume, true
}

// find returns the waiter of a node's connection, nil if there is none.
func (w *waits) find(node string, origin uint64) *waiter {
	n, _ := w.conns.Get(&waiter{session: SessionID{NodeID: node}, origin: origin})
	return n
}

// node returns the index of a node in nodes.
func (w *waits) node(id string) (at int, found bool) {
	return slices.BinarySearchFunc(w.nodes, id, func(n waitNode, id string) int {
		return strings.Compare(n.id.NodeID, id)
	})
}

// suspended reports whether a session is suspended.
func (w *waits) suspended(id SessionID) bool {
	at, found := w.node(id.NodeID)
	return found && w.nodes[at].suspended
}

// passedOver reports whether other waiters get the locks that the waiters of a
// session wait for.
func (w *waits) passedOver(id SessionID) bool {
	at, found := w.node(id.NodeID)
	return found && w.nodes[at].passed
}

// add adds a waiter behind all others.
func (w *waits) add(n *waiter) {
	w.conns.Set(n)
	at, found := w.node(n.session.NodeID)
	if !found {
		w.nodes = slices.Insert(w.nodes, at, waitNode{id: n.session})
	}
	w.nodes[at].n++
	if n.forLock() || n.grant != nil {
		w.nodes[at].locks++
	}
	if n.served {
		w.nodes[at].served++
		return
	}
	if n.forLock() {
		w.locks++
	}
	for _, k := range n.keys {
		w.queues.Set(queued{k, n.pos, n})
	}
	w.count++
	w.bytes += n.size()
	w.nodes[at].weight += n.weight()
	w.addWeight(n.user, n.weight())
}

// dequeue removes a waiter from its queues.
func (c *Ctx) dequeue(n *waiter) {
	w := &c.m.waits
	for _, k := range n.keys {
		w.queues.Delete(queued{k, n.pos, nil})
		c.left(n, k)
	}
	w.closed(n)
}

// left marks a key as ready after the waiter n has left its queue, if the waiters
// behind n may have waited only because of n. This is possible if n is suspended, if
// n was suspended and has not been checked since, or if n could not join the holders
// of a lock. Waiters for a lock do not wait behind a waiter that is passed over.
func (c *Ctx) left(n *waiter, k waitKey) {
	w := &c.m.waits
	switch {
	case k.lock && c.m.features >= FeatureParts && w.passedOver(n.session):
	case !k.lock && c.m.features >= FeatureDeferred && !w.suspended(n.session) && !w.resuming(n.session):
	case c.mayServe(n, k):
		c.ready(k)
	}
}

// closed updates the counts after a waiter has left its queues.
func (w *waits) closed(n *waiter) {
	w.count--
	w.bytes -= n.size()
	at, _ := w.node(n.session.NodeID)
	w.nodes[at].weight -= n.weight()
	w.addWeight(n.user, -n.weight())
	if n.forLock() {
		w.locks--
	}
}

// mayServe reports whether a waiter like n could be served at the key k: the key
// has a value of the type that n waits for, or the lock is free or shared. Most
// keys that have waiters have no such value, so this check makes the removal of
// many waiters about twice as fast. Below FeatureParts, mayServe returns true.
func (c *Ctx) mayServe(n *waiter, k waitKey) bool {
	if c.m.features < FeatureParts {
		return true
	}
	db := c.db
	c.db = k.db
	o := c.Lookup([]byte(k.key))
	c.db = db
	if k.lock {
		return o == nil || o.Type == keyspace.TypeLock
	}
	return o != nil && o.Type == n.typ
}

// forget removes a waiter, served or not. If the waiter was served a grant of a lock
// that its node has not claimed, forget ends the grant: see passOn.
func (c *Ctx) forget(n *waiter) {
	c.drop(n)
	if n.grant != nil {
		c.passOn(n.grant)
	}
}

// drop removes a waiter, served or not. It does not end a grant of the waiter.
func (c *Ctx) drop(n *waiter) {
	if !n.served {
		c.dequeue(n)
	}
	w := &c.m.waits
	w.conns.Delete(n)
	at, _ := w.node(n.session.NodeID)
	if n.served {
		w.nodes[at].served--
	}
	if n.forLock() || n.grant != nil {
		w.nodes[at].locks--
	}
	if w.nodes[at].n--; w.nodes[at].n == 0 {
		if w.nodes[at].passed { // forget the positions that depend on this node
			w.overtaken.reset()
		}
		w.nodes = slices.Delete(w.nodes, at, at+1)
	}
}

// first returns the first waiter in the queue of k after a position.
func (w *waits) first(k waitKey, behind Pos) (n *waiter) {
	w.queues.Ascend(queued{k, behind + 1, nil}, func(q queued) bool {
		if q.waitKey == k {
			n = q.w
		}
		return false
	})
	return n
}

// wanted reports whether the queue of k has a waiter for values of type t. If
// the key already has such a value, these waiters are suspended, wait behind a
// suspended waiter, or are checked by a later entry (see serve.go). A new command
// must wait behind them.
func (w *waits) wanted(k waitKey, t keyspace.Type) bool {
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

// SuspendedWaiter reports whether a key has a suspended waiter for values of type
// t whose command matches.
func (c *Ctx) SuspendedWaiter(key []byte, t keyspace.Type, matches func(args [][]byte) bool) bool {
	w := &c.m.waits
	if !slices.ContainsFunc(w.nodes, func(n waitNode) bool { return n.suspended }) {
		return false
	}
	k := waitKey{db: c.db, key: string(key)}
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		if n.typ == t && w.suspended(n.session) && matches(n.args) {
			return true
		}
	}
	return false
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

// removed reports to the node of a waiter that the waiter was removed.
func (c *Ctx) removed(n *waiter) {
	if n.served { // the reply of the waiter is no longer valid
		n = &waiter{session: n.session, origin: n.origin, pos: n.pos}
	}
	c.m.woken = append(c.m.woken, Woken{n})
}

// endWaits removes the waiters of a list, served or not. If their node is
// running, it learns of the removal from Result.Woken, and its clients wait
// again.
func (c *Ctx) endWaits(list []*waiter) {
	for _, n := range list {
		c.forget(n)
		c.removed(n)
	}
}

// endOpenWaits removes the waiters of a list that were not served, and those
// whose grants of locks are not claimed.
func (c *Ctx) endOpenWaits(list []*waiter) {
	for _, n := range list {
		if n.open() {
			c.forget(n)
			c.removed(n)
		}
	}
}

// open reports whether the waiter was not served, or was served a grant of a lock
// that its node has not claimed.
func (n *waiter) open() bool { return !n.served || n.grant != nil }

// endWaitsOf ends the open waits of a user whose rights have changed. It also ends
// those of clients whose user is unknown because they began to wait before
// FeatureBudget. The nodes of the clients check the user's rules and execute
// the commands again. The machine cannot check the rules, because their meaning
// depends on the program (see User).
//
// From FeatureDeferred on, no such wait is served after the change, and the entry
// ends only as many of them as its limit of work permits. Later entries end the
// others. Below FeatureDeferred, the entry that changes the rights ends them all.
func (c *Ctx) endWaitsOf(user string) {
	w := &c.m.waits
	switch {
	case c.m.features < FeatureBudget || w.weightOf(user)+w.weightOf("") == 0:
		return
	case c.m.features >= FeatureDeferred:
		c.revoke(user)
		return
	}
	ends := func(n *waiter) bool { return !n.served && (n.user == user || n.user == "") }
	ended := make([]*waiter, 0, c.mostWaits(w.weightOf(user)+w.weightOf("")))
	w.conns.Scan(func(n *waiter) bool {
		if ends(n) {
			ended = append(ended, n)
		}
		return true
	})
	if len(ended) < fewEnded {
		c.endWaits(ended)
	} else {
		c.endMany(ended, ends)
	}
}

// mostWaits returns the largest number of open waiters whose weights can add up to
// weight.
func (c *Ctx) mostWaits(weight int) int { return min(weight/leastWeight, c.m.waits.count) }

// fewEnded is the number of waits from which endWaitsOf and endStart use endMany.
const fewEnded = 1000

// endMany does the same as endWaits for waiters that were not served. ends
// returns true for exactly the waiters in ended. Instead of removing them from
// the trees one by one, endMany builds new trees from the other waiters, which
// is faster if many waits end.
func (c *Ctx) endMany(ended []*waiter, ends func(n *waiter) bool) {
	w := &c.m.waits
	left := newWaits()
	if w.count > len(ended) || w.served() > 0 {
		w.conns.Scan(func(n *waiter) bool {
			if !ends(n) {
				left.conns.Load(n)
			}
			return true
		})
		w.queues.Scan(func(q queued) bool {
			if !ends(q.w) {
				left.queues.Load(q)
			}
			return true
		})
	}
	w.conns, w.queues = left.conns, left.queues
	c.m.woken = slices.Grow(c.m.woken, len(ended))
	for _, n := range ended {
		for _, k := range n.keys {
			c.left(n, k)
		}
		c.removed(n)
	}
	w.closeAll(ended)
}

// closeAll updates all counts after unserved waiters have left the trees, and
// removes the nodes that have no waiter left. For consecutive waiters of the same
// user and node, it looks up the user and the node only once.
func (w *waits) closeAll(list []*waiter) {
	for len(list) > 0 {
		first, n, locks, weight := list[0], 0, 0, 0
		for n < len(list) && list[n].user == first.user && list[n].session.NodeID == first.session.NodeID {
			w.bytes -= list[n].size()
			weight += list[n].weight()
			if list[n].forLock() {
				locks++
			}
			n++
		}
		list = list[n:]
		w.count, w.locks = w.count-n, w.locks-locks
		w.addWeight(first.user, -weight)
		at, _ := w.node(first.session.NodeID)
		node := &w.nodes[at]
		node.n, node.locks, node.weight = node.n-n, node.locks-locks, node.weight-weight
	}
	w.nodes = slices.DeleteFunc(w.nodes, func(n waitNode) bool {
		if n.n == 0 && n.passed { // forget the positions that depend on this node
			w.overtaken.reset()
		}
		return n.n == 0
	})
}

// served returns the number of served waiters.
func (w *waits) served() (n int) {
	for i := range w.nodes {
		n += w.nodes[i].served
	}
	return n
}

// endEarlierStart ends the waits of an earlier start of the node that id names. The
// clients of the earlier start no longer exist when a later start of the node has a
// session. So the machine calls endEarlierStart for the sessions of each entry.
//
// Ending many waits takes long. So the leader removes the waiters in parts
// before it proposes the first group of the later start (see
// leadership.endEarlier in package cluster), and usually none are left here.
func (c *Ctx) endEarlierStart(id SessionID) {
	w := &c.m.waits
	if len(w.nodes) == 0 {
		return
	}
	if at, found := w.node(id.NodeID); found && w.nodes[at].id.Boot < id.Boot {
		c.endStart(w.nodes[at].id)
	}
}

// endStart ends the waits of a session.
func (c *Ctx) endStart(id SessionID) {
	list := c.m.waits.of(id)
	if len(list) >= fewEnded && c.m.features >= FeatureWaits {
		var open []*waiter
		for _, n := range list {
			if !n.served {
				open = append(open, n)
			}
		}
		c.endMany(open, func(n *waiter) bool { return n.session == id && !n.served })
		list = c.m.waits.of(id)
	}
	c.endWaits(list)
}

// replaceStart ends the waits of earlier starts of the node that id names. It
// reports whether all waiters of the node then belong to the session id. They do not
// if the node has waiters of a later start.
func (c *Ctx) replaceStart(id SessionID) bool {
	c.endEarlierStart(id)
	w := &c.m.waits
	at, found := w.node(id.NodeID)
	return !found || w.nodes[at].id == id
}

// endSuperseded ends the waits of all starts of a node except the latest one
// that has waiters. Before FeatureMend a node could have waiters of several
// starts.
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
	c.endWaits(ended)
	for at := range w.nodes { // each node still has the waiters of its latest start
		w.nodes[at].id.Boot = latest[at]
	}
}

// suspendAll suspends all sessions, because it is not known yet which nodes are
// connected to the new leader.
func (w *waits) suspendAll() {
	for i := range w.nodes {
		w.nodes[i].suspended, w.nodes[i].passed = true, false
	}
	w.overtaken.reset()
	w.resumed = nil
}
