package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config is the configuration of a Mux. Self is required. A duration, a limit
// or a Dialer that is zero stands for the value in DefaultConfig.
type Config struct {
	// BindAddr is the TCP address to listen on, "host:port". Port 0 takes any
	// free port. BindAddr is ignored if Listener is set.
	BindAddr string

	// AdvertiseAddr is the address that other nodes dial, "host:port". host may
	// be a DNS name: it is sent as text, and every dial resolves it again. Port
	// 0 stands for the bound port. The default is the bound address, which then
	// must not be a wildcard such as 0.0.0.0, because other nodes cannot dial
	// that.
	AdvertiseAddr string

	// Self returns the current identity of this node. The Mux calls it in every
	// handshake, because the cluster id becomes known after the port is open.
	// The Mux fills in Service, Proto and To. Self must not block. The strings
	// of the Hello together may have about 4000 bytes.
	Self func() Hello

	// Secret is known to all nodes of the cluster and to no other host. It has
	// at least MinSecret bytes. Both sides of a connection prove to each other
	// that they have it, without sending it, and keys derived from it
	// authenticate everything that they send afterward. Without a secret,
	// which is the default, a node's identity is only claimed.
	Secret []byte

	// PreviousSecret is a second secret that this node accepts while an
	// operator replaces it with Secret on one node after the other. Two nodes
	// that connect use a secret that both have. Mux.SetSecrets changes both
	// secrets.
	PreviousSecret []byte

	// SecretOptional lets a node with a Secret connect to and accept nodes that
	// have none, while an operator distributes the secret to the nodes. While
	// it is set, the secret protects against mistakes only: a node that claims
	// to have no secret is accepted.
	SecretOptional bool

	// Authorize is the acceptor's check of a dialer. A non-nil error refuses
	// the connection, and the text of the error is sent to the dialer. The Mux
	// calls Authorize on the goroutine of the connection, and Authorize must
	// not block. If it is nil, every dialer is accepted.
	Authorize func(Hello) error

	// Verify is the dialer's check of the acceptor's answer, for raft and
	// framed connections. A non-nil error closes the connection, and Dial
	// returns it, wrapped. If it is nil, every acceptor is trusted.
	Verify func(Hello) error

	// RaftPeer returns the id of the node that raft expects at an address, or
	// "" if it is not known. Raft dials by address alone. With RaftPeer the
	// handshake of a raft connection names the expected node, and any other
	// node that has taken over the address refuses the connection.
	RaftPeer func(addr string) string

	// ClientHint, unless "", is the text of the error that the Mux sends to a
	// Redis client that connects to this port.
	ClientHint string

	// HandshakeTimeout bounds the handshake on the accepting side, and
	// connecting plus the handshake on the dialing side. The default is 5 s.
	HandshakeTimeout time.Duration

	// WriteTimeout ends a stream if it has bytes to write, and the peer accepts
	// none of them for that long. It also bounds how long a stream whose
	// handler has returned may take to deliver its last frames. The default is
	// 10 s.
	WriteTimeout time.Duration

	// MaxConns bounds the accepted connections. At the limit, the oldest
	// connection that has not finished its handshake is closed to make room for
	// the next connection. If all connections have finished their handshakes,
	// the new connection is closed. The default is 512.
	MaxConns int

	// MaxFrame bounds the payload of a frame in bytes, sent or received. It
	// must be equal on all nodes. The default is 32 MiB.
	MaxFrame int

	// MaxQueue is the number of bytes that may wait to be written to a stream
	// before Send blocks. The default is 64 MiB.
	MaxQueue int

	// Listener, if set, is used instead of a TCP listener on BindAddr. TLS,
	// tests and virtual networks set it. The Mux closes it.
	Listener net.Listener

	// Dialer replaces the default dialer, which uses TCP with keepalive and
	// TCP_NODELAY. TLS, tests and proxies set it. It must obey its context.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)

	// Logger receives the log lines of this package. If it is nil, there are
	// none.
	Logger hclog.Logger
}

// DefaultConfig returns a Config with the default values. The caller must set
// Self. A Mux with this Config listens on a free port of the loopback
// interface.
func DefaultConfig() Config {
	cfg := Config{BindAddr: "127.0.0.1:0", Logger: hclog.Default().Named("rpc")}
	cfg.fill()
	return cfg
}

// KeepAlive is the TCP keepalive for a Dialer or a Listener of a Config. On an
// idle connection, it detects a vanished host after 5 + 3*2 seconds.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// fill replaces zero values with defaults.
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
		dialer := &net.Dialer{KeepAliveConfig: KeepAlive} // package net sets TCP_NODELAY by default
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
	case c.HandshakeTimeout < 0:
		return fmt.Errorf("rpc config: HandshakeTimeout %v is negative", c.HandshakeTimeout)
	case c.WriteTimeout < 0:
		return fmt.Errorf("rpc config: WriteTimeout %v is negative", c.WriteTimeout)
	case c.MaxConns < 0:
		return fmt.Errorf("rpc config: MaxConns %d is negative", c.MaxConns)
	case c.MaxFrame < 0 || c.MaxFrame > 1<<30:
		return fmt.Errorf("rpc config: MaxFrame %d is not between 1 byte and 1 GiB", c.MaxFrame)
	case c.MaxQueue < 0:
		return fmt.Errorf("rpc config: MaxQueue %d is negative", c.MaxQueue)
	}
	return nil
}

// address is an advertised address: text that other nodes dial, not necessarily
// an IP address.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }

// advertised returns the address to advertise for a node that listens on bound.
func advertised(text string, bound net.Addr) (address, error) {
	if text == "" {
		text = bound.String()
		if tcp, ok := bound.(*net.TCPAddr); ok && (tcp.IP == nil || tcp.IP.IsUnspecified()) {
			return address{}, fmt.Errorf("rpc config: other nodes cannot dial %s: AdvertiseAddr is required with a "+
				"wildcard BindAddr", text)
		}
		return address{bound.Network(), text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Errorf("rpc config: AdvertiseAddr: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return address{}, fmt.Errorf("rpc config: other nodes cannot dial AdvertiseAddr %q", text)
	}
	if port == "0" {
		if _, port, err = net.SplitHostPort(bound.String()); err != nil {
			return address{}, fmt.Errorf("rpc config: AdvertiseAddr has port 0, and the bound address has no port: %w",
				err)
		}
		text = net.JoinHostPort(host, port)
	}
	return address{bound.Network(), text}, nil
}
