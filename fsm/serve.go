package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/tidwall/btree"
)

// One command may satisfy very many waiters. For example, an XADD may satisfy
// 20,000 clients in XREAD BLOCK, and a FLUSHALL the first waiter for each lock.
// So, from FeatureDeferred on, an entry stops serving waiters when the work of
// serving them has reached serveWork. The keys whose waiters have not been
// checked yet are deferred. The next entry begins with them, before its groups,
// and the leader commits clock entries until no deferred key is left.
//
// Until then, other commands run. The value of a deferred key is an ordinary
// value. So a command that does not wait may take elements of a list that has
// waiters. A free lock whose key is deferred is still reserved for its waiters: see
// LockReserved.

// These constants are part of the meaning of an entry. Their unit is the step.
const (
	// serveWork is the work of serving waiters at which an entry stops: about 2
	// ms. An entry exceeds it by the work of one waiter at most.
	serveWork = 200_000
	// servedWork is the work of serving a waiter, in addition to its reply and
	// to servedKeyWork for each of its keys.
	servedWork    = 640
	servedKeyWork = 60
	// checkedWork is the work of checking whether a waiter can be served.
	checkedWork = 130
	// readyWork is the work of finding out whether a key has a waiter that can
	// be served.
	readyWork = 150
	// servedReplyBytes is the number of bytes of a reply that count as one step.
	servedReplyBytes = 2
	// visitedWork is the work of finding out whether a wait has to end because
	// the rights of its user have changed. endedWork is the work of ending such
	// a wait, for each unit of waiter.weight.
	visitedWork = 15
	endedWork   = 80
	// fewReady is the number of keys up to which a command that makes many keys
	// ready serves their waiters in its own entry.
	fewReady = serveWork / (readyWork + servedWork + servedKeyWork)
)

// deferred contains the keys whose waiters later entries will check.
type deferred struct {
	keys *btree.BTreeG[deferredKey]
	// last is the key that take has returned last. The entries visit the keys in
	// turn, so a key that keeps getting values does not delay the others.
	last readyKey
}

// deferredKey is a key whose waiters later entries will check.
type deferredKey struct {
	readyKey
	behind Pos // the waiters up to this position have been checked
	// again is set if the key got a new value in the meantime. After the waiters
	// behind the position, all waiters are then checked once more.
	again bool
}

func newDeferred() deferred {
	return deferred{keys: btree.NewBTreeGOptions(func(a, b deferredKey) bool {
		return a.readyKey.compare(b.readyKey) < 0
	}, btree.Options{NoLocks: true})}
}

func (b deferred) clone() deferred { return deferred{b.keys.IsoCopy(), b.last} }

// has reports whether a key is deferred.
func (b *deferred) has(k readyKey) bool {
	_, found := b.keys.Get(deferredKey{readyKey: k})
	return found
}

// take removes and returns the first key after b.last, or the first key of all if
// no key comes after b.last. ok is false if there is no key.
func (b *deferred) take() (k deferredKey, ok bool) {
	if k, ok = b.keys.Min(); !ok {
		return k, false
	}
	b.keys.Ascend(deferredKey{readyKey: b.last}, func(n deferredKey) bool {
		if n.readyKey == b.last {
			return true
		}
		k = n
		return false
	})
	b.keys.Delete(k)
	b.last = k.readyKey
	return k, true
}

// revoked contains the users whose rights have changed. Later entries end the
// waits that these users began before the change. None of these waits is served.
type revoked struct {
	users btree.Map[string, revocation]
	// node and origin name the connection that was visited last. The entries
	// visit the connections in the order of waits.conns, again and again. A pass
	// begins with the node "".
	node   string
	origin uint64
}

// revocation is a change of a user's rights.
type revocation struct {
	before Pos // the waits that began before this position have to end
	// whole is set if the current pass began after the change, so that it visits
	// all connections after the change.
	whole bool
}

func (r *revoked) clone() revoked { return revoked{*r.users.IsoCopy(), r.node, r.origin} }

// add records that the waits of a user that began before a position have to end.
func (r *revoked) add(user string, before Pos) {
	r.users.Set(user, revocation{before, r.node == ""})
}

// ends reports whether an open wait has to end. If its user is unknown (see
// endWaitsOf), the change of any user ends it.
func (r *revoked) ends(n *waiter) (ends bool) {
	if r.users.Len() == 0 || n.served {
		return false
	}
	if n.user != "" {
		of, found := r.users.Get(n.user)
		return found && n.pos < of.before
	}
	r.users.Scan(func(_ string, of revocation) bool {
		ends = n.pos < of.before
		return !ends
	})
	return ends
}

// endPass forgets the users whose waits have all ended, and begins a new pass.
func (r *revoked) endPass() {
	var done, left []string
	r.users.Scan(func(name string, of revocation) bool {
		if of.whole {
			done = append(done, name)
		} else {
			left = append(left, name)
		}
		return true
	})
	for _, name := range done {
		r.users.Delete(name)
	}
	for _, name := range left {
		of, _ := r.users.Get(name)
		r.users.Set(name, revocation{of.before, true})
	}
	r.node, r.origin = "", 0
}

// revoke ends the waits of a user that began before the current operation. It may
// leave some of them for later entries.
func (c *Ctx) revoke(user string) {
	c.m.waits.revoked.add(user, c.pos)
	c.endRevoked()
}

// endRevoked ends waits of users whose rights have changed. It uses at most about a
// third of the work that an entry may do for waiters, so that the resumed sessions
// and the deferred keys get their turn too.
func (c *Ctx) endRevoked() {
	w := &c.m.waits
	r := &w.revoked
	for most := min(c.serveWork+serveWork/3, serveWork); r.users.Len() > 0 && c.serveWork < most; {
		var ended []*waiter
		whole := true
		w.conns.Ascend(&waiter{session: SessionID{NodeID: r.node}, origin: r.origin + 1}, func(n *waiter) bool {
			if whole = c.serveWork < most; whole {
				r.node, r.origin = n.session.NodeID, n.origin
				c.serveWork += visitedWork
				if n.user == "" { // ends may visit all users
					c.serveWork += visitedWork * r.users.Len()
				}
				if r.ends(n) {
					ended = append(ended, n)
					c.serveWork += endedWork * n.weight()
				}
			}
			return whole
		})
		c.endWaits(ended)
		if whole {
			c.serveWork += readyWork + visitedWork*r.users.Len()
			r.endPass()
		}
	}
}

// endIfRevoked ends a wait that must not be served because the rights of its user
// have changed.
func (c *Ctx) endIfRevoked(n *waiter) bool {
	if !c.m.waits.revoked.ends(n) {
		return false
	}
	c.serveWork += endedWork * n.weight()
	c.endWaits([]*waiter{n})
	return true
}

// resumption is a session that is no longer suspended. Later entries still have to
// check some of its waiters.
type resumption struct {
	id   SessionID
	next uint64 // the number of the connection with which the next entry continues
}

// resuming reports whether later entries still have to check waiters of a session
// that is no longer suspended.
func (w *waits) resuming(id SessionID) bool {
	return slices.ContainsFunc(w.resumed, func(r resumption) bool { return r.id == id })
}

// endResumption forgets that waiters of a session still have to be checked.
func (w *waits) endResumption(id SessionID) {
	w.resumed = slices.DeleteFunc(w.resumed, func(r resumption) bool { return r.id == id })
}

// resume checks the waiters of a session that is no longer suspended. It may leave
// some of them for later entries.
func (c *Ctx) resume(id SessionID) {
	w := &c.m.waits
	w.endResumption(id)
	w.resumed = append(w.resumed, resumption{id, 0})
	c.checkResumed()
}

// checkResumed checks waiters of the sessions that are no longer suspended. Like
// endRevoked, it uses at most about a third of the work that an entry may do for
// waiters.
func (c *Ctx) checkResumed() {
	w := &c.m.waits
	for most := min(c.serveWork+serveWork/3, serveWork); len(w.resumed) > 0 && c.serveWork < most; {
		r := &w.resumed[0]
		whole := true
		w.conns.Ascend(&waiter{session: r.id, origin: r.next}, func(n *waiter) bool {
			switch {
			case n.session != r.id:
				return false
			case c.serveWork >= most:
				r.next, whole = n.origin, false
				return false
			}
			c.serveWork += visitedWork + checkedWork*len(n.keys)
			c.checkAgain(n, func(k readyKey) { c.postpone(deferredKey{readyKey: k}) })
			return true
		})
		if whole {
			w.resumed = slices.Delete(w.resumed, 0, 1)
		}
	}
}

// checkAgain calls the function mark for each key of a waiter that was suspended, if
// the key may now satisfy the waiter or end its wait.
func (c *Ctx) checkAgain(n *waiter, mark func(readyKey)) {
	for _, k := range n.keys {
		may := c.mayServe(n, k)
		if may {
			mark(readyKey{waitKey: k})
		}
		gone := n.typ == keyspace.TypeStream && (!may || c.m.features < FeatureDeferred)
		if !k.lock && (gone || c.m.features < FeatureParts) {
			mark(readyKey{k, true}) // the stream may have been removed in the meantime
		}
	}
}

// readyKey is a key whose waiters must be checked after the current operation, or
// by a later entry.
type readyKey struct {
	waitKey
	gone bool // the key had a stream; if it has none now, the waits of XREADGROUP end
}

// compare defines the order in which entries visit the deferred keys.
func (k readyKey) compare(o readyKey) int {
	return cmp.Or(cmp.Compare(k.db, o.db), strings.Compare(k.key, o.key), compareBools(k.lock, o.lock),
		compareBools(k.gone, o.gone))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// ready marks a key for a check after the current operation, if the key has
// waiters.
func (c *Ctx) ready(k waitKey) { c.markReady(readyKey{waitKey: k}) }

// SignalWaiters marks a key of the current database for a check after the current
// operation, if the key has waiters. A command must call it if waiters may have to be
// served and store does not mark the key: see store. XADD is an example.
func (c *Ctx) SignalWaiters(key string) { c.ready(waitKey{db: c.db, key: key}) }

// streamGone marks a key that has lost its stream.
func (c *Ctx) streamGone(k waitKey) { c.markReady(readyKey{waitKey: k, gone: true}) }

// markReady adds k to the keys that serveWaiters checks, if the key has
// waiters.
func (c *Ctx) markReady(k readyKey) {
	if c.m.waits.queues.Len() == 0 || c.readyKeys[k] || c.m.waits.first(k.waitKey, 0) == nil {
		return
	}
	if c.readyKeys == nil {
		c.readyKeys = make(map[readyKey]bool)
	}
	c.readyKeys[k] = true
	c.readyList = append(c.readyList, k)
}

// markMany is like markReady for the keys of a command that makes many keys
// ready. If there are more than fewReady, it defers them all, which is
// fastest if they have the order of compare. It does not collect the keys first,
// because there can be as many as there are waiters.
func (c *Ctx) markMany(keys iter.Seq[readyKey]) {
	var few []readyKey
	var last readyKey
	empty, many := c.m.waits.deferred.keys.Len() == 0, false
	for k := range keys {
		switch {
		case many:
			if k != last {
				c.deferReady(k, empty)
			}
		case len(few) < fewReady || c.m.features < FeatureDeferred:
			few = append(few, k)
		default:
			many = true
			for _, k := range append(few, k) {
				c.deferReady(k, empty)
			}
		}
		last = k
	}
	if !many {
		for _, k := range few {
			c.markReady(k)
		}
	}
}

// deferReady defers a key that is ready. If empty is set, no key was deferred
// before the first of a series of calls.
func (c *Ctx) deferReady(k readyKey, empty bool) {
	if empty {
		// If the tree already contains k, its element is the same.
		c.m.waits.deferred.keys.Load(deferredKey{readyKey: k})
	} else {
		c.postpone(deferredKey{readyKey: k})
	}
}

// postpone defers a key.
func (c *Ctx) postpone(k deferredKey) {
	b := &c.m.waits.deferred
	if old, found := b.keys.Get(k); found {
		// A lock is given to its first waiters only, so the next check begins
		// with them. For other keys, the waiters that were checked before are
		// checked last, so that the waiters behind them get their turn even if
		// the key keeps getting values.
		if k = old; k.lock {
			k.behind = 0
		} else {
			k.again = k.again || k.behind > 0
		}
		if k == old {
			return
		}
	}
	b.keys.Set(k)
}

// Deferred returns how much is left for later entries: the number of keys and of
// sessions whose waiters they will check, plus the number of users whose waits
// they will end.
func (m *Machine) Deferred() int {
	w := &m.waits
	return w.deferred.keys.Len() + w.revoked.users.Len() + len(w.resumed)
}

// keysOf yields the keys of a database that have waiters and that f accepts, in
// the order of compare. f may change a key.
func (w *waits) keysOf(db int, f func(k *readyKey) bool) iter.Seq[readyKey] {
	return func(yield func(readyKey) bool) {
		last := waitKey{db: -1}
		w.queues.Ascend(queued{waitKey{db: db}, 0, nil}, func(q queued) bool {
			if q.db != db {
				return false
			}
			if q.waitKey == last {
				return true
			}
			last = q.waitKey
			k := readyKey{waitKey: last}
			return !f(&k) || yield(k)
		})
	}
}

// readyDB marks the keys of a database that was exchanged, after losesKeys has
// marked the locks.
func (c *Ctx) readyDB(db int) {
	c.markMany(c.m.waits.keysOf(db, func(k *readyKey) bool {
		return c.m.features < FeatureDeferred || !k.lock && c.m.dbs[db].Get([]byte(k.key)) != nil
	}))
}

// losesKeys marks keys of a database that is about to be emptied or exchanged: the
// streams and the locks that clients wait for.
func (c *Ctx) losesKeys(db int) {
	c.markMany(c.m.waits.keysOf(db, func(k *readyKey) bool {
		if k.lock {
			return true
		}
		o := c.m.dbs[db].Get([]byte(k.key))
		k.gone = o != nil && o.Type == keyspace.TypeStream
		return k.gone
	}))
}

// serveDeferred ends waits of the users whose rights have changed, checks waiters of
// the sessions that are no longer suspended, and serves waiters of the deferred
// keys. It runs in every batch, before the groups.
func (c *Ctx) serveDeferred() {
	b := &c.m.waits.deferred
	if c.m.Deferred() == 0 {
		return
	}
	db, proto, session := c.db, c.proto, c.session
	c.session = -1
	c.endRevoked()
	c.checkResumed()
	for n := b.keys.Len(); n > 0 && !c.servedEnough(); n-- { // check may add a key again
		if k, ok := b.take(); ok {
			c.check(k)
		}
	}
	c.db, c.proto, c.session = db, proto, session
	c.serveWaiters()
}

// servedEnough reports whether the entry must serve no further waiters.
func (c *Ctx) servedEnough() bool { return c.serveWork >= serveWork && c.m.features >= FeatureDeferred }

// serveWaiters serves the waiters of the keys that are ready. It runs before the
// first group of a batch, and after every operation. Serving a waiter can make other
// keys ready (BLMOVE).
func (c *Ctx) serveWaiters() {
	if len(c.readyList) == 0 {
		return
	}
	db, proto, session := c.db, c.proto, c.session
	c.session = -1 // the changes come from the waiters' connections, not from the current one
	for len(c.readyList) > 0 {
		list := c.readyList
		c.readyList, c.readyKeys = nil, nil
		for _, k := range list {
			if c.servedEnough() || c.m.waits.deferred.has(k) {
				c.postpone(deferredKey{readyKey: k})
			} else {
				c.check(deferredKey{readyKey: k})
			}
		}
	}
	c.db, c.proto, c.session = db, proto, session
}

// check serves the waiters of a key. If the entry must not serve all of them,
// the key is deferred.
func (c *Ctx) check(k deferredKey) {
	c.db = k.db
	c.serveWork += readyWork
	done := false
	switch {
	case k.gone:
		k.behind, done = c.endGroupReads(k.waitKey, k.behind)
	case k.lock:
		k.behind, done = c.serveLock(k.waitKey, k.behind)
	default:
		k.behind, done = c.serveQueue(k.waitKey, k.behind)
	}
	switch {
	case !done:
		c.m.waits.deferred.keys.Set(k)
	case k.again:
		c.m.waits.deferred.keys.Set(deferredKey{readyKey: k.readyKey})
	}
}

// serveQueue serves the waiters in the queue of k whose positions are higher
// than the parameter behind. done is false if the entry must not serve all of
// them. checked is then the position of the last waiter that it has checked.
func (c *Ctx) serveQueue(k waitKey, behind Pos) (checked Pos, done bool) {
	w := &c.m.waits
	for n := w.first(k, behind); n != nil; n = w.first(k, behind) {
		o := c.Lookup([]byte(k.key))
		switch {
		case o == nil:
			return 0, true
		case c.servedEnough():
			return behind, false
		}
		behind = n.pos
		c.serveWork += checkedWork
		switch {
		case c.endIfRevoked(n), o.Type != n.typ:
			continue
		case w.suspended(n.session):
			return 0, true
		}
		c.setPosition(c.position + 1)
		c.proto = n.proto
		c.served = n
		taken := n.blocking(c.m.table).Take(c, []byte(k.key))
		c.served = nil
		if taken.kind != kindNone { // else the value has nothing for the waiter
			c.serve(n, taken)
		}
	}
	return 0, true
}

// endGroupReads ends the waits of XREADGROUP on a key that no longer has a
// stream. Its arguments and results are those of serveQueue.
func (c *Ctx) endGroupReads(k waitKey, behind Pos) (checked Pos, done bool) {
	if o := c.Lookup([]byte(k.key)); o != nil && o.Type == keyspace.TypeStream {
		return 0, true
	}
	w := &c.m.waits
	for n := w.first(k, behind); n != nil; n = w.first(k, behind) {
		if c.servedEnough() {
			return behind, false
		}
		behind = n.pos
		c.serveWork += checkedWork
		if c.endIfRevoked(n) || n.typ != keyspace.TypeStream || w.suspended(n.session) {
			continue
		}
		if b := n.blocking(c.m.table); b.Gone.IsError() {
			c.serve(n, b.Gone)
		}
	}
	return 0, true
}

// blocking returns the decoded command of the waiter.
func (n *waiter) blocking(t *Table) BlockingCall {
	b, _ := t.Find(n.args[0]).Routed(n.args).Wait.Block(n.args)
	return b
}

// serve ends a wait with a reply.
func (c *Ctx) serve(n *waiter, r Reply) { c.serveGrant(n, r, nil) }

// serveGrant is like serve. If grant is not nil, the reply is a grant of a
// lock.
func (c *Ctx) serveGrant(n *waiter, r Reply, grant *provisional) {
	reply := r.appendUpTo(nil, n.proto, c.cutsAt())
	c.serveWork += servedWork + servedKeyWork*len(n.keys) + len(reply)/servedReplyBytes
	c.tracedServe(n, r)
	c.dequeue(n)
	w := &c.m.waits
	served := &waiter{
		session: n.session, origin: n.origin, pos: n.pos, served: true, reply: reply, grant: grant,
	}
	w.conns.Set(served)
	at, _ := w.node(n.session.NodeID)
	w.nodes[at].served++
	if n.forLock() && grant == nil {
		w.nodes[at].locks--
	}
	c.m.woken = append(c.m.woken, Woken{served})
}

// Woken is a wait that has ended. It is as small as a pointer, because one entry
// may end more than 20,000 waits.
type Woken struct{ n *waiter }

// Session returns the session of the waiter.
func (w Woken) Session() SessionID { return w.n.session }

// Origin returns the number of the connection that waited.
func (w Woken) Origin() uint64 { return w.n.origin }

// Pos returns the position that identifies the waiter.
func (w Woken) Pos() Pos { return w.n.pos }

// Reply returns the reply that the waiter was served, or nil if the waiter was
// removed. The caller must not change the reply.
func (w Woken) Reply() []byte { return w.n.reply }

// These are the flags of a deferred key in a snapshot.
const (
	flagLockQueue = 1
	flagGone      = 2
	flagAgain     = 4
)

// appendReadyKey writes a key and its flags.
func appendReadyKey(b []byte, k readyKey, flags byte) []byte {
	if k.lock {
		flags |= flagLockQueue
	}
	if k.gone {
		flags |= flagGone
	}
	return codec.AppendString(append(b, byte(k.db), flags), k.key)
}

// decodeReadyKey reads the encoding of appendReadyKey.
func decodeReadyKey(d *codec.Decoder) (k readyKey, flags byte, err error) {
	db := d.Byte()
	flags = d.Byte()
	key := string(d.Bytes())
	if d.Err == nil && (db >= Databases || flags > flagLockQueue|flagGone|flagAgain) {
		return k, 0, fmt.Errorf("deferred key in db %d with flags %#x: %w", db, flags, ErrFormat)
	}
	return readyKey{waitKey{int(db), key, flags&flagLockQueue != 0}, flags&flagGone != 0}, flags, d.Err
}

// deferred writes the deferred keys, and the key that take has returned last, into
// a snapshot. It writes nothing if there are no such keys.
func (w *snapshotWriter) deferred(b *deferred) {
	if b.last == (readyKey{}) && b.keys.Len() == 0 {
		return
	}
	w.b = appendReadyKey(append(w.b, recordDeferred), b.last, 0)
	w.cut()
	b.keys.Scan(func(k deferredKey) bool {
		flags := byte(0)
		if k.again {
			flags = flagAgain
		}
		w.b = binary.AppendUvarint(appendReadyKey(append(w.b, recordDeferredKey), k.readyKey, flags), uint64(k.behind))
		w.cut()
		return w.err == nil
	})
}

// deferred reads a record of the deferred keys, of the revoked waits, or of the
// resumed sessions.
func (l *snapshotLoader) deferred(record byte, d *codec.Decoder) error {
	switch record {
	case recordRevoked, recordRevokedUser:
		return l.revoked(record, d)
	case recordResumed:
		return l.resumed(d)
	}
	k, flags, err := decodeReadyKey(d)
	if err != nil {
		return err
	}
	b := &l.m.waits.deferred
	switch {
	case l.m.features < FeatureDeferred:
		return fmt.Errorf("deferred keys below feature version %d: %w", FeatureDeferred, ErrFormat)
	case record == recordDeferred && b.last == (readyKey{}) && b.keys.Len() == 0:
		b.last = k
	case record == recordDeferredKey && !b.has(k):
		b.keys.Set(deferredKey{k, Pos(d.Uvarint()), flags&flagAgain != 0})
	default:
		return fmt.Errorf("duplicate deferred key %.40q: %w", k.key, ErrFormat)
	}
	return d.Err
}

// revoked writes the users whose waits later entries will end, and the connection
// that was visited last.
func (w *snapshotWriter) revoked(r *revoked) {
	if r.users.Len() == 0 {
		return
	}
	w.b = binary.AppendUvarint(codec.AppendString(append(w.b, recordRevoked), r.node), r.origin)
	w.cut()
	r.users.Scan(func(name string, of revocation) bool {
		w.b = binary.AppendUvarint(codec.AppendString(append(w.b, recordRevokedUser), name), uint64(of.before))
		whole := byte(0)
		if of.whole {
			whole = 1
		}
		w.b = append(w.b, whole)
		w.cut()
		return w.err == nil
	})
}

// resumed writes the sessions whose waiters later entries will check.
func (w *snapshotWriter) resumed(list []resumption) {
	for _, r := range list {
		w.b = codec.AppendString(append(w.b, recordResumed), r.id.NodeID)
		w.b = binary.AppendUvarint(binary.AppendUvarint(w.b, r.id.Boot), r.next)
		w.cut()
	}
}

// resumed reads a record of a session whose waiters later entries will check.
func (l *snapshotLoader) resumed(d *codec.Decoder) error {
	r := resumption{SessionID{string(d.Bytes()), d.Uvarint()}, d.Uvarint()}
	w := &l.m.waits
	switch {
	case d.Err != nil:
		return d.Err
	case l.m.features < FeatureDeferred:
		return fmt.Errorf("resumed session below feature version %d: %w", FeatureDeferred, ErrFormat)
	case w.resuming(r.id):
		return fmt.Errorf("duplicate resumed session of %.40q: %w", r.id.NodeID, ErrFormat)
	}
	w.resumed = append(w.resumed, r)
	return nil
}

// revoked reads a record of the users whose waits later entries will end.
func (l *snapshotLoader) revoked(record byte, d *codec.Decoder) error {
	r := &l.m.waits.revoked
	name, n := string(d.Bytes()), d.Uvarint()
	_, twice := r.users.Get(name)
	switch {
	case d.Err != nil:
		return d.Err
	case l.m.features < FeatureDeferred:
		return fmt.Errorf("revoked waits below feature version %d: %w", FeatureDeferred, ErrFormat)
	case record == recordRevoked && r.node == "" && r.users.Len() == 0:
		r.node, r.origin = name, n
	case record == recordRevokedUser && !twice:
		whole := d.Byte()
		if d.Err == nil && whole > 1 {
			return fmt.Errorf("revoked waits of user %.40q with flag %#x: %w", name, whole, ErrFormat)
		}
		r.users.Set(name, revocation{Pos(n), whole == 1})
	default:
		return fmt.Errorf("unexpected record %q of revoked waits, named %.40q: %w", record, name, ErrFormat)
	}
	return d.Err
}
