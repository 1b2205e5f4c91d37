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

// world is a cluster in a bubble, and what can be done to it. It lives inside
// one synctest bubble and is used from there only.
type world struct {
	seed  uint64
	begun time.Time
	net   *network
	audit *audit
	book  *book
	opts  cluster.Options
	peers []cluster.Peer
	// ports: nodes have client ports, over which the clients of remote.go speak.
	ports bool

	wg    sync.WaitGroup // crashed processes that are being taken down, and the supervisor's restarts
	over  atomic.Bool    // nothing is restarted any more
	exits map[string]int // planned exits of processes by reason; guarded by mu

	mu    sync.Mutex
	nodes map[string]*node
}

// node is a place for a process: disk and clock outlive it.
type node struct {
	id    string
	disk  *disk
	clock *clock
	peers []cluster.Peer
	// sluggish multiplies the timeouts of raft on this node: its timers run slow,
	// as those of a process do that does not get its share of a processor.
	sluggish int
	// features is the highest feature version that its program claims to know, 0
	// for the newest.
	features int

	mu   sync.Mutex
	proc *process // nil while it is down
	// out is set while somebody works on the node's disk: it must not start.
	out bool
}

// process is one start of a node.
type process struct {
	id      string
	n       *cluster.Node
	session fsm.SessionID
	port    *resp.Server // nil in a history whose clients need none
	dead    atomic.Bool  // nothing that it does from here on has happened
}

// options are the product's own, save what would only cost processor time, and
// limits that let a history of a minute see what a cluster sees in a month.
func options() cluster.Options {
	o := cluster.DefaultOptions()
	o.CommitTimeout = 50 * time.Millisecond
	o.LeaderWait = 2 * time.Second
	o.ResolveWait = 10 * time.Second
	o.SnapshotBytes, o.TrailingBytes = 24<<10, 4<<10
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

// stream returns a source of chance of its own for each purpose, so that what
// one part draws does not depend on what another has drawn.
func stream(seed uint64, purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(purpose) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// place makes a place for a node.
func (w *world) place(id string, peers []cluster.Peer) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	nd := &node{
		id: id, disk: newDisk(id, stream(w.seed, "disk "+id), w.audit), peers: peers, sluggish: 1,
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

// ids returns the names of all places in order.
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

// elapsed is the time since the beginning of the history.
func (w *world) elapsed() time.Duration { return time.Since(w.begun) }

// running returns the process, nil while the node is down.
func (nd *node) running() *process {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return nd.proc
}

// start starts a node.
func (w *world) start(id string) error {
	nd := w.node(id)
	p := &process{id: id}
	o := w.opts
	o.HeartbeatTimeout *= time.Duration(nd.sluggish)
	o.LeaseTimeout *= time.Duration(nd.sluggish)
	nd.mu.Lock()
	defer nd.mu.Unlock()
	if nd.proc != nil || nd.out {
		return nil
	}
	cfg := cluster.Config{
		NodeID: id, DataDir: "sim", LogStore: "wal", PeerAddr: address(id), Peers: nd.peers, Version: "sim", Options: o,
		Logger: hclog.New(&hclog.LoggerOptions{
			Name: id, Output: w.book, Level: w.book.level(), TimeFn: time.Now, TimeFormat: "15:04:05.000",
		}),
		Clock: nd.clock, PeerListener: w.net.listen(id),
		PeerDialer: w.net.dialer(id, func() bool { return !p.dead.Load() }),
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

// close ends the process: its client port, and then the node behind it.
func (p *process) close() {
	if p.port != nil {
		_ = p.port.Close() // connections that are broken already
	}
	_ = p.n.Close() // the same, and disks that are gone
}

// take takes the process away from its place. Whoever gets it takes it down.
func (nd *node) take() *process {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	p := nd.proc
	nd.proc = nil
	if p != nil {
		p.dead.Store(true)
	}
	return p
}

// crash ends a node between two instructions: loudly as kill -9 does, whose
// connections the kernel closes, or silently, as a power failure.
func (w *world) crash(id string, loud bool) bool {
	nd := w.node(id)
	p := nd.take()
	if p == nil {
		return false
	}
	w.buryAfter(nd, p, loud)
	return true
}

func (w *world) buryAfter(nd *node, p *process, loud bool) {
	w.net.unplug(nd.id, loud)
	if p.port != nil {
		w.net.unplug(portHost(nd.id), loud)
	}
	nd.disk.crash()
	w.wg.Go(p.close)
}

// restartAfter is how long a supervisor waits.
const restartAfter = 300 * time.Millisecond

// planned are the exits that the product is made to take, by what stands in
// their reasons: hashicorp/raft issue 697, and cluster/staleend.go.
var planned = []string{errGap.Error(), "a snapshot took the place of entries"}

// exited is what the product calls when a process must end.
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
	w.wg.Go(func() { // not here: the caller may hold locks
		nd.mu.Lock()
		mine := nd.proc == p
		if mine {
			nd.proc = nil
		}
		nd.mu.Unlock()
		if !mine || p.dead.Swap(true) {
			return
		}
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

// stop closes a node in order.
func (w *world) stop(id string) {
	if p := w.node(id).take(); p != nil {
		p.close()
	}
}

// leader returns the id of a node that leads the highest term, "" if none does.
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

// look tells the audit what the nodes say of themselves. It returns the highest
// term that a node leads with its office open, and whether no node knows a higher one.
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
		// Role and term are not read at one moment: they count when they stay.
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

// readBack writes a snapshot of every node's machine and reads it.
func (w *world) readBack() {
	for _, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			continue
		}
		var fork *fsm.Machine
		var sessions fsm.Sessions
		p.n.View(func(m *fsm.Machine) { fork, sessions = m.Fork(), m.Sessions() })
		w.audit.readBack(id, fork, sessions)
	}
}

// commits tells the audit what the nodes have committed.
func (w *world) commits() {
	for _, id := range w.ids() {
		nd := w.node(id)
		if p := nd.running(); p != nil {
			commit := p.n.Status().Commit
			w.audit.commit(id, nd.disk.upTo(commit))
		}
	}
}

// revive starts a node after a crash.
func (w *world) revive(id string) {
	if w.over.Load() {
		return
	}
	if err := w.start(id); err != nil {
		w.audit.violate("%v", err)
	}
}

// end stops all nodes for good and waits for what belongs to them.
func (w *world) end() {
	w.over.Store(true)
	for _, id := range w.ids() {
		w.stop(id)
	}
	w.wg.Wait()
}

// join adds a node that knows the first ones.
func (w *world) join(id string) {
	w.place(id, append(slices.Clone(w.peers), cluster.Peer{ID: id, Addr: address(id)}))
	w.add(id) // else it waits, and repair does it
	w.revive(id)
}

// members returns the configuration of the leader of the highest term, and
// that term.
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

// repair starts what is down, and lets those join anew that are no members any
// more, be it that a removal came through after it was given up.
func (w *world) repair() {
	for _, id := range w.ids() {
		w.revive(id)
	}
	// A node whose timers are thirty times slower needs half a minute for an election,
	// and if the others need its vote, one in vain is followed by another.
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
		// What the leader knows of the members is settled once it has committed
		// something in the same term.
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
				w.add(id) // it waits for this
				continue
			}
			w.renew(id, 0)
		}
		<-time.After(time.Second)
	}
	w.audit.violate("membership could not be repaired: %s", w.describe())
}

// settled writes something and reports whether that was in the given term.
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

// describe says how the nodes are.
func (w *world) describe() string {
	var all []string
	for _, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			all = append(all, id+" is down")
			continue
		}
		st := p.n.Status()
		all = append(all, fmt.Sprintf("%s %s of %q in term %d, commit %d, applied %d, last %d, voter %v, ready %v %s", id, st.Role, st.Leader, st.Term, st.Commit, st.Applied, st.LastIndex, st.Voter, st.Ready, st.Detail))
	}
	return strings.Join(all, "; ")
}

// renew removes a node, throws its disk away, and lets it join as a new one
// after a while. It does nothing, and reports false, unless the removal is certain.
func (w *world) renew(id string, after time.Duration) bool {
	nd := w.node(id)
	nd.mu.Lock()
	busy := nd.out
	nd.out = true
	nd.mu.Unlock()
	if busy {
		return false
	}
	if w.leader() == id { // a leader is not removed, it has to go first
		if p := nd.running(); p != nil {
			_ = p.n.TransferLeadership("") // if it stays: its process ends now
		}
	}
	w.crash(id, true)
	gone := w.remove(id)
	if gone {
		nd.disk.wipe()
		<-time.After(after)
		w.add(id) // else it waits, and repair does it
	}
	var all []cluster.Peer // who may be a member: the first nodes may all have been removed
	for _, other := range w.ids() {
		all = append(all, cluster.Peer{ID: other, Addr: address(other)})
	}
	nd.mu.Lock()
	if gone {
		nd.peers = all
		nd.features = 0 // the cluster may be beyond the old program now
	}
	nd.out = false
	nd.mu.Unlock()
	w.revive(id)
	return gone
}

// add permits a node to join and reports whether that is certain.
func (w *world) add(id string) bool {
	for range removeTries {
		if leader := w.leader(); leader != "" {
			if p := w.node(leader).running(); p != nil && p.n.AddMember(id, address(id)) == nil {
				return true
			}
		}
		<-time.After(askEvery)
	}
	return false
}

// removeTries is how often a removal or an addition is asked for: a cluster under attack may
// refuse.
const removeTries = 10

// remove removes a node that is down from the members and reports whether that
// is certain.
func (w *world) remove(id string) bool {
	for range removeTries {
		if leader := w.leader(); leader != "" && leader != id {
			if p := w.node(leader).running(); p != nil {
				err := p.n.RemoveMember(id)
				if err == nil {
					return true
				}
				// As far as this leader knows; it is certain once it has committed
				// something in its term.
				if strings.Contains(err.Error(), "not a member") && settled(p, p.n.Status().Term) {
					return true
				}
			}
		}
		<-time.After(askEvery)
	}
	return false
}
