package recipes

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestKeep_NoAnswer checks that keep cancels the work when the lock has
// expired, although a renewal still waits for a reply.
func TestKeep_NoAnswer(t *testing.T) {
	t.Parallel()
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close() // until Close, the kernel accepts connections, but no program reads from them
	c := redis.NewClient(&redis.Options{Addr: hole.Addr().String(), ReadTimeout: 10 * time.Second, MaxRetries: -1})
	defer c.Close()
	const ttl = time.Second
	l := &lease{c: c, key: "k", token: "t", sent: time.Now().Add(-ttl / 2)} // the reply took half of the TTL
	var elapsed time.Duration
	err = l.keep(t.Context(), ttl, func(ctx context.Context) error {
		<-ctx.Done()
		elapsed = time.Since(l.sent)
		c.Close() // ends the renewal, whose result no longer matters
		return context.Cause(ctx)
	})
	if !errors.Is(err, errLost) {
		t.Errorf("keep: %v, want %v", err, errLost)
	}
	if elapsed < ttl || elapsed > 5*ttl {
		t.Errorf("work was canceled after %v, want %v", elapsed, ttl)
	}
}
