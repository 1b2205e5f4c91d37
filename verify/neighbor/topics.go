package neighbor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// topicLoads contains loads that subscribe to many channels or patterns, or
// track many prefixes.
var topicLoads = []Load{
	{Name: "patterns subscribed and left", workers: 2, attack: subscribeAndLeave},
	{Name: "patterns that match slowly", workers: 1, attack: matchSlowly},
	{Name: "BCAST prefixes", workers: 1, attack: trackPrefixes},
	{Name: "large messages to many subscribers", workers: 1, attack: publishToMany},
}

// topicsPerCommand keeps a command below the limit on its size.
const topicsPerCommand = 1000

// commands returns the encodings of commands that together contain all names,
// with at most topicsPerCommand names each. Each command begins with the
// arguments in head. In front of each name, the command repeats the arguments
// that the parameter named before contains.
func commands(names, head, before []string) (all [][]byte) {
	for part := range slices.Chunk(names, topicsPerCommand) {
		words := slices.Clone(head)
		for _, name := range part {
			words = append(append(words, before...), name)
		}
		all = append(all, respwire.Command(words...))
	}
	return all
}

// encoded returns the commands of a worker. At the first call for that worker,
// it calls the function make and keeps the result. The load shares the
// machine with the node and must not use the node's processor time to encode
// commands again.
func (t *target) encoded(worker int, make func() [][]byte) [][]byte {
	of, _ := t.commands.LoadOrStore(worker, sync.OnceValue(make))
	return of.(func() [][]byte)()
}

// sendAll sends commands one after another.
func (c *raw) sendAll(commands [][]byte) error {
	for _, b := range commands {
		if err := c.send(b); err != nil {
			return err
		}
	}
	return nil
}

// listening connects, logs in, and runs f on the connection while it discards
// everything that it receives. It then closes the connection and waits until
// the goroutine that discards has ended.
func (t *target) listening(ctx context.Context, f func(c *raw) error) error {
	c, err := t.member(ctx)
	if err != nil {
		return err
	}
	ended := c.discard(t)
	err = f(c)
	_ = c.Close() // only the end of the connection matters
	<-ended
	return err
}

// publishToMany publishes messages of 100 KB to 1,000 subscribers.
func publishToMany(ctx context.Context, t *target, _ int) (err error) {
	const channel = "crowded"
	var ended []<-chan struct{}
	var subscribers []*raw
	defer func() {
		for i, c := range subscribers {
			_ = c.Close() // only the end of the connection matters
			<-ended[i]
		}
	}()
	for range t.size(1000) {
		c, err := t.member(ctx)
		if err != nil {
			return err
		}
		subscribers = append(subscribers, c)
		ended = append(ended, c.discard(t))
		if err := c.send(respwire.Command("SUBSCRIBE", t.key(channel))); err != nil {
			return err
		}
	}
	message := strings.Repeat("m", 100_000)
	for range 20 {
		if err := t.publish(ctx, channel, message); err != nil {
			return err
		}
	}
	return nil
}

// subscribeAndLeave subscribes to 100,000 patterns, publishes a message, and
// closes the connection.
func subscribeAndLeave(ctx context.Context, t *target, worker int) error {
	patterns := t.encoded(worker, func() [][]byte {
		var names []string
		for i := range t.size(100_000) {
			names = append(names, fmt.Sprintf("%s%d:%d:*", t.Prefix, worker, i))
		}
		return commands(names, []string{"PSUBSCRIBE"}, nil)
	})
	return t.listening(ctx, func(c *raw) error {
		if err := c.sendAll(patterns); err != nil {
			return err
		}
		return t.publish(ctx, "quiet", "m")
	})
}

// publish sends a message to a channel and waits for the reply.
func (t *target) publish(ctx context.Context, channel, message string) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.do("PUBLISH", t.key(channel), message)
	return err
}

// matchSlowly subscribes to 30,000 patterns and publishes ten messages. The
// node must try each pattern at every position of the channel's name.
func matchSlowly(ctx context.Context, t *target, worker int) error {
	patterns := t.encoded(worker, func() [][]byte {
		var names []string
		for i := range t.size(30_000) {
			names = append(names, "*"+strings.Repeat("a", 100)+fmt.Sprintf("b%d", i))
		}
		return commands(names, []string{"PSUBSCRIBE"}, nil)
	})
	return t.listening(ctx, func(c *raw) error {
		if err := c.sendAll(patterns); err != nil {
			return err
		}
		for range 10 {
			if err := t.publish(ctx, strings.Repeat("a", 2000), "m"); err != nil {
				return err
			}
		}
		return nil
	})
}

// trackPrefixes tracks 50,000 prefixes in BCAST mode and writes a key.
func trackPrefixes(ctx context.Context, t *target, worker int) error {
	prefixes := t.encoded(worker, func() [][]byte {
		var names []string
		for i := range t.size(50_000) {
			names = append(names, fmt.Sprintf("%sp%d:", t.Prefix, i))
		}
		return commands(names, []string{"CLIENT", "TRACKING", "ON", "BCAST"}, []string{"PREFIX"})
	})
	return t.listening(ctx, func(c *raw) error {
		if err := c.send(respwire.Command("HELLO", "3")); err != nil {
			return err
		}
		if err := c.sendAll(prefixes); err != nil {
			return err
		}
		w, err := t.client(ctx, slowLimit)
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = w.do("SET", t.key(writtenKey), "1")
		return err
	})
}
