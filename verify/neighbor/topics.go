package neighbor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// topicLoads contains loads that subscribe to many names, or track many names.
var topicLoads = []Load{
	{Name: "patterns subscribed and left", workers: 2, attack: subscribeAndLeave},
	{Name: "patterns that match slowly", workers: 1, attack: matchSlowly},
	{Name: "BCAST prefixes", workers: 1, attack: trackPrefixes},
}

// topicsPerCommand keeps a command below the limit on its size.
const topicsPerCommand = 1000

// subscribe sends subscriptions in commands of topicsPerCommand names.
func (c *raw) subscribe(command string, names []string) error {
	for part := range slices.Chunk(names, topicsPerCommand) {
		if err := c.send(respwire.Command(append([]string{command}, part...)...)); err != nil {
			return err
		}
	}
	return nil
}

// listening connects, logs in, and runs f on the connection while it discards
// everything that it receives. It then closes the connection and waits for its
// end.
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

// subscribeAndLeave subscribes to 100,000 patterns, publishes a message, and
// closes the connection.
func subscribeAndLeave(ctx context.Context, t *target, worker int) error {
	var names []string
	for i := range t.size(100_000) {
		names = append(names, fmt.Sprintf("%s%d:%d:*", t.Prefix, worker, i))
	}
	return t.listening(ctx, func(c *raw) error {
		if err := c.subscribe("PSUBSCRIBE", names); err != nil {
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
func matchSlowly(ctx context.Context, t *target, _ int) error {
	var names []string
	for i := range t.size(30_000) {
		names = append(names, "*"+strings.Repeat("a", 100)+fmt.Sprintf("b%d", i))
	}
	return t.listening(ctx, func(c *raw) error {
		if err := c.subscribe("PSUBSCRIBE", names); err != nil {
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
func trackPrefixes(ctx context.Context, t *target, _ int) error {
	var prefixes []string
	for i := range t.size(50_000) {
		prefixes = append(prefixes, fmt.Sprintf("%sp%d:", t.Prefix, i))
	}
	return t.listening(ctx, func(c *raw) error {
		if err := c.send(respwire.Command("HELLO", "3")); err != nil {
			return err
		}
		for part := range slices.Chunk(prefixes, topicsPerCommand) {
			words := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
			for _, p := range part {
				words = append(words, "PREFIX", p)
			}
			if err := c.send(respwire.Command(words...)); err != nil {
				return err
			}
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
