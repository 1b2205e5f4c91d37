package migrate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/verify/process"
)

const (
	// giveUpAfter is the time after which a link stops repeating a command that
	// fails.
	giveUpAfter = 60 * time.Second
	firstPause  = 50 * time.Millisecond
	longPause   = time.Second
)

// Endpoint is a server, or a cluster. The addresses of a cluster are those of
// its nodes.
type Endpoint struct {
	Name           string // for errors: "source" or "target"
	Addrs          []string
	User, Password string
	TLS            *tls.Config // nil for no TLS
}

// link sends commands to an endpoint. After a failure it connects to the next
// address. It is not safe for concurrent use.
type link struct {
	end  Endpoint
	next int // index of the address for the next connection
	pool *redis.Client
	conn *redis.Conn
	db   int
}

// reply is the reply to a command: a value, or an error that the server returned.
type reply struct {
	value any
	err   error
}

// isNil reports whether the reply is the null reply.
func (r reply) isNil() bool { return errors.Is(r.err, redis.Nil) }

// failed returns the error of the server, nil for the null reply.
func (r reply) failed() error {
	if r.isNil() {
		return nil
	}
	return r.err
}

func (r reply) text() string {
	s, _ := r.value.(string)
	return s
}

func (r reply) number() int64 {
	n, _ := r.value.(int64)
	return n
}

func command(words ...any) []any { return words }

func (l *link) addr() string { return l.end.Addrs[l.next%len(l.end.Addrs)] }

// close closes the connection. The next command makes a new one.
func (l *link) close() {
	if l.pool == nil {
		return
	}
	// An error of Close has no effect, because the connection is no longer used.
	_ = l.conn.Close()
	_ = l.pool.Close()
	l.pool, l.conn = nil, nil
}

// connect makes a connection and authenticates it.
func (l *link) connect(ctx context.Context) error {
	if l.pool != nil {
		return nil
	}
	l.pool = process.NewClient(l.addr(), "", l.end.TLS)
	l.conn, l.db = l.pool.Conn(), 0
	if l.end.Password == "" {
		return nil
	}
	auth := command("AUTH", l.end.Password)
	if l.end.User != "" {
		auth = command("AUTH", l.end.User, l.end.Password)
	}
	err := l.conn.Do(ctx, auth...).Err()
	if err != nil {
		l.close()
	}
	return err
}

// once sends commands to a database in one pipeline. If it returns an error, it
// returns no replies, and any of the commands may have been executed.
func (l *link) once(ctx context.Context, db int, commands ...[]any) ([]reply, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	pipe := l.conn.Pipeline()
	if db != l.db {
		pipe.Do(ctx, "SELECT", db)
	}
	for _, c := range commands {
		pipe.Do(ctx, c...)
	}
	cmds, err := pipe.Exec(ctx)
	var replies []reply
	for _, c := range cmds {
		value, cerr := c.(*redis.Cmd).Result()
		if answered := redis.Error(nil); cerr != nil && !errors.As(cerr, &answered) {
			l.close()
			return nil, cerr
		}
		replies = append(replies, reply{value, cerr})
	}
	if len(cmds) == 0 && err != nil {
		l.close()
		return nil, err
	}
	if db != l.db {
		if err := replies[0].err; err != nil {
			return nil, fmt.Errorf("SELECT %d: %w", db, err)
		}
		l.db, replies = db, replies[1:]
	}
	return replies, nil
}

// send is like once, but it repeats the commands while the connection fails or
// the server has a temporary problem. So use it only for commands that are
// harmless if they are executed twice. It gives up after about a minute.
func (l *link) send(ctx context.Context, db int, commands ...[]any) ([]reply, error) {
	return l.sendNew(ctx, db, func() [][]any { return commands })
}

// sendNew is like send, but it calls commands for the commands of each attempt.
func (l *link) sendNew(ctx context.Context, db int, commands func() [][]any) (replies []reply, err error) {
	err = l.repeat(ctx, func() (err error) {
		if replies, err = l.once(ctx, db, commands()...); err == nil {
			err = temporary(replies)
		}
		return err
	})
	return replies, err
}

// repeat calls attempt until it succeeds. It calls attempt again only if the
// connection failed or the server had a temporary problem, and gives up after about
// a minute.
func (l *link) repeat(ctx context.Context, attempt func() error) error {
	begun, pause := time.Now(), firstPause
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		isRefused := new(refused)
		if answered := redis.Error(nil); errors.As(err, isRefused) || errors.As(err, &answered) && !isTemporary(err) {
			return l.explain(err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(begun) > giveUpAfter {
			return l.explain(err)
		}
		l.close()
		l.next++
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, longPause)
	}
}

// temporary returns the first temporary error among the replies, or nil if there
// is none: see isTemporary.
func temporary(replies []reply) error {
	for _, r := range replies {
		if r.err != nil && isTemporary(r.err) {
			return r.err
		}
	}
	return nil
}

// isTemporary reports whether a later attempt may succeed after the error. An
// error about --max-write-time is not temporary: the cluster always refuses a
// command that writes too much at once.
func isTemporary(err error) bool {
	if strings.Contains(err.Error(), "--max-write-time") {
		return false
	}
	for _, code := range []string{"CLUSTERDOWN", "UNKNOWN", "LOADING", "TRYAGAIN", "MASTERDOWN", "BUSY "} {
		if strings.HasPrefix(err.Error(), code) {
			return true
		}
	}
	return false
}

// check connects to the first address that answers. If no server answers, check
// fails without waiting for a server to start.
func (l *link) check(ctx context.Context) error {
	var all []error
	for range l.end.Addrs {
		replies, err := l.once(ctx, 0, command("PING"))
		if err == nil {
			err = replies[0].failed()
		}
		if err == nil {
			return nil
		}
		all = append(all, l.explain(err))
		l.close()
		l.next++
	}
	return errors.Join(all...)
}

// explain adds the address to an error, and a hint about the remedy if it
// recognizes the error.
func (l *link) explain(err error) error {
	text, hint := err.Error(), ""
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("WRONGPASS", "invalid password", "AUTH <password> called"):
		hint = "the user or the password is wrong"
	case has("NOAUTH"):
		hint = "the server needs a password"
	case has("NOPERM"):
		hint = "the user may not run a command that the import needs"
	case has("CLUSTERDOWN"):
		hint = "the cluster has no leader: start a majority of its nodes (see \"holdfast status\"), and run the " +
			"import again"
	case has("connection refused", "no such host", "i/o timeout", "no route"):
		hint = "is the server running, and is the address right?"
	case has("first record does not look like a TLS handshake", "TLS handshake: context deadline"):
		hint = "the server does not use TLS on this port"
	case has("certificate"):
		hint = "set the file with the authority that signs the certificate of the server"
	case has("EOF", "connection reset"):
		hint = "is this the client port of a server, and does it need TLS?"
	case has("can't parse", "invalid reply"):
		hint = "this is not the port of a Redis server"
	}
	if hint != "" {
		hint = " (" + hint + ")"
	}
	return fmt.Errorf("%s %s: %w%s", l.end.Name, l.addr(), err, hint)
}
