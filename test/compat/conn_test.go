package compat

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// conn is a bare connection that returns replies as the bytes they are.
type conn struct {
	c net.Conn
	r *bufio.Reader
}

func dial(network, addr string) (*conn, error) {
	c, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

func (c *conn) close() { _ = c.c.Close() }

// do sends commands in one pipeline and returns their replies.
func (c *conn) do(cmds ...[]string) ([]string, error) {
	var b bytes.Buffer
	for _, args := range cmds {
		b.WriteString(frame(args))
	}
	if err := c.c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() { // a long pipeline and its replies must not wait for each other
		_, err := c.c.Write(b.Bytes())
		sent <- err
	}()
	replies := make([]string, len(cmds))
	for i := range replies {
		var raw bytes.Buffer
		if err := c.reply(&raw); err != nil {
			return nil, fmt.Errorf("reply to %q: %w", cmds[i], err)
		}
		replies[i] = raw.String()
	}
	return replies, <-sent
}

// frame encodes a command.
func frame(args []string) string {
	b := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		b += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// send sends a command without reading its reply.
func (c *conn) send(args []string) error {
	_, err := io.WriteString(c.c, frame(args))
	return err
}

// answered reports whether a reply has begun to arrive.
func (c *conn) answered(t *testing.T) bool {
	t.Helper()
	if err := c.c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := c.r.Peek(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

// reply copies one whole reply to raw.
func (c *conn) reply(raw *bytes.Buffer) error {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	raw.Write(line)
	kind, rest := line[0], string(bytes.TrimRight(line[1:], "\r\n"))
	n := 0
	switch kind {
	case '$', '=', '*', '~', '>', '%':
		if n, err = strconv.Atoi(rest); err != nil {
			return fmt.Errorf("reply %q: %w", line, err)
		}
	}
	switch kind {
	case '$', '=':
		if n >= 0 {
			_, err = io.CopyN(raw, c.r, int64(n)+2)
		}
		return err
	case '%':
		n *= 2
	}
	for ; n > 0; n-- {
		if err := c.reply(raw); err != nil {
			return err
		}
	}
	return nil
}

// elements splits an array (of whatever type) into its elements' bytes.
func elements(raw string) (head string, elems []string) {
	c := conn{r: bufio.NewReader(bytes.NewReader([]byte(raw)))}
	line, err := c.r.ReadString('\n')
	if err != nil || line[0] != '*' && line[0] != '~' && line[0] != '%' {
		return raw, nil
	}
	for {
		var b bytes.Buffer
		if c.reply(&b) != nil {
			return line, elems
		}
		elems = append(elems, b.String())
	}
}
