package lock

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/redcon"
)

// fake is a server that executes the commands of Acquire and Held, including those
// of WithPlainRedis. It treats all locks as exclusive. In a synctest bubble, it
// uses the time of the bubble.
type fake struct {
	mu    sync.Mutex
	plain bool // the server has no LOCK
	locks map[string]*fakeLock
	token int64
	// lose is how many of the next commands get no reply, although they are
	// executed. down makes all commands fail before they are executed.
	lose     int
	down     bool
	acquired []any // arguments of the last LOCK ACQUIRE
	closed   int   // number of dedicated connections that were closed
	renewed  []time.Time
}

type fakeLock struct {
	owner   string
	token   int64
	until   time.Time
	waiters []*fakeWaiter
}

type fakeWaiter struct {
	owner string
	ttl   time.Duration
	got   chan int64
}

func newFake() *fake { return &fake{locks: make(map[string]*fakeLock)} }

func (f *fake) lock(key string) *fakeLock {
	l := f.locks[key]
	if l == nil {
		l = &fakeLock{}
		f.locks[key] = l
	}
	if l.owner != "" && !time.Now().Before(l.until) {
		f.end(l)
	}
	return l
}

// end ends the grant and gives the lock to the next waiter.
func (f *fake) end(l *fakeLock) {
	l.owner = ""
	if len(l.waiters) > 0 {
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		f.grant(l, w.owner, w.ttl)
		w.got <- l.token
	}
}

func (f *fake) grant(l *fakeLock, owner string, ttl time.Duration) {
	f.token++
	l.owner, l.token, l.until = owner, f.token, time.Now().Add(ttl)
}

// overwrite gives the lock to another owner, as LOCK BREAK and a SET would.
func (f *fake) overwrite(key, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grant(f.lock(key), owner, time.Hour)
}

func (f *fake) set(edit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit()
}

func (f *fake) Do(ctx context.Context, args ...any) *redis.Cmd {
	return f.do(ctx, make(chan struct{}), args)
}

func (f *fake) Dedicated(context.Context, string, time.Duration) (Dedicated, error) {
	d := &fakeConn{f, make(chan struct{})}
	return Dedicated{Conn: d, Probe: f, Close: func() error {
		f.set(func() { f.closed++ })
		close(d.gone)
		return nil
	}}, nil
}

type fakeConn struct {
	f    *fake
	gone chan struct{}
}

func (c *fakeConn) Do(ctx context.Context, args ...any) *redis.Cmd { return c.f.do(ctx, c.gone, args) }

func (f *fake) do(ctx context.Context, gone chan struct{}, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		cmd.SetErr(io.ErrUnexpectedEOF)
		return cmd
	}
	value, wait, err := f.execute(args)
	lost := f.lose > 0
	if lost {
		f.lose--
	}
	f.mu.Unlock()
	if wait != nil {
		value, err = f.wait(wait, args, gone)
	}
	switch {
	case lost:
		cmd.SetErr(io.ErrUnexpectedEOF)
	case err != nil:
		cmd.SetErr(err)
	default:
		cmd.SetVal(value)
	}
	return cmd
}

func (f *fake) wait(w *fakeWaiter, args []any, gone chan struct{}) (any, error) {
	limit := time.NewTimer(time.Duration(args[7].(int64)) * time.Millisecond)
	defer limit.Stop()
	leave := func(err error) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		l := f.lock(args[2].(string))
		for i, other := range l.waiters {
			if other == w {
				l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			}
		}
		return nil, err
	}
	for {
		expiry := time.NewTimer(f.left(args[2].(string)))
		select {
		case token := <-w.got:
			return token, nil
		case <-limit.C:
			return leave(redis.Nil)
		case <-gone:
			return leave(io.EOF)
		case <-expiry.C:
		}
	}
}

func (f *fake) left(key string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.lock(key).until)
}

type fakeError string

func (e fakeError) Error() string { return string(e) }
func (e fakeError) RedisError()   {}

func (f *fake) execute(args []any) (value any, wait *fakeWaiter, err error) {
	switch args[0] {
	case "PING":
		return "PONG", nil, nil
	case "LOCK":
		if f.plain {
			return nil, nil, fakeError("ERR unknown command 'LOCK', with args beginning with: ")
		}
		return f.executeLock(args)
	case "SET":
		l := f.lock(args[1].(string))
		if l.owner != "" {
			return nil, nil, redis.Nil
		}
		f.grant(l, args[2].(string), time.Duration(args[5].(int64))*time.Millisecond)
		return "OK", nil, nil
	case "EVAL":
		l := f.lock(args[3].(string))
		if l.owner != args[4].(string) {
			return int64(0), nil, nil
		}
		if args[1] == releaseScript {
			f.end(l)
		} else {
			f.renewed = append(f.renewed, time.Now())
			l.until = time.Now().Add(time.Duration(args[5].(int64)) * time.Millisecond)
		}
		return int64(1), nil, nil
	}
	return nil, nil, errors.New("fake: unknown command")
}

func (f *fake) executeLock(args []any) (value any, wait *fakeWaiter, err error) {
	l, owner := f.lock(args[2].(string)), args[3].(string)
	switch args[1] {
	case "ACQUIRE":
		f.acquired = args
		ttl := time.Duration(args[5].(int64)) * time.Millisecond
		switch {
		case l.owner == "":
			f.grant(l, owner, ttl)
		case l.owner == owner:
			l.until = time.Now().Add(ttl)
		case len(args) > 7 && args[6] == "WAIT":
			w := &fakeWaiter{owner, ttl, make(chan int64, 1)}
			l.waiters = append(l.waiters, w)
			return nil, w, nil
		default:
			return nil, nil, redis.Nil
		}
		return l.token, nil, nil
	case "RENEW":
		if l.owner != owner {
			return nil, nil, redis.Nil
		}
		f.renewed = append(f.renewed, time.Now())
		l.until = time.Now().Add(time.Duration(args[5].(int64)) * time.Millisecond)
		return l.token, nil, nil
	case "RELEASE":
		if l.owner != owner || len(args) > 4 && l.token != args[4].(int64) {
			return int64(0), nil, nil
		}
		f.end(l)
		return int64(1), nil, nil
	}
	return nil, nil, errors.New("fake: unknown subcommand")
}

// listen serves the fake on a TCP port, and returns its address.
func (f *fake) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := redcon.NewServer("", f.serve, nil, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func (f *fake) serve(conn redcon.Conn, cmd redcon.Command) {
	var args []any
	for i, arg := range cmd.Args {
		if n, err := strconv.ParseInt(string(arg), 10, 64); err == nil && i > 3 {
			args = append(args, n)
		} else {
			args = append(args, string(arg))
		}
	}
	reply := f.Do(context.Background(), args...)
	value, err := reply.Result()
	var refused redis.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		_ = conn.Close() // the client sees the end of the connection
	case errors.Is(err, redis.Nil):
		conn.WriteNull()
	case errors.As(err, &refused):
		conn.WriteError(err.Error())
	case err != nil:
		conn.WriteError("ERR " + err.Error())
	default:
		conn.WriteAny(value)
	}
}
