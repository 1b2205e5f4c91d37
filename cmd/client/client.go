package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// Client sends commands to a node's client port, one at a time, on one
// connection. It never repeats a command.
type Client struct {
	addr     string
	pool     *redis.Client
	conn     *redis.Conn
	answered bool // the address has replied to a command
}

// Dial returns a client of a node. It connects and authenticates if login names
// a user or a password; otherwise, the first command connects.
//
// Dial does not pass the password to process.NewClient: go-redis would send a wrong
// password twice, with HELLO and with AUTH, and the node delays clients that guess
// passwords.
func Dial(ctx context.Context, addr string, login load.Login) (*Client, error) {
	pool := process.NewClient(addr, "", login.TLS)
	c := &Client{addr: addr, pool: pool, conn: pool.Conn()}
	if auth := login.Command(); auth != nil {
		if _, err := c.Do(ctx, auth...); err != nil {
			return nil, errors.Join(fmt.Errorf("authenticate: %w", err), c.Close())
		}
	}
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return errors.Join(c.conn.Close(), c.pool.Close()) }

// Do sends one command and returns its reply, which must be a simple or bulk
// string. It returns an error reply as an error.
func (c *Client) Do(ctx context.Context, args ...string) (string, error) {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	text, err := c.conn.Do(ctx, words...).Text()
	return text, c.explain(ctx, args[0], err)
}

// Reply sends one command and returns its reply, which may have any type. It
// returns nil for the null reply.
func (c *Client) Reply(ctx context.Context, args ...string) (any, error) {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	reply, err := c.conn.Do(ctx, words...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, c.explain(ctx, args[0], err)
}

// explain adds a possible remedy to the error of a command.
func (c *Client) explain(ctx context.Context, name string, err error) error {
	if err != nil && !isReply(err) {
		if !c.answered {
			err = explainPort(ctx, c.addr, err)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	c.answered = true
	if err != nil && strings.HasPrefix(err.Error(), "ERR unknown command 'HOLDFAST'") {
		err = fmt.Errorf("%s is not the client port of a node of Holdfast: is it a Sentinel port, or another server?",
			c.addr)
	}
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		err = fmt.Errorf("%w (set --password-file, and --user if it is not the default user)", err)
	}
	return err
}

// Change sends a command that changes the cluster. If the node does not reply,
// the error says whether the change may have been made. Change first sends PING
// and waits for the reply, so only an error after that reply leaves the outcome
// unknown.
func (c *Client) Change(ctx context.Context, args ...string) (string, error) {
	if _, err := c.Do(ctx, "PING"); err != nil && !isReply(err) {
		return "", fmt.Errorf("nothing was changed: %w", err)
	}
	text, err := c.Do(ctx, args...)
	if err != nil && !isReply(err) {
		return "", fmt.Errorf("%s has not replied: %w: the outcome of the change is unknown, "+
			"run \"holdfast status\" with the address of another node before you try again", c.addr, err)
	}
	return text, err
}

// isReply reports whether err is an error reply of the node.
func isReply(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply)
}
