// Package pubsub delivers the events of the log to the clients of this node
// that have asked for them: messages of channels, keyspace notifications, and
// invalidations of keys (CLIENT TRACKING).
//
// A [Hub] keeps the subscriptions and the table of keys that were read. It sees
// a connection as a [Subscriber], and gives it messages through [Conn]. It
// knows neither commands nor sockets: package resp runs SUBSCRIBE and CLIENT
// TRACKING, and writes the messages between the replies.
package pubsub

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/glob"
)

// Kind is a kind of topic to which clients can subscribe.
type Kind int

// The kinds of topics: channels, patterns that match the names of channels, and
// the shard channels of SSUBSCRIBE.
const (
	Channels Kind = iota
	Patterns
	ShardChannels
)

// Config contains the limits, functions and counters that a hub gets from its
// server.
type Config struct {
	// MaxBytes bounds an estimate of the memory of all subscriptions and
	// prefixes. 0: no limit.
	MaxBytes int
	// PatternSteps is guard.Limits.PatternSteps.
	PatternSteps int
	// Want sets the kinds of events that the hub receives from then on. It is
	// nil on a port without a log, where only Announce sends messages.
	Want func(kinds fsm.EventKinds)
	// Find returns the open connection with an id, or nil.
	Find func(id uint64) *Subscriber
	// Refused counts a connection that is closed because its patterns take too
	// many matching steps.
	Refused func()
	Logger  hclog.Logger

	// Published counts the messages of PUBLISH and SPUBLISH that the hub has
	// received. Delivered counts the deliveries of messages and keyspace
	// notifications to connections. Invalidations counts the invalidations that
	// were sent to connections.
	Published, Delivered, Invalidations prometheus.Counter
}

// Hub keeps the subscriptions of this node's clients and delivers the messages
// of the log to them. One goroutine calls Applied and Missed.
//
// mu guards the topics and subscriptions. Commands and messages hold it only
// briefly, however many subscriptions a client has: a command that changes many
// topics changes a few of them at a time, and channels are matched against
// patterns without mu.
type Hub struct {
	cfg Config
	// publishing is true while there is any subscription. If Config.Want is nil,
	// it is always false. It is read without mu.
	publishing atomic.Bool
	budget     matchBudget

	mu     sync.RWMutex
	topics [3]map[string]*topic
	// lists contains the topics by kind. Patterns are in patterns instead, by
	// their literal prefixes.
	lists    [3]topicList
	patterns prefixTree[topicList]
	// seq is the last number that was given to a topic or subscription.
	seq uint64
	// subscriptions is the number of subscriptions. bytes is an estimate of the
	// memory that the subscriptions and the BCAST prefixes occupy.
	subscriptions, bytes int
	// expecting is the number of calls of Expect whose done has not been called yet.
	expecting int
	track     tracking
}

// These numbers bound how much the hub processes before it releases its lock
// for other goroutines. hubSlice is the number of deliveries, of changed keys, or of
// keys that are read. topicSlice is the number of topics that a connection joins or
// leaves, or of prefixes that it begins or ceases to track. One topic or prefix
// takes about a microsecond, so topicSlice of them take less time than yield.Every,
// the time after which the connection yields.
const (
	hubSlice   = 256
	topicSlice = 64
)

// New returns a hub without subscriptions.
func New(cfg Config) *Hub {
	h := &Hub{cfg: cfg, budget: matchBudget{now: time.Now, rate: int64(cfg.PatternSteps)}}
	for k := range h.topics {
		h.topics[k] = make(map[string]*topic)
	}
	h.track.init(h)
	return h
}

// wantLocked makes the node deliver the kinds of events that the hub needs.
func (h *Hub) wantLocked() {
	if h.cfg.Want == nil {
		return
	}
	subscribed := len(h.topics[Channels])+len(h.topics[Patterns])+len(h.topics[ShardChannels]) > 0
	h.publishing.Store(subscribed)
	var kinds fsm.EventKinds
	if subscribed || h.expecting > 0 {
		kinds |= fsm.Kinds(fsm.EventPublish, fsm.EventKeyspace)
	}
	h.cfg.Want(kinds | h.track.wants())
}

// Expect ensures that the node delivers messages to the hub from now on. So a
// subscription may start at a log index that the caller reads after Expect. The
// caller must call done when the subscription has been made or has failed.
func (h *Hub) Expect() (done func()) {
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

// Subscribe subscribes a connection to topics to which it is not subscribed
// yet, and adds them to c.topics. The caller must have called Expect and
// Reserve. since is the log index after which the subscriptions receive
// messages.
func (h *Hub) Subscribe(c *Subscriber, kind Kind, names []string, since uint64) {
	var pace yield.Pace
	for piece := range slices.Chunk(names, topicSlice) {
		pace.Check()
		h.mu.Lock()
		if c.topics[kind] == nil {
			c.topics[kind] = make(map[string]membership)
		}
		for _, name := range piece {
			h.subscribeLocked(c, kind, name, since)
		}
		h.wantLocked()
		h.mu.Unlock()
	}
}

func (h *Hub) subscribeLocked(c *Subscriber, kind Kind, name string, since uint64) {
	h.seq++
	t := h.topics[kind][name]
	if t == nil {
		t = &topic{name: name, seq: h.seq}
		h.topics[kind][name] = t
		if kind == Patterns {
			t.pattern = glob.NewPattern(name)
			t.payer.Store(c)
			h.patterns.at(t.pattern.Prefix()).add(t)
		} else {
			h.lists[kind].add(t)
		}
	}
	t.subs = append(t.subs, subscription{c, h.seq, since})
	h.subscriptions++
	c.topics[kind][t.name] = membership{t, h.seq}
}

// Unsubscribe ends a connection's subscriptions to topics, and removes them
// from c.topics.
func (h *Hub) Unsubscribe(c *Subscriber, kind Kind, names []string) {
	var pace yield.Pace
	for piece := range slices.Chunk(names, topicSlice) {
		pace.Check()
		h.mu.Lock()
		for _, name := range piece {
			h.unsubscribeLocked(c, kind, name)
		}
		h.wantLocked()
		h.mu.Unlock()
	}
}

func (h *Hub) unsubscribeLocked(c *Subscriber, kind Kind, name string) {
	m, ok := c.topics[kind][name]
	if !ok {
		return
	}
	delete(c.topics[kind], name)
	h.subscriptions--
	h.bytes -= subscriptionSize(name)
	t := m.t
	if t.remove(m.seq); !t.gone.Load() {
		return
	}
	delete(h.topics[kind], name)
	if kind != Patterns {
		h.lists[kind].remove()
		return
	}
	r := h.patterns.get(t.pattern.Prefix())
	if r.remove(); r.empty() {
		h.patterns.delete(t.pattern.Prefix())
	}
}

// Leave removes a connection from all topics and from tracking.
func (h *Hub) Leave(c *Subscriber) {
	var pace yield.Pace
	for kind, names := range c.topics {
		var piece []string
		for name := range names {
			if piece = append(piece, name); len(piece) == hubSlice {
				pace.Check() // Unsubscribe measures only the time of its own call
				h.Unsubscribe(c, Kind(kind), piece)
				piece = piece[:0]
			}
		}
		h.Unsubscribe(c, Kind(kind), piece)
	}
	c.topics = [3]map[string]membership{}
	h.Untrack(c.id)
}

// listsLocked returns the patterns that may match a channel. Their literal
// prefixes are prefixes of the channel.
func (h *Hub) listsLocked(channel string) (lists [][]*topic) {
	if h.patterns.len() > 0 {
		h.patterns.walk(channel, func(_ string, r *topicList) { lists = append(lists, r.list()) })
	}
	return lists
}

// Receivers returns the number of subscriptions to which a message on a channel
// would be delivered, as PUBLISH returns it.
func (h *Hub) Receivers(channel string, sharded bool) int {
	if !h.publishing.Load() {
		return 0
	}
	h.mu.RLock()
	if sharded {
		defer h.mu.RUnlock()
		return h.topics[ShardChannels][channel].len()
	}
	n, lists := h.topics[Channels][channel].len(), h.listsLocked(channel)
	h.mu.RUnlock()
	if found := h.match(lists, channel); len(found) > 0 {
		h.mu.RLock()
		for _, t := range found {
			n += len(t.subs)
		}
		h.mu.RUnlock()
	}
	return n
}

// nameSteps is the basis of the maximum number of matching steps for one
// command that lists names. Each existing name raises the maximum by nameShare.
const nameSteps = 1 << 24

// Names returns the names of the topics of a kind that match a pattern, sorted.
// It returns false if that takes too many steps. kind must not be Patterns.
func (h *Hub) Names(kind Kind, pattern string) (names []string, ok bool) {
	h.mu.RLock()
	list := h.lists[kind].list()
	h.mu.RUnlock()
	p, steps := glob.NewPattern(pattern), 0
	names = []string{}
	for _, t := range list {
		if t.gone.Load() || !strings.HasPrefix(t.name, p.Prefix()) {
			continue
		}
		matched, n := p.Match(t.name)
		if steps += n; steps > nameSteps+len(list)*nameShare {
			return nil, false
		}
		if matched {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names, true
}

// nameShare is the number of steps by which each existing name raises the
// maximum: see nameSteps.
const nameShare = 64

// Count returns the number of subscribers of a topic.
func (h *Hub) Count(kind Kind, name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.topics[kind][name].len()
}

// Sizes contains the number of topics of each kind, the number of subscriptions,
// and an estimate of the bytes that subscriptions and BCAST prefixes occupy.
type Sizes struct {
	Topics               [3]int
	Subscriptions, Bytes int
}

// Sizes returns the current sizes.
func (h *Hub) Sizes() (z Sizes) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for k, m := range h.topics {
		z.Topics[k] = len(m)
	}
	z.Subscriptions, z.Bytes = h.subscriptions, h.bytes
	return z
}

// Applied implements resp.Listener.
func (h *Hub) Applied(index uint64, events []fsm.Event) {
	tracked := 0 // number of consecutive tracking events processed under the current lock
	unlock := func() {
		if tracked > 0 {
			h.track.sweep()
			h.mu.Unlock()
			tracked = 0
		}
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case fsm.EventPublish:
			unlock()
			h.cfg.Published.Inc()
			h.publish(index, e, e.Key, string(e.Payload), e.Sharded)
		case fsm.EventKeyspace:
			unlock()
			h.notify(index, e)
		default:
			if tracked == hubSlice {
				unlock()
			}
			if tracked == 0 {
				h.mu.Lock()
			}
			tracked++
			h.track.apply(index, e)
		}
	}
	unlock()
	h.track.entryDone(index)
}

// notify delivers a keyspace notification: on the channel of the key, on the
// channel of the event, or on both.
func (h *Hub) notify(index uint64, e *fsm.Event) {
	db := "@" + strconv.Itoa(e.DB) + "__:"
	if e.Keyspace {
		h.publish(index, e, "__keyspace"+db+e.Key, e.Name, false)
	}
	if e.Keyevent {
		h.publish(index, e, "__keyevent"+db+e.Name, e.Key, false)
	}
}

// Missed implements resp.Listener. It is called when this node has missed events
// up to index. Connections that track must drop their whole cache, so Missed sends
// them an invalidation of all keys. It disconnects subscribers that may have missed
// messages, because no message of the protocol reports missing messages.
func (h *Hub) Missed(index uint64, why string) {
	h.mu.Lock()
	h.track.flushed(index, nil)
	h.mu.Unlock()
	h.track.entryDone(index)
	h.mu.RLock()
	defer h.mu.RUnlock()
	cut := make(map[*Subscriber]bool)
	for _, m := range h.topics {
		for _, t := range m {
			for _, s := range t.subs {
				if s.since < index && !cut[s.c] {
					cut[s.c] = true
					s.c.conn.CutOff(why)
				}
			}
		}
	}
	if len(cut) > 0 {
		h.cfg.Logger.Warn("disconnected subscribers that may have missed messages",
			"connections", len(cut), "index", index, "reason", why)
	}
}

// publish delivers a message to the subscribers of this node. e is the event
// that contains the message; it is nil if the message does not come from the
// log.
func (h *Hub) publish(index uint64, e *fsm.Event, channel, payload string, sharded bool) {
	kind, word := Channels, "message"
	if sharded {
		kind, word = ShardChannels, "smessage"
	}
	h.mu.RLock()
	t := h.topics[kind][channel]
	var lists [][]*topic
	if !sharded {
		lists = h.listsLocked(channel)
	}
	h.mu.RUnlock()
	if t != nil {
		h.deliver(index, e, t, word, channel, payload)
	}
	for _, t := range h.match(lists, channel) {
		h.deliver(index, e, t, "pmessage", t.name, channel, payload)
	}
}

// Announce delivers a message that this port itself generates.
func (h *Hub) Announce(channel, payload string) {
	h.publish(math.MaxUint64, nil, channel, payload, false)
}

// deliver sends words as one push to the subscribers of a topic. It encodes the
// push once for each RESP version.
func (h *Hub) deliver(index uint64, e *fsm.Event, t *topic, words ...string) {
	var encoded [2]*Payload
	encode := func(proto int) *Payload {
		p := &encoded[proto-2]
		if *p == nil {
			b := AppendPush(nil, proto, len(words))
			for _, w := range words {
				b = fsm.Bulk(w).Append(b, proto)
			}
			*p = NewPayload(b)
		}
		return *p
	}
	// The lock is held while messages are sent, because a connection must
	// receive nothing after it has unsubscribed. Between two slices,
	// connections may subscribe and unsubscribe. next is the number of the
	// subscription at which the next slice begins.
	for next, more := uint64(0), true; more; {
		h.mu.RLock()
		next, more = h.deliverSlice(index, e, t, next, encode)
		h.mu.RUnlock()
	}
}

// deliverSlice sends a push to at most hubSlice subscribers of a topic,
// starting with subscription number from. It returns the number of the next
// subscription, and whether there is one. The caller must hold h.mu.
func (h *Hub) deliverSlice(
	index uint64, e *fsm.Event, t *topic, from uint64, encode func(proto int) *Payload,
) (next uint64, more bool) {
	i, _ := slices.BinarySearchFunc(t.subs, from, func(s subscription, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
	for n, s := range t.subs[i:] {
		if n == hubSlice {
			return s.seq, true
		}
		if index > s.since {
			s.c.conn.Push(causeFor(index, e, s.c.id), encode)
			h.cfg.Delivered.Inc()
		}
	}
	return 0, false
}

// AppendPush appends the head of a push of n elements. In RESP2, a push is an
// array.
func AppendPush(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return fsm.AppendHead(dst, '>', int64(n))
	}
	return fsm.AppendHead(dst, '*', int64(n))
}

// Forbidden returns the ids of the given connections that have a forbidden
// subscription: one that the rules of the connection's user no longer allow.
func (h *Hub) Forbidden(of map[uint64]bool) []uint64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var out []uint64
	for kind, topics := range h.topics {
		for name, t := range topics {
			for _, s := range t.subs {
				if of[s.c.id] && !s.c.Allows(name, Kind(kind) == Patterns) {
					out = append(out, s.c.id)
				}
			}
		}
	}
	return out
}

// MatchSteps returns the number of matching steps since the start.
func (h *Hub) MatchSteps() uint64 { return h.budget.spent.Load() }

// SetMatchClock replaces the clock of the matching budget, for tests.
func (h *Hub) SetMatchClock(now func() time.Time) { h.budget.now = now }
