package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// userWatch is the part of a fakeCluster that reports its users.
type userWatch struct {
	watchers []func(*fsm.Users)
	// hideUsers makes WatchUsers report that there are no users, like a node that
	// has applied nothing yet.
	hideUsers bool
}

// fakeCluster is a state machine without a cluster around it. Its executors run
// groups immediately, unless before is set.
type fakeCluster struct {
	mu      sync.Mutex
	machine *fsm.Machine
	index   uint64
	seq     uint64
	sizes   []int // number of operations of each group
	locals  []bool
	// featureWaits counts the calls of FeatureVersion that would wait for a
	// leader.
	featureWaits int
	waits        map[uint64]chan []byte // by the id of the connection

	// before, if set, is called before a group runs. An error that it returns
	// replaces the group's outcome. It may block.
	before func(g *fsm.Group) error
	// traces, if set, receives the traces that the connections record of their
	// groups.
	traces func(group string)
	// reading, if set, is called before a group that only reads, with the
	// function that watches the client.
	reading func(watch func() (left <-chan struct{}, stop func(), err error))
	state   resp.State
	// memoryRefused is the result of RefuseQueued.
	memoryRefused atomic.Bool
	admin         func(args []string) (string, error)

	clientID atomic.Uint64
	listener resp.Listener
	want     atomic.Uint32
	userWatch
	after    func(index uint64) // if set, is called after a read, with the log index of that read
	answered func()             // if set, is called when a reply was sent early, before Do returns it
	// inPieces divides a group that writes: each operation becomes an entry of its
	// own. An entry before these entries stands for the whole group, which was
	// refused. between, if set, returns a group of another connection that runs
	// before each piece.
	inPieces bool
	between  func() *fsm.Group
	late     chan *fsm.Result // if set, receives the events in place of the listener
	// delivered and ownDelivered, if set, replace EventsDelivered and
	// OwnEventsDelivered.
	delivered    func(heard func())
	ownDelivered func(group uint64, heard func(index uint64, position int))
}

func newFake(t testing.TB) *fakeCluster {
	t.Helper()
	return newFakeAt(t, fsm.MaxFeatures)
}

// newFakeAt returns a fakeCluster with the given feature version.
func newFakeAt(t testing.TB, features int) *fakeCluster {
	t.Helper()
	f := &fakeCluster{machine: fsm.New(command.NewTable()), waits: make(map[uint64]chan []byte)}
	f.index = 1
	if _, err := f.machine.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{ClusterID: "test", Features: features})); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeCluster) NewExecutor() resp.Executor { return &fakeExecutor{cluster: f} }
func (f *fakeCluster) ClientID() uint64           { return f.clientID.Add(1) }
func (f *fakeCluster) Listen(l resp.Listener)     { f.listener = l }

// EventsDelivered implements resp.Cluster. Events are delivered before Do
// returns, unless the test sets f.delivered.
func (f *fakeCluster) EventsDelivered(_ uint64, heard func()) {
	if f.delivered != nil {
		f.delivered(heard)
		return
	}
	heard()
}

// OwnEventsDelivered implements resp.Cluster.
func (f *fakeCluster) OwnEventsDelivered(group uint64, heard func(index uint64, position int)) {
	if f.ownDelivered != nil {
		f.ownDelivered(group, heard)
		return
	}
	heard(f.indexOf(group), 0)
}

// indexOf returns the log index of a group. Each group is an entry of its own.
func (f *fakeCluster) indexOf(group uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index - f.seq + group
}

func (f *fakeCluster) Want(kinds fsm.EventKinds) { f.want.Store(uint32(kinds)) }

func (f *fakeCluster) State() resp.State { return f.state }

func (f *fakeCluster) LockHistory(context.Context, history.Query, bool) (history.Answer, error) {
	return history.Answer{}, history.ErrOff
}

func (f *fakeCluster) RefuseQueued() bool { return f.memoryRefused.Load() }

// FeatureVersion implements resp.Cluster.
func (f *fakeCluster) FeatureVersion(need int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.machine.Features() < need {
		f.featureWaits++
	}
	return f.machine.Features()
}

func (f *fakeCluster) Admin(_ context.Context, args []string) (string, error) {
	if f.admin != nil {
		return f.admin(args)
	}
	return "OK", nil
}

// WatchDenials implements resp.Cluster. There are no scripts.
func (f *fakeCluster) WatchDenials(func(user string, v acl.Verdict)) {}

// WatchUsers implements resp.Cluster.
func (f *fakeCluster) WatchUsers(watch func(*fsm.Users)) {
	f.mu.Lock()
	f.watchers = append(f.watchers, watch)
	users := f.machine.Users()
	f.mu.Unlock()
	if f.hideUsers {
		users = &fsm.Users{}
	}
	watch(users)
}

// groups returns the number of operations of each group so far.
func (f *fakeCluster) groups() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.sizes...)
}

type fakeExecutor struct {
	watch   func() (left <-chan struct{}, stop func(), err error)
	cluster *fakeCluster
	buf     []byte
	out     chan []byte // replies of the current wait
	origin  uint64
	pos     fsm.Pos
	// first and last are the numbers of the first and the last group that the
	// last call of Do sent through the log, or 0 if it sent none.
	first, last uint64
	piece       func(group uint64, op int)
}

// fakeSession is the session of the groups that all fake executors send.
var fakeSession = fsm.SessionID{NodeID: "n1", Boot: 1}

func (e *fakeExecutor) Sent() (first, last uint64) { return e.first, e.last }

func (e *fakeExecutor) Traced(uint64) bool { return e.cluster.traces != nil }

func (e *fakeExecutor) Trace(number uint64, command string, begun, replied, sent time.Time) {
	e.cluster.traces(fmt.Sprintf("%d %s %t", number, command, !begun.After(replied) && !replied.After(sent)))
}

func (e *fakeExecutor) OnPiece(f func(group uint64, op int)) { e.piece = f }

func (e *fakeExecutor) Block(g *fsm.Group, origin uint64, own bool) ([]byte, error) {
	f := e.cluster
	out := make(chan []byte, 1)
	f.mu.Lock()
	f.waits[origin] = out
	f.mu.Unlock()
	reply, err := e.Do(g, false, nil)
	e.out, e.origin = out, origin
	e.pos, _, _ = fsm.Waiting(reply)
	return reply, err
}

func (e *fakeExecutor) WaitsFor(int, string, string) {}

func (e *fakeExecutor) Waited() <-chan []byte { return e.out }

func (e *fakeExecutor) Unblock() ([]byte, error) {
	var g fsm.Group
	g.Reset(2, e.origin)
	g.Command(e.cluster.machine.Table().Find([]byte(fsm.UnwaitCommand)), 0,
		[][]byte{nil, strconv.AppendUint(nil, e.origin, 10), strconv.AppendUint(nil, uint64(e.pos), 10)})
	answer, err := e.Do(&g, false, nil)
	if err != nil {
		return nil, err
	}
	reply, _, err := fsm.Unwaited(answer)
	return reply, err
}

func (e *fakeExecutor) WatchClient(watch func() (left <-chan struct{}, stop func(), err error)) {
	e.watch = watch
}

func (e *fakeExecutor) Abandon() {
	if _, err := e.Unblock(); err != nil {
		panic(err)
	}
}

// Do overwrites the replies of the last Do, as the real implementation may.
func (e *fakeExecutor) Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error) {
	f := e.cluster
	f.mu.Lock()
	before, reading := f.before, f.reading
	f.sizes = append(f.sizes, g.Ops())
	f.locals = append(f.locals, local)
	f.mu.Unlock()
	clear(e.buf)
	e.first, e.last = 0, 0
	if reading != nil && !g.Write {
		reading(e.watch)
	}
	if before != nil {
		if err := before(g); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	users, at, after := f.machine.Users(), f.index, f.after
	defer func() {
		watchers, now := f.watchers, f.machine.Users()
		f.mu.Unlock()
		if now != users {
			for _, watch := range watchers {
				watch(now)
			}
		}
		if after != nil && !g.Write {
			after(at)
		}
	}()
	if !g.Write {
		out, _, err := f.machine.Read(e.buf[:0], fsm.ReadRequest{Body: g.Bytes(), Now: f.machine.Clock().Lease, Front: g.Front})
		e.buf = out
		return out, err
	}
	if !f.inPieces {
		reply, err := f.applyLocked(g.Bytes())
		if err != nil {
			return nil, err
		}
		e.first, e.last = f.seq, f.seq
		e.buf = append(e.buf[:0], reply...)
	} else if err := e.runPiecesLocked(g); err != nil {
		return nil, err
	}
	if early != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			early(e.buf)
		}()
		<-done
		if f.answered != nil {
			f.answered()
		}
	}
	return e.buf, nil
}

// noop is a group without commands.
var noop = []byte{0, 0}

// runPiecesLocked runs each operation of a group by itself. mu of the cluster
// must be held; it is released while a piece is reported.
func (e *fakeExecutor) runPiecesLocked(g *fsm.Group) error {
	f := e.cluster
	if _, err := f.applyLocked(noop); err != nil { // stands for the whole group, which was refused
		return err
	}
	e.first, e.buf = f.seq, e.buf[:0]
	todo := [][]byte{g.Bytes()}
	for op := 0; len(todo) > 0; {
		if first, second, ok := fsm.SplitGroup(todo[0]); ok {
			todo = append([][]byte{first, second}, todo[1:]...)
			continue
		}
		if f.between != nil {
			if _, err := f.applyLocked(f.between().Bytes()); err != nil {
				return err
			}
		}
		reply, err := f.applyLocked(todo[0])
		if err != nil {
			return err
		}
		e.buf, e.last, todo = append(e.buf, reply...), f.seq, todo[1:]
		f.mu.Unlock()
		e.piece(e.last, op)
		f.mu.Lock()
		op++
	}
	return nil
}

// applyLocked applies an entry with one group, and returns the group's replies.
func (f *fakeCluster) applyLocked(body []byte) ([]byte, error) {
	var b fsm.BatchBuilder
	f.seq++
	b.Add(fakeSession, f.seq-1, f.seq, body)
	f.index++
	f.machine.Want(fsm.EventKinds(f.want.Load()))
	res, err := f.machine.Apply(f.index, 1, b.Encode(fsm.Header{Term: 1, Stamp: int64(f.index)}))
	if err != nil {
		return nil, err
	}
	if len(res.Events) > 0 && f.late != nil {
		f.late <- res
	} else if len(res.Events) > 0 {
		f.listener.Applied(res.Index, res.Events)
	}
	for _, w := range res.Woken {
		if w.Reply() == nil {
			f.waits[w.Origin()] <- nil
		}
		for _, n := range f.machine.WaitersOf(fakeSession) {
			if n.Origin == w.Origin() {
				_, reply := f.machine.Waiter(fakeSession, n.Origin, n.Pos)
				f.waits[n.Origin] <- reply
			}
		}
	}
	return res.Groups[0].Reply, nil
}

// serve starts a client port on loopback that knows the users of the cluster.
func serve(t testing.TB, f *fakeCluster, change ...func(*resp.Config)) *resp.Server {
	t.Helper()
	s := serveUnconfirmed(t, f, change...)
	resp.ConfirmUsers(s)
	return s
}

// serveUnconfirmed is like serve, for a node that has not read the users of the
// cluster since it started.
func serveUnconfirmed(t testing.TB, f *fakeCluster, change ...func(*resp.Config)) *resp.Server {
	t.Helper()
	cfg := resp.Config{Addr: "127.0.0.1:0", Limits: guard.DefaultLimits(), Logger: hclog.NewNullLogger()}
	for _, c := range change {
		c(&cfg)
	}
	s, err := resp.Listen(cfg, f, f.machine.Table())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close of the server returned %v, want nil", err)
		}
	})
	return s
}

func withPassword(pass string) func(*resp.Config) {
	return func(c *resp.Config) { c.RequirePass = pass }
}

// client sends and receives raw RESP.
type client struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

func connect(t testing.TB, network, addr string) *client {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, conn)
}

func newClient(t testing.TB, conn net.Conn) *client {
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func dial(t testing.TB, s *resp.Server) *client {
	t.Helper()
	return connect(t, "tcp", s.Addr().String())
}

// encode makes a pipeline of lines whose words are separated by blanks. The
// character ” is an empty word, and · is a blank inside a word.
func encode(lines ...string) string {
	var b []byte
	for _, line := range lines {
		words := strings.Fields(line)
		for i, w := range words {
			words[i] = strings.ReplaceAll(strings.ReplaceAll(w, "”", ""), "·", " ")
		}
		b = respwire.AppendCommand(b, words...)
	}
	return string(b)
}

// send writes a pipeline in one piece.
func (c *client) send(lines ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, encode(lines...)); err != nil {
		c.t.Fatalf("send %q: %v", lines, err)
	}
}

// reply reads one reply and returns its bytes with \n in place of \r\n.
func (c *client) reply() (string, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return "", err
	}
	v, err := respwire.Read(c.r)
	if err != nil {
		return "", err
	}
	return show(v), nil
}

// show returns the bytes of a reply with \n in place of the line ends of the
// protocol.
func show(v respwire.Value) string {
	out := v.Head() + "\n"
	if (v.Kind == '$' || v.Kind == '=') && !v.Null {
		return out + v.Text + "\n"
	}
	for _, e := range v.Elems {
		out += show(e)
	}
	return out
}

// do sends a line and returns its reply.
func (c *client) do(line string) string {
	c.t.Helper()
	c.send(line)
	r, err := c.reply()
	if err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return r
}

// want reads the next replies and compares them.
func (c *client) want(replies ...string) {
	c.t.Helper()
	for i, want := range replies {
		got, err := c.reply()
		if err != nil {
			c.t.Fatalf("reply %d of %q: %v", i, replies, err)
		}
		if got != want+"\n" {
			c.t.Fatalf("reply %d: got %q, want %q", i, got, want+"\n")
		}
	}
}

// expect sends lines one by one and checks their replies. In pairs, each line is
// followed by the reply that it must get.
func (c *client) expect(pairs ...string) {
	c.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got, want := c.do(pairs[i]), pairs[i+1]+"\n"; got != want {
			c.t.Fatalf("%s: got %q, want %q", pairs[i], got, want)
		}
	}
}

// wantEOF waits for the end of the connection.
func (c *client) wantEOF() {
	c.t.Helper()
	if r, err := c.reply(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %q, %v, want the end of the connection", r, err)
	}
}
