package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Conn is one connection of one client. Only one goroutine may use it.
type Conn struct {
	conn    *respwire.Conn
	timeout time.Duration
}

// Login contains the user and the password of a connection. The zero value
// means that the connection does not log in.
type Login struct {
	User     string // the default user if empty
	Password string
	TLS      *tls.Config // nil for no TLS
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

// connect opens a connection, with TLS if l has it.
func (l Login) connect(ctx context.Context, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: time.Second}
	if l.TLS == nil {
		return dialer.DialContext(ctx, "tcp", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return (&tls.Dialer{NetDialer: dialer, Config: l.TLS}).DialContext(ctx, "tcp", addr)
}

// Dial connects to addr. If login has a password or a user, Dial authenticates.
// Then it sends the command that the parameter named first contains, unless that
// parameter is empty. If a reply is an error, Dial fails. timeout bounds each
// exchange on the connection.
func Dial(ctx context.Context, addr string, login Login, timeout time.Duration, first ...string) (*Conn, error) {
	conn, err := login.connect(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &Conn{respwire.NewConn(conn), timeout}
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
func (c *Conn) Do(args ...string) (respwire.Value, error) {
	all, err := c.Pipeline([][]string{args})
	if err != nil {
		return respwire.Value{}, err
	}
	return all[0], nil
}

// Pipeline sends all commands at once and returns their replies. If it returns
// an error, it also returns the replies that arrived before the error.
func (c *Conn) Pipeline(cmds [][]string) ([]respwire.Value, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if err := c.conn.Send(cmds...); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	var replies []respwire.Value
	for range cmds {
		v, err := c.conn.Receive()
		if err != nil {
			return replies, fmt.Errorf("receive: %w", err)
		}
		replies = append(replies, v)
	}
	return replies, nil
}

// Next waits for the next value that the node sends, such as a message of a
// channel.
func (c *Conn) Next() (respwire.Value, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return respwire.Value{}, err
	}
	return c.conn.Receive()
}

// refusals contains the prefixes of the errors that prove that a command was
// not executed. Some are errors of Holdfast, and some are errors that Redis
// returns before it executes a command. MISCONF is the error of a leader whose
// disk is almost full. EXECABORT is the reply of EXEC if no command of the
// transaction was executed, because one of them was refused. QUARANTINE is the
// error of a cluster that was restored or recovered and grants no lock yet.
var refusals = []string{"CLUSTERDOWN", "LOADING", "TRYAGAIN", "MOVED", "ASK", "READONLY", "MASTERDOWN", "NOREPLICAS",
	"NOAUTH", "OOM", "MISCONF", "QUARANTINE", "EXECABORT", "BUSY ", "ERR max number of clients"}

// outcomeOf returns the outcome of a command that got the reply v.
func outcomeOf(v respwire.Value) checker.Outcome {
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
