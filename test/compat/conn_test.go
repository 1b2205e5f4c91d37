package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// conn is a connection that returns the bytes of replies.
type conn struct{ *respwire.Conn }

func dial(network, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := respwire.Dial(ctx, network, addr)
	return &conn{c}, err
}

func (c *conn) close() { _ = c.Close() }

// do sends commands in one pipeline and returns their replies.
func (c *conn) do(cmds ...[]string) ([]string, error) {
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	// Send concurrently, because a long pipeline fills the buffers if no
	// goroutine reads the replies.
	go func() { sent <- c.Send(cmds...) }()
	replies := make([]string, len(cmds))
	for i := range replies {
		raw, err := respwire.ReadRaw(c.R)
		if err != nil {
			return nil, fmt.Errorf("reply to %q: %w", cmds[i], err)
		}
		replies[i] = string(raw)
	}
	return replies, <-sent
}

// receive returns the next reply or push.
func (c *conn) receive() (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	raw, err := respwire.ReadRaw(c.R)
	return string(raw), err
}

// answered reports whether the first byte of a reply has arrived.
func (c *conn) answered(t *testing.T) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := c.R.Peek(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

// elements splits an aggregate into its head and the bytes of its elements.
func elements(raw string) (head string, elems []string) {
	v, _, err := respwire.Parse([]byte(raw))
	if err != nil || v.Kind != '*' && v.Kind != '~' && v.Kind != '%' {
		return raw, nil
	}
	for _, e := range v.Elems {
		elems = append(elems, string(e.Raw))
	}
	return v.Head() + "\r\n", elems
}
