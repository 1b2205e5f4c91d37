package pubsub

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm/glob"
)

// topic is a channel, pattern or shard channel with subscribers.
type topic struct {
	name string
	// seq numbers the topics in order of creation. A message is matched against
	// patterns in this order.
	seq     uint64
	pattern glob.Pattern // set for a pattern only
	// subs is sorted by subscription.seq and guarded by the hub's lock. gone can
	// be read without the lock. It is set when the last subscription ends; from
	// then on, the topic gets no further subscriptions.
	subs []subscription
	gone atomic.Bool
	// payer is the subscriber that is charged for the steps of matching.
	payer atomic.Pointer[Subscriber]
}

// subscription is the subscription of one connection. since is the log index at
// which the connection subscribed. The connection does not receive messages
// that were published before, even if this node applies them later.
type subscription struct {
	c     *Subscriber
	seq   uint64
	since uint64
}

// membership is a subscription as its connection stores it.
type membership struct {
	t   *topic
	seq uint64
}

func (t *topic) len() int {
	if t == nil {
		return 0
	}
	return len(t.subs)
}

// remove ends the subscription with sequence number seq.
func (t *topic) remove(seq uint64) {
	i, ok := slices.BinarySearchFunc(t.subs, seq, func(s subscription, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
	if !ok {
		return
	}
	if t.subs = slices.Delete(t.subs, i, i+1); len(t.subs) == 0 {
		t.subs = nil
		t.gone.Store(true)
	}
	t.choosePayer()
}

// choosePayer makes the first subscriber that is not being closed the payer and
// returns it. It returns nil if all subscribers are being closed.
func (t *topic) choosePayer() *Subscriber {
	i := slices.IndexFunc(t.subs, func(s subscription) bool { return !s.c.conn.Closing() })
	if i < 0 {
		t.payer.Store(nil)
		return nil
	}
	t.payer.Store(t.subs[i].c)
	return t.subs[i].c
}

// topicList is a list of topics in order of creation. A slice that the method
// list has returned does not change when topics are added or removed, so a
// caller can walk it without the hub's lock. A topic in such a slice may already
// be gone.
type topicList struct {
	topics []*topic // including topics that are gone
	gone   int      // number of topics that are gone
}

func (r *topicList) list() []*topic { return r.topics[:len(r.topics):len(r.topics)] }

// add appends a topic. It writes only behind the end of the slices that the
// method list has returned.
func (r *topicList) add(t *topic) { r.topics = append(r.topics, t) }

// remove counts a topic that is gone. Once half of the topics are gone, remove
// copies the rest into a new list. So the amortized cost of remove is constant.
func (r *topicList) remove() {
	if r.gone++; 2*r.gone < len(r.topics) {
		return
	}
	kept := make([]*topic, 0, len(r.topics)-r.gone)
	for _, t := range r.topics {
		if !t.gone.Load() {
			kept = append(kept, t)
		}
	}
	r.topics, r.gone = kept, 0
}

func (r *topicList) empty() bool { return len(r.topics) == 0 }
