package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config is what a Mux needs to know. Zero values take the defaults of DefaultConfig; Self is required.
type Config struct {
	// BindAddr is the TCP address to listen on, "host:port". Port 0 takes any free one. Ignored when Listener is set.
	BindAddr string

	// AdvertiseAddr is the address that other nodes dial, "host:port", where host may be a DNS name: it travels as text and is
	// resolved anew by every dial. Port 0 stands for the bound port. Default: the bound address, which then must not be a wildcard
	// such as 0.0.0.0, because nobody can dial that.
	AdvertiseAddr string

	// Self returns the identity of this node now; it is asked at every handshake, because the cluster id appears later than the port
	// opens. Service, Proto and To are filled by the Mux. It must not block. Together the texts may have some 4000 bytes.
	Self func() Hello

	// Secret is known to all nodes of the cluster and to nobody else, at least MinSecret bytes. Both sides of a connection prove to each
	// other that they have it, without sending it, and everything they send afterwards is authenticated by keys derived from it.
	// Without it, the default, identity is claimed and not proven.
	Secret []byte

	// SecretOptional lets a node with a Secret also connect to and accept nodes that have none, as long as an operator is giving the
	// secret to one node after the other. It protects against mistakes only: whoever says that it has no secret is accepted.
	SecretOptional bool

	// Authorize is the acceptor's check of a dialler. A non-nil error refuses the connection, and its text is sent to the dialler.
	// It runs in a goroutine per connection and must not block. Nil lets everybody in.
	Authorize func(Hello) error

	// Verify is the dialler's check of the acceptor's answer, for raft and framed connections alike. A non-nil error closes the
	// connection and is returned, wrapped, by Dial. Nil trusts whoever answers.
	Verify func(Hello) error

	// RaftPeer returns the id of the node that raft expects at an address, "" if unknown. Raft dials by address alone; with this the
	// handshake of a raft connection names the node it is for, and another node that took over the address refuses it.
	RaftPeer func(addr string) string

	// HandshakeTimeout bounds the handshake on the accepting side, and connecting plus handshake on the dialling side. Default 5 s.
	HandshakeTimeout time.Duration

	// WriteTimeout ends a stream that has something to write while the peer takes no byte for so long. It also bounds how long a
	// stream whose handler has returned may take to deliver its last frames. Default 10 s.
	WriteTimeout time.Duration

	// MaxConns bounds the accepted connections. At the limit the oldest connection that has not finished its handshake makes room for
	// the next; if there is none, the next is closed. Default 512.
	MaxConns int

	// MaxFrame bounds the payload of a frame in bytes, sent or received. All nodes need the same value. Default 32 MiB.
	MaxFrame int

	// MaxQueue is how many bytes may wait in a stream's outbox before Send blocks. Default 64 MiB.
	MaxQueue int

	// Listener is used instead of listening on BindAddr (TLS, tests, virtual networks). The Mux closes it.
	Listener net.Listener

	// Dialer is used instead of TCP with keepalive and TCP_NODELAY (TLS, tests, proxies). It must obey its context.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)

	// Logger takes the few lines this package has to say. Nil is silent.
	Logger hclog.Logger
}

// DefaultConfig returns a Config with every default filled in; Self is still to be set. It listens on a free port of the loopback
// interface.
func DefaultConfig() Config {
	cfg := Config{BindAddr: "127.0.0.1:0", Logger: hclog.Default().Named("rpc")}
	cfg.fill()
	return cfg
}

// keepAlive notices a vanished host on an idle connection after 5 + 3*2 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// fill replaces zero values by defaults.
func (c *Config) fill() {
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 5 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	if c.MaxConns == 0 {
		c.MaxConns = 512
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = 32 << 20
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 64 << 20
	}
	if c.Dialer == nil {
		dialer := &net.Dialer{KeepAliveConfig: keepAlive} // the net package sets TCP_NODELAY by itself
		c.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
}

// validate checks a filled Config.
func (c *Config) validate() error {
	switch {
	case c.Self == nil:
		return errors.New("rpc config: Self is required")
	case len(c.Secret) > 0 && len(c.Secret) < MinSecret:
		return fmt.Errorf("rpc config: Secret has %d bytes, fewer than %d", len(c.Secret), MinSecret)
	case c.HandshakeTimeout < 0:
		return fmt.Errorf("rpc config: HandshakeTimeout %v is negative", c.HandshakeTimeout)
	case c.WriteTimeout < 0:
		return fmt.Errorf("rpc config: WriteTimeout %v is negative", c.WriteTimeout)
	case c.MaxConns < 0:
		return fmt.Errorf("rpc config: MaxConns %d is negative", c.MaxConns)
	case c.MaxFrame < 0 || c.MaxFrame > 1<<30:
		return fmt.Errorf("rpc config: MaxFrame %d is not within 1 byte and 1 GiB", c.MaxFrame)
	case c.MaxQueue < 0:
		return fmt.Errorf("rpc config: MaxQueue %d is negative", c.MaxQueue)
	}
	return nil
}

// address is an advertised address: a text that others dial, not necessarily an IP address.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }

// advertised works out the address to advertise for a node that listens on bound.
func advertised(text string, bound net.Addr) (address, error) {
	if text == "" {
		text = bound.String()
		if tcp, ok := bound.(*net.TCPAddr); ok && (tcp.IP == nil || tcp.IP.IsUnspecified()) {
			return address{}, fmt.Errorf("rpc config: nobody can dial %s: AdvertiseAddr is required with a wildcard BindAddr", text)
		}
		return address{bound.Network(), text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Errorf("rpc config: AdvertiseAddr: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return address{}, fmt.Errorf("rpc config: nobody can dial AdvertiseAddr %q", text)
	}
	if port == "0" {
		if _, port, err = net.SplitHostPort(bound.String()); err != nil {
			return address{}, fmt.Errorf("rpc config: AdvertiseAddr without a port: %w", err)
		}
		text = net.JoinHostPort(host, port)
	}
	return address{bound.Network(), text}, nil
}
