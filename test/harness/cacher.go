package harness

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Cacher is a client with a cache, like the clients of libraries for
// client-side caching (RESP3, CLIENT TRACKING ON). It sends random pipelines
// and checks its cached values. A cached value must never be older than the
// client's own last acknowledged write, nor older than any value in an earlier
// reply. The keys are counters that only grow, so of two values the larger one
// is newer.
type Cacher struct {
	t     testing.TB
	conn  *respwire.Conn
	rnd   *rand.Rand
	keys  string
	cache map[string]int64
	// least contains, for each key, the last value that the client has written
	// or received. The value of the key cannot be lower.
	least map[string]int64
	asked []request
	last  request // the last request that was answered
	// Hits counts how often the client changed a key that was in its cache.
	Hits int
}

// request is a command, and the keys whose values the client expects in its reply.
type request struct {
	line  string
	reads []string // keys whose values are in the reply
	wrote string   // key whose new value is in the reply
	exec  []request
}

// NewCacher connects a client to a port. keys is the prefix of the names of its
// keys.
func NewCacher(t testing.TB, addr, keys string, seed uint64) *Cacher {
	t.Helper()
	conn, err := respwire.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // an error does not matter after the test
	c := &Cacher{t: t, conn: conn, rnd: rand.New(rand.NewPCG(seed, 1)), keys: keys,
		cache: make(map[string]int64), least: make(map[string]int64)}
	for _, line := range []string{"HELLO 3", "CLIENT TRACKING ON"} {
		if err := c.send(line); err != nil {
			t.Fatal(err)
		}
		if lines, err := c.reply(); err != nil || lines[0][0] == '-' {
			t.Fatalf("%s answered %q, %v", line, lines, err)
		}
	}
	return c
}

// send writes commands in one call. Blanks separate the words of a command.
func (c *Cacher) send(lines ...string) error {
	_, err := c.conn.Write(respwire.Lines(lines...))
	return err
}

// reply reads a reply or a push, and returns its lines.
func (c *Cacher) reply() ([]string, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	v, err := c.conn.Receive()
	return flat(v), err
}

// flat returns a reply as its lines. A bulk string has two: its length and its
// text.
func flat(v respwire.Value) []string {
	lines := []string{v.Head()}
	if v.Kind == '$' && !v.Null {
		return append(lines, v.Text)
	}
	for _, e := range v.Elems {
		lines = append(lines, flat(e)...)
	}
	return lines
}

// Key draws one of the keys.
func (c *Cacher) Key() string { return c.keys + strconv.Itoa(c.rnd.IntN(4)) }

// one draws a command.
func (c *Cacher) one() request {
	k, l := c.Key(), c.Key()
	switch c.rnd.IntN(7) {
	case 0, 1:
		return request{line: "INCR " + k, wrote: k}
	case 2:
		return request{line: "INCRBY " + k + " 2", wrote: k}
	case 3:
		return request{line: "EVAL return(redis.call('INCR',KEYS[1])) 1 " + k, wrote: k}
	case 4:
		return request{line: "MGET " + k + " " + l, reads: []string{k, l}}
	default:
		return request{line: "GET " + k, reads: []string{k}}
	}
}

// Pipeline sends a random pipeline and handles the replies and pushes. It
// returns the error of the connection, if any.
func (c *Cacher) Pipeline() error {
	c.t.Helper()
	c.asked = c.asked[:0]
	for range 1 + c.rnd.IntN(5) {
		if c.rnd.IntN(5) > 0 {
			c.asked = append(c.asked, c.one())
			continue
		}
		c.asked = append(c.asked, request{line: "MULTI"})
		exec := request{line: "EXEC"}
		for range 1 + c.rnd.IntN(3) {
			r := c.one()
			exec.exec = append(exec.exec, r)
			c.asked = append(c.asked, request{line: r.line})
		}
		c.asked = append(c.asked, exec)
	}
	return c.run()
}

// run sends the requests in c.asked, and a PING after them. It then handles all
// replies, and the pushes that arrive before the last reply.
func (c *Cacher) run() error {
	c.asked = append(c.asked, request{line: "PING"})
	lines := make([]string, len(c.asked))
	for i, r := range c.asked {
		lines[i] = r.line
	}
	if err := c.send(lines...); err != nil {
		return err
	}
	for len(c.asked) > 0 {
		lines, err := c.reply()
		if err != nil {
			return err
		}
		if lines[0][0] == '>' {
			c.invalidated(lines)
			continue
		}
		c.settled(c.last) // the invalidations that the last command caused have arrived before this reply
		c.last, c.asked = c.asked[0], c.asked[1:]
		c.answered(c.last, lines)
	}
	return nil
}

// invalidated handles an invalidation.
func (c *Cacher) invalidated(lines []string) {
	c.t.Helper()
	if lines[0] != ">2" || lines[2] != "invalidate" {
		c.t.Fatalf("pushed %q", lines)
	}
	if lines[3] == "_" {
		clear(c.cache)
		return
	}
	for i := 5; i < len(lines); i += 2 {
		delete(c.cache, lines[i])
	}
}

// answered handles the reply to a command. It ignores an error reply, after
// which the client does not know the outcome of the command.
func (c *Cacher) answered(r request, lines []string) {
	c.t.Helper()
	switch {
	case lines[0][0] == '-':
	case len(r.exec) > 0:
		lines = lines[1:]
		for _, q := range r.exec {
			n := 1 // for an integer
			if len(q.reads) > 0 {
				n = 0
				if len(q.reads) > 1 {
					n = 1
				}
				for range q.reads {
					n += valueLines(lines[n:])
				}
			}
			c.answered(q, lines[:n])
			lines = lines[n:]
		}
	case r.wrote != "":
		n, err := strconv.ParseInt(strings.TrimPrefix(lines[0], ":"), 10, 64)
		if err != nil {
			c.t.Fatalf("%s answered %q", r.line, lines)
		}
		if _, held := c.cache[r.wrote]; held {
			c.Hits++
		}
		c.see(r, r.wrote, n)
	case len(r.reads) > 0:
		if len(r.reads) > 1 {
			lines = lines[1:]
		}
		for _, key := range r.reads {
			var n int64
			if valueLines(lines) == 2 {
				var err error
				if n, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
					c.t.Fatalf("%s answered %q", r.line, lines)
				}
			}
			lines = lines[valueLines(lines):]
			c.see(r, key, n)
			c.cache[key] = n
		}
	}
}

// valueLines returns how many lines a value, or null, has.
func valueLines(lines []string) int {
	if lines[0] == "_" {
		return 1
	}
	return 2
}

// see records a value that the client has received. The value must not be older
// than a value that it received before.
func (c *Cacher) see(r request, key string, n int64) {
	c.t.Helper()
	if n < c.least[key] {
		c.t.Fatalf("%s: %s is %d, but the client has received %d before", r.line, key, n, c.least[key])
	}
	c.least[key] = n
}

// settled checks the cache after a command, when the reply of the command and
// all invalidations that it caused have arrived.
func (c *Cacher) settled(r request) {
	c.t.Helper()
	for _, q := range append(slices.Clone(r.exec), r) {
		if n, held := c.cache[q.wrote]; q.wrote != "" && held && n < c.least[q.wrote] {
			c.t.Fatalf("%s: the cache still contains %d for %s, but the client has received %d", r.line, n,
				q.wrote, c.least[q.wrote])
		}
	}
}

// Differs handles the pushes that have arrived. Then it returns the first key
// whose cached value differs from its real value, or "" if there is none. value
// reads the real value of a key on another connection.
func (c *Cacher) Differs(value func(key string) int64) (key string, err error) {
	c.asked = c.asked[:0]
	if err := c.run(); err != nil {
		return "", err
	}
	for _, key := range slices.Sorted(maps.Keys(c.cache)) {
		if value(key) != c.cache[key] {
			return key, nil
		}
	}
	return "", nil
}
