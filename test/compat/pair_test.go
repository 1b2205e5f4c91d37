package compat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// pair is a client of both servers that speaks one version of RESP.
type pair struct {
	t        *testing.T
	proto    int
	redis    *conn
	holdfast *conn
}

// both runs f with a pair in RESP2 and one in RESP3, each on empty servers.
func both(t *testing.T, f func(p *pair)) {
	t.Helper()
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			p := newPair(t, proto)
			p.setup("FLUSHALL", "SELECT 0")
			f(p)
		})
	}
}

func newPair(t *testing.T, proto int) *pair {
	t.Helper()
	if redisSocket == "" {
		t.Skip(process.ErrNoRedis)
	}
	p := &pair{t: t, proto: proto}
	for _, end := range []struct {
		conn          **conn
		network, addr string
	}{{&p.redis, "unix", redisSocket}, {&p.holdfast, "tcp", holdfastAddr}} {
		c, err := dial(end.network, end.addr)
		if err != nil {
			t.Fatalf("dial %s: %v", end.addr, err)
		}
		t.Cleanup(c.close)
		*end.conn = c
		if _, err := c.do([]string{"HELLO", strconv.Itoa(proto)}); err != nil {
			t.Fatalf("HELLO: %v", err)
		}
	}
	return p
}

// other returns a second client of both servers.
func (p *pair) other() *pair { return newPair(p.t, p.proto) }

// bare returns a second client of both servers that has sent no HELLO, because
// HELLO fails if the servers require a password.
func (p *pair) bare() *pair {
	p.t.Helper()
	q := &pair{t: p.t, proto: 2}
	for _, end := range []struct {
		conn          **conn
		network, addr string
	}{{&q.redis, "unix", redisSocket}, {&q.holdfast, "tcp", holdfastAddr}} {
		c, err := dial(end.network, end.addr)
		if err != nil {
			p.t.Fatalf("dial %s: %v", end.addr, err)
		}
		p.t.Cleanup(c.close)
		*end.conn = c
	}
	return q
}

// ask sends lines to both servers, in one pipeline each.
func (p *pair) ask(lines ...string) (redis, holdfast []string) {
	p.t.Helper()
	cmds := make([][]string, len(lines))
	for i, line := range lines {
		cmds[i] = respwire.Words(line)
	}
	redis, err := p.redis.do(cmds...)
	if err != nil {
		p.t.Fatalf("redis: %v", err)
	}
	holdfast, err = p.holdfast.do(cmds...)
	if err != nil {
		p.t.Fatalf("holdfast: %v", err)
	}
	return redis, holdfast
}

// setup sends lines and does not compare their replies. An error reply fails
// the test.
func (p *pair) setup(lines ...string) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i := range lines {
		if redis[i][0] == '-' || holdfast[i][0] == '-' {
			p.t.Fatalf("%s: redis %q, holdfast %q", lines[i], redis[i], holdfast[i])
		}
	}
}

// Do sends lines one at a time and compares the replies byte for byte.
func (p *pair) Do(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		redis, holdfast := p.ask(line)
		p.compare(line, redis[0], holdfast[0])
	}
}

// DoPipelined is like Do, with all lines in one pipeline.
func (p *pair) DoPipelined(lines ...string) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i, line := range lines {
		p.compare(line, redis[i], holdfast[i])
	}
}

func (p *pair) compare(line, redis, holdfast string) {
	p.t.Helper()
	if d := permittedFor(line); d != nil {
		if holdfast != d.want(p.proto) {
			p.t.Errorf("%s\n  want     %q (%s)\n  holdfast %q", line, d.want(p.proto), d.why, holdfast)
		}
		if redis == holdfast {
			p.t.Errorf("%s: both reply %q: remove it from the list of permitted differences", line, redis)
		}
		return
	}
	if redis != holdfast {
		p.t.Errorf("%s\n  redis    %q\n  holdfast %q", line, redis, holdfast)
	}
}

// DoSorted is like DoPipelined, for arrays without an order.
func (p *pair) DoSorted(lines ...string) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i, line := range lines {
		p.compare(line, sorted(redis[i]), sorted(holdfast[i]))
	}
}

func sorted(raw string) string {
	head, elems := elements(raw)
	slices.Sort(elems)
	return head + strings.Join(elems, "")
}

// DoApprox is like DoPipelined, for replies that depend on the time. Integers that
// are not negative may differ by up to tolerance. All other replies must be equal.
func (p *pair) DoApprox(tolerance int64, lines ...string) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i, line := range lines {
		a, okA := integer(redis[i])
		b, okB := integer(holdfast[i])
		if !okA || !okB || a < 0 || b < 0 {
			p.compare(line, redis[i], holdfast[i])
		} else if d := a - b; d > tolerance || d < -tolerance {
			p.t.Errorf("%s: redis %d, holdfast %d, tolerance %d", line, a, b, tolerance)
		}
	}
}

func integer(raw string) (int64, bool) {
	if raw[0] != ':' {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(raw[1:]), 10, 64)
	return n, err == nil
}

// DoError is like DoPipelined, for lines that Redis must answer with an error.
func (p *pair) DoError(lines ...string) {
	p.t.Helper()
	redis, holdfast := p.ask(lines...)
	for i, line := range lines {
		if redis[i][0] != '-' {
			p.t.Errorf("%s: redis replies %q, not an error", line, redis[i])
		}
		p.compare(line, redis[i], holdfast[i])
	}
}

// Expect sends a line to Holdfast only, for features that Redis 7.0.15 does not
// have. want is the reply without the last line end. "nil" is the null of
// either protocol.
func (p *pair) Expect(line, want string) {
	p.t.Helper()
	got, err := p.holdfast.do(respwire.Words(line))
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	if want == "nil" {
		want = p.null()
	}
	if got[0] != want+"\r\n" {
		p.t.Errorf("%s\n  want     %q\n  holdfast %q", line, want+"\r\n", got[0])
	}
}

func (p *pair) null() string {
	if p.proto == 3 {
		return "_"
	}
	return "$-1"
}

// DoUntil repeats a line on both servers until both reply want. want is as in
// Expect.
func (p *pair) DoUntil(want, line string) {
	p.t.Helper()
	if want == "nil" {
		want = p.null()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		redis, holdfast := p.ask(line)
		if redis[0] == want+"\r\n" && holdfast[0] == want+"\r\n" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: redis %q, holdfast %q, want %q", line, redis[0], holdfast[0], want)
		}
	}
}
