// Command http shows an HTTP service that refuses the requests of former owners of a
// lock. The service and its clients run in one process, so that the example is
// short.
//
//	go run ./lock/examples/http -addr 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock"
	"github.com/holdfast-kv/holdfast/lock/fence"
)

func main() {
	addrs := flag.String("addr", "127.0.0.1:6379", "addresses of the nodes, separated by commas")
	flag.Parse()
	if err := run(context.Background(), strings.Split(*addrs, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addrs []string) error {
	nodes, err := lock.NewNodes(addrs, redis.Options{})
	if err != nil {
		return err
	}
	defer nodes.Close()
	write := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	service := httptest.NewServer(fence.Handler(write, func(r *http.Request) string { return r.URL.Path }))
	defer service.Close()

	const key = "example:document"
	first, err := lock.Acquire(ctx, nodes, key)
	if err != nil {
		return err
	}
	if err := put(ctx, service, first, http.StatusNoContent); err != nil {
		return err
	}
	// LOCK BREAK ends the first owner's grant. If the process of that owner were
	// paused, the grant would end with the lease.
	if err := nodes.Do(ctx, "LOCK", "BREAK", key).Err(); err != nil {
		return err
	}
	second, err := lock.Acquire(ctx, nodes, key)
	if err != nil {
		return err
	}
	if err := put(ctx, service, second, http.StatusNoContent); err != nil {
		return err
	}
	if err := put(ctx, service, first, http.StatusPreconditionFailed); err != nil {
		return err
	}
	fmt.Println("the late request was refused")
	return second.Release(ctx)
}

// put sends a request with the token of an owner. It returns an error if the reply
// has a different status than the given one.
func put(ctx context.Context, service *httptest.Server, owner *lock.Held, status int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, service.URL+"/document", strings.NewReader("text"))
	if err != nil {
		return err
	}
	r.Header.Set(fence.Header, strconv.FormatInt(owner.Token(), 10))
	reply, err := service.Client().Do(r)
	if err != nil {
		return err
	}
	if reply.StatusCode != status {
		err = fmt.Errorf("status %s, want %d", reply.Status, status)
	}
	if cerr := reply.Body.Close(); err == nil {
		err = cerr
	}
	return err
}
