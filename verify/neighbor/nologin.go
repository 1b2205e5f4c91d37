package neighbor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// noLoginLoads contains the loads of clients that do not log in.
var noLoginLoads = []Load{
	{Name: "empty lines before a login", NoLogin: true, workers: 30, attack: emptyLines},
	{Name: "sockets without a login", NoLogin: true, workers: 1, attack: openSockets},
	{Name: "guessed passwords", NoLogin: true, workers: 20, attack: guessPasswords},
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
	load.Sleep(ctx, time.Minute)
	return nil
}

// guessPasswords tries passwords of a user that no other client logs in as.
// Clients that share the user name and the address of an intruder are throttled
// together with it.
func guessPasswords(ctx context.Context, t *target, worker int) error {
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
