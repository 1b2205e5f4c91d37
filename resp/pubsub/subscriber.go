package pubsub

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// Conn contains the methods of a connection that the hub uses. Any goroutine
// may call its methods. They do not block.
type Conn interface {
	// Push queues a message for the connection. encode makes the message for
	// the connection's RESP version, or returns nil if there is nothing to send
	// in that version.
	Push(why Cause, encode func(proto int) *Payload)
	// CutOff closes the connection, because it would miss messages or costs the
	// node too much.
	CutOff(reason string)
	// Closing reports whether the server is closing the connection.
	Closing() bool
	// Rules returns the rules of the connection's user. It returns nil for a
	// user with all permissions.
	Rules() *acl.User
	// Subscribed reports whether the connection has any subscription.
	Subscribed() bool
	// RedirectBroken records that this connection redirects its invalidations to a
	// connection that is gone.
	RedirectBroken()
}

// Subscriber is a connection as the hub sees it. Any goroutine may call Allows.
// All other methods of Subscriber, and the methods of Hub that have a Subscriber
// as an argument, are called only by the connection's own goroutine.
type Subscriber struct {
	id       uint64
	conn     Conn
	topics   [3]map[string]membership // subscriptions by kind
	matching matchAccount             // matching steps of the connection's patterns
}

// NewSubscriber returns a connection without subscriptions.
func NewSubscriber(id uint64, c Conn) *Subscriber { return &Subscriber{id: id, conn: c} }

// Has reports whether the connection has subscribed to a topic.
func (c *Subscriber) Has(kind Kind, name string) bool {
	_, ok := c.topics[kind][name]
	return ok
}

// Counts returns the number of subscriptions of each kind.
func (c *Subscriber) Counts() (n [3]int) {
	for kind, names := range c.topics {
		n[kind] = len(names)
	}
	return n
}

// Total returns the number of subscriptions.
func (c *Subscriber) Total() int {
	n := 0
	for _, names := range c.topics {
		n += len(names)
	}
	return n
}

// Count returns the number of subscriptions that a confirmation reports:
// channels and patterns are counted together, shard channels separately.
func (c *Subscriber) Count(kind Kind) int {
	if kind == ShardChannels {
		return len(c.topics[ShardChannels])
	}
	return len(c.topics[Channels]) + len(c.topics[Patterns])
}

// Names returns the topics of a kind, sorted.
func (c *Subscriber) Names(kind Kind) []string {
	names := make([]string, 0, len(c.topics[kind]))
	for name := range c.topics[kind] {
		names = append(names, name)
	}
	var pace yield.Pace
	compared := 0
	slices.SortFunc(names, func(a, b string) int {
		if compared++; compared%hubSlice == 0 {
			pace.Check()
		}
		return strings.Compare(a, b)
	})
	return names
}

// Fresh returns the names to which the connection has not subscribed, each
// once, and the bytes that the subscriptions to them will take.
func (c *Subscriber) Fresh(kind Kind, names [][]byte) (fresh []string, bytes int) {
	seen := make(map[string]struct{}, min(len(names), hubSlice))
	var pace yield.Pace
	for i, b := range names {
		if i%topicSlice == 0 {
			pace.Check()
		}
		name := string(b)
		if c.Has(kind, name) {
			continue
		}
		if _, ok := seen[name]; ok {
			continue
		}
		seen[name] = struct{}{}
		fresh = append(fresh, name)
		bytes += subscriptionSize(name)
	}
	return fresh, bytes
}

// Allows reports whether the current rules of the connection's user allow a
// channel, or a subscription to a pattern of channels.
func (c *Subscriber) Allows(channel string, pattern bool) bool {
	u := c.conn.Rules()
	return u == nil || u.AllowsChannel(channel, pattern)
}
