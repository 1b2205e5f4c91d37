package process

import (
	"context"
	"crypto/tls"
	"errors"
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

// quiet turns off the messages that go-redis logs, for example about refused
// connections. The errors that go-redis returns contain the same information.
var quiet = sync.OnceFunc(logging.Disable)

// NewClient returns a client of the client port at addr, with TLS if encryption
// is not nil. The client never repeats a command or an attempt to connect. If
// the context of a command is canceled, the client stops waiting and closes all
// of its connections. password is the password of the default user, "" for none.
func NewClient(addr, password string, encryption *tls.Config) *redis.Client {
	quiet()
	dialer := &net.Dialer{Timeout: dialTimeout}
	hook := &canceling{conns: make(map[*trackedConn]bool)}
	client := redis.NewClient(&redis.Options{
		Addr: addr, Password: password,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("connect to node: %w", err)
			}
			conn = hook.track(conn)
			if encryption == nil {
				return conn, nil
			}
			c, err := handshake(ctx, conn, addr, encryption)
			if err != nil {
				err = fmt.Errorf("TLS handshake: %w", err)
				if cerr := conn.Close(); !errors.Is(cerr, net.ErrClosed) { // a canceled handshake has closed conn
					err = errors.Join(err, cerr)
				}
				return nil, err
			}
			return c, nil
		},
		DialerRetries: 1, MaxRetries: -1, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true,
	})
	client.AddHook(hook)
	return client
}

// handshake makes conn a TLS connection to addr. Without a server name in cfg,
// the certificate must be for the host of addr.
func handshake(ctx context.Context, conn net.Conn, addr string, cfg *tls.Config) (net.Conn, error) {
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c := tls.Client(conn, cfg)
	return c, c.HandshakeContext(ctx)
}
