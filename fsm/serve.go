package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// readyKey is a key with waiters that must be checked after the current
// operation.
type readyKey struct {
	waitKey
	gone bool // the key had a stream; if it has none now, the waits of XREADGROUP end
}

// ready marks a key for a check after the current operation, if the key has
// waiters.
func (c *Ctx) ready(k waitKey) { c.markReady(readyKey{waitKey: k}) }

// SignalWaiters marks a key of the current database for a check after the current
// operation, if the key has waiters. A command must call it if the command may serve
// waiters without storing a new value. Whenever a value is stored, store marks the
// key.
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

// keysOf returns the keys of a database that have waiters.
func (w *waits) keysOf(db int) []waitKey {
	var keys []waitKey
	w.queues.Ascend(queued{waitKey{db: db}, 0, nil}, func(q queued) bool {
		if q.db == db && (len(keys) == 0 || keys[len(keys)-1] != q.waitKey) {
			keys = append(keys, q.waitKey)
		}
		return q.db == db
	})
	return keys
}

// readyDB marks all keys of a database that was exchanged.
func (c *Ctx) readyDB(db int) {
	for _, k := range c.m.waits.keysOf(db) {
		c.ready(k)
	}
}

// losesKeys marks keys of a database that is about to be emptied: the streams
// and the locks that clients wait for.
func (c *Ctx) losesKeys(db int) {
	for _, k := range c.m.waits.keysOf(db) {
		if k.lock {
			c.ready(k)
		} else if o := c.m.dbs[db].Get([]byte(k.key)); o != nil && o.Type == keyspace.TypeStream {
			c.streamGone(k)
		}
	}
}

// serveWaiters serves the waiters of the keys that are ready. It runs after
// every operation. Serving a waiter can make other keys ready (BLMOVE).
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
			c.db = k.db
			switch {
			case k.gone:
				c.endGroupReads(k.waitKey)
			case k.lock:
				c.serveLock(k.waitKey)
			default:
				c.serveQueue(k.waitKey)
			}
		}
	}
	c.db, c.proto, c.session = db, proto, session
}

func (c *Ctx) serveQueue(k waitKey) {
	w := &c.m.waits
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		o := c.Lookup([]byte(k.key))
		switch {
		case o == nil:
			return
		case o.Type != n.typ:
			continue
		case w.suspended(n.session):
			return
		}
		c.setPosition(c.position + 1)
		c.proto = n.proto
		c.served = n
		taken := n.blocking(c.m.table).Take(c, []byte(k.key))
		c.served = nil
		if taken.kind != kindNone { // else the value does not contain what the waiter waits for
			c.serve(n, taken)
		}
	}
}

// endGroupReads ends the waits of XREADGROUP on a key that no longer has a
// stream.
func (c *Ctx) endGroupReads(k waitKey) {
	if o := c.Lookup([]byte(k.key)); o != nil && o.Type == keyspace.TypeStream {
		return
	}
	w := &c.m.waits
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		if n.typ != keyspace.TypeStream || w.suspended(n.session) {
			continue
		}
		if b := n.blocking(c.m.table); b.Gone.IsError() {
			c.serve(n, b.Gone)
		}
	}
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
	reply := r.Append(nil, n.proto)
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
