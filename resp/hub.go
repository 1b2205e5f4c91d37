package resp

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Listener is told what the log does on this node: see cluster.Listener, whose
// words hold here.
type Listener interface {
	Applied(index uint64, events []fsm.Event)
	Missed(index uint64, why string)
}

// topicKind is what can be subscribed to.
type topicKind int

const (
	channels topicKind = iota
	patterns
	shardChannels
)

// hub knows who of this node's clients has subscribed to what, and hands out
// what the log says. Its Applied and Missed are called by one goroutine.
type hub struct {
	srv *Server
	// publishing says, without the lock, whether anybody has subscribed.
	publishing atomic.Bool

	mu     sync.RWMutex
	topics [3]map[string]*topic
	// order is the topics of patterns as they came: a message goes to them in
	// this order.
	order []*topic
	// local: there is no log behind this port, only announce.
	local bool
	// expecting counts subscriptions under way: see expect.
	expecting int
	track     tracking
}

// topic is a channel, pattern or shard channel with subscribers, in the order in
// which they came.
type topic struct {
	name string
	subs []subscription
}

// subscription is one connection's. since is the place in the log at which it
// subscribed: what was published before is not for it, even if this node applies
// it only now.
type subscription struct {
	c     *conn
	since uint64
}

func newHub(s *Server) *hub {
	h := &hub{srv: s}
	for k := range h.topics {
		h.topics[k] = make(map[string]*topic)
	}
	h.track.init(h)
	return h
}

// wantLocked tells the node which events are needed.
func (h *hub) wantLocked() {
	if h.local {
		return
	}
	subscribed := len(h.topics[channels])+len(h.topics[patterns])+len(h.topics[shardChannels]) > 0
	h.publishing.Store(subscribed)
	var kinds fsm.EventKinds
	if subscribed || h.expecting > 0 {
		kinds |= fsm.Kinds(fsm.EventPublish, fsm.EventKeyspace)
	}
	h.srv.cluster.Want(kinds | h.track.wants())
}

// expect makes sure that messages are told of from now on, so that a place in
// the log that is read after it can be the beginning of a subscription. done
// must be called when the subscription has been made, or has failed.
func (h *hub) expect() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expecting++
	h.wantLocked()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.expecting--
		h.wantLocked()
	}
}

// subscribe adds a connection to a topic. It must have been expected.
func (h *hub) subscribe(c *conn, kind topicKind, name string, since uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[kind][name]
	if t == nil {
		t = &topic{name: name}
		h.topics[kind][name] = t
		if kind == patterns {
			h.order = append(h.order, t)
		}
	}
	t.subs = append(t.subs, subscription{c, since})
	h.wantLocked()
}

// unsubscribe takes a connection from a topic.
func (h *hub) unsubscribe(c *conn, kind topicKind, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsubscribeLocked(c, kind, name)
	h.wantLocked()
}

func (h *hub) unsubscribeLocked(c *conn, kind topicKind, name string) {
	t := h.topics[kind][name]
	if t == nil {
		return
	}
	t.subs = slices.DeleteFunc(t.subs, func(s subscription) bool { return s.c == c })
	if len(t.subs) == 0 {
		delete(h.topics[kind], name)
		if kind == patterns {
			h.order = slices.DeleteFunc(h.order, func(o *topic) bool { return o == t })
		}
	}
}

// leave takes a connection out of everything.
func (h *hub) leave(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind, names := range c.subscribedTo {
		for name := range names {
			h.unsubscribeLocked(c, topicKind(kind), name)
		}
	}
	h.track.offLocked(c.id)
	h.wantLocked()
}

// receivers counts who would be sent a message of a channel, each subscription
// once, as PUBLISH answers.
func (h *hub) receivers(channel string, sharded bool) int {
	if !h.publishing.Load() {
		return 0
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if sharded {
		return h.topics[shardChannels][channel].len()
	}
	n := h.topics[channels][channel].len()
	for _, t := range h.order {
		if fsm.Glob(t.name, channel) {
			n += len(t.subs)
		}
	}
	return n
}

func (t *topic) len() int {
	if t == nil {
		return 0
	}
	return len(t.subs)
}

// names returns the topics of a kind that a pattern matches, sorted.
func (h *hub) names(kind topicKind, pattern string) []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	names := []string{}
	for name := range h.topics[kind] {
		if fsm.Glob(pattern, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// count returns how many subscribers a topic has.
func (h *hub) count(kind topicKind, name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.topics[kind][name].len()
}

// sizes returns how many topics of each kind there are, and subscriptions.
func (h *hub) sizes() (topics [3]int, subscriptions int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for k, m := range h.topics {
		topics[k] = len(m)
		for _, t := range m {
			subscriptions += len(t.subs)
		}
	}
	return topics, subscriptions
}

// Applied implements Listener.
func (h *hub) Applied(index uint64, events []fsm.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		switch e := &events[i]; e.Kind {
		case fsm.EventPublish:
			h.srv.metrics.Published.Inc()
			h.publish(index, e, e.Key, string(e.Payload), e.Sharded)
		case fsm.EventKeyspace:
			db := "@" + strconv.Itoa(e.DB) + "__:"
			if e.Keyspace {
				h.publish(index, e, "__keyspace"+db+e.Key, e.Name, false)
			}
			if e.Keyevent {
				h.publish(index, e, "__keyevent"+db+e.Name, e.Key, false)
			}
		case fsm.EventChanged:
			h.track.changed(index, e)
		case fsm.EventFlushed:
			h.track.flushed(index, e)
		case fsm.EventTracked:
			h.track.tracked(index, e)
		}
	}
	h.track.entryDone(index)
}

// Missed implements Listener: nobody may believe that he was told everything.
// Whoever caches drops what he has; subscribers are closed, for no message says
// that messages are missing.
func (h *hub) Missed(index uint64, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.flushed(index, nil)
	h.track.entryDone(index)
	cut := make(map[*conn]bool)
	for _, m := range h.topics {
		for _, t := range m {
			for _, s := range t.subs {
				if s.since < index && !cut[s.c] {
					cut[s.c] = true
					s.c.out.cutOff(why)
				}
			}
		}
	}
	if len(cut) > 0 {
		h.srv.log.Warn("subscribers cut off, for they have missed messages", "connections", len(cut), "index", index, "reason", why)
	}
}

// publish hands a message to the subscribers of this node. e is the event that it
// comes from, nil for none.
func (h *hub) publish(index uint64, e *fsm.Event, channel, payload string, sharded bool) {
	kind, word := channels, "message"
	if sharded {
		kind, word = shardChannels, "smessage"
	}
	if t := h.topics[kind][channel]; t != nil {
		h.deliver(index, e, t, word, channel, payload)
	}
	if sharded {
		return
	}
	for _, t := range h.order {
		if fsm.Glob(t.name, channel) {
			h.deliver(index, e, t, "pmessage", t.name, channel, payload)
		}
	}
}

// announce hands a message of the port's own to its subscribers.
func (h *hub) announce(channel, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publish(math.MaxUint64, nil, channel, payload, false)
}

// deliver sends words as one push to the subscribers of a topic. It is encoded
// once for each version of RESP.
func (h *hub) deliver(index uint64, e *fsm.Event, t *topic, words ...string) {
	var encoded [2][]byte
	encode := func(proto int) []byte {
		b := &encoded[proto-2]
		if *b == nil {
			*b = appendPush(nil, proto, len(words))
			for _, w := range words {
				*b = fsm.Bulk(w).Append(*b, proto)
			}
		}
		return *b
	}
	for _, s := range t.subs {
		if index > s.since {
			s.c.out.push(causeFor(index, e, s.c.id), encode)
			h.srv.metrics.Delivered.Inc()
		}
	}
}

// appendPush begins a push of n parts, which is an array in RESP2.
func appendPush(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return fsm.AppendHead(dst, '>', int64(n))
	}
	return fsm.AppendHead(dst, '*', int64(n))
}
