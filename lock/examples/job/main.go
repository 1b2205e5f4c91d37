// Command job does a piece of work in parts while it holds a lock. Start it several
// times: the processes work one after another, in the order in which they began to
// wait. If you kill a node meanwhile, the job continues.
//
//	go run ./lock/examples/job -addr 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock"
)

func main() {
	addrs := flag.String("addr", "127.0.0.1:6379", "addresses of the nodes, separated by commas")
	parts := flag.Int("parts", 10, "number of parts")
	pause := flag.Duration("pause", time.Second, "duration of a part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*addrs, ","), *parts, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "job:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addrs []string, parts int, pause time.Duration) error {
	nodes, err := lock.NewNodes(addrs, redis.Options{})
	if err != nil {
		return err
	}
	defer nodes.Close()
	held, err := lock.Acquire(ctx, nodes, "example:job", lock.WithTTL(10*time.Second), lock.WithMeta("example"))
	if err != nil {
		return err
	}
	err = work(ctx, held, parts, pause)
	return errors.Join(err, held.Release(context.WithoutCancel(ctx)))
}

// work performs the parts. It ends early if held.Context or ctx is canceled.
func work(ctx context.Context, held *lock.Held, parts int, pause time.Duration) error {
	for part := range parts {
		select {
		case <-held.Context().Done():
			return context.Cause(held.Context())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			fmt.Printf("part %d of %d with token %d\n", part+1, parts, held.Token())
		}
	}
	return nil
}
