package fsm

import (
	"errors"
	"fmt"
	"maps"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// Broken returns an error if parts of a machine contradict each other: for
// example, if an index or a counter differs from the state that it describes,
// or if the state contains something that needs a later feature version.
func Broken(m *Machine) error {
	if err := m.waits.broken(m.features >= FeatureMend); err != nil {
		return fmt.Errorf("waits: %w", err)
	}
	if err := m.brokenLocks(); err != nil {
		return fmt.Errorf("locks: %w", err)
	}
	if err := m.locks.delays.Check(); err != nil {
		return fmt.Errorf("delays: %w", err)
	}
	if err := m.brokenExpiry(); err != nil {
		return fmt.Errorf("expiry: %w", err)
	}
	if err := m.brokenBytes(); err != nil {
		return fmt.Errorf("bytes of the data set: %w", err)
	}
	for node, s := range m.sessions {
		bytes := 0
		for _, r := range s.replies {
			bytes += len(r.bytes)
		}
		if s.lastSeq-s.floor != uint64(len(s.replies)) || s.bytes != bytes || s.superseded {
			return fmt.Errorf("session of %s: last %d, floor %d, %d replies of %d bytes, superseded %v", node, s.lastSeq, s.floor, len(s.replies), bytes, s.superseded)
		}
	}
	if n := m.removed.sums.Len(); n != 0 && (n != removedBuckets || !m.removed.counts) {
		return fmt.Errorf("%d buckets of removed keys at feature version %d", n, m.features)
	}
	if m.features < FeatureMend && m.exchanged != (exchanges{}) {
		return fmt.Errorf("the state has exchanges at feature version %d", m.features)
	}
	return nil
}

// LateWaiter returns a session that still has waiters although its node has
// started again. It returns nil if there is none.
func LateWaiter(m *Machine) *SessionID {
	for i := range m.waits.nodes {
		id := m.waits.nodes[i].id
		if s := m.sessions[id.NodeID]; s == nil || s.boot != id.Boot {
			return &id
		}
	}
	return nil
}

// Mixed reports whether a node has waiters of several starts.
func Mixed(m *Machine) bool { return m.waits.broken(true) != nil && m.waits.broken(false) == nil }

func (w *waits) broken(unmixed bool) error {
	for k, upTo := range w.overtaken.upTo {
		var err error
		w.queues.Ascend(queued{k, 0, nil}, func(q queued) bool {
			if q.waitKey != k || q.pos > upTo {
				return false
			}
			if !w.passedOver(q.w.session) {
				err = fmt.Errorf("waiter %d of %s is not passed over, but the queue of %q is remembered as passed over up to %d",
					q.w.origin, q.w.session, k.key, upTo)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	count, bytes, positions, open := 0, 0, 0, 0
	nodes, served, locks := make(map[string]int), make(map[string]int), make(map[string]int)
	users, weights := make(map[string]int), make(map[string]int)
	var err error
	w.conns.Scan(func(n *waiter) bool {
		nodes[n.session.NodeID]++
		at, found := w.node(n.session.NodeID)
		switch {
		case !found:
			err = fmt.Errorf("waiter %d of %s without a node", n.origin, n.session)
		case unmixed && w.nodes[at].id != n.session:
			err = fmt.Errorf("waiter %d of session %s, but the session of its node is %s",
				n.origin, n.session, w.nodes[at].id)
		case n.served && (n.reply == nil || len(n.keys) > 0 || len(n.args) > 0):
			err = fmt.Errorf("served waiter %d of %s with reply %q and %d keys", n.origin, n.session, n.reply, len(n.keys))
		}
		if n.served {
			served[n.session.NodeID]++
		}
		if n.forLock() || n.grant != nil {
			locks[n.session.NodeID]++
		}
		if n.forLock() {
			open++
		}
		if n.served || err != nil {
			return err == nil
		}
		count++
		bytes += n.size()
		users[n.user] += n.weight()
		weights[n.session.NodeID] += n.weight()
		positions += len(n.keys)
		for _, k := range n.keys {
			if q, found := w.queues.Get(queued{k, n.pos, nil}); !found || q.w != n {
				err = fmt.Errorf("waiter %d of %s is not in the queue of %q", n.origin, n.session, k.key)
			}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if open != w.locks {
		return fmt.Errorf("%d waiters for locks, but the counter is %d", open, w.locks)
	}
	if count != w.count || bytes != w.bytes || positions != w.queues.Len() {
		return fmt.Errorf("%d waiters of %d bytes in %d queue positions, but the counters are %d, %d and %d",
			count, bytes, positions, w.count, w.bytes, w.queues.Len())
	}
	if w.users.Len() != len(users) {
		return fmt.Errorf("weights of %d users, want %d", w.users.Len(), len(users))
	}
	for user, want := range users {
		if got, _ := w.users.Get(user); got != want {
			return fmt.Errorf("the waiters of user %q weigh %d, want %d", user, got, want)
		}
	}
	counted := make(map[string]int)
	last := ""
	for i, n := range w.nodes {
		if i > 0 && n.id.NodeID <= last {
			return fmt.Errorf("node %s is listed after node %s", n.id.NodeID, last)
		}
		last = n.id.NodeID
		counted[last] = n.n
		if n.locks != locks[last] || n.passed && !n.suspended {
			return fmt.Errorf("%d waiters of %s for locks, but the counter is %d; suspended %v, passed over %v",
				locks[last], last, n.locks, n.suspended, n.passed)
		}
		if n.weight != weights[last] {
			return fmt.Errorf("the waiters of %s weigh %d, want %d", last, n.weight, weights[last])
		}
		if n.served != served[last] {
			return fmt.Errorf("%d served waiters of %s, but the counter is %d", served[last], last, n.served)
		}
	}
	if !maps.Equal(nodes, counted) {
		return fmt.Errorf("waiters by node %v, but the counters are %v", nodes, counted)
	}
	return nil
}

func (m *Machine) brokenExpiry() error {
	total := 0
	for db := range m.dbs {
		n := 0
		var err error
		m.dbs[db].Scan(func(o *keyspace.Object) bool {
			if o.Deadline == 0 {
				return true
			}
			n++
			if !m.expiry.Has(db, o) {
				err = fmt.Errorf("key %q of database %d is not in the index of deadlines, or the index has another "+
					"object for it", o.Key, db)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
		if n != m.expiry.CountIn(db) {
			return fmt.Errorf("%d keys with a deadline in database %d, but the index counts %d",
				n, db, m.expiry.CountIn(db))
		}
		total += n
	}
	if n := m.expiry.Len(); n != total {
		return fmt.Errorf("%d keys with a deadline, but the index has %d", total, n)
	}
	return nil
}

// brokenBytes compares the counted sizes of the databases with the sum over all
// keys and all parts of their values. lockdelay.Set.Check compares the size of the
// delays.
func (m *Machine) brokenBytes() error {
	total := int64(0)
	for db := range m.dbs {
		n := int64(0)
		m.dbs[db].Scan(func(o *keyspace.Object) bool {
			n += recount(o)
			return true
		})
		if counted := m.dbs[db].Bytes(); n != counted {
			return fmt.Errorf("%d bytes in database %d, but the counter is %d", n, db, counted)
		}
		total += n
	}
	total += m.locks.delays.Bytes()
	if m.Bytes() != total {
		return fmt.Errorf("%d bytes in all databases and delays, but the counter is %d", total, m.Bytes())
	}
	return nil
}

// recount computes the size of a key without using the sums that the sequences
// keep.
func recount(o *keyspace.Object) int64 {
	none := keyspace.Object{Key: o.Key, Str: o.Str, Deadline: o.Deadline}
	if o.Coll == nil {
		return none.Bytes()
	}
	if l := o.Coll.Lock; l != nil {
		rebuilt := keyspace.NewLock([]byte(o.Key), l.Limit)
		l.Ascend(func(h *keyspace.Holder) bool {
			rebuilt.Coll.Lock.Add(nil, *h)
			return true
		})
		rebuilt.Deadline = o.Deadline
		return rebuilt.Bytes()
	}
	none.Coll = keyspace.NewCollection(o.Type)
	n := none.Bytes()
	v := o.Coll
	v.Hash.Ascend(0, func(e *container.Item[string]) bool { n += e.Bytes(); return true })
	v.List.Ascend(0, func(s *string) bool {
		n += container.ItemBytes(2) + container.TextBytes(len(*s))
		return true
	})
	v.Set.Ascend(0, func(e *container.Item[struct{}]) bool { n += e.Bytes(); return true })
	v.Score.Ascend(0, func(e *container.Item[float64]) bool { n += e.Bytes(); return true })
	v.Order.Ascend(0, func(e *container.Scored) bool { n += e.Bytes(); return true })
	v.Stream.Entries.Ascend(0, func(e *stream.Entry) bool { n += e.Bytes(); return true })
	v.Stream.Groups.Ascend(0, func(g *stream.Group) bool {
		n += (&stream.Group{Name: g.Name}).Bytes()
		g.Pending.Ascend(0, func(p *stream.PendingEntry) bool { n += p.Bytes(); return true })
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			n += (&stream.Consumer{Name: k.Name}).Bytes()
			k.Pending.Ascend(0, func(id *stream.ID) bool { n += id.Bytes(); return true })
			return true
		})
		return true
	})
	return n
}

// brokenLocks returns an error if the grants, the tokens or the numbers of locks
// do not match the keys.
func (m *Machine) brokenLocks() error {
	for db := range m.dbs {
		n, others := 0, 0
		var err error
		m.dbs[db].Scan(func(o *keyspace.Object) bool {
			if o.Mark == keyspace.IsLock && !o.Granted {
				others++
			}
			if uint64(o.Token) > m.token && m.features >= FeatureLocks {
				err = fmt.Errorf("key %q of database %d has token %d, the highest is %d", o.Key, db, o.Token, m.token)
			}
			if o.Type == keyspace.TypeLock {
				granted, broken := m.brokenHolders(db, o)
				n, others = n+granted, others+o.Coll.Lock.Len()-granted
				err = errors.Join(err, broken)
			}
			if !o.Granted {
				return err == nil
			}
			n++
			if g := m.locks.find(db, o.Token); g == nil || g.Key != o.Key {
				err = fmt.Errorf("key %q of database %d with token %d has no grant, or the grant of another key: %v",
					o.Key, db, o.Token, g)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
		if t := m.locks.grants[db]; t != nil && t.Len() != n || t == nil && n > 0 {
			return fmt.Errorf("%d keys are marked as granted in database %d, but the number of grants differs", n, db)
		}
		if others != m.locks.unindexed[db] {
			return fmt.Errorf("%d locks in database %d have no grant, but the counter is %d",
				others, db, m.locks.unindexed[db])
		}
	}
	return nil
}

// brokenHolders returns an error if the holders of a lock do not match its
// object or the grants. granted is the number of holders with a grant.
func (m *Machine) brokenHolders(db int, o *keyspace.Object) (granted int, err error) {
	l := o.Coll.Lock
	first, last, token := int64(0), int64(0), Pos(0)
	l.Ascend(func(h *keyspace.Holder) bool {
		of, found := l.Of(h.Owner)
		if !found || of != *h || h.Token <= token || h.Token > o.Token {
			err = fmt.Errorf("holder %+v of lock %q: its owner is found as %+v, the token before it is %d, the "+
				"token of the lock is %d", *h, o.Key, of, token, o.Token)
		}
		token = h.Token
		if first == 0 || h.Deadline < first {
			first = h.Deadline
		}
		last = max(last, h.Deadline)
		if g := m.locks.find(db, h.Token); g != nil && g.Key == o.Key {
			granted++
		} else if g != nil {
			err = fmt.Errorf("token %d of lock %q has a grant of another key: %+v", h.Token, o.Key, g)
		}
		return err == nil
	})
	switch {
	case err != nil:
	case l.Len() == 0 || l.Due != first || o.Deadline != last:
		err = fmt.Errorf("lock %q with %d holders is due at %d and ends at %d, want %d and %d", o.Key, l.Len(), l.Due, o.Deadline, first, last)
	case l.Limit > 0 && l.Len() > l.Limit:
		err = fmt.Errorf("lock %q with limit %d has %d holders", o.Key, l.Limit, l.Len())
	}
	return granted, err
}

// SharedLocks returns the number of locks that more than one owner holds.
func SharedLocks(m *Machine) (n int) {
	for _, db := range m.dbs {
		db.Scan(func(o *keyspace.Object) bool {
			if o.Type == keyspace.TypeLock && o.Coll.Lock.LiveAt(m.clock.Lease) > 1 {
				n++
			}
			return true
		})
	}
	return n
}

// firstInLine returns the first of the waiters in a queue that are not passed over,
// or nil. It does not use the information that Ctx.heir keeps about the queue.
func firstInLine(m *Machine, k waitKey) (n *waiter) {
	m.waits.queues.Ascend(queued{k, 0, nil}, func(q queued) bool {
		if q.waitKey == k && !m.waits.passedOver(q.w.session) {
			n = q.w
		}
		return q.waitKey == k && n == nil
	})
	return n
}

// IdleLock returns an error if a waiter still waits for a lock that it can get,
// because the lock is free or the waiter may join its holders. For each lock,
// IdleLock checks only the first of the waiters that are not passed over. After an
// entry that leaves no deferred key, IdleLock must return nil.
func IdleLock(m *Machine) error {
	var err error
	c := &Ctx{m: m, now: m.clock.Lease}
	m.waits.queues.Scan(func(q queued) bool {
		if c.db = q.db; !q.lock || c.Delayed([]byte(q.key)) {
			return true
		}
		o := m.dbs[q.db].Get([]byte(q.key))
		if n := firstInLine(m, q.waitKey); n != nil && !m.waits.suspended(n.session) {
			if o == nil || o.Type == keyspace.TypeLock && n.blocking(m.table).Joins(c, o) {
				err = fmt.Errorf("waiter %d of %s still waits, although it can get lock %q of database %d",
					n.origin, n.session, q.key, q.db)
			}
		}
		return err == nil
	})
	return err
}

// IdleQueue returns an error if the first waiter for a list or a sorted set can
// be served. After an entry that leaves no deferred key, IdleQueue must return
// nil.
func IdleQueue(m *Machine) error {
	var err error
	checked := waitKey{db: -1}
	m.waits.queues.Scan(func(q queued) bool {
		o := m.dbs[q.db].Get([]byte(q.key))
		if q.lock || q.waitKey == checked || o == nil || o.Type != q.w.typ || o.Type != keyspace.TypeList && o.Type != keyspace.TypeZSet {
			return true
		}
		checked = q.waitKey // the waiters behind this waiter wait for it to be served
		if (o.Deadline == 0 || o.Deadline > m.clock.Lease) && !m.waits.suspended(q.w.session) {
			err = fmt.Errorf("waiter %d of %s still waits, although it can be served from key %q of database %d",
				q.w.origin, q.w.session, q.key, q.db)
		}
		return err == nil
	})
	return err
}

// LockDelays returns the number of delays of locks.
func LockDelays(m *Machine) int { return m.locks.delays.Len() }

// OpenGrants calls f for the grants that have not ended.
func OpenGrants(m *Machine, f func(db int, key, owner string, token Pos)) {
	for i, db := range m.dbs {
		db.Scan(func(o *keyspace.Object) bool {
			switch {
			case o.Type == keyspace.TypeLock:
				o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
					f(i, o.Key, h.Owner, h.Token)
					return true
				})
			case o.Granted || o.Mark == keyspace.IsLock:
				f(i, o.Key, o.Str, o.Token)
			}
			return true
		})
	}
}
