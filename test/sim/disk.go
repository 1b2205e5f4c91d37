package sim

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
)

// disk is the data that a node keeps through its crashes. It replaces
// cluster/storage, which cannot be used here because real files do not follow
// the time of the bubble. A disk gives the guarantees of cluster/storage and no
// more. After a crash, it has the data of every StoreLogs, every Set and every
// Close of a snapshot that had returned. It may also have some of the log
// entries that were still being written.
type disk struct {
	rng   *rand.Rand
	audit *audit

	mu       sync.Mutex
	node     string
	instance string
	cluster  string
	joins    bool // true if the node joins the cluster, false if it formed the cluster
	joinedAt uint64
	joinedIn uint64
	boot     uint64
	made     int // number of instances of the disk so far; wipe makes a new instance

	log     []*raft.Log // consecutive entries; the last ones may not be durable yet
	durable int         // number of entries of log that are synced, so that a crash cannot lose them
	term    uint64
	votes
	has   map[string]bool
	snaps []*image // oldest first

	fsync time.Duration // a write on a healthy disk takes this long, plus a random delay of up to the same length
	slow  time.Duration // added to the time of a write
	hang  chan struct{} // if not nil, writes wait until this channel is closed
	// If held is not nil, reads of the log entry heldAt wait until it is
	// closed.
	heldAt uint64
	held   chan struct{}

	current *stores // stores of the running process; nil while there is none
	seen    diskEffects
}

// diskEffects counts the effects of faults on a disk.
type diskEffects struct {
	lost    int64 // entries that a crash lost because they were not yet durable
	kept    int64 // entries that survived a crash although they were not yet durable
	late    int64 // writes that a slow or stalled disk delayed
	snaps   int64 // snapshots completed, including those from another node
	held    int64 // reads that holdReads delayed
	gaps    int64 // appends refused because they would have left a gap in the log
	deleted int64 // how often the whole log was deleted, after a snapshot from the leader
}

// image is a snapshot on disk.
type image struct {
	meta raft.SnapshotMeta
	data []byte
}

func newDisk(node string, rng *rand.Rand, a *audit) *disk {
	d := &disk{rng: rng, audit: a, node: node, fsync: 300 * time.Microsecond}
	d.wipe()
	return d
}

// votes contains the last vote of a node, and the length of its longest promise
// not to vote.
type votes struct {
	vote    uint64
	voted   []byte
	promise uint64
}

// wipe replaces the disk with an empty one that has a new instance name.
func (d *disk) wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	d.instance = fmt.Sprintf("%s-%d", d.node, d.made)
	d.cluster, d.joins, d.boot = "", false, 0
	d.joinedAt, d.joinedIn = 0, 0
	d.log, d.durable, d.snaps = nil, 0, nil
	d.term, d.votes, d.has = 0, votes{}, make(map[string]bool)
}

// crash detaches the disk from the process that uses it. Of the entries that
// were still being written, it keeps a random number, beginning with the first.
func (d *disk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.detached = slices.Clone(d.log)
		d.current = nil
	}
	if open := len(d.log) - d.durable; open > 0 {
		keep := d.rng.IntN(open + 1)
		d.seen.kept += int64(keep)
		d.seen.lost += int64(open - keep)
		d.log = slices.Clone(d.log[:d.durable+keep])
		d.durable = len(d.log)
	}
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
}

// stall makes writes wait until the returned function is called. It returns nil
// if writes are stalled already.
func (d *disk) stall() (resume func()) {
	hang := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		return nil
	}
	d.hang = hang
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.hang == hang {
			close(hang)
			d.hang = nil
		}
	}
}

// holdReads makes reads of one log entry wait until the returned function is
// called.
func (d *disk) holdReads(index uint64) (release func()) {
	held := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heldAt, d.held = index, held
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held = nil
		close(held)
	}
}

// heldReads is the log of a process. Its disk can make reads of an entry wait:
// see holdReads.
type heldReads struct {
	*raft.LogCache
	d *disk
}

// GetLog implements raft.LogStore.
func (h heldReads) GetLog(index uint64, out *raft.Log) error {
	h.d.mu.Lock()
	held := h.d.held
	if index != h.d.heldAt {
		held = nil
	}
	if held != nil {
		h.d.seen.held++
	}
	h.d.mu.Unlock()
	if held != nil {
		<-held
	}
	return h.LogCache.GetLog(index, out)
}

// slowDown sets the delay that is added to every write; 0 means none.
func (d *disk) slowDown(by time.Duration) {
	d.mu.Lock()
	d.slow = by
	d.mu.Unlock()
}

// upTo returns the entries of the log up to an index, including the one at the
// index.
func (d *disk) upTo(index uint64) []*raft.Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) == 0 || index < d.log[0].Index {
		return nil
	}
	return slices.Clone(d.log[:min(int(index-d.log[0].Index)+1, len(d.log))])
}

// starts returns how often the disk has been opened since the last wipe.
func (d *disk) starts() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boot
}

// last returns the index of the last log entry, or 0 if the log is empty.
func (d *disk) last() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) == 0 {
		return 0
	}
	return d.log[len(d.log)-1].Index
}

// synced returns the index of the last log entry that is durable, or 0.
func (d *disk) synced() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.durable == 0 {
		return 0
	}
	return d.log[d.durable-1].Index
}

// termAt returns the term of a log entry, or 0 if it is not in the log.
func (d *disk) termAt(index uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) == 0 || index < d.log[0].Index || index > d.log[len(d.log)-1].Index {
		return 0
	}
	return d.log[index-d.log[0].Index].Term
}

// votedIn returns the term of the last vote.
func (d *disk) votedIn() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.vote
}

func (d *disk) effects() diskEffects {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// sync waits as long as an fsync takes. The caller must not hold d.mu.
func (d *disk) sync() {
	d.mu.Lock()
	wait, hang := d.fsync+time.Duration(d.rng.Int64N(int64(d.fsync))), d.hang
	if d.slow > 0 {
		wait += d.slow + time.Duration(d.rng.Int64N(int64(d.slow)))
	}
	if d.slow > 0 || hang != nil {
		d.seen.late++
	}
	d.mu.Unlock()
	<-time.After(wait)
	if hang != nil {
		<-hang
	}
}

// stores is the disk as one start of the node sees it. It implements
// cluster.Stores. After a crash has detached the disk, writes of that start
// have no effect on the disk. In the simulator, the goroutines of a crashed
// process run on until they notice the crash. They must still see the log that
// they have written, because raft panics if an entry that it has written is
// missing.
type stores struct {
	d        *disk
	cache    *raft.LogCache
	fatal    func(error)
	id       storage.Identity // guarded by d.mu
	bytes    int64            // guarded by d.mu
	detached []*raft.Log      // copy of the log after the disk was detached; guarded by d.mu
}

// entries returns the log that this start sees. The caller must hold d.mu.
func (s *stores) entries() []*raft.Log {
	if s.d.current == s {
		return s.d.log
	}
	return s.detached
}

var (
	_ cluster.Stores         = (*stores)(nil)
	_ raft.MonotonicLogStore = logStore{}
)

// open opens the disk for a new start of the node.
func (d *disk) open(cfg storage.Config) (cluster.Stores, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot++
	s := &stores{d: d, fatal: cfg.Fatal,
		id: storage.Identity{NodeID: d.node, Instance: d.instance, ClusterID: d.cluster, Joins: d.joins,
			JoinIndex: d.joinedAt, JoinTerm: d.joinedIn, Boot: d.boot}}
	for _, l := range d.log {
		s.bytes += int64(len(l.Data))
	}
	// If the log ends before the newest snapshot, the process crashed between
	// the installation of the snapshot and the deletion of the log.
	if n := len(d.snaps); n > 0 && len(d.log) > 0 && d.log[len(d.log)-1].Index < d.snaps[n-1].meta.Index {
		d.log, d.durable, s.bytes = nil, 0, 0
	}
	var err error
	if s.cache, err = raft.NewLogCache(128, logStore{s}); err != nil {
		return nil, err
	}
	d.current = s
	return s, nil
}

// Log implements cluster.Stores.
func (s *stores) Log() raft.LogStore { return heldReads{s.cache, s.d} }

// Stable implements cluster.Stores.
func (s *stores) Stable() raft.StableStore { return &stableStore{s: s} }

// Snapshots implements cluster.Stores.
func (s *stores) Snapshots() raft.SnapshotStore { return snapshotStore{s} }

// LogBytes implements cluster.Stores.
func (s *stores) LogBytes() int64 {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.bytes
}

// Empty implements cluster.Stores.
func (s *stores) Empty() (bool, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return len(s.d.log) == 0 && len(s.d.snaps) == 0 && (s.d.joins || s.d.term <= 1 && s.d.vote == 0), nil
}

// Identity implements cluster.Stores.
func (s *stores) Identity() storage.Identity {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.id
}

// SetClusterID implements cluster.Stores.
func (s *stores) SetClusterID(id string, joins bool) error {
	s.d.sync()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	switch s.id.ClusterID {
	case id:
		return nil
	case "":
	default:
		return storage.ErrWrongCluster
	}
	s.id.ClusterID, s.id.Joins = id, joins
	if s.d.current == s {
		s.d.cluster, s.d.joins = id, joins
	}
	return nil
}

// SetJoined implements cluster.Stores.
func (s *stores) SetJoined(index, term uint64) error {
	s.d.sync()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.id.JoinIndex, s.id.JoinTerm = index, term
	if s.d.current == s {
		s.d.joinedAt, s.d.joinedIn = index, term
	}
	return nil
}

// Close implements cluster.Stores.
func (s *stores) Close() error { return nil }

// logStore is the log as one start sees it.
type logStore struct{ s *stores }

// IsMonotonic implements raft.MonotonicLogStore, as cluster/storage does.
func (logStore) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (l logStore) FirstIndex() (uint64, error) {
	d := l.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	log := l.s.entries()
	if len(log) == 0 {
		return 0, nil
	}
	return log[0].Index, nil
}

// LastIndex implements raft.LogStore.
func (l logStore) LastIndex() (uint64, error) {
	d := l.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	log := l.s.entries()
	if len(log) == 0 {
		return 0, nil
	}
	return log[len(log)-1].Index, nil
}

// GetLog implements raft.LogStore.
func (l logStore) GetLog(index uint64, out *raft.Log) error {
	d := l.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	log := l.s.entries()
	if len(log) == 0 || index < log[0].Index || index > log[len(log)-1].Index {
		return raft.ErrLogNotFound
	}
	*out = *log[index-log[0].Index]
	return nil
}

// StoreLog implements raft.LogStore.
func (l logStore) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// errGap is the error of an append that would leave a gap. cluster/storage ends
// the process in this case too.
var errGap = errors.New("log would have a gap")

// StoreLogs implements raft.LogStore.
func (l logStore) StoreLogs(logs []*raft.Log) error {
	s, d := l.s, l.s.d
	d.mu.Lock()
	if d.current != s {
		s.detached = append(s.detached, logs...)
		d.mu.Unlock()
		return nil
	}
	next := uint64(0)
	switch n := len(d.log); {
	case n > 0:
		next = d.log[n-1].Index + 1
	case len(d.snaps) > 0:
		next = d.snaps[len(d.snaps)-1].meta.Index + 1
	}
	if first := logs[0].Index; first != next && (len(d.log) > 0 || first > next && next > 0) {
		d.seen.gaps++
		d.mu.Unlock()
		err := fmt.Errorf("%w: append of index %d after index %d", errGap, first, next-1)
		s.fatal(err)
		return err
	}
	for _, e := range logs {
		kept := *e
		d.log = append(d.log, &kept)
		s.bytes += int64(len(e.Data))
	}
	last := logs[len(logs)-1].Index
	d.mu.Unlock()
	d.audit.appended(d.node, logs)
	d.sync()
	d.mu.Lock()
	if d.current == s && len(d.log) > 0 && last >= d.log[0].Index {
		d.durable = max(d.durable, min(int(last-d.log[0].Index)+1, len(d.log)))
	}
	d.mu.Unlock()
	return nil
}

// DeleteRange implements raft.LogStore. It deletes entries from the front, from
// the end, or all of them.
func (l logStore) DeleteRange(lo, hi uint64) error {
	s, d := l.s, l.s.d
	d.sync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != s {
		s.detached = slices.DeleteFunc(s.detached, func(e *raft.Log) bool { return lo <= e.Index && e.Index <= hi })
		return nil
	}
	if len(d.log) == 0 {
		return nil
	}
	first, last := d.log[0].Index, d.log[len(d.log)-1].Index
	lo, hi = max(lo, first), min(hi, last)
	switch {
	case lo > hi:
		return nil
	case lo == first:
		if hi == last {
			d.seen.deleted++
		}
		n := int(hi - first + 1)
		if hi < last { // only a snapshot deletes entries from the front, so the deleted entries are committed
			d.audit.commit(d.node, d.log[:n])
		}
		d.durable = max(0, d.durable-n)
		d.log = slices.Clone(d.log[n:])
	case hi == last:
		d.log = slices.Clone(d.log[:lo-first])
		d.durable = min(d.durable, len(d.log))
	default:
		return fmt.Errorf("sim: cannot delete entries %d to %d inside a log of entries %d to %d", lo, hi, first, last)
	}
	s.bytes = 0
	for _, e := range d.log {
		s.bytes += int64(len(e.Data))
	}
	return nil
}

// stableStore keeps the term, the vote and the longest promise. It writes the
// vote in one step, as cluster/storage does: see cluster/storage/stable.go.
type stableStore struct {
	s      *stores
	voting uint64
}

const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"

	keyLongestPromise = "LongestPromise"
)

// write makes a change durable, unless the node crashes first.
func (t *stableStore) write(change func(d *disk)) error {
	d := t.s.d
	d.sync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == t.s {
		change(d)
	}
	return nil
}

// SetUint64 implements raft.StableStore.
func (t *stableStore) SetUint64(key []byte, val uint64) error {
	switch string(key) {
	case keyCurrentTerm:
		return t.write(func(d *disk) { d.term, d.has[keyCurrentTerm] = val, true })
	case keyLastVoteTerm:
		t.voting = val
		return nil
	case keyLongestPromise:
		return t.write(func(d *disk) { d.promise, d.has[keyLongestPromise] = val, true })
	}
	return fmt.Errorf("sim: no such key: %s", key)
}

// Set implements raft.StableStore.
func (t *stableStore) Set(key, val []byte) error {
	if string(key) != keyLastVoteCand {
		return fmt.Errorf("sim: no such key: %s", key)
	}
	return t.write(func(d *disk) {
		d.vote, d.voted = t.voting, slices.Clone(val)
		d.has[keyLastVoteTerm], d.has[keyLastVoteCand] = true, true
	})
}

// Get implements raft.StableStore.
func (t *stableStore) Get(key []byte) ([]byte, error) {
	d := t.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if string(key) != keyLastVoteCand || !d.has[keyLastVoteCand] {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return slices.Clone(d.voted), nil
}

// GetUint64 implements raft.StableStore.
func (t *stableStore) GetUint64(key []byte) (uint64, error) {
	d := t.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.has[string(key)] {
		return 0, raftboltdb.ErrKeyNotFound
	}
	switch string(key) {
	case keyLastVoteTerm:
		return d.vote, nil
	case keyLongestPromise:
		return d.promise, nil
	}
	return d.term, nil
}

// snapshotStore keeps the last two snapshots.
type snapshotStore struct{ s *stores }

// Create implements raft.SnapshotStore.
func (t snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &snapshotSink{s: t.s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixMilli()), Index: index, Term: term,
		Configuration: members.Clone(), ConfigurationIndex: membersIndex,
	}}, nil
}

// List implements raft.SnapshotStore. The newest snapshot comes first.
func (t snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	d := t.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*raft.SnapshotMeta
	for _, m := range slices.Backward(d.snaps) {
		meta := m.meta
		list = append(list, &meta)
	}
	return list, nil
}

// Open implements raft.SnapshotStore.
func (t snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	d := t.s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.snaps {
		if m.meta.ID == id {
			meta := m.meta
			return &meta, io.NopCloser(bytes.NewReader(m.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("sim: no snapshot %s", id)
}

// snapshotSink writes one snapshot.
type snapshotSink struct {
	s    *stores
	meta raft.SnapshotMeta
	buf  bytes.Buffer
	done bool
}

// ID implements raft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.meta.ID }

// Write implements raft.SnapshotSink.
func (k *snapshotSink) Write(b []byte) (int, error) { return k.buf.Write(b) }

// Written returns a reader of the data written so far, even if the snapshot is
// not complete.
func (k *snapshotSink) Written() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(k.buf.Bytes())), nil
}

// Cancel implements raft.SnapshotSink.
func (k *snapshotSink) Cancel() error { k.done = true; return nil }

// Close implements raft.SnapshotSink.
func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	d := k.s.d
	d.sync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != k.s {
		return nil
	}
	k.meta.Size = int64(k.buf.Len())
	d.snaps = append(d.snaps, &image{meta: k.meta, data: k.buf.Bytes()})
	slices.SortStableFunc(d.snaps, func(a, b *image) int { return int(int64(a.meta.Index) - int64(b.meta.Index)) })
	if len(d.snaps) > 2 {
		d.snaps = slices.Delete(d.snaps, 0, len(d.snaps)-2)
	}
	d.seen.snaps++
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// session returns the session ID that the current start of the node has in the
// log: see sessionOf in package cluster.
func (d *disk) session() fsm.SessionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fsm.SessionID{NodeID: d.node + "@" + d.instance, Boot: d.boot}
}
