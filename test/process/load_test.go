package process_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// load is a set of clients that write and record the replies. A client pauses
// briefly between a reply and its next write. Each key is written once, with
// NX. Each client also increments its own counter. So the method check detects a
// lost write and a write that was executed twice.
type load struct {
	t       *testing.T
	name    string
	writers []*writer
	stop    chan struct{}
	wg      sync.WaitGroup
}

// writer is one client. Until the load has stopped, only the client's goroutine
// uses its lists.
type writer struct {
	id    int
	nodes []*process.Node // the client uses the first node, and the next one when that node fails
	limit time.Duration

	excused atomic.Bool  // set while the test expects errors, which then do not count as failures
	acks    atomic.Int64 // writes acknowledged so far

	conn     *respwire.Conn
	at       int // index in nodes
	written  int
	acked    []string
	refused  []string // keys of writes that were not executed, according to the reply
	unknown  int
	count    int64 // last reply to INCR
	maybe    int64 // INCRs of unknown outcome since that reply
	failures []string
}

// writePause is the pause between two commands of a client.
const writePause = time.Millisecond

// newLoad starts clients, one for each list of nodes.
func newLoad(t *testing.T, name string, nodes ...[]*process.Node) *load {
	t.Helper()
	l := &load{t: t, name: name, stop: make(chan struct{})}
	for i, list := range nodes {
		l.writers = append(l.writers, &writer{id: i, nodes: list, limit: replyLimit})
	}
	for _, w := range l.writers {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			w.run(l)
		}()
	}
	t.Cleanup(l.end)
	return l
}

// end stops the clients and waits for them.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
}

// each returns n lists with one node each. It uses the nodes in turn.
func each(n int, nodes []*process.Node) [][]*process.Node {
	var lists [][]*process.Node
	for i := range n {
		lists = append(lists, []*process.Node{nodes[i%len(nodes)]})
	}
	return lists
}

func (l *load) key(w *writer, n int) string { return fmt.Sprintf("%s:%d:%d", l.name, w.id, n) }

func (l *load) counter(w *writer) string { return fmt.Sprintf("%s:count:%d", l.name, w.id) }

func (w *writer) run(l *load) {
	defer func() {
		if w.conn != nil {
			w.conn.Close()
		}
	}()
	t := time.NewTicker(writePause)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-t.C:
		}
		w.step(l)
	}
}

func (w *writer) failed(format string, args ...any) {
	if len(w.failures) < 10 {
		w.failures = append(w.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// step makes one write.
func (w *writer) step(l *load) {
	node := w.nodes[w.at%len(w.nodes)]
	if w.conn == nil {
		conn, err := respwire.Connect(node.Clients, w.limit)
		if err != nil {
			if !w.excused.Load() {
				w.failed("connect to %s: %v", node.ID, err)
			}
			w.at++
			return
		}
		w.conn = conn
	}
	w.written++
	if w.written%4 == 0 {
		w.incr(l, node)
		return
	}
	key := l.key(w, w.written)
	reply, err := respwire.NoError(w.conn.Do("SET", key, key, "NX"))
	switch result := w.outcomeOf(node, "SET "+key, err); {
	case result == refused:
		w.refused = append(w.refused, key)
	case result == unknown:
		w.unknown++
	case reply.Null:
		w.failed("SET %s NX through %s: nil, although it was sent only once", key, node.ID)
	default:
		w.acked = append(w.acked, key)
		w.acks.Add(1)
	}
}

func (w *writer) incr(l *load, node *process.Node) {
	reply, err := respwire.NoError(w.conn.Do("INCR", l.counter(w)))
	count := reply.Int
	switch w.outcomeOf(node, "INCR", err) {
	case unknown:
		w.unknown++
		w.maybe++
	case acknowledged:
		if count <= w.count || count > w.count+1+w.maybe {
			w.failed("INCR through %s: %d after %d, with %d of unknown outcome between", node.ID, count, w.count,
				w.maybe)
		}
		w.count, w.maybe = count, 0
		w.acks.Add(1)
	}
}

// These are the outcomes of a write.
const (
	acknowledged = iota
	refused
	unknown
)

// outcomeOf returns the outcome of a command that ended with err. If the
// connection failed, outcomeOf closes it.
func (w *writer) outcomeOf(node *process.Node, what string, err error) int {
	if err == nil {
		return acknowledged
	}
	var reply respwire.ErrorReply
	if errors.As(err, &reply) {
		switch {
		case strings.HasPrefix(err.Error(), "CLUSTERDOWN") && strings.HasSuffix(err.Error(), "not executed"):
			if !w.excused.Load() {
				w.failed("%s through %s: %v", what, node.ID, err)
			}
			return refused
		case strings.HasPrefix(err.Error(), "UNKNOWN"):
			if !w.excused.Load() {
				w.failed("%s through %s: %v", what, node.ID, err)
			}
			return unknown
		}
		w.failed("%s through %s: %v", what, node.ID, err)
		return unknown
	}
	if !w.excused.Load() {
		w.failed("%s through %s: %v", what, node.ID, err)
	}
	w.conn.Close()
	w.conn = nil
	w.at++
	return unknown
}

// excuse sets, for all clients, whether errors are expected from now on.
func (l *load) excuse(yes bool) {
	for _, w := range l.writers {
		w.excused.Store(yes)
	}
}

// excuseNode sets, for the clients of one node, whether errors are expected
// from now on.
func (l *load) excuseNode(n *process.Node, yes bool) {
	for _, w := range l.writers {
		if w.nodes[0] == n {
			w.excused.Store(yes)
		}
	}
}

// acks returns the number of writes acknowledged so far.
func (l *load) acks() int64 {
	n := int64(0)
	for _, w := range l.writers {
		n += w.acks.Load()
	}
	return n
}

// progress waits until every client whose errors are not excused has n more
// acknowledged writes. If the errors of all clients are excused, it waits until the
// clients together have n more.
func (l *load) progress(n int64) {
	l.t.Helper()
	var before []int64
	all := l.acks()
	for _, w := range l.writers {
		before = append(before, w.acks.Load())
	}
	err := process.Poll(testutil.Within(l.t, replyLimit), "writes to be acknowledged", func() bool {
		some := false
		for i, w := range l.writers {
			if w.excused.Load() {
				continue
			}
			some = true
			if w.acks.Load() < before[i]+n {
				return false
			}
		}
		return some || l.acks() >= all+n
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// check ends the load. Then it reads, through a node, the counters and every
// key whose write was acknowledged or refused, and compares them with the
// replies.
func (l *load) check(n *process.Node) {
	l.t.Helper()
	l.end()
	conn := dial(l.t, n)
	acked, refused, unknown := 0, 0, 0
	for _, w := range l.writers {
		for _, f := range w.failures {
			l.t.Errorf("client %d: %s", w.id, f)
		}
		l.compare(conn, w.acked, true)
		l.compare(conn, w.refused, false)
		acked, refused, unknown = acked+len(w.acked), refused+len(w.refused), unknown+w.unknown
		count, err := numberOf(conn, l.counter(w))
		if err != nil {
			l.t.Fatalf("read counter of client %d: %v", w.id, err)
		}
		if count < w.count || count > w.count+w.maybe {
			l.t.Errorf("counter of client %d is %d, want %d to %d", w.id, count, w.count, w.count+w.maybe)
		}
	}
	l.t.Logf("%s: %d sets acknowledged, %d refused, %d commands of unknown outcome", l.name, acked, refused, unknown)
}

// numberOf returns the number that a key contains, 0 if there is no such key.
func numberOf(conn *respwire.Conn, key string) (int64, error) {
	reply, err := respwire.NoError(conn.Do("GET", key))
	if err != nil || reply.Null {
		return 0, err
	}
	return strconv.ParseInt(reply.Text, 10, 64)
}

func (l *load) compare(conn *respwire.Conn, keys []string, present bool) {
	l.t.Helper()
	bad := 0
	for len(keys) > 0 {
		chunk := keys[:min(500, len(keys))]
		keys = keys[len(chunk):]
		values, err := respwire.NoError(conn.Do(append([]string{"MGET"}, chunk...)...))
		if err != nil || len(values.Elems) != len(chunk) {
			l.t.Fatalf("read back: %d of %d values, %v", len(values.Elems), len(chunk), err)
		}
		for i, v := range values.Elems {
			if present && v.Text != chunk[i] || !present && !v.Null {
				if bad++; bad <= 5 {
					l.t.Errorf("%s is %q; acknowledged: %v", chunk[i], v, present)
				}
			}
		}
	}
	if bad > 0 {
		l.t.Errorf("%s: %d keys are not as the replies to their clients say (acknowledged: %v)", l.name, bad, present)
	}
}
