package neighbor

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// replyLoads contains loads with large replies that the client does not read, a
// load with large replies of scripts, and a load with large values.
var replyLoads = []Load{
	{Name: "large replies not read", workers: 10, prepare: writeLarge(largeKey, 8<<20),
		attack: askWithoutReading(largeKey, 5)},
	{Name: "many replies not read", workers: 10, prepare: writeLarge(megabyteKey, 1<<20),
		attack: askWithoutReading(megabyteKey, 45)},
	{Name: "large replies of scripts", workers: 10, prepare: writeLarge(largeKey, 8<<20),
		attack: replyOfScript},
	{Name: "large values", Logged: true, workers: 10, attack: setLarge},
}

// These are the names of the keys of all loads, without the prefix.
const (
	largeKey    = "large"
	megabyteKey = "megabyte"
	leftKey     = "left"
	rightKey    = "right"
	longLeft    = "long-left"
	longRight   = "long-right"
	firstSet    = "first-set"
	secondSet   = "second-set"
	writtenKey  = "written"
)

var keys = []string{largeKey, megabyteKey, leftKey, rightKey, longLeft, longRight, firstSet, secondSet, writtenKey}

// writeLarge writes a string of size bytes.
func writeLarge(name string, size int) func(ctx context.Context, t *target) error {
	return func(ctx context.Context, t *target) error {
		c, err := t.client(ctx, prepareLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.do("SETRANGE", t.key(name), strconv.Itoa(t.size(size)-1), "x")
		return err
	}
}

// unreadFor is how long a worker leaves the replies of a connection unread.
// Then it closes the connection and opens another one.
const unreadFor = 2 * time.Second

// askWithoutReading sends count GETs in one pipeline and reads no reply.
func askWithoutReading(name string, count int) func(ctx context.Context, t *target, worker int) error {
	return func(ctx context.Context, t *target, _ int) error {
		c, err := t.member(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.send(bytes.Repeat(respwire.Command("GET", t.key(name)), count)); err != nil {
			return err
		}
		load.Sleep(ctx, unreadFor)
		return nil
	}
}

// commandsEach is the number of commands that one connection sends before the
// worker opens another one.
const commandsEach = 5

// replyOfScript runs a script whose reply is a large value.
func replyOfScript(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	for range commandsEach {
		if _, err := c.do("EVAL", "return redis.call('GET', KEYS[1])", "1", t.key(largeKey)); err != nil {
			return err
		}
	}
	return nil
}

// setLarge sets a key to a value of 1 MB.
func setLarge(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	value := strings.Repeat("v", t.size(1_000_000))
	for range commandsEach {
		if _, err := c.do("SET", t.key(writtenKey), value); err != nil {
			return err
		}
	}
	return nil
}
