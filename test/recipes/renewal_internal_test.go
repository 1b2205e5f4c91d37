package recipes

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestKeep_NoAnswer: work is told to stop when the lock has run out, though the
// renewal is still waiting for an answer that never comes.
func TestKeep_NoAnswer(t *testing.T) {
	t.Parallel()
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close() // until then the kernel takes connections, and nobody reads them
	c := redis.NewClient(&redis.Options{Addr: hole.Addr().String(), ReadTimeout: 10 * time.Second, MaxRetries: -1})
	defer c.Close()
	const ttl = time.Second
	l := &lease{c: c, key: "k", token: "t", sent: time.Now().Add(-ttl / 2)} // its answer took long
	var told time.Duration
	err = l.keep(t.Context(), ttl, func(ctx context.Context) error {
		<-ctx.Done()
		told = time.Since(l.sent)
		c.Close() // the renewal is of no use any more, and need not be waited for
		return context.Cause(ctx)
	})
	if !errors.Is(err, errLost) {
		t.Errorf("keep: %v, want %v", err, errLost)
	}
	if told < ttl || told > 5*ttl {
		t.Errorf("told after %v, want %v", told, ttl)
	}
}
