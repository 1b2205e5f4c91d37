package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// client sends commands to a node's client port, one at a time. It implements
// the part of the Redis protocol that the operator's subcommands need.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

// dialNode connects to a node. It authenticates if login names a user or a
// password.
func dialNode(ctx context.Context, addr string, login load.Login) (*client, error) {
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to node: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &client{conn, bufio.NewReader(conn)}
	if auth := login.Command(); auth != nil {
		if _, err := c.do(auth...); err != nil {
			return nil, errors.Join(fmt.Errorf("authenticate: %w", err), conn.Close())
		}
	}
	return c, nil
}

func (c *client) close() error { return c.conn.Close() }

// do sends one command and returns its reply, which must be a line, an integer
// or a bulk string.
func (c *client) do(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return "", fmt.Errorf("%s: %w", args[0], err)
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", args[0], err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("%s: empty reply", args[0])
	}
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return "", errors.New(line[1:])
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", fmt.Errorf("%s: no reply", args[0])
		}
		buf := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, buf); err != nil {
			return "", fmt.Errorf("%s: %w", args[0], err)
		}
		return string(buf[:n]), nil
	}
	return "", fmt.Errorf("%s: unexpected reply %q", args[0], line)
}
