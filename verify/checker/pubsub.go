package checker

import (
	"fmt"
	"slices"
	"time"
)

// Publish is an attempt to publish a unique message.
type Publish struct {
	Channel, ID  string
	Client       int
	Call, Return time.Duration
	Outcome      Outcome
}

// Subscription is one subscription of one connection. It lasts from SUBSCRIBE to
// UNSUBSCRIBE or to the end of the connection.
type Subscription struct {
	Channel string
	Client  int
	Node    string
	Call    time.Duration // when SUBSCRIBE was sent
	Since   time.Duration // when SUBSCRIBE was confirmed
	// Left is when UNSUBSCRIBE was sent, if it was confirmed. It is Forever if
	// the connection was lost, because such a client knows that it may have
	// missed messages.
	Left time.Duration
	// Ended is when the confirmation of UNSUBSCRIBE arrived, or when the
	// connection ended.
	Ended    time.Duration
	Received []Received
}

// Received is a message that a subscriber received.
type Received struct {
	ID string
	At time.Duration
}

// Messages checks the messages that subscribers received. order contains the
// messages of each channel in the order of the log. If the order of the log is
// not known, order is nil, and Messages uses the order in real time.
//
//   - A subscriber receives a message at most once, and only if it was
//     published: not if the publish was refused, and not before it was sent.
//   - All subscribers receive messages in the order of the log.
//   - A subscriber misses no message between two that it receives. It also
//     misses no message that was sent after its subscription was confirmed, and
//     acknowledged before it sent UNSUBSCRIBE.
func Messages(publishes []Publish, listens []Subscription, order map[string][]string) (checked int, bad []Violation) {
	m := &messages{byID: make(map[string]*Publish), order: order, at: make(map[string]int)}
	for i := range publishes {
		p := &publishes[i]
		m.byID[p.ID] = p
		m.channels = append(m.channels, p)
	}
	for channel, ids := range order {
		if !slices.ContainsFunc(publishes, func(p Publish) bool { return p.Channel == channel }) {
			continue // messages of this channel come from other clients and need not be unique
		}
		for i, id := range ids {
			if _, twice := m.at[id]; twice {
				m.say(&Subscription{}, "message %s is in the log twice", id)
			}
			m.at[id] = i
		}
	}
	for i := range listens {
		checked += len(listens[i].Received)
		m.check(&listens[i])
	}
	return checked, m.bad
}

type messages struct {
	byID     map[string]*Publish
	channels []*Publish
	order    map[string][]string
	at       map[string]int // position among the messages of the channel in the log
	bad      []Violation
}

func (m *messages) say(l *Subscription, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.Node != "" {
		text = fmt.Sprintf("subscriber %d at %s: %s", l.Client, l.Node, text)
	}
	m.bad = append(m.bad, Violation{"pub/sub", l.Channel, text, l.Call, l.Ended})
}

func (m *messages) check(l *Subscription) {
	got := make(map[string]int)
	for i, h := range l.Received {
		p := m.byID[h.ID]
		switch before, twice := got[h.ID]; {
		case twice:
			m.say(l, "message %s was received twice, as number %d and %d", h.ID, before, i)
		case p == nil || p.Channel != l.Channel:
			m.say(l, "message %s was not published to this channel", h.ID)
		case p.Outcome == Refused:
			m.say(l, "message %s was received, although its publisher got the reply that it was not published", h.ID)
		case p.Call > h.At:
			m.say(l, "message %s was received at %v, before it was sent at %v", h.ID, h.At, p.Call)
		case p.Outcome == Done && p.Return < l.Call:
			m.say(l, "message %s was received, although it was acknowledged before the subscriber sent SUBSCRIBE",
				h.ID)
		}
		got[h.ID] = i
	}
	if order, known := m.order[l.Channel]; known {
		m.inOrder(l, order)
	} else {
		m.inTime(l)
	}
	m.gaps(l, got)
}

// inOrder checks that the messages of a subscriber are consecutive in the log.
func (m *messages) inOrder(l *Subscription, order []string) {
	last := -1
	for i, h := range l.Received {
		at, in := m.at[h.ID]
		if !in || order[at] != h.ID {
			m.say(l, "message %s was received, but is not in the log", h.ID)
			continue
		}
		switch {
		case i == 0 || last < 0:
		case at < last:
			m.say(l, "message %s was received after %s, but is before it in the log", h.ID, order[last])
		case at > last+1:
			m.say(l, "%d messages are missing between %s and %s: %v", at-last-1, order[last], h.ID,
				order[last+1:min(at, last+6)])
		}
		last = at
	}
}

// inTime compares each pair of messages that a subscriber received, in the order
// of their arrival. The first one must not have been sent after the second one
// had been acknowledged.
func (m *messages) inTime(l *Subscription) {
	for i, h := range l.Received {
		for _, later := range l.Received[i+1:] {
			a, b := m.byID[h.ID], m.byID[later.ID]
			if a != nil && b != nil && b.Outcome == Done && b.Return < a.Call {
				m.say(l, "message %s was received before %s, but was sent after that message was acknowledged", h.ID,
					later.ID)
			}
		}
	}
}

// gaps finds acknowledged messages that the subscriber should have received.
func (m *messages) gaps(l *Subscription, got map[string]int) {
	for _, p := range m.channels {
		if _, came := got[p.ID]; came || p.Channel != l.Channel || p.Outcome != Done || p.Call <= l.Since {
			continue
		}
		if l.Left != Forever && p.Return < l.Left {
			m.say(l,
				"message %s was published between %v and %v, but was not received before the subscriber left at %v",
				p.ID, p.Call, p.Return, l.Left)
			continue
		}
		// Look for a received message that was published after the
		// acknowledgement of p.
		i := slices.IndexFunc(l.Received, func(h Received) bool {
			later := m.byID[h.ID]
			return later != nil && p.Return < later.Call
		})
		if i >= 0 {
			m.say(l, "message %s is missing, although %s was received, which was sent after the missing message was "+
				"acknowledged", p.ID, l.Received[i].ID)
		}
	}
}
