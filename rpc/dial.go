package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Dial opens a stream for service s to the node at addr. If the parameter to is
// not empty, it is the id that this node must have. ctx and
// Config.HandshakeTimeout bound only the dialing. The stream lives until it is
// closed, breaks, or the Mux is closed.
//
// The error may wrap *RefusedError if the node refused, ErrNotPeer if another
// program answers at addr, ErrBadHello, ErrHandshakeTimeout, ErrWrongNode,
// ErrSecret, ErrClosed, the context's error, an error of Config.Verify, or a
// network error.
func (m *Mux) Dial(ctx context.Context, addr string, s Service, to string) (*Stream, error) {
	if s == ServiceRaft {
		return nil, errors.New("rpc: raft connections have no frames: dial through RaftLayer")
	}
	c, peer, err := m.dial(ctx, addr, s, to)
	if err != nil {
		return nil, err
	}
	stream := newStream(c, peer, &m.cfg)
	if err := m.start(c, stream); err != nil {
		c.drop()
		return nil, dialError(s, addr, err)
	}
	return stream, nil
}

// dialError adds the service and the address to an error of dialing.
func dialError(s Service, addr string, err error) error {
	return fmt.Errorf("dial %s at %s: %w", s, addr, err)
}

// dial connects and performs the handshake. The connection that it returns is
// tracked and has no deadline.
func (m *Mux) dial(ctx context.Context, addr string, s Service, to string) (*conn, Hello, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.HandshakeTimeout, ErrHandshakeTimeout)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	unhook := context.AfterFunc(m.ctx, func() { abort(ErrClosed) })
	defer unhook()

	fail := func(err error) (*conn, Hello, error) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // the reason; the network's own error ("i/o timeout") would mislead
		}
		return nil, Hello{}, dialError(s, addr, err)
	}
	raw, err := m.cfg.Dialer(ctx, addr)
	if err != nil {
		return fail(err)
	}
	c := &conn{sealedConn: sealedConn{Conn: raw}, mux: m}
	if err := m.track(c); err != nil {
		c.drop()
		return fail(err)
	}
	peer, err := m.greet(ctx, c, addr, s, to)
	if err != nil {
		if errors.Is(err, ErrSecret) {
			if n, ok := m.secrets.allow(); ok {
				m.log.Error("cluster secret does not match", "remote", addr, "node", to, "service", s,
					"error", err, "suppressed", n)
			}
		}
		c.drop()
		return fail(err)
	}
	return c, peer, nil
}

// greet is the dialer's half of the handshake.
func (m *Mux) greet(ctx context.Context, c *conn, addr string, s Service, to string) (Hello, error) {
	// The end of the context sets a deadline in the past, which ends the reads
	// and writes below.
	stop := context.AfterFunc(ctx, func() { c.interrupt() })
	defer stop()

	ring := m.ring.Load()
	prelude, err := appendPrelude(nil, m.self(s, to), ring.newOffer())
	if err != nil {
		return Hello{}, err
	}
	if _, err := c.Write(prelude); err != nil {
		return Hello{}, fmt.Errorf("send prelude: %w", err)
	}
	var transcript bytes.Buffer // what both sides send after the prelude
	reader := io.TeeReader(c, &transcript)
	answer, err := readAnswer(reader)
	var key *authenticator // the secret that both nodes have, nil if they have not proven it
	if err == nil && answer.status == statusChallenge {
		var proof []byte
		if proof, key, err = ring.prove(c, prelude, answer.body); err != nil {
			return Hello{}, err
		}
		transcript.Write(proof)
		answer, err = readAnswer(reader)
		if err != nil {
			return Hello{}, fmt.Errorf("handshake: %w", err)
		}
	}
	if err != nil {
		return Hello{}, fmt.Errorf("handshake: %w", err)
	}
	peer, reason, text, err := answer.decode()
	if err != nil {
		return Hello{}, fmt.Errorf("handshake: %w", err)
	}
	if reason != statusOK {
		return Hello{}, &RefusedError{Addr: addr, Service: s, Reason: reason, Text: text}
	}
	if ring != nil && key == nil && !ring.optional {
		return Hello{}, fmt.Errorf("%w: node %q has none", ErrSecret, peer.NodeID)
	}
	if to != "" && peer.NodeID != to {
		return Hello{}, fmt.Errorf("%w: expected %q, found %q", ErrWrongNode, to, peer.NodeID)
	}
	if m.cfg.Verify != nil {
		if err := m.cfg.Verify(peer); err != nil {
			return Hello{}, fmt.Errorf("verify %q: %w", peer.NodeID, err)
		}
	}
	if !stop() {
		return Hello{}, context.Cause(ctx) // the deadline of interrupt makes the connection unusable
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return Hello{}, fmt.Errorf("clear deadline: %w", err)
	}
	if err := m.seal(c, key, prelude, transcript.Bytes()); err != nil {
		return Hello{}, err
	}
	return peer, nil
}

// seal makes the connection use records from now on. transcript is everything
// that both sides have sent in the handshake, in the order in which it was sent.
// key is the secret that both sides have proven to have, or nil. seal fails if
// SetSecrets has removed the secret meanwhile.
func (m *Mux) seal(c *conn, key *authenticator, transcript ...[]byte) error {
	if key == nil {
		c.seal(transcript...)
		return nil
	}
	dialer, acceptor, err := key.keys(bytes.Join(transcript, nil))
	if err != nil {
		return err
	}
	if c.accepted {
		dialer, acceptor = acceptor, dialer
	}
	c.sealKeyed(dialer, acceptor)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ring.Load().has(key) {
		return errReplaced
	}
	c.key = key
	return nil
}

// self returns this node's hello for a connection of service s to the node
// whose id is to.
func (m *Mux) self(s Service, to string) Hello {
	h := m.cfg.Self()
	h.Service, h.Proto, h.To = s, Proto, to
	return h
}
