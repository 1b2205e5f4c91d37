package load

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

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// Value is a reply of the Redis protocol.
type Value struct {
	Null  bool
	Err   string // error line, "" for none
	Int   int64
	Text  string // simple or bulk string
	Elems []Value
}

func (v Value) reply() checker.Reply {
	switch {
	case v.Null:
		return checker.Reply{Null: true}
	case v.Err != "":
		return checker.Reply{Error: true, Text: v.Err}
	case v.Text != "":
		return checker.Reply{Text: v.Text}
	}
	return checker.Reply{Int: v.Int}
}

// Conn is one connection of one client. Only one goroutine may use it.
type Conn struct {
	conn    net.Conn
	r       *bufio.Reader
	timeout time.Duration
}

// Login contains the user and the password of a connection. The zero value
// means that the connection does not log in.
type Login struct {
	User     string // the default user if empty
	Password string
}

// Command returns the AUTH command to send, nil if none is needed.
func (l Login) Command() []string {
	switch {
	case l.User != "":
		return []string{"AUTH", l.User, l.Password}
	case l.Password != "":
		return []string{"AUTH", l.Password}
	}
	return nil
}

// Dial connects to addr. It authenticates if login is not zero, and then sends
// first if it is not empty. The reply to first must not be an error. timeout
// bounds each later exchange.
func Dial(ctx context.Context, addr string, login Login, timeout time.Duration, first ...string) (*Conn, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &Conn{conn, bufio.NewReader(conn), timeout}
	for _, cmd := range [][]string{login.Command(), first} {
		if len(cmd) == 0 {
			continue
		}
		v, err := c.Do(cmd...)
		if err == nil && v.Err != "" {
			err = errors.New(v.Err)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", cmd[0], err), c.Close())
		}
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Do sends one command and waits for its reply.
func (c *Conn) Do(args ...string) (Value, error) {
	all, err := c.Pipeline([][]string{args})
	if err != nil {
		return Value{}, err
	}
	return all[0], nil
}

// Pipeline sends all commands at once and returns their replies. If it returns
// an error, it also returns the replies that arrived before the error.
func (c *Conn) Pipeline(cmds [][]string) ([]Value, error) {
	var b strings.Builder
	for _, args := range cmds {
		appendCommand(&b, args)
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	var replies []Value
	for range cmds {
		v, err := c.read()
		if err != nil {
			return replies, fmt.Errorf("receive: %w", err)
		}
		replies = append(replies, v)
	}
	return replies, nil
}

func appendCommand(b *strings.Builder, args []string) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(a), a)
	}
}

var errProtocol = errors.New("reply is not of the Redis protocol")

func (c *Conn) read() (Value, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return Value{}, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return Value{}, errProtocol
	}
	switch line[0] {
	case '+':
		return Value{Text: line[1:]}, nil
	case '-':
		return Value{Err: line[1:]}, nil
	case '_':
		return Value{Null: true}, nil
	}
	n, err := strconv.ParseInt(line[1:], 10, 64)
	if err != nil {
		return Value{}, errProtocol
	}
	switch {
	case line[0] == ':':
		return Value{Int: n}, nil
	case n < 0 && (line[0] == '$' || line[0] == '*'):
		return Value{Null: true}, nil
	case line[0] == '$':
		buf := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, buf); err != nil {
			return Value{}, err
		}
		return Value{Text: string(buf[:n])}, nil
	case line[0] == '*':
		v := Value{Elems: []Value{}}
		for range n {
			e, err := c.read()
			if err != nil {
				return Value{}, err
			}
			v.Elems = append(v.Elems, e)
		}
		return v, nil
	}
	return Value{}, errProtocol
}

// refusals contains the prefixes of the errors that prove that a command was
// not executed. These are Holdfast's errors, and the errors that Redis returns
// before it examines a command.
var refusals = []string{"CLUSTERDOWN", "LOADING", "TRYAGAIN", "MOVED", "ASK", "READONLY", "MASTERDOWN", "NOREPLICAS", "NOAUTH", "OOM", "BUSY", "ERR max number of clients"}

// outcomeOf returns what is known about a command with the reply v.
func outcomeOf(v Value) checker.Outcome {
	if strings.HasPrefix(v.Err, "UNKNOWN ") {
		return checker.Unknown
	}
	for _, word := range refusals {
		if strings.HasPrefix(v.Err, word) {
			return checker.Refused
		}
	}
	return checker.Done
}

// kindOf returns the text of an error without addresses, so that equal errors
// can be counted.
func kindOf(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 && strings.Contains(text, "tcp") {
		return text[i+2:]
	}
	return text
}
