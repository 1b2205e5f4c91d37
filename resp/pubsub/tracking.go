package pubsub

import (
	"math"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// tracking remembers which connection has read which key, and sends the
// connection an invalidation when the key changes (CLIENT TRACKING). It belongs
// to the hub, whose lock guards it, except for changedKeys, served and emptied.
// Only the goroutine that calls Hub.Applied and Hub.Missed uses these fields.
//
// Comparing log indices ensures that no change between a read and its
// registration is lost:
//
//   - A read that goes through the log is registered when the state machine
//     emits its event (fsm.EventTracked), in the order of the changes.
//   - Any other read is announced before it runs (Arm). Its reply carries the
//     log index that the read has seen. Settle then compares it with the
//     changes that this node has applied meanwhile.
//
// Until the reply is written, the connection delays invalidations. So no
// invalidation of a key overtakes a reply that contains the key's old value.
type tracking struct {
	hub *Hub
	max int // maximum number of keys to remember

	clients  map[uint64]*tracker            // connections that track, by id
	keys     map[string]map[uint64]*reading // readers of each key, by connection id
	prefixes prefixTree[prefixGroup]        // prefixes of the connections in BCAST mode
	// redirected counts, for each connection, the trackers that redirect to it.
	redirected map[uint64]int

	// readings is the number of readings in keys. swept is the value that
	// readings had after the last sweep.
	readings, swept int
	sweeping        bool
	// flushes counts how often all keys were forgotten. flushedAt is the log
	// index of the last such flush: see refresh.
	flushes   int
	flushedAt uint64
	// readingsOf is the number of readings of each connection. bytes estimates
	// the memory of keys.
	readingsOf      map[uint64]int
	bytes, maxBytes int

	// changedKeys are the keys that the current entry changed, while there are
	// connections in BCAST mode. The value is the id of the connection that
	// changed the key, or 0 if several connections did or the connection is not
	// known. served contains the blocking commands that changed keys when the
	// current entry served them, by the id of their connection.
	changedKeys map[string]uint64
	served      map[uint64]fsm.Pos
	// emptied is the last event in the current entry that emptied a database,
	// or nil.
	emptied *fsm.Event
}

// tracker is a connection that tracks.
type tracker struct {
	c      *Subscriber
	noloop bool
	// localReads is true if the connection has been in READONLY mode at any time
	// since it began to track. A value that it has read in that mode may be older
	// than its own acknowledged changes. So the connection also receives
	// invalidations for its own changes.
	localReads bool
	bcast      bool
	redirect   uint64 // connection that receives the invalidations instead, or 0
	// broken is true if an invalidation was to be sent to the connection in
	// redirect, but that connection was gone.
	broken bool
	// prefixes are the prefixes of BCAST mode.
	prefixes []string
}

// prefixGroup is a prefix with the connections that track it.
type prefixGroup struct {
	prefix string
	of     map[uint64]struct{}
	// changedKeys are the keys with the prefix that the current entry changed.
	changedKeys []string
}

// own reports whether a connection needs no invalidation for a change because it
// has made the change itself. id is the number of the connection, tr is its
// tracker, and by is the number of the connection that made the change. The two
// numbers must be equal, and tr must have NOLOOP and no local reads.
func (tr *tracker) own(id, by uint64) bool {
	return tr != nil && tr.noloop && !tr.localReads && id == by
}

// reading is the state of a connection's reads of one key.
type reading struct {
	// armed is true if the connection may cache values of the key. It read
	// these values at log indices from since to last, and it receives an
	// invalidation for the first change after since. The two indices may differ if
	// several commands have read the key. This node may still have to apply
	// changes between the two indices, because replies come from the leader.
	armed       bool
	since, last uint64
	// pending is true while a read is under way. hit is the log index of the
	// last change that this node has applied during that read, without the
	// changes that tracker.own excludes.
	pending bool
	hit     uint64
	flushes int // value of tracking.flushes when the reading was refreshed
}

// These constants bound the table of keys that were read. MaxTrackedKeys is Redis'
// default of tracking-table-max-keys. Redis does not bound the bytes.
const (
	MaxTrackedKeys  = 1000000
	maxTrackedBytes = 512 << 20
)

// Estimated memory of a key and of a reading, in bytes, besides the key's name.
const (
	trackedKeyBytes = 120
	readingBytes    = 100
)

func (t *tracking) init(h *Hub) {
	t.hub, t.max, t.maxBytes = h, MaxTrackedKeys, maxTrackedBytes
	t.clients = make(map[uint64]*tracker)
	t.keys = make(map[string]map[uint64]*reading)
	t.readingsOf = make(map[uint64]int)
	t.redirected = make(map[uint64]int)
}

// apply processes an event.
func (t *tracking) apply(index uint64, e *fsm.Event) {
	switch e.Kind {
	case fsm.EventChanged:
		t.changed(index, e)
	case fsm.EventFlushed:
		t.flushed(index, e)
	case fsm.EventTracked:
		t.tracked(index, e)
	}
}

// wants returns the kinds of events that tracking needs.
func (t *tracking) wants() fsm.EventKinds {
	if len(t.clients) == 0 {
		return 0
	}
	return fsm.Kinds(fsm.EventChanged, fsm.EventFlushed, fsm.EventTracked)
}

// onLocked starts tracking for a connection, or changes its mode. The
// connection keeps its prefixes.
func (t *tracking) onLocked(id uint64, tr *tracker) {
	if old := t.clients[id]; old != nil {
		tr.localReads = tr.localReads || old.localReads
		tr.prefixes = old.prefixes
		t.redirectLocked(old.redirect, -1)
	}
	t.redirectLocked(tr.redirect, 1)
	t.clients[id] = tr
	t.hub.wantLocked()
}

// redirectLocked adds n to the number of trackers that redirect to a
// connection.
func (t *tracking) redirectLocked(to uint64, n int) {
	if to == 0 {
		return
	}
	if t.redirected[to] += n; t.redirected[to] == 0 {
		delete(t.redirected, to)
	}
}

// TrackOn starts tracking for a connection, or changes its mode, and adds the
// prefixes of the mode to the prefixes that the connection has. The caller has
// reserved memory for the new prefixes. localReads says whether the connection
// reads without the leader.
func (h *Hub) TrackOn(c *Subscriber, mode *Mode, localReads bool) {
	id, prefixes := c.id, mode.Prefixes
	tr := &tracker{c: c, noloop: mode.NoLoop, localReads: localReads, bcast: mode.BCast, redirect: mode.Redirect}
	h.mu.Lock()
	h.track.onLocked(id, tr)
	h.mu.Unlock()
	var pace yield.Pace
	for piece := range slices.Chunk(prefixes, topicSlice) {
		pace.Check()
		h.mu.Lock()
		for _, p := range piece {
			g := h.track.prefixes.at(p)
			if g.of == nil {
				g.prefix, g.of = p, make(map[uint64]struct{})
			}
			g.of[id] = struct{}{}
		}
		tr.prefixes = append(tr.prefixes, piece...)
		h.mu.Unlock()
	}
}

// Untrack ends tracking for a connection.
func (h *Hub) Untrack(id uint64) {
	var pace yield.Pace
	for more := true; more; {
		h.mu.Lock()
		if more = h.track.dropPrefixes(id); !more {
			h.track.offLocked(id)
			h.wantLocked()
		}
		h.mu.Unlock()
		pace.Check()
	}
}

// dropPrefixes removes up to topicSlice prefixes of a connection. It reports
// whether more are left.
func (t *tracking) dropPrefixes(id uint64) (more bool) {
	tr := t.clients[id]
	if tr == nil {
		return false
	}
	n := min(len(tr.prefixes), topicSlice)
	for _, p := range tr.prefixes[:n] {
		g := t.prefixes.get(p)
		if delete(g.of, id); len(g.of) == 0 {
			t.prefixes.delete(p)
		}
		t.hub.bytes -= subscriptionSize(p)
	}
	tr.prefixes = tr.prefixes[n:]
	return len(tr.prefixes) > 0
}

// offLocked ends tracking for a connection that has no prefixes. If no other
// connection tracks, offLocked forgets all readings. Otherwise, the readings of the
// connection are forgotten later: when their keys change, or by a sweep.
func (t *tracking) offLocked(id uint64) {
	tr := t.clients[id]
	if tr == nil {
		return
	}
	t.redirectLocked(tr.redirect, -1)
	delete(t.clients, id)
	if len(t.clients) == 0 {
		t.keys = make(map[string]map[uint64]*reading) // clearing a large map takes long
		t.readingsOf = make(map[uint64]int)
		t.readings, t.swept, t.bytes = 0, 0, 0
	}
}

// ReadsBehind records that a connection reads without the leader from now on.
func (h *Hub) ReadsBehind(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr := h.track.clients[id]; tr != nil {
		tr.localReads = true
	}
}

// sweepReadings is the number of readings before the first sweep.
const sweepReadings = 1 << 16

// sweep forgets the readings of connections that no longer track. Without
// sweep, these readings would accumulate for keys that never change. sweep runs
// when there are twice as many readings as the last sweep left, plus
// sweepReadings, so the amortized cost per reading is small. sweep releases the
// hub's lock at intervals: see walk.
func (t *tracking) sweep() {
	if t.sweeping || t.readings < sweepReadings+2*t.swept {
		return
	}
	t.sweeping = true
	t.walk(func(key string, id uint64, _ *reading) {
		if t.clients[id] == nil {
			t.forget(key, id)
		}
	})
	t.swept, t.sweeping = t.readings, false
}

// walkSlice is the number of readings that walk visits before it releases the
// lock once.
const walkSlice = 512

// walk visits the readings. It releases the hub's lock after every walkSlice
// readings, and other goroutines may change the table then. walk may miss
// readings that they add.
func (t *tracking) walk(visit func(key string, id uint64, r *reading)) {
	n := 0
	var pace yield.Pace
	for key, readers := range t.keys {
		for id, r := range readers {
			if t.keys[key][id] == r { // the table may have been replaced
				visit(key, id, r)
			}
			if n++; n%walkSlice == 0 {
				t.hub.mu.Unlock()
				pace.Check()
				t.hub.mu.Lock()
			}
		}
	}
}

// refresh applies the last flush to a reading. It does nothing if the flush has
// been applied to the reading already. The function flushed walks over all
// readings and calls refresh, but that takes time. Every other use of a reading
// also calls refresh first, so the progress of the walk makes no difference.
func (t *tracking) refresh(r *reading) {
	if r.flushes == t.flushes {
		return
	}
	r.flushes = t.flushes
	if r.pending {
		r.hit = t.flushedAt
	}
	r.drop(t.flushedAt)
}

// hold records that the connection may cache a value that it read at a log
// index.
func (r *reading) hold(at uint64) {
	if !r.armed {
		r.armed, r.since, r.last = true, at, at
		return
	}
	r.since, r.last = min(r.since, at), max(r.last, at)
}

// drop records that the connection caches no value from before a log index.
// Values that it read at that index or later still count.
func (r *reading) drop(index uint64) {
	r.since = r.last
	r.armed = r.armed && r.last >= index
}

// reader returns the reading of a key by a connection. It creates the reading
// if there is none.
func (t *tracking) reader(key string, id uint64) *reading {
	if r := t.keys[key][id]; r != nil {
		t.refresh(r)
		return r
	}
	for len(t.keys) >= t.max && t.keys[key] == nil || t.bytes >= t.maxBytes {
		if !t.evict() {
			break
		}
	}
	readers := t.keys[key]
	if readers == nil {
		readers = make(map[uint64]*reading)
		t.keys[key] = readers
		t.bytes += trackedKeyBytes + len(key)
	}
	r := &reading{flushes: t.flushes}
	readers[id] = r
	t.readings++
	t.readingsOf[id]++
	t.bytes += readingBytes
	return r
}

// evictTries is the maximum number of keys that evict examines.
const evictTries = 16

// evict forgets an arbitrary key and sends its readers an invalidation. It
// returns false if it finds no key without a read under way. It examines only
// evictTries keys. The commands of two clients can have reads of a million keys
// under way; each further key would otherwise cost a search of all these keys.
func (t *tracking) evict() bool {
	tries := 0
	for key, readers := range t.keys {
		if tries++; tries > evictTries {
			return false
		}
		pending := false
		for id, r := range readers {
			t.refresh(r)
			if r.armed {
				r.armed = false
				t.invalidate(id, key, Cause{})
			}
			pending = pending || r.pending
		}
		if !pending { // Settle needs the readings of reads that are under way
			for id := range readers {
				t.forget(key, id)
			}
			return true
		}
	}
	return false
}

// Arm announces that a connection is about to read keys without the log.
func (h *Hub) Arm(id uint64, keys []string) {
	h.inSlices(keys, func(piece []string) {
		for _, key := range piece {
			r := h.track.reader(key, id)
			r.pending, r.hit = true, 0
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.sweep()
}

// inSlices divides keys into pieces and calls f with one piece after another. It
// holds the hub's lock during each call, but not between the calls, because a
// command may name a million keys.
func (h *Hub) inSlices(keys []string, f func(piece []string)) {
	var pace yield.Pace
	for piece := range slices.Chunk(keys, hubSlice) {
		if len(keys) > hubSlice {
			pace.Check()
		}
		h.mu.Lock()
		f(piece)
		h.mu.Unlock()
	}
}

// Settle ends the reads that Arm announced. If read is true, the parameter at is
// the log index of the reads. If read is false, the keys were not read.
func (h *Hub) Settle(id uint64, keys []string, at uint64, read bool) {
	h.inSlices(keys, func(piece []string) { h.track.settle(id, piece, at, read) })
}

func (t *tracking) settle(id uint64, keys []string, at uint64, read bool) {
	for _, key := range keys {
		r := t.keys[key][id]
		if r == nil || !r.pending {
			continue // the key occurs twice in the group
		}
		t.refresh(r)
		r.pending = false
		switch {
		case !read:
		case r.hit > at:
			r.armed = false
			t.invalidate(id, key, Cause{})
		default:
			r.hold(at)
		}
		if !r.armed {
			t.forget(key, id)
		}
	}
}

func (t *tracking) forget(key string, id uint64) {
	readers := t.keys[key]
	if readers[id] == nil {
		return
	}
	t.readings--
	t.bytes -= readingBytes
	if t.readingsOf[id]--; t.readingsOf[id] == 0 {
		delete(t.readingsOf, id)
	}
	if delete(readers, id); len(readers) == 0 {
		delete(t.keys, key)
		t.bytes -= trackedKeyBytes + len(key)
	}
}

// tracked registers a read that went through the log. The changes before it in
// its entry have been processed, and the changes after it are still to come.
func (t *tracking) tracked(index uint64, e *fsm.Event) {
	if tr := t.clients[e.Origin]; tr == nil || tr.bcast {
		return
	}
	t.reader(e.Key, e.Origin).hold(index - 1)
}

// changed sends an invalidation to the readers of a key that has changed.
func (t *tracking) changed(index uint64, e *fsm.Event) {
	if t.prefixes.len() > 0 {
		if t.changedKeys == nil {
			t.changedKeys = make(map[string]uint64)
		}
		if by, ok := t.changedKeys[e.Key]; !ok {
			t.changedKeys[e.Key] = e.Origin
		} else if by != e.Origin {
			t.changedKeys[e.Key] = 0
		}
		if e.Waiter != nil {
			if t.served == nil {
				t.served = make(map[uint64]fsm.Pos)
			}
			t.served[e.Waiter.Origin] = e.Waiter.Pos
		}
	}
	readers := t.keys[e.Key]
	for _, id := range sortedIDs(readers) {
		r := readers[id]
		t.refresh(r)
		own := t.clients[id].own(id, e.Origin)
		if r.pending && !own {
			r.hit = index
		}
		if r.armed && index > r.since {
			if r.drop(index); !own {
				t.invalidate(id, e.Key, causeFor(index, e, id))
			}
		}
		if !r.armed && !r.pending {
			t.forget(e.Key, id)
		}
	}
}

// flushed forgets all values that were read before the log index of the flush, and
// sends an invalidation of all keys to every connection that tracks. e is the event
// that emptied a database, or nil if this node has missed events. A command that
// empties several databases causes one invalidation. flushed sends the
// invalidations and forgets the readings piece by piece, and releases the lock in
// between. A read that is settled meanwhile compares its log index with flushedAt.
// So flushedAt is set first. Otherwise, a connection that has already received the
// invalidation could cache the reply of a read from before the flush.
func (t *tracking) flushed(index uint64, e *fsm.Event) {
	last := t.emptied
	t.emptied = e
	t.flushes++
	t.flushedAt = index
	if e == nil || last == nil || last.Group != e.Group || last.Op != e.Op {
		var pace yield.Pace
		for n, id := range sortedIDs(t.clients) {
			if n > 0 && n%hubSlice == 0 {
				t.hub.mu.Unlock()
				pace.Check()
				t.hub.mu.Lock()
			}
			t.send(id, allKeys, causeFor(index, e, id))
		}
	}
	t.walk(func(key string, id uint64, r *reading) {
		if t.refresh(r); !r.armed && !r.pending {
			t.forget(key, id)
		}
	})
}

// allKeys encodes the null that stands for all keys in an invalidation.
func allKeys(proto int) []byte { return fsm.Null.Append(nil, proto) }

// entryDone sends the invalidations of BCAST mode, which wait for the end of an
// entry. A connection gets one invalidation for each of its prefixes with changed
// keys. The caller must not hold the hub's lock.
func (t *tracking) entryDone(index uint64) {
	t.emptied = nil
	if len(t.changedKeys) == 0 {
		return
	}
	origins := make(map[uint64]bool)
	for _, by := range t.changedKeys {
		origins[by] = true
	}
	for _, group := range t.groupsWithChanges() {
		b := broadcast{t: t, index: index, group: group, origins: origins}
		for piece := range slices.Chunk(b.receivers(), hubSlice) {
			t.hub.mu.Lock()
			for _, id := range piece {
				if _, ok := group.of[id]; ok {
					b.send(id)
				}
			}
			t.hub.mu.Unlock()
		}
		group.changedKeys = nil
	}
	clear(t.changedKeys)
	clear(t.served)
}

// groupsWithChanges assigns the keys that the current entry changed to the
// groups of their prefixes. It returns these groups, sorted by prefix.
func (t *tracking) groupsWithChanges() (groups []*prefixGroup) {
	for piece := range slices.Chunk(sortedIDs(t.changedKeys), hubSlice) {
		t.hub.mu.RLock()
		for _, key := range piece {
			t.prefixes.walk(key, func(_ string, g *prefixGroup) {
				if len(g.changedKeys) == 0 {
					groups = append(groups, g)
				}
				g.changedKeys = append(g.changedKeys, key)
			})
		}
		t.hub.mu.RUnlock()
	}
	slices.SortFunc(groups, func(a, b *prefixGroup) int { return strings.Compare(a.prefix, b.prefix) })
	return groups
}

// broadcast is the invalidation for one prefix after an entry.
type broadcast struct {
	t       *tracking
	index   uint64
	group   *prefixGroup
	origins map[uint64]bool // connections that changed keys in the entry
	// all caches the encoding of all keys of the group for each version of
	// RESP: nearly every connection receives all of them.
	all [2][]byte
	// limited caches, for each restricted user, the keys of the group that the
	// user may read.
	limited map[*acl.User][]string
}

func (b *broadcast) receivers() []uint64 {
	b.t.hub.mu.RLock()
	defer b.t.hub.mu.RUnlock()
	return sortedIDs(b.group.of)
}

// readable returns the keys of a list that a user may read. u is nil for an
// unrestricted user.
func (b *broadcast) readable(keys []string, u *acl.User) []string {
	if u == nil {
		return keys
	}
	if of, ok := b.limited[u]; ok && len(keys) == len(b.group.changedKeys) {
		return of
	}
	var of []string
	for _, key := range keys {
		if u.MayRead(key) {
			of = append(of, key)
		}
	}
	if len(keys) == len(b.group.changedKeys) {
		if b.limited == nil {
			b.limited = make(map[*acl.User][]string)
		}
		b.limited[u] = of
	}
	return of
}

// send sends a connection the keys of the group. In NOLOOP mode, it leaves out
// the keys that the connection has changed itself. It also leaves out the keys
// that the connection's user may not read. If the connection redirects to
// another connection, the user of that connection must be allowed to read the
// keys too.
func (b *broadcast) send(id uint64) {
	tr := b.t.clients[id]
	keys := b.readable(b.group.changedKeys, tr.c.conn.Rules())
	if tr.redirect != 0 {
		if to := b.t.hub.cfg.Find(tr.redirect); to != nil {
			keys = b.readable(keys, to.conn.Rules())
		}
	}
	if b.origins[id] {
		var others []string
		for _, key := range keys {
			if !tr.own(id, b.t.changedKeys[key]) {
				others = append(others, key)
			}
		}
		keys = others
	}
	if len(keys) == 0 {
		return
	}
	b.t.send(id, func(proto int) []byte {
		if len(keys) < len(b.group.changedKeys) {
			return fsm.Strings(keys...).Append(nil, proto)
		}
		all := &b.all[proto-2]
		if *all == nil {
			*all = fsm.Strings(keys...).Append(nil, proto)
		}
		return *all
	}, Cause{Index: b.index, Position: math.MaxInt, Wait: b.t.served[id]})
}

// RightsChanged sends an invalidation of all keys to connections in BCAST mode
// whose own rights, or the rights of the connection that they redirect to, have
// changed. From now on, such a connection receives invalidations for a
// different set of keys.
func (h *Hub) RightsChanged(ids map[uint64]bool) {
	affected := func(id uint64) bool { return h.track.clients[id] != nil || h.track.redirected[id] > 0 }
	h.mu.RLock()
	any := false
	for id := range ids {
		any = any || affected(id)
	}
	h.mu.RUnlock()
	if !any {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range sortedIDs(h.track.clients) {
		if tr := h.track.clients[id]; tr.bcast && (ids[id] || ids[tr.redirect]) {
			h.track.send(id, allKeys, Cause{})
		}
	}
}

// invalidate sends a connection an invalidation of a key.
func (t *tracking) invalidate(id uint64, key string, why Cause) {
	t.send(id, func(proto int) []byte { return fsm.Strings(key).Append(nil, proto) }, why)
}

// Names in messages about tracking.
const (
	invalidateWord    = "invalidate"
	redirBrokenWord   = "tracking-redir-broken"
	invalidateChannel = "__redis__:invalidate"
)

// send sends an invalidation for connection id, caused by why. The receiver is
// the connection that it redirects to or, without a redirection, the connection
// itself. A receiver that speaks RESP3 gets a push. A receiver that speaks RESP2
// gets a message of a channel if it is the target of a redirection and has
// subscribed to any topic; otherwise, it gets nothing. If the target is gone, the
// connection itself gets a notice of that, provided that it speaks RESP3.
func (t *tracking) send(id uint64, keys func(proto int) []byte, why Cause) {
	tr := t.clients[id]
	if tr == nil {
		return
	}
	to := tr.c
	if tr.redirect != 0 {
		if to = t.hub.cfg.Find(tr.redirect); to == nil {
			tr.broken = true
			tr.c.conn.RedirectBroken()
			tr.c.conn.Push(why, func(proto int) *Payload {
				if proto < 3 {
					return nil
				}
				b := fsm.Bulk(redirBrokenWord).Append(AppendPush(nil, proto, 2), proto)
				return NewPayload(fsm.Int(int64(tr.redirect)).Append(b, proto))
			})
			return
		}
	}
	if to != tr.c {
		why.Wait = 0 // the receiver is not the connection of the blocking command
	}
	subscribed := to.conn.Subscribed()
	to.conn.Push(why, func(proto int) *Payload {
		var b []byte
		switch {
		case proto >= 3:
			b = fsm.Bulk(invalidateWord).Append(AppendPush(nil, proto, 2), proto)
		case tr.redirect != 0 && subscribed:
			b = fsm.Bulk("message").Append(AppendPush(nil, proto, 3), proto)
			b = fsm.Bulk(invalidateChannel).Append(b, proto)
		default:
			return nil // no invalidation can be sent to such a connection
		}
		t.hub.cfg.Invalidations.Inc()
		return NewPayload(append(b, keys(proto)...))
	})
}

// Trackers returns the number of connections that track.
func (h *Hub) Trackers() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.track.clients)
}

// TrackedSizes returns the numbers of remembered keys, of their readings, and
// of prefixes.
func (h *Hub) TrackedSizes() (keys, items, prefixes int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.track.keys), h.track.readings, h.track.prefixes.len()
}

// HasReadings reports whether a connection has read keys whose invalidation it may
// still receive.
func (h *Hub) HasReadings(id uint64) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.track.readingsOf[id] > 0
}

// InvalidateAll sends a connection that tracks an invalidation of all keys. The
// connection is about to receive the reply of a write whose invalidations have
// not reached this node.
func (h *Hub) InvalidateAll(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.send(id, allKeys, Cause{})
}
