package process

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	dialTimeout  = 3 * time.Second
	replyTimeout = 15 * time.Second
)

// quiet turns off the messages that go-redis prints about refused connections.
// Its errors say the same.
var quiet = sync.OnceFunc(logging.Disable)

// NewClient returns a client of the client port at addr. It never repeats a
// command or an attempt to connect, and a context ends what it waits for. The
// password is that of the default user, "" for none.
func NewClient(addr, password string) *redis.Client {
	quiet()
	dialer := &net.Dialer{Timeout: dialTimeout}
	return redis.NewClient(&redis.Options{
		Addr: addr, Password: password,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("connect to node: %w", err)
			}
			return conn, nil
		},
		DialerRetries: 1, MaxRetries: -1, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true,
	})
}
