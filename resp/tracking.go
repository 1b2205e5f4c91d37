package resp

import (
	"math"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// tracking remembers which connection has read which key, and tells it when the
// key changes (CLIENT TRACKING). It belongs to the hub and is guarded by its lock.
//
// That no change between a read and its being remembered is lost hangs on places
// in the log. A read that goes through the log is remembered when the machine
// tells of it (fsm.EventTracked), at its place among the changes. Any other read
// is noted before it runs (arm); its answer comes with the place of the log that
// it saw, and changes that this node applies meanwhile count if they are behind
// that place (settle). Until the answer is out, the outbox holds invalidations
// back: none can overtake the value that it is about.
type tracking struct {
	hub *hub
	max int // keys remembered at most

	clients  map[uint64]*tracker            // connections that track, by number
	keys     map[string]map[uint64]*reading // readers of each key, by connection
	prefixes map[string]map[uint64]*tracker // of the connections in BCAST mode

	// readings is how many there are in keys, and swept how many the last sweep left.
	// held is how many each connection has.
	readings, swept int
	held            map[uint64]int

	// touched are the keys that the present entry changed, with the connection
	// that alone did it, or 0, while there are connections in BCAST mode. served are
	// the connections whose blocking commands changed some of them, when they were
	// served.
	touched map[string]uint64
	served  map[uint64]fsm.Pos
	// emptied is what the present entry emptied a database by last, nil for nothing.
	emptied *fsm.Event
}

// tracker is a connection that tracks.
type tracker struct {
	c      *conn
	noloop bool
	// behind: the connection has been READONLY, and what it read then may be of
	// before a change of its own whose answer it has had. It is told of those too.
	behind   bool
	bcast    bool
	redirect uint64 // connection that is told instead, 0 for none
	broken   bool   // it is gone, and the connection has been told so
}

// own reports whether a change by connection by is one that connection id, which
// tracks as tr says, need not be told of.
func (tr *tracker) own(id, by uint64) bool {
	return tr != nil && tr.noloop && !tr.behind && id == by
}

// reading is what is known of a connection's reads of one key.
type reading struct {
	// armed: the connection may hold what it read at the places since to last of the
	// log, and is told of the first change behind since. The two differ because
	// several commands may have read the key, each another part of it, and because
	// answers come from the leader: a change in between may still be to come here.
	armed       bool
	since, last uint64
	// pending: a read is under way, and hit is the place of the last change that
	// was applied here meanwhile.
	pending bool
	hit     uint64
}

// trackingTableMaxKeys is Redis' default of tracking-table-max-keys.
const trackingTableMaxKeys = 1000000

func (t *tracking) init(h *hub) {
	t.hub, t.max = h, trackingTableMaxKeys
	t.clients = make(map[uint64]*tracker)
	t.keys = make(map[string]map[uint64]*reading)
	t.prefixes = make(map[string]map[uint64]*tracker)
	t.held = make(map[uint64]int)
}

// wants returns the kinds of events that tracking needs.
func (t *tracking) wants() fsm.EventKinds {
	if len(t.clients) == 0 {
		return 0
	}
	return fsm.Kinds(fsm.EventChanged, fsm.EventFlushed, fsm.EventTracked)
}

// onLocked starts tracking for a connection, or changes how it is done.
func (t *tracking) onLocked(id uint64, tr *tracker, prefixes []string) {
	if old := t.clients[id]; old != nil {
		tr.behind = tr.behind || old.behind
	}
	t.clients[id] = tr
	for _, p := range prefixes {
		if t.prefixes[p] == nil {
			t.prefixes[p] = make(map[uint64]*tracker)
		}
	}
	for p, of := range t.prefixes { // the old ones, too, go by the new options
		if _, old := of[id]; old || slices.Contains(prefixes, p) {
			of[id] = tr
		}
	}
	t.hub.wantLocked()
}

// offLocked ends tracking for a connection. That it has read keys is forgotten when
// they change, or by a sweep.
func (t *tracking) offLocked(id uint64) {
	if t.clients[id] == nil {
		return
	}
	delete(t.clients, id)
	for p, of := range t.prefixes {
		if delete(of, id); len(of) == 0 {
			delete(t.prefixes, p)
		}
	}
	if len(t.clients) == 0 {
		clear(t.keys)
		clear(t.held)
		t.readings, t.swept = 0, 0
	}
}

// readsBehind notes that a connection reads without the leader from now on.
func (h *hub) readsBehind(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr := h.track.clients[id]; tr != nil {
		tr.behind = true
	}
}

// sweepReadings is how many readings may come before the first sweep.
const sweepReadings = 1 << 16

// sweep forgets the readings of connections that track no more. Without it they would
// gather at keys that never change. It runs when there are twice as many readings as
// it left the last time, so that it costs each of them next to nothing.
func (t *tracking) sweep() {
	for key, readers := range t.keys {
		for id := range readers {
			if t.clients[id] == nil {
				t.forget(key, id)
			}
		}
	}
	t.swept = t.readings
}

// hold notes that the connection may hold what it read at a place of the log.
func (r *reading) hold(at uint64) {
	if !r.armed {
		r.armed, r.since, r.last = true, at, at
		return
	}
	r.since, r.last = min(r.since, at), max(r.last, at)
}

// drop notes that the connection holds nothing of before a place of the log. What
// it has read at that place, or behind it, counts on.
func (r *reading) drop(index uint64) {
	r.since = r.last
	r.armed = r.armed && r.last >= index
}

// reader returns the entry of a key and a connection, which it makes if need be.
func (t *tracking) reader(key string, id uint64) *reading {
	if t.readings >= sweepReadings+2*t.swept {
		t.sweep()
	}
	readers := t.keys[key]
	if readers == nil {
		if len(t.keys) >= t.max {
			t.evict()
		}
		readers = make(map[uint64]*reading)
		t.keys[key] = readers
	}
	r := readers[id]
	if r == nil {
		r = &reading{}
		readers[id] = r
		t.readings++
		t.held[id]++
	}
	return r
}

// evict forgets some key, whose readers are told that it has changed.
func (t *tracking) evict() {
	for key, readers := range t.keys {
		pending := false
		for id, r := range readers {
			if r.armed {
				r.armed = false
				t.invalidate(id, key, cause{})
			}
			pending = pending || r.pending
		}
		if !pending { // else settle needs the entry
			for id := range readers {
				t.forget(key, id)
			}
			return
		}
	}
}

// arm notes that a connection is about to read keys without the log.
func (h *hub) arm(id uint64, keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		r := h.track.reader(key, id)
		r.pending, r.hit = true, 0
	}
}

// settle ends what arm began: the keys were read at place at of the log, or not
// at all.
func (h *hub) settle(id uint64, keys []string, at uint64, read bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &h.track
	for _, key := range keys {
		r := t.keys[key][id]
		if r == nil || !r.pending {
			continue // the key stands twice in the group
		}
		r.pending = false
		switch {
		case !read:
		case r.hit > at:
			r.armed = false
			t.invalidate(id, key, cause{})
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
	if t.held[id]--; t.held[id] == 0 {
		delete(t.held, id)
	}
	if delete(readers, id); len(readers) == 0 {
		delete(t.keys, key)
	}
}

// tracked remembers a read that went through the log. Changes before it in its
// entry have been looked at already, those after it are still to come.
func (t *tracking) tracked(index uint64, e *fsm.Event) {
	if tr := t.clients[e.Origin]; tr == nil || tr.bcast {
		return
	}
	t.reader(e.Key, e.Origin).hold(index - 1)
}

// changed tells the readers of a key that it has changed.
func (t *tracking) changed(index uint64, e *fsm.Event) {
	if len(t.prefixes) > 0 {
		if t.touched == nil {
			t.touched = make(map[string]uint64)
		}
		if by, ok := t.touched[e.Key]; !ok {
			t.touched[e.Key] = e.Origin
		} else if by != e.Origin {
			t.touched[e.Key] = 0
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

// flushed forgets all keys, and tells all who track. e is the event of it, nil if
// events are missing. A command that empties several databases is told of once.
func (t *tracking) flushed(index uint64, e *fsm.Event) {
	if last := t.emptied; e == nil || last == nil || last.Group != e.Group || last.Op != e.Op {
		for _, id := range sortedIDs(t.clients) {
			t.send(id, allKeys, causeFor(index, e, id))
		}
	}
	t.emptied = e
	for key, readers := range t.keys {
		for id, r := range readers {
			if r.pending {
				r.hit = index
			}
			if r.drop(index); !r.armed && !r.pending {
				t.forget(key, id)
			}
		}
	}
}

// allKeys stands in an invalidation for all keys.
func allKeys(proto int) []byte { return fsm.Null.Append(nil, proto) }

// entryDone sends what waits for the end of an entry: the invalidations of BCAST
// mode, one for each prefix.
func (t *tracking) entryDone(index uint64) {
	t.emptied = nil
	if len(t.touched) == 0 {
		return
	}
	keys := make([]string, 0, len(t.touched))
	for key := range t.touched {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, prefix := range sortedIDs(t.prefixes) {
		for _, id := range sortedIDs(t.prefixes[prefix]) {
			var of []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && !t.clients[id].own(id, t.touched[key]) {
					of = append(of, key)
				}
			}
			if len(of) > 0 {
				t.send(id, func(proto int) []byte { return fsm.Strings(of...).Append(nil, proto) }, cause{index: index, position: math.MaxInt, wait: t.served[id]})
			}
		}
	}
	clear(t.touched)
	clear(t.served)
}

// invalidate tells a connection that a key has changed.
func (t *tracking) invalidate(id uint64, key string, why cause) {
	t.send(id, func(proto int) []byte { return fsm.Strings(key).Append(nil, proto) }, why)
}

// Names in messages about tracking.
const (
	invalidateWord    = "invalidate"
	redirBrokenWord   = "tracking-redir-broken"
	invalidateChannel = "__redis__:invalidate"
)

// send sends the keys of an invalidation to whoever is to be told for a
// connection: itself, if it speaks RESP3; or the connection it redirects to, by a
// push, or in RESP2 as a message of a channel, if that one has subscribed to any.
// why is what caused it.
func (t *tracking) send(id uint64, keys func(proto int) []byte, why cause) {
	tr := t.clients[id]
	if tr == nil {
		return
	}
	to := tr.c
	if tr.redirect != 0 {
		if to = t.hub.srv.connection(tr.redirect); to == nil {
			tr.broken = true
			tr.c.edit(func(i *clientInfo) { i.broken = true })
			tr.c.out.push(why, func(proto int) []byte {
				if proto < 3 {
					return nil
				}
				b := fsm.Bulk(redirBrokenWord).Append(appendPush(nil, proto, 2), proto)
				return fsm.Int(int64(tr.redirect)).Append(b, proto)
			})
			return
		}
	}
	if to != tr.c {
		why.wait = 0 // it is not the blocking command of the connection that is told
	}
	subscribed := to.subscribed()
	to.out.push(why, func(proto int) []byte {
		var b []byte
		switch {
		case proto >= 3:
			b = fsm.Bulk(invalidateWord).Append(appendPush(nil, proto, 2), proto)
		case tr.redirect != 0 && subscribed:
			b = fsm.Bulk("message").Append(appendPush(nil, proto, 3), proto)
			b = fsm.Bulk(invalidateChannel).Append(b, proto)
		default:
			return nil // nothing can be sent to such a connection
		}
		t.hub.srv.metrics.Invalidations.Inc()
		return append(b, keys(proto)...)
	})
}

// trackers returns how many connections track.
func (h *hub) trackers() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.track.clients)
}

// trackedSizes returns how many keys and prefixes are remembered, and the readers
// of the keys.
func (h *hub) trackedSizes() (keys, items, prefixes int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.track.keys), h.track.readings, len(h.track.prefixes)
}
