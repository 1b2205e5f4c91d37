package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
)

// Stores is an open data directory with the three stores that raft needs. All
// methods are safe for concurrent use.
//
// It owns two goroutines, which Close stops: the watchdog, and the goroutine
// that writes the file acked.
type Stores struct {
	cfg   Config
	g     *guard
	lock  *os.File
	dog   *watchdog
	kv    *kv
	acked *acked
	log   *checkedLog
	cache *raft.LogCache
	stab  *stableStore
	snaps *snapshotStore

	mu     sync.Mutex
	node   nodeFile // guarded by mu
	closed bool     // guarded by mu
}

// Open checks the data directory completely and opens it. It creates the
// directory if it does not exist. If the directory does not belong to this
// process, Open returns one of the errors of errors.go. If the directory is
// damaged, Open returns a *CorruptError and leaves the data unchanged.
func Open(cfg Config) (*Stores, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	s := &Stores{cfg: cfg}
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := s.syncAndOpen(); err != nil {
		// Return only the first error: errors of release are consequences of
		// it.
		if cerr := s.release(); cerr != nil {
			cfg.Logger.Debug("failed to close the storage after it could not be opened", "error", cerr)
		}
		return nil, err
	}
	return s, nil
}

// syncAndOpen syncs the files in the directory, and opens it. A process that was
// killed between a write and its fsync may leave an append, a vote or the name
// of a snapshot that is not durable yet. Without the sync, the next process
// would read this data and treat it as durable, although a loss of power could
// still destroy it.
func (s *Stores) syncAndOpen() error {
	if err := syncTree(s.cfg.Dir); err != nil {
		return fmt.Errorf("sync data directory: %w", err)
	}
	return s.open()
}

// open first creates the files of a new directory, and creates them again if a
// crash interrupted that. Then it checks the data before it changes any,
// completes the other operations that a crash interrupted, and opens the stores.
func (s *Stores) open() error {
	cfg := s.cfg
	bad := corrupter{dir: cfg.Dir, nodeID: cfg.NodeID}
	s.g = &guard{fatal: cfg.Fatal, log: cfg.Logger}

	if err := s.openNode(bad); err != nil {
		return err
	}
	m, err := s.node.mark()
	if err != nil {
		return bad.file(nodePath(cfg.Dir), "%v", err)
	}
	if !s.node.Ready {
		if err := createFiles(cfg, m); err != nil {
			return err
		}
	}

	s.dog = newWatchdog(cfg.StallAfter, func(err error) { s.g.fail(err) })
	if s.acked, err = openAcked(cfg.Dir, m, bad, s.g, cfg.Logger); err != nil {
		return err
	}
	store, err := openBolt(kvPath(cfg.Dir), 1<<20, bad)
	if err != nil {
		return err
	}
	s.kv = &kv{
		store: store, path: kvPath(cfg.Dir), bad: bad, g: s.g, dog: s.dog,
		limit: cfg.StallAfter, observe: cfg.Observe,
	}
	if s.stab, err = openStable(s.kv, s.acked); err != nil {
		return err
	}
	snaps, err := scanSnapshots(snapshotDir(cfg.Dir), bad)
	if err != nil {
		return err
	}
	disk, sp, stale, err := s.openLog(m, bad, snaps)
	if err != nil {
		return err
	}
	s.log = &checkedLog{
		disk: disk, m: m, bad: bad, g: s.g, dog: s.dog, limit: cfg.StallAfter,
		acked: s.acked, snapshot: func() (uint64, uint64) { return s.snaps.newest() }, observe: cfg.Observe, span: sp,
	}
	s.log.bytes.Store(sp.bytes)
	if err := s.log.checkEnds(sp.first, sp.last()); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	if s.snaps, err = openSnapshots(cfg, snaps, bad, s.g, s.acked, cfg.Logger); err != nil {
		return err
	}
	if stale {
		cfg.Logger.Info("removing the log that an installed snapshot replaced",
			"first", sp.first, "last", sp.last(), "snapshot", snaps.index)
		if err := s.log.DeleteRange(sp.first, sp.last()); err != nil {
			return fmt.Errorf("remove replaced log: %w", err)
		}
	}
	if s.cache, err = raft.NewLogCache(cfg.CacheEntries, s.log); err != nil {
		return fmt.Errorf("make log cache: %w", err)
	}
	s.node.Boot++
	s.node.Ready = true
	if err := s.node.save(cfg.Dir); err != nil {
		return err
	}
	if err := s.g.open(); err != nil {
		return err
	}
	s.acked.follow(cfg.noteEvery)
	return nil
}

// openNode reads node.json. In a new directory it creates node.json before all
// other files except LOCK. So if a directory has one of those files, but no
// node.json, then node.json was lost.
func (s *Stores) openNode(bad corrupter) error {
	n, found, err := loadNode(s.cfg.Dir, bad)
	if err != nil {
		return err
	}
	if !found {
		if n, err = newNodeFile(s.cfg); err != nil {
			return err
		}
		if err := n.save(s.cfg.Dir); err != nil {
			return err
		}
	}
	if n.NodeID != s.cfg.NodeID {
		return fmt.Errorf("%w: %s belongs to node %s, but this process was started as %s",
			ErrWrongNode, s.cfg.Dir, n.NodeID, s.cfg.NodeID)
	}
	if n.LogKind != s.cfg.LogKind {
		return fmt.Errorf("%w: %s was made with log store %s, but this process was started with %s",
			ErrWrongLogKind, s.cfg.Dir, n.LogKind, s.cfg.LogKind)
	}
	s.node = n
	return nil
}

// createFiles creates the files of a new directory. It first removes those that
// a crash may have left.
func createFiles(cfg Config, m mark) error {
	for _, path := range []string{
		kvPath(cfg.Dir), ackedPath(cfg.Dir), walDir(cfg.Dir), boltLogPath(cfg.Dir), snapshotDir(cfg.Dir),
		HistoryDir(cfg.Dir),
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear unfinished data directory: %w", err)
		}
	}
	if err := createBolt(kvPath(cfg.Dir)); err != nil {
		return err
	}
	if cfg.LogKind == LogKindBoltDB {
		if err := createBolt(boltLogPath(cfg.Dir)); err != nil {
			return err
		}
	} else if err := os.Mkdir(walDir(cfg.Dir), 0o700); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if err := os.Mkdir(snapshotDir(cfg.Dir), 0o700); err != nil {
		return fmt.Errorf("make snapshot directory: %w", err)
	}
	if err := createAcked(cfg.Dir, m); err != nil {
		return err
	}
	// The name of the data directory must be durable too.
	if err := syncPath(filepath.Dir(filepath.Clean(cfg.Dir))); err != nil {
		return fmt.Errorf("sync parent of data directory: %w", err)
	}
	return nil
}

// openLog scans the log, and compares it with everything else on disk. It opens
// a raft-wal log only after that. stale says that the newest snapshot replaces
// the log.
func (s *Stores) openLog(m mark, bad corrupter, snaps snapshotScan) (disk diskLog, sp span, stale bool, err error) {
	if s.cfg.LogKind == LogKindBoltDB {
		b, err := openBoltLog(boltLogPath(s.cfg.Dir), bad)
		if err != nil {
			return nil, sp, false, err
		}
		if sp, err = b.scan(m, bad); err == nil {
			stale, err = s.reconcile(&sp, snaps, bad, b.fileOf)
		}
		if err != nil {
			return nil, sp, false, closeAfter(err, b)
		}
		return b, sp, stale, nil
	}

	list := newSegmentList(s.kv, walDir(s.cfg.Dir), s.cfg.SegmentFS, s.g)
	found, err := list.load()
	if err != nil {
		return nil, sp, false, err
	}
	if !found && s.node.Ready {
		return nil, sp, false, bad.file(s.kv.path, "the segment list is missing")
	}
	scanner := segmentScanner{list: list, m: m, bad: bad}
	ws, err := scanner.scan()
	if err != nil {
		return nil, sp, false, err
	}
	sp = ws.span
	if stale, err = s.reconcile(&sp, snaps, bad, list.fileOf); err != nil {
		return nil, sp, false, err
	}
	if ws.tail.dirty > ws.tail.end {
		s.cfg.Logger.Info("wiping the remains of a torn append",
			"file", ws.tail.path, "from", ws.tail.end, "to", ws.tail.dirty, "last-index", ws.tail.last)
	}
	if err := ws.tail.repair(list, s.cfg.SegmentBytes); err != nil {
		return nil, sp, false, err
	}
	w, err := openWAL(list, s.cfg.SegmentBytes, s.cfg.Logger)
	if err != nil {
		return nil, sp, false, err
	}
	return w, sp, stale, nil
}

func closeAfter(err error, c io.Closer) error {
	if cerr := c.Close(); cerr != nil {
		return errors.Join(err, cerr)
	}
	return err
}

// reconcile checks that the log, the snapshots, the stable store and the acked
// file can all belong to the same state of this node. It reports whether the
// newest snapshot replaces the log.
func (s *Stores) reconcile(
	sp *span, snaps snapshotScan, bad corrupter, fileOf func(uint64) string,
) (stale bool, err error) {
	n := s.acked.current()
	end := max(sp.last(), snaps.index)
	if n.index > end {
		return false, bad.at(fileOf(end+1), end+1, "the log ends at %d, but it was acknowledged up to %d", end, n.index)
	}
	if sp.holds(n.index) && sp.term(n.index) != n.term {
		return false, bad.at(fileOf(n.index), n.index,
			"its term is %d, but it was acknowledged with term %d", sp.term(n.index), n.term)
	}
	if t := s.stab.currentTerm(); t < sp.lastTerm() || t < snaps.term {
		return false, bad.file(s.kv.path, "the current term is %d, but log and snapshot have reached term %d",
			t, max(sp.lastTerm(), snaps.term))
	}
	if sp.empty() {
		return false, nil
	}
	if sp.first > snaps.index+1 {
		return false, bad.at(fileOf(sp.first), sp.first,
			"the log starts there, but the newest snapshot ends at %d", snaps.index)
	}
	// This is the state after a crash between the installation of a snapshot
	// from the leader and the deletion of the log. Entries after an entry that
	// differs from the snapshot were never committed (Raft paper, figure 13,
	// step 7).
	if sp.last() < snaps.index || sp.holds(snaps.index) && sp.term(snaps.index) != snaps.term {
		return true, nil
	}
	if sp.holds(snaps.index+1) && sp.term(snaps.index+1) < snaps.term {
		return false, bad.at(fileOf(snaps.index+1), snaps.index+1,
			"its term %d is lower than that of the snapshot before it, %d",
			sp.term(snaps.index+1), snaps.term)
	}
	return false, nil
}

// Log returns the log: a raft.LogCache over the checked log on disk. It
// implements raft.MonotonicLogStore.
func (s *Stores) Log() raft.LogStore { return s.cache }

// Stable returns the store of term and vote.
func (s *Stores) Stable() raft.StableStore { return s.stab }

// Snapshots returns the snapshot store.
func (s *Stores) Snapshots() raft.SnapshotStore { return s.snaps }

// LogBytes returns the total size of Data and Extensions of all entries in the
// log, in bytes. It costs one atomic load.
func (s *Stores) LogBytes() int64 { return s.log.bytes.Load() }

// Err returns the failure that was passed to Config.Fatal, or nil.
func (s *Stores) Err() error { return s.g.err() }

// Empty reports whether the node never took part in a cluster. Such a node has
// no log entry and no snapshot. Unless it joins, it also has no vote, and no
// term but the first. raft writes the first term just before the first entry
// when it forms a cluster, and no election is ever held in that term. If the
// first term is stored without an entry, a crash happened between these two
// writes. The term and the vote of a node that joins do not count: it has
// received its term from the leader that admitted it, and gives no vote before
// it has a log.
func (s *Stores) Empty() (bool, error) {
	last, err := s.log.LastIndex()
	if err != nil {
		return false, err
	}
	index, _ := s.snaps.newest()
	return last == 0 && index == 0 && (s.Identity().Joins || !s.stab.campaigned()), nil
}

// Identity returns the owner of this directory.
func (s *Stores) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.identity()
}

// SetClusterID durably records the cluster, and whether the node joins it or
// was a member when it was formed. The cluster can be set once. Setting the
// same cluster again does nothing. For another cluster, SetClusterID returns
// ErrWrongCluster.
func (s *Stores) SetClusterID(id string, joins bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.node.Cluster == id {
		return nil
	}
	if s.node.Cluster != "" {
		return fmt.Errorf("%w: %s belongs to cluster %s, not %s", ErrWrongCluster, s.cfg.Dir, s.node.Cluster, id)
	}
	n := s.node
	n.Cluster, n.Joins = id, joins
	return s.renameLocked(n)
}

// SetJoined durably records that the leader of a term has admitted the node.
// index is the log index of the admission.
func (s *Stores) SetJoined(index, term uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	n := s.node
	n.JoinedAt, n.JoinedIn = index, term
	return s.renameLocked(n)
}

// renameLocked makes n durable as the identity. The caller holds s.mu.
func (s *Stores) renameLocked(n nodeFile) error {
	if err := n.save(s.cfg.Dir); err != nil {
		return err
	}
	s.node = n
	return nil
}

// Close stops the goroutines and closes the files, after the write in progress.
// It records how far the log reaches, so that the next Open detects any loss. A
// second Close does nothing.
func (s *Stores) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.release()
}

// release closes everything that is open, the log first and the lock last.
func (s *Stores) release() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.close())
	}
	if s.acked != nil {
		if s.log != nil && s.g.err() == nil {
			errs = append(errs, s.acked.flush())
		}
		errs = append(errs, s.acked.close())
	}
	if s.kv != nil {
		errs = append(errs, s.kv.close())
	}
	if s.dog != nil {
		s.dog.stop()
	}
	errs = append(errs, s.lock.Close())
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("close storage: %w", err)
		}
	}
	return errors.Join(errs...)
}
