package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// world is a simulated cluster with the operations on it. It belongs to one
// synctest bubble and must be used only from there.
type world struct {
	seed  uint64
	begun time.Time
	net   *network
	audit *audit
	book  *book
	opts  cluster.Options
	peers []cluster.Peer
	// ports is true if the nodes have client ports, which the clients in
	// remote.go use.
	ports bool

	wg   sync.WaitGroup // crashed processes that are being closed, and restarts by the supervisor
	over atomic.Bool    // set at the end: from then on no node is restarted
	// changesBegun is the number of membership changes that the simulator has
	// requested, and changesEnded is the number of those that have ended.
	changesBegun, changesEnded atomic.Int64
	exits                      map[string]int // planned exits of processes, by reason; guarded by mu

	mu    sync.Mutex
	nodes map[string]*node
}

// node is the simulated machine of a node. Its disk and its clock outlive the
// processes that run on it.
type node struct {
	id    string
	disk  *disk
	clock *clock
	peers []cluster.Peer
	host  string // host of the peer address: the node's id, unless a scenario has exchanged addresses
	// sluggish multiplies the timeouts of raft on this node. Its timers run
	// slow, like those of a process that does not get enough processor
	// time.
	sluggish int
	// features is the highest feature version that the node's program
	// claims to know; 0 means the newest.
	features int

	mu   sync.Mutex
	proc *process // process of the node, nil while the node is down
	// out is set while renew replaces the node's disk, or while
	// removalOfJoining removes the node. Meanwhile, the node must not start,
	// and no other fault may renew it.
	out bool
}

// process is one start of a node.
type process struct {
	id      string
	n       *cluster.Node
	session fsm.SessionID
	port    *resp.Server // client port; nil if the history has no remote clients
	dead    atomic.Bool  // set when the process crashes or stops; its later actions do not count
	died    atomic.Int64 // when the process died, in nanoseconds since the beginning of the history; 0 if it runs
}

// options returns the product's default options with two kinds of changes.
// CommitTimeout is higher, because its default would only cost processor time.
// Other limits are lower, so that a history of one minute reaches states that a
// real cluster reaches in a month.
func options() cluster.Options {
	o := cluster.DefaultOptions()
	o.CommitTimeout = 50 * time.Millisecond
	o.LeaderWait = 2 * time.Second
	o.ResolveWait = 10 * time.Second
	o.SnapshotBytes, o.TrailingBytes = 24<<10, 4<<10
	o.WaiterWork = 2 * time.Microsecond // so each part of the work on waiters handles only one waiter
	return o
}

func newWorld(seed uint64, nodes int) *world {
	w := &world{
		seed: seed, begun: time.Now(), net: newNetwork(stream(seed, "network")), audit: newAudit(), book: &book{},
		opts: options(), exits: make(map[string]int), nodes: make(map[string]*node),
	}
	for i := range nodes {
		id := "n" + strconv.Itoa(i+1)
		w.peers = append(w.peers, cluster.Peer{ID: id, Addr: address(id)})
	}
	for _, p := range w.peers {
		w.place(p.ID, w.peers)
	}
	return w
}

// stream returns a separate source of random numbers for each purpose, so that
// the numbers of one purpose do not depend on how many numbers another purpose
// has drawn.
func stream(seed uint64, purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(purpose) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// place adds a node that is not running.
func (w *world) place(id string, peers []cluster.Peer) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	nd := &node{
		id: id, disk: newDisk(id, stream(w.seed, "disk "+id), w.audit), peers: peers, host: id, sluggish: 1,
		clock: newClock(time.Duration(len(w.nodes)) * 1000 * time.Hour),
	}
	w.nodes[id] = nd
	return nd
}

func (w *world) node(id string) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id]
}

// ids returns the IDs of all nodes in order.
func (w *world) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for id := range w.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// elapsed returns the time since the beginning of the history.
func (w *world) elapsed() time.Duration { return time.Since(w.begun) }

// running returns the node's process, or nil while the node is down.
func (nd *node) running() *process {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return nd.proc
}

// start starts a node. It does nothing if the node is running or out is set.
func (w *world) start(id string) error {
	nd := w.node(id)
	p := &process{id: id}
	o := w.opts
	o.HeartbeatTimeout *= time.Duration(nd.sluggish)
	o.LeaseTimeout *= time.Duration(nd.sluggish)
	o.LeaderLease *= time.Duration(nd.sluggish)
	nd.mu.Lock()
	defer nd.mu.Unlock()
	if nd.proc != nil || nd.out {
		return nil
	}
	cfg := cluster.Config{
		NodeID: id, DataDir: "sim", LogStore: "wal", PeerAddr: address(nd.host), Peers: nd.peers,
		Version: "sim", Options: o,
		Logger: hclog.New(&hclog.LoggerOptions{
			Name: id, Output: w.book, Level: w.book.level(), TimeFn: time.Now, TimeFormat: "15:04:05.000",
		}),
		Clock: nd.clock, PeerListener: w.net.listen(nd.host),
		PeerDialer: w.net.dialer(nd.host, func() bool { return !p.dead.Load() }),
		OpenStores: nd.disk.open, Scripts: runner{}, Features: nd.features,
		Fatal: func(err error) { w.exited(nd, p, err) },
	}
	n, err := cluster.Open(cfg)
	if err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	p.n, p.session = n, nd.disk.session()
	if w.ports {
		if err := w.openPort(p); err != nil {
			return fmt.Errorf("open the client port of %s: %w", id, errors.Join(err, n.Close()))
		}
	}
	nd.proc = p
	return nil
}

// close ends the process. It closes the client port first, and then the node
// that the port serves.
func (p *process) close() {
	if p.port != nil {
		_ = p.port.Close() // connections may be broken already
	}
	_ = p.n.Close() // connections may be broken, and the disk may be gone
}

// take removes the process from its node and marks it as dead. The caller must
// then close the process.
func (w *world) take(nd *node) *process {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	p := nd.proc
	nd.proc = nil
	if p != nil {
		p.died.Store(int64(w.elapsed()))
		p.dead.Store(true)
	}
	return p
}

// crash ends a node between two instructions. If resets is true, the crash is
// like kill -9, after which the kernel resets the connections. Otherwise it is
// like a power failure.
func (w *world) crash(id string, resets bool) bool {
	nd := w.node(id)
	p := w.take(nd)
	if p == nil {
		return false
	}
	w.buryAfter(nd, p, resets)
	return true
}

func (w *world) buryAfter(nd *node, p *process, resets bool) {
	w.net.unplug(nd.host, resets)
	if p.port != nil {
		w.net.unplug(portHost(nd.id), resets)
	}
	nd.disk.crash()
	w.wg.Go(p.close)
}

// restartAfter is how long the supervisor waits before it restarts a process.
const restartAfter = 300 * time.Millisecond

// planned lists the reasons for which the product ends its process on purpose,
// each as a part of the error text: see hashicorp/raft issue 697 and
// cluster/raftlog/staleend.go.
var planned = []string{errGap.Error(), "a snapshot took the place of entries"}

// exited is the function that the product calls when its process must end. It
// crashes the process and restarts the node, as a supervisor does. If the
// reason is not in planned, it also records a violation.
func (w *world) exited(nd *node, p *process, err error) {
	if p.dead.Load() || errors.Is(err, context.Canceled) {
		return
	}
	known := false
	for _, reason := range planned {
		if strings.Contains(err.Error(), reason) {
			known = true
			w.mu.Lock()
			w.exits[reason]++
			w.mu.Unlock()
		}
	}
	if !known {
		w.audit.violate("%s ended its process: %v", nd.id, err)
	}
	w.wg.Go(func() { // in a new goroutine, because the caller may hold locks
		nd.mu.Lock()
		mine := nd.proc == p
		if mine {
			nd.proc = nil
		}
		nd.mu.Unlock()
		if !mine || p.dead.Swap(true) {
			return
		}
		p.died.Store(int64(w.elapsed()))
		w.buryAfter(nd, p, true)
		<-time.After(restartAfter)
		if w.over.Load() {
			return
		}
		if err := w.start(nd.id); err != nil {
			w.audit.violate("%v", err)
		}
	})
}

// stop closes a node in an orderly way.
func (w *world) stop(id string) {
	if p := w.take(w.node(id)); p != nil {
		p.close()
	}
}

// leader returns the ID of the node that leads in the highest term, or "" if no
// node leads.
func (w *world) leader() string {
	var found string
	var term uint64
	for _, id := range w.ids() {
		if p := w.node(id).running(); p != nil {
			if st := p.n.Status(); st.Role == "leader" && st.Term > term {
				found, term = id, st.Term
			}
		}
	}
	return found
}

// look gives the audit the states that the nodes report. It returns the highest
// term in which a leader is ready, and whether no node knows a higher term.
func (w *world) look() (term uint64, ready bool) {
	var top uint64
	for _, id := range w.ids() {
		nd := w.node(id)
		p := nd.running()
		if p == nil {
			continue
		}
		st := p.n.Status()
		top = max(top, st.Term)
		if st.Role == "leader" && st.Ready {
			term = max(term, st.Term)
		}
		// Status does not read role and term atomically. They count only if a
		// second call returns the same values.
		if st.Role == "leader" {
			if again := p.n.Status(); again.Role == st.Role && again.Term == st.Term {
				w.audit.led(id, st.Term)
			}
		}
		p.n.View(func(m *fsm.Machine) {
			index, hash := m.Hash()
			w.audit.hash(id, index, hash)
			if m.Features() >= fsm.FeatureMend {
				w.audit.waiters(id, m)
			}
		})
	}
	return term, term > 0 && term == top
}

// readBack writes a snapshot of every node's state machine and reads it back.
func (w *world) readBack() {
	for _, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			continue
		}
		var clone *fsm.Machine
		var sessions fsm.Sessions
		p.n.View(func(m *fsm.Machine) { clone, sessions = m.Clone(), m.Sessions() })
		w.audit.readBack(id, clone, sessions)
	}
}

// commits gives the audit the entries that the nodes have committed.
func (w *world) commits() {
	for _, id := range w.ids() {
		nd := w.node(id)
		if p := nd.running(); p != nil {
			commit := p.n.Status().Commit
			w.audit.commit(id, nd.disk.upTo(commit))
		}
	}
}

// revive starts a node, unless the history has ended. A failure of the start is
// a violation.
func (w *world) revive(id string) {
	if w.over.Load() {
		return
	}
	if err := w.start(id); err != nil {
		w.audit.violate("%v", err)
	}
}

// end stops all nodes for good and waits for their goroutines.
func (w *world) end() {
	w.over.Store(true)
	for _, id := range w.ids() {
		w.stop(id)
	}
	w.wg.Wait()
}

// join adds a node that knows the addresses of the initial nodes.
func (w *world) join(id string) {
	w.place(id, append(slices.Clone(w.peers), cluster.Peer{ID: id, Addr: address(id)}))
	w.add(id) // if this fails, the node waits until w.repair adds it
	w.revive(id)
}

// members returns the member IDs that the leader of the highest term reports,
// the leader, and that term.
func (w *world) members() (ids []string, leader string, term uint64) {
	leader = w.leader()
	if leader == "" {
		return nil, "", 0
	}
	p := w.node(leader).running()
	if p == nil {
		return nil, "", 0
	}
	term = p.n.Status().Term
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, st := range p.n.ClusterStatus(ctx) {
		ids = append(ids, st.ID)
	}
	return ids, leader, term
}

// voters returns the IDs of the voters that the leader of the highest term
// reports.
func (w *world) voters() (ids []string) {
	p := w.node(w.leader())
	if p == nil || p.running() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, st := range p.running().n.ClusterStatus(ctx) {
		if st.Voter {
			ids = append(ids, st.ID)
		}
	}
	return ids
}

// starts returns, for each node, how often it has been started.
func (w *world) starts() map[string]uint64 {
	all := make(map[string]uint64)
	for _, id := range w.ids() {
		all[id] = w.node(id).disk.starts()
	}
	return all
}

// repair starts the nodes that are down, and lets nodes that are no longer
// members join again. A removal can succeed after its caller has given up, so
// such nodes may exist.
func (w *world) repair() {
	for _, id := range w.ids() {
		w.revive(id)
	}
	// A node whose timers are thirty times slower needs half a minute for an
	// election. If the other nodes need its vote, several elections may fail
	// one after another.
	tries := 100
	for _, id := range w.ids() {
		tries = max(tries, 15*w.node(id).sluggish)
	}
	for range tries {
		<-time.After(askEvery)
		ids, leader, term := w.members()
		if leader == "" {
			continue
		}
		// The leader's member list is certain only once the leader has
		// committed an entry in the same term.
		p := w.node(leader).running()
		if p == nil || !settled(p, term) {
			continue
		}
		missing := slices.DeleteFunc(w.ids(), func(id string) bool { return slices.Contains(ids, id) })
		if len(missing) == 0 {
			return
		}
		for _, id := range missing {
			if p := w.node(id).running(); p != nil && p.n.Status().Role == "starting" {
				w.add(id) // the node waits to be added
				continue
			}
			w.renew(id, 0)
		}
		<-time.After(time.Second)
	}
	w.audit.violate("membership could not be repaired: %s", w.describe())
}

// settled writes a key through the process. It reports whether the write was
// committed and the process then led the given term.
func settled(p *process, term uint64) bool {
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(p.n.Table().Find([]byte("set")), 0, [][]byte{[]byte("set"), []byte("settled"), []byte(p.id)})
	_, err := p.n.NewSession().Do(&g, false, nil)
	st := p.n.Status()
	return err == nil && st.Role == "leader" && st.Term == term
}

// level reports whether all nodes have applied the same index.
func (w *world) level() bool {
	var index uint64
	for i, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			return false
		}
		st := p.n.Status()
		if i > 0 && st.Applied != index || st.Applied == 0 || st.Applied < st.Commit {
			return false
		}
		index = st.Applied
	}
	return true
}

// describe returns the states of the nodes as text.
func (w *world) describe() string {
	var all []string
	for _, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			all = append(all, id+" is down")
			continue
		}
		st := p.n.Status()
		all = append(all, fmt.Sprintf("%s %s of %q in term %d, commit %d, applied %d, last %d, voter %v, ready %v %s",
			id, st.Role, st.Leader, st.Term, st.Commit, st.Applied, st.LastIndex, st.Voter, st.Ready, st.Detail))
	}
	return strings.Join(all, "; ")
}

// renew removes a node, discards its disk, and lets the node join as a new one
// after a while. If the removal is not certain, renew keeps the disk, starts
// the node again, and reports false. If out is already set, renew does nothing
// and reports false.
func (w *world) renew(id string, after time.Duration) bool {
	nd := w.node(id)
	nd.mu.Lock()
	busy := nd.out
	nd.out = true
	nd.mu.Unlock()
	if busy {
		return false
	}
	if w.leader() == id { // w.remove needs another leader, so this one must hand over first
		if p := nd.running(); p != nil {
			_ = transferLeadership(p.n, "") // if the transfer fails, the crash below ends the leadership
		}
	}
	w.crash(id, true)
	gone := w.remove(id)
	if gone {
		nd.disk.wipe()
		<-time.After(after)
		w.add(id) // if this fails, the node waits until w.repair adds it
	}
	var all []cluster.Peer // peers lists all nodes, because all initial nodes may have been removed
	for _, other := range w.ids() {
		all = append(all, cluster.Peer{ID: other, Addr: address(other)})
	}
	nd.mu.Lock()
	if gone {
		nd.peers = all
		nd.features = 0 // the cluster's feature version may now be too high for the old program
	}
	nd.out = false
	nd.mu.Unlock()
	w.revive(id)
	return gone
}

// add permits a node to join, and reports whether the cluster has certainly
// recorded this.
func (w *world) add(id string) bool {
	for range removeTries {
		if leader := w.leader(); leader != "" {
			if p := w.node(leader).running(); p != nil && w.addMember(p.n, id, address(id)) == nil {
				return true
			}
		}
		<-time.After(askEvery)
	}
	return false
}

// removeTries is the maximum number of requests for a removal, an addition or a
// transfer. A cluster with active faults may refuse some of them.
const removeTries = 10

// remove removes a node that is down from the members, and reports whether the
// node is certainly removed.
func (w *world) remove(id string) bool {
	for range removeTries {
		if leader := w.leader(); leader != "" && leader != id {
			if p := w.node(leader).running(); p != nil {
				err := w.removeMember(p.n, id)
				if err == nil {
					return true
				}
				// The error is reliable only if this leader has committed an
				// entry in its term.
				if strings.Contains(err.Error(), "not a member") && settled(p, p.n.Status().Term) {
					return true
				}
			}
		}
		<-time.After(askEvery)
	}
	return false
}
