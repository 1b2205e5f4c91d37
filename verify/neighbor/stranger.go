package neighbor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// strangerLoads contains the loads of clients that do not log in.
var strangerLoads = []Load{
	{Name: "empty lines before a login", Stranger: true, workers: 30, attack: emptyLines},
	{Name: "sockets without a login", Stranger: true, workers: 1, attack: openSockets},
	{Name: "guessed passwords", Stranger: true, workers: 20, attack: guess},
}

// emptyLines sends line ends for as long as the node accepts them.
func emptyLines(ctx context.Context, t *target, _ int) error {
	c, err := t.raw(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	lines := bytes.Repeat([]byte("\r\n"), 16<<10)
	for ctx.Err() == nil {
		if err := c.send(lines); err != nil {
			return err
		}
		t.rounds.Add(1)
	}
	return nil
}

// openSockets opens 5,000 connections, sends a PING on each, and keeps them
// open.
func openSockets(ctx context.Context, t *target, _ int) error {
	for range t.size(5000) {
		c, err := t.raw(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.send(respwire.Command("PING")); err != nil {
			t.closed.Add(1)
		}
	}
	t.rounds.Add(1)
	wait(ctx, time.Minute)
	return nil
}

// guess tries passwords of a user that no other client logs in as. Clients that
// share the user name and the address of an intruder are throttled together
// with it.
func guess(ctx context.Context, t *target, worker int) error {
	c, err := t.raw(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ended := c.discard(t)
	for i := range 20 {
		if err := c.send(respwire.Command("AUTH", "administrator", fmt.Sprintf("guess-%d-%d", worker, i))); err != nil {
			return err
		}
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}
