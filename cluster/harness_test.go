package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestMain runs the tests, and then checks that no goroutine of a node is left.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		// The tests wait for disks and timers most of the time.
		if err := f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if left := leaked(10 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind by closed nodes:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leaked waits until no goroutine of a node is left, for at most waitLimit. It
// returns the stacks of the goroutines that are left.
func leaked(waitLimit time.Duration) string {
	deadline := time.Now().Add(waitLimit)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for _, stack := range strings.Split(string(buf), "\n\n") {
			// raft does not complete some futures when it shuts down: see raftInstance.await.
			future := strings.Contains(stack, "raft.(*deferError).Error(") &&
				strings.Contains(stack, "cluster.(*raftInstance).await.func1(")
			if strings.Contains(stack, "cluster_test.TestMain") || future {
				continue
			}
			if strings.Contains(stack, "holdfast/") || strings.Contains(stack, "hashicorp/raft") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

var eventually = testutil.Eventually

// waitLimit is how long a condition may take to become true. It is far more than
// any condition needs, so that only a condition that never becomes true reaches
// the limit.
const waitLimit = slowdown * 30 * time.Second

// during waits for d, while the nodes and the other goroutines of a test
// continue.
func during(d time.Duration) { <-time.After(d) }

// testClock is a node's clock. It advances with the machine's clock and can be
// moved.
type testClock struct {
	epoch      time.Time
	mono, wall atomic.Int64              // added to the machine's clocks
	stop       atomic.Pointer[stopPoint] // nil for none
}

func (c *testClock) Mono() time.Duration {
	if p := c.stop.Load(); p != nil {
		p.wait()
	}
	return time.Since(c.epoch) + time.Duration(c.mono.Load())
}
func (c *testClock) Wall() time.Time { return time.Now().Add(time.Duration(c.wall.Load())) }

// stopPoint stops each goroutine that reads a node's monotonic clock in a certain
// function, as if the process had been stopped there. The field function is a part
// of the function's name.
type stopPoint struct {
	function string
	reached  chan struct{} // capacity 1: receives a value when a goroutine has stopped
	released chan struct{} // closed when the goroutines continue
}

func newStopPoint(function string) *stopPoint {
	return &stopPoint{function, make(chan struct{}, 1), make(chan struct{})}
}

func (p *stopPoint) wait() {
	var callers [6]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, p.function) {
			break
		}
		if !more {
			return
		}
	}
	select {
	case p.reached <- struct{}{}:
	default:
	}
	<-p.released
}

func (c *testClock) advance(d time.Duration) { c.mono.Add(int64(d)) }

// testCluster is a set of nodes on one network.
type testCluster struct {
	t       *testing.T
	net     *network
	log     *testutil.Log
	dir     string
	peers   []cluster.Peer
	options cluster.Options
	change  func(*cluster.Config)

	members map[string]*member
}

// member is the environment of a node. Its directory and its clock remain when the
// node is closed.
type member struct {
	c     *testCluster
	id    string
	dir   string
	clock *testClock
	peers []cluster.Peer

	mu   sync.Mutex
	node *cluster.Node // nil while the node is down

	dies  bool       // the test expects a call of Config.Fatal
	fatal chan error // capacity 1: an error that Fatal was called with
}

// testOptions returns options with short timeouts of elections and links, which
// are still long enough for two slow cores.
func testOptions() cluster.Options {
	o := cluster.DefaultOptions()
	o.HeartbeatTimeout, o.LeaseTimeout = slowdown*400*time.Millisecond, slowdown*300*time.Millisecond
	o.StallTimeout = 20 * time.Second
	o.LeaderWait = slowdown * 2 * time.Second
	o.RelinkEvery = 10 * time.Millisecond
	o.DialTimeout = 300 * time.Millisecond
	o.ClockEntryEvery = 200 * time.Millisecond
	return o
}

// prepare creates the members n1, n2, … and starts no node.
func prepare(t *testing.T, n int, options ...func(*cluster.Options)) *testCluster {
	t.Helper()
	c := &testCluster{t: t, log: &testutil.Log{}, dir: testutil.Dir(t), options: testOptions(), members: make(map[string]*member)}
	for _, f := range options {
		f(&c.options)
	}
	c.net = newNetwork(t)
	for i := range n {
		c.peers = append(c.peers, peer("n"+strconv.Itoa(i+1)))
	}
	for _, p := range c.peers {
		c.place(p.ID, c.peers)
	}
	t.Cleanup(c.close)
	return c
}

func peer(id string) cluster.Peer { return cluster.Peer{ID: id, Addr: address(id)} }

// place creates a member.
func (c *testCluster) place(id string, peers []cluster.Peer) *member {
	m := &member{c: c, id: id, dir: filepath.Join(c.dir, id), peers: peers, fatal: make(chan error, 1)}
	// The clocks start at different times: no node may use another node's time.
	m.clock = &testClock{epoch: time.Now()}
	m.clock.mono.Store(int64(len(c.members)) * int64(1000*time.Hour))
	c.members[id] = m
	return m
}

// start calls prepare and open, and waits until all nodes can serve and are
// quiet. An entry that the test did not cause would break tests that count
// entries. It would also break tests that cut nodes off and depend on which
// node has the longest log.
func start(t *testing.T, n int, options ...func(*cluster.Options)) *testCluster {
	t.Helper()
	c := prepare(t, n, options...)
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.quiet()
	return c
}

func (c *testCluster) ids() []string {
	var ids []string
	for id := range c.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// others returns all ids except the given ones.
func (c *testCluster) others(than ...string) []string {
	return slices.DeleteFunc(c.ids(), func(id string) bool { return slices.Contains(than, id) })
}

func (c *testCluster) close() {
	for _, id := range c.ids() {
		m := c.members[id]
		select {
		case err := <-m.fatal:
			if !m.dies {
				c.t.Errorf("%s: unexpected Fatal: %v", id, err)
			}
		default:
		}
	}
	if c.t.Failed() {
		for _, id := range c.ids() {
			if n := c.members[id].running(); n != nil {
				c.t.Logf("%s: %+v", id, n.Status())
			}
		}
		c.t.Logf("log of the nodes:\n%s", c.log.Tail(150, "no way to the leader", "stream ended", "failed to link to the leader", "handshake ended"))
	}
	for _, id := range c.ids() {
		c.stop(id)
	}
}

func (c *testCluster) config(m *member) cluster.Config {
	cfg := cluster.Config{
		NodeID: m.id, DataDir: m.dir, LogStore: "wal", PeerAddr: address(m.id), Peers: m.peers, Version: "test", RunID: "run-" + m.id,
		Options: c.options, Clock: m.clock,
		Logger:       hclog.New(&hclog.LoggerOptions{Name: m.id, Output: c.log, Level: hclog.Debug}),
		PeerListener: c.net.listen(m.id), PeerDialer: c.net.dialer(m.id),
		Fatal: func(err error) {
			select {
			case m.fatal <- err:
			default:
			}
		},
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

// open starts nodes and does not wait until they can serve.
func (c *testCluster) open(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		m := c.members[id]
		n, err := cluster.Open(c.config(m))
		if err != nil {
			c.t.Fatalf("open %s: %v", id, err)
		}
		m.mu.Lock()
		m.node = n
		m.mu.Unlock()
	}
}

// ready waits until the nodes have a link to a leader.
func (c *testCluster) ready(ids ...string) {
	c.t.Helper()
	c.hasten()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for _, id := range ids {
		if err := c.node(id).Ready(ctx); err != nil {
			c.t.Fatalf("%s: %v", id, err)
		}
	}
}

// hasten makes the first node of a new cluster campaign when it has formed the
// cluster and all running nodes have joined it. Otherwise, a cluster with a long
// HeartbeatTimeout would wait for its first leader for up to twice that time.
func (c *testCluster) hasten() {
	c.t.Helper()
	var running []*cluster.Node
	for _, id := range c.ids() {
		if n := c.members[id].running(); n != nil {
			running = append(running, n)
		}
	}
	isNew := func(n *cluster.Node) bool {
		st := n.Status()
		return st.Leader == "" && st.LastIndex <= 1
	}
	if c.options.HeartbeatTimeout < slowdown*2*time.Second || !slices.ContainsFunc(running, isNew) {
		return
	}
	formed := func(n *cluster.Node) bool {
		st := n.Status()
		return st.ClusterID != "" && st.Role == "follower"
	}
	led := func(n *cluster.Node) bool { return n.Status().Leader != "" }
	eventually(c.t, "the cluster to be formed", func() bool {
		all := !slices.ContainsFunc(running, func(n *cluster.Node) bool { return !formed(n) })
		return all && running[0].Status().LastIndex == 1 || slices.ContainsFunc(running, led)
	})
	if slices.ContainsFunc(running, led) {
		return
	}
	if err := running[0].Campaign(); err != nil {
		c.t.Fatalf("campaign: %v", err)
	}
}

// quiet waits until the nodes have reserved numbers for their clients. The
// reservations are entries that a test did not cause.
func (c *testCluster) quiet() {
	c.t.Helper()
	for _, id := range c.ids() {
		eventually(c.t, "numbers for the clients of "+id, func() bool { return c.node(id).ClientID() <= fsm.MaxClientID })
	}
}

// running returns the node, or nil while it is down.
func (m *member) running() *cluster.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

func (c *testCluster) node(id string) *cluster.Node {
	c.t.Helper()
	n := c.members[id].running()
	if n == nil {
		c.t.Fatalf("%s is down", id)
	}
	return n
}

func (m *member) take() *cluster.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.node
	m.node = nil
	return n
}

// stop closes a node without HandOver, if it runs.
func (c *testCluster) stop(id string) {
	c.t.Helper()
	n := c.members[id].take()
	if n == nil {
		return
	}
	done := make(chan error, 1)
	go func() { done <- n.Close() }()
	select {
	case err := <-done:
		if err != nil && !c.members[id].dies {
			c.t.Errorf("close %s: %v", id, err)
		}
	case <-time.After(waitLimit):
		buf := make([]byte, 4<<20)
		c.t.Fatalf("close %s hangs:\n%s", id, buf[:runtime.Stack(buf, true)])
	}
}

// crash ends a node in such a way that the other nodes see a process that has
// died: first its connections break and its port refuses new connections. Only
// then is the node closed.
func (c *testCluster) crash(id string) {
	c.t.Helper()
	c.net.unplug(id)
	c.stop(id)
}

// wipe removes the data of a node that is down.
func (c *testCluster) wipe(id string) {
	c.t.Helper()
	if err := os.RemoveAll(c.members[id].dir); err != nil {
		c.t.Fatal(err)
	}
}

// leader waits until one of the given nodes, or of all nodes, leads and serves,
// in a term that none of them has exceeded.
func (c *testCluster) leader(ids ...string) string {
	c.t.Helper()
	if len(ids) == 0 {
		ids = c.ids()
	}
	var found string
	eventually(c.t, fmt.Sprintf("a leader among %v", ids), func() bool {
		var top, led uint64
		for _, id := range ids {
			n := c.members[id].running()
			if n == nil {
				continue
			}
			st := n.Status()
			top = max(top, st.Term)
			if st.Role == "leader" && st.Ready {
				found, led = id, st.Term
			}
		}
		return led > 0 && led == top
	})
	return found
}

// transfer makes a node leader.
func (c *testCluster) transfer(to string) {
	c.t.Helper()
	eventually(c.t, to+" to lead", func() bool {
		if c.leader() == to {
			return true
		}
		if err := c.node(to).TransferLeadership(to); err != nil {
			c.t.Logf("transfer to %s: %v", to, err)
		}
		return false
	})
}

// isolate cuts a node off from all other nodes, in both directions.
func (c *testCluster) isolate(id string) { c.cutOff(id, c.others(id)...) }

// cutOff cuts a node off from some other nodes, in both directions.
func (c *testCluster) cutOff(id string, others ...string) {
	for _, other := range others {
		c.net.hold(id, other)
		c.net.hold(other, id)
	}
}

// metric returns the value of one of a node's counters, or the sum of a histogram
// if the name ends in _sum.
func metric(t testing.TB, n *cluster.Node, name string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(n.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
		if h := f.GetMetric()[0].GetHistogram(); h != nil && f.GetName()+"_sum" == name {
			return h.GetSampleSum()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// caughtUp waits until the nodes have applied the log up to the same index, which is
// at most one below the highest commit index, and compares their states.
func (c *testCluster) caughtUp(ids ...string) {
	c.t.Helper()
	if len(ids) == 0 {
		ids = c.ids()
	}
	// The leader still adds entries such as clock entries, so wait for a moment
	// at which all nodes are at the same index.
	eventually(c.t, fmt.Sprintf("%v at the same index", ids), func() bool {
		var index, commit uint64
		for i, id := range ids {
			at, _ := c.hash(id)
			commit = max(commit, c.node(id).Status().Commit)
			if i > 0 && at != index {
				return false
			}
			index = at
		}
		if index == 0 || index+1 < commit {
			return false
		}
		var want uint64
		for i, id := range ids {
			at, hash := c.hash(id)
			if at != index {
				return false
			}
			if i > 0 && hash != want {
				c.t.Fatalf("at index %d, %s has state hash %#x, but %s has %#x", index, id, hash, ids[0], want)
			}
			want = hash
		}
		return true
	})
}

func (c *testCluster) hash(id string) (index, hash uint64) {
	c.node(id).View(func(m *fsm.Machine) { index, hash = m.Hash() })
	return index, hash
}

// client sends requests to a node, as one connection does.
type client struct {
	node  *cluster.Node
	s     *cluster.Session
	group fsm.Group
	local bool
}

func newClient(n *cluster.Node) *client { return &client{node: n, s: n.NewSession()} }

func (c *testCluster) client(id string) *client {
	c.t.Helper()
	return newClient(c.node(id))
}

// do sends one command and returns its raw reply.
func (c *client) do(args ...string) (string, error) { return c.pipeline(args) }

// pipeline sends commands as one group.
func (c *client) pipeline(cmds ...[]string) (string, error) {
	c.group.Reset(2, 1)
	for _, args := range cmds {
		raw := respwire.Args(args...)
		row := c.node.Table().Find(raw[0])
		if row == nil {
			return "", fmt.Errorf("no command %q", args[0])
		}
		c.group.Command(row, 0, raw)
	}
	reply, err := c.s.Do(&c.group, c.local, nil)
	return string(reply), err
}

// transaction sends commands as one operation.
func (c *client) transaction(cmds ...[]string) (string, error) {
	var queue []fsm.Queued
	for _, args := range cmds {
		raw := respwire.Args(args...)
		queue = append(queue, fsm.Queued{Cmd: c.node.Table().Find(raw[0]), Args: raw})
	}
	c.group.Reset(2, 1)
	c.group.Transaction(nil, queue)
	reply, err := c.s.Do(&c.group, c.local, nil)
	return string(reply), err
}

// retry sends a command. It sends the command again while there is no leader: the
// command was then not executed, and on a slow machine even a large majority may
// have no leader for a while.
func (c *client) retry(args ...string) (string, error) {
	deadline := time.Now().Add(waitLimit)
	got, err := c.do(args...)
	for errors.Is(err, outcome.ErrNoLeader) && time.Now().Before(deadline) {
		got, err = c.do(args...)
	}
	return got, err
}

// must sends a command as retry does, and returns its reply.
func (c *client) must(t testing.TB, args ...string) string {
	t.Helper()
	got, err := c.retry(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return got
}

// want sends a command and compares the reply.
func (c *client) want(t testing.TB, want string, args ...string) {
	t.Helper()
	got := c.must(t, args...)
	if got != want {
		t.Fatalf("%v: got %q, want %q", args, clip(got), clip(want))
	}
}

// number sends a command whose reply is an integer.
func (c *client) number(t testing.TB, args ...string) int64 {
	t.Helper()
	n, err := integer(c.must(t, args...))
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return n
}

const (
	ok     = "+OK\r\n"
	absent = "$-1\r\n"
)

func bulk(s string) string { return respwire.Bulk(s) }

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// integer parses an integer reply, or a bulk string with an integer.
func integer(reply string) (int64, error) {
	text := strings.TrimSuffix(reply, "\r\n")
	if _, rest, found := strings.Cut(text, "\r\n"); found && strings.HasPrefix(text, "$") {
		return strconv.ParseInt(rest, 10, 64)
	}
	return strconv.ParseInt(strings.TrimPrefix(text, ":"), 10, 64)
}

// load increments one counter from many clients and records the replies.
type load struct {
	c    *testCluster
	key  string
	incr []string // the command
	stop context.CancelFunc
	wg   sync.WaitGroup

	acked, unknown, refused atomic.Int64

	mu   sync.Mutex
	seen map[int64]bool // the values that clients received
}

// load starts clients at each of the nodes. A client whose node is restarted
// continues after the restart.
func (c *testCluster) load(key string, each int, ids ...string) *load {
	return c.loadBy([]string{"INCR", key}, key, each, ids...)
}

// loadBy is like load, with another command that increments.
func (c *testCluster) loadBy(incr []string, key string, each int, ids ...string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{c: c, key: key, incr: incr, stop: cancel, seen: make(map[int64]bool)}
	for _, id := range ids {
		for range each {
			l.wg.Go(func() { l.run(ctx, c.members[id]) })
		}
	}
	c.t.Cleanup(cancel)
	return l
}

func (l *load) run(ctx context.Context, m *member) {
	var cl *client
	var last int64
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		n := m.running()
		if n == nil {
			<-tick.C
			continue
		}
		if cl == nil || cl.node != n {
			cl = newClient(n)
		}
		reply, err := cl.do(l.incr...)
		switch {
		case err == nil:
			v, err := integer(reply)
			if err != nil {
				l.c.t.Errorf("INCR answered %q, want an integer", reply)
				return
			}
			l.acked.Add(1)
			l.mu.Lock()
			twice := l.seen[v]
			l.seen[v] = true
			l.mu.Unlock()
			if twice {
				l.c.t.Errorf("INCR answered %d twice", v)
			}
			if v <= last {
				l.c.t.Errorf("INCR answered %d to a client that had received %d before, want a larger number", v, last)
			}
			last = v
		case errors.Is(err, outcome.ErrUnknown):
			l.unknown.Add(1)
		case errors.Is(err, outcome.ErrNoLeader), errors.Is(err, outcome.ErrClosed),
			errors.Is(err, outcome.ErrRemoved):
			l.refused.Add(1)
			<-tick.C
		default:
			l.c.t.Errorf("INCR: %v", err)
			return
		}
	}
}

// progress waits until n more increments have been acknowledged.
func (l *load) progress(n int64) {
	l.c.t.Helper()
	from := l.acked.Load()
	eventually(l.c.t, fmt.Sprintf("%d more increments", n), func() bool { return l.acked.Load() >= from+n })
}

// check ends the load and compares the counter with the recorded replies.
func (l *load) check(at string) {
	l.c.t.Helper()
	l.stop()
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * waitLimit):
		l.c.t.Fatal("the clients of the load do not end")
	}
	final := l.c.client(at).number(l.c.t, "GET", l.key)
	acked, unknown := l.acked.Load(), l.unknown.Load()
	l.c.t.Logf("%d increments acknowledged, %d unknown, %d refused, counter %d", acked, unknown, l.refused.Load(), final)
	if final < acked || final > acked+unknown {
		l.c.t.Errorf("counter is %d after %d acknowledged and %d unknown increments", final, acked, unknown)
	}
}
