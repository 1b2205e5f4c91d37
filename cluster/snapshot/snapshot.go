// Package snapshot takes the snapshots of a node, and streams backups, which are
// snapshots for clients.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// snapshotAfter bounds the time that the entries since the last snapshot took
// to apply. When they have taken this long, Keep takes a snapshot. So costly
// entries cannot delay a restart for much longer than snapshotAfter.
const snapshotAfter = 10 * time.Second

// After a failure, Keep waits for snapshotRetry before the next attempt, and
// then for twice as long each time, up to snapshotRetryMax. Each attempt writes
// and reads the whole state.
const (
	snapshotRetry    = time.Second
	snapshotRetryMax = 5 * time.Minute
)

// refusedEvery is the minimum time between two log lines about snapshots from
// the leader that this node does not accept. The leader sends such a snapshot
// again every few seconds.
const refusedEvery = 30 * time.Second

// snapshotHealth is the outcome of the latest attempts to write a snapshot or
// to receive one. mu guards the other fields.
type snapshotHealth struct {
	mu     sync.Mutex
	failed int           // number of attempts that failed since the last success
	err    error         // error of the last attempt, nil if it succeeded
	since  time.Time     // wall clock at the first of the failed attempts
	again  time.Duration // monotonic time before which Keep makes no attempt
	sent   bool          // since the last success, this node has refused a snapshot from the leader
	newer  bool          // a newer program wrote that snapshot
	at     uint64        // applied index of this node when it last refused a snapshot
	logged time.Duration // monotonic time of the last log line about a refused snapshot
}

// note records the outcome of an attempt, at the given monotonic and wall time.
// It returns the time for which Keep makes no attempt.
func (h *snapshotHealth) note(err error, mono time.Duration, wall time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.failed, h.err, h.again, h.sent, h.newer = 0, nil, 0, false, false
		return 0
	}
	if h.err == nil {
		h.since = wall
	}
	wait = min(snapshotRetry<<min(h.failed, 20), snapshotRetryMax)
	h.failed++
	h.err, h.again = err, mono+wait
	return wait
}

// behind says that this node cannot catch up, because a newer program wrote the
// leader's snapshot. It returns "" if that is not known to be the case.
func (h *snapshotHealth) behind(applied uint64) string {
	h.mu.Lock()
	newer := h.newer
	h.mu.Unlock()
	if !newer {
		return ""
	}
	return h.text(applied)
}

// refused records that this node did not accept a snapshot from the leader.
// applied is the applied index of this node at that time. refused reports
// whether the caller must log the refusal.
func (h *snapshotHealth) refused(err error, applied uint64, mono time.Duration, wall time.Time) (log bool) {
	h.note(err, mono, wall)
	h.mu.Lock()
	defer h.mu.Unlock()
	if log = !h.sent || mono-h.logged >= refusedEvery; log {
		h.logged = mono
	}
	h.sent, h.newer, h.at = true, errors.Is(err, fsm.ErrVersion), applied
	return log
}

// waits reports whether it is too early for another attempt. mono is the
// monotonic time.
func (h *snapshotHealth) waits(mono time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return mono < h.again
}

// text describes the failure for an operator. It returns "" while snapshots
// succeed. It also returns "" if this node has applied entries since it refused
// a snapshot from the leader. applied is this node's current applied index.
func (h *snapshotHealth) text(applied uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err == nil, h.sent && applied > h.at:
		return ""
	case h.sent:
		return fmt.Sprintf("snapshots of the leader have been refused since %s, this node stays behind: %v",
			h.since.UTC().Format(time.RFC3339), h.err)
	}
	return fmt.Sprintf("snapshots have failed since %s, the log is kept: %v", h.since.UTC().Format(time.RFC3339), h.err)
}

// Taker takes the snapshots of a node. Its methods are safe for concurrent use.
type Taker struct {
	cfg    Config
	health snapshotHealth
	newest atomic.Pointer[newest] // nil if there is none, or if it is not known yet
}

// Config contains the settings and functions that a Taker needs from its node.
type Config struct {
	Raft    func() *raft.Raft
	Machine *machine.Machine
	Stores  Stores
	// RoomFor returns an error if there is no room for a snapshot of the given
	// size.
	RoomFor func(bytes int64) error
	Mono    func() time.Duration // monotonic time
	Wall    func() time.Time
	// Every is the size of the log, in bytes, at which Keep takes a snapshot.
	// About the last Trailing bytes of the log remain after a snapshot.
	Every, Trailing int64
	Taken, Failed   prometheus.Counter
	Version         string // version of this program
	Fatal           func(error)
	Logger          hclog.Logger
}

// Stores is the part of a node's storage that a Taker uses.
type Stores interface {
	Log() raft.LogStore
	Snapshots() raft.SnapshotStore
	LogBytes() int64 // bytes of the log
}

// NewTaker returns the Taker of a node.
func NewTaker(cfg Config) *Taker { return &Taker{cfg: cfg} }

// Problem says why snapshots fail, and since when. It returns "" while they
// succeed. It also returns "" if this node has applied entries since it refused
// a snapshot from the leader.
func (s *Taker) Problem() string { return s.health.text(s.cfg.Machine.Applied()) }

// Behind says that this node cannot catch up, because a newer program wrote the
// leader's snapshot. It returns "" if that is not known to be the case.
func (s *Taker) Behind() string { return s.health.behind(s.cfg.Machine.Applied()) }

// Keep takes a snapshot when the log has at least Config.Every bytes, or when
// the entries since the last snapshot took snapshotAfter to apply. raft's own
// trigger counts entries. The number of entries is not a good measure, because
// entries differ widely in their size and in the time that they take to apply.
// Keep runs until ctx ends.
func (s *Taker) Keep(ctx context.Context) {
	s.look()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.cfg.Stores.LogBytes() < s.cfg.Every && s.cfg.Machine.Spent() < snapshotAfter {
			continue
		}
		if s.health.waits(s.cfg.Mono()) {
			continue
		}
		_ = s.Take(ctx) // Take records, logs and counts an error
	}
}

// Take takes a snapshot now. It then deletes the entries that the snapshot
// covers, but keeps about the last Config.Trailing bytes of the log. If Take
// fails, the log and the earlier snapshots remain.
func (s *Taker) Take(ctx context.Context) error {
	err := s.take()
	if ctx.Err() == nil {
		s.Done(err)
	}
	return err
}

// Refused records that this node does not accept a snapshot that the leader
// sent. If the cluster uses a feature version that this program does not know,
// the process ends, because it could never apply another entry. It ends in the
// same way when it reaches the log entry that raises the feature version.
func (s *Taker) Refused(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.cfg.Failed.Inc()
	if errors.Is(err, fsm.ErrDowngrade) {
		s.cfg.Fatal(fmt.Errorf("cannot read the leader's snapshot: %w", err))
		return
	}
	if errors.Is(err, fsm.ErrVersion) {
		err = fmt.Errorf("install the version of the leader on this node, which has %s: %w",
			cmp.Or(s.cfg.Version, "another version"), err)
	}
	if s.health.refused(err, s.cfg.Machine.Applied(), s.cfg.Mono(), s.cfg.Wall()) {
		s.cfg.Logger.Error("snapshot of the leader refused, this node stays behind", "error", err)
	}
}

// Done records the outcome of an attempt to write a snapshot of this node's
// state, or to accept a snapshot from the leader.
func (s *Taker) Done(err error) {
	wait := s.health.note(err, s.cfg.Mono(), s.cfg.Wall())
	if err == nil {
		s.look()
	} else {
		s.cfg.Failed.Inc()
		s.cfg.Logger.Error("snapshot failed, the log and the snapshots before it are kept",
			"error", err, "log_bytes", s.cfg.Stores.LogBytes(), "retry_in", wait)
	}
}

// newest describes the newest snapshot.
type newest struct {
	size  int64
	begun time.Time
}

// Newest returns the size in bytes of the newest snapshot, and when it was begun.
// ok is false if there is none, or if it is not known yet.
func (s *Taker) Newest() (size int64, begun time.Time, ok bool) {
	if n := s.newest.Load(); n != nil {
		return n.size, n.begun, true
	}
	return 0, time.Time{}, false
}

// look updates the result of Newest. It is not called while a snapshot is written,
// because raft.FileSnapshotStore would log a warning about the unfinished one.
func (s *Taker) look() {
	list, err := s.cfg.Stores.Snapshots().List()
	if err != nil || len(list) == 0 {
		return
	}
	var term, index uint64
	var msec int64 // Unix time in milliseconds at which the snapshot was begun
	if _, err := fmt.Sscanf(list[0].ID, "%d-%d-%d", &term, &index, &msec); err == nil {
		s.newest.Store(&newest{list[0].Size, time.UnixMilli(msec)})
	}
}

// room returns an error if a snapshot of the size of the last one would take the
// space that the log needs for its next segment.
func (s *Taker) room() error {
	list, err := s.cfg.Stores.Snapshots().List()
	if err != nil || len(list) == 0 {
		return err
	}
	return s.cfg.RoomFor(list[0].Size)
}

func (s *Taker) take() error {
	first, err := s.cfg.Stores.Log().FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.cfg.Stores.Log().LastIndex()
	if err != nil {
		return err
	}
	if last <= first {
		return nil
	}
	if err := s.room(); err != nil {
		return err
	}
	average := max(s.cfg.Stores.LogBytes()/int64(last-first), 1)
	rc := s.cfg.Raft().ReloadableConfig()
	rc.TrailingLogs = uint64(min(max(s.cfg.Trailing/average, 64), 10240))
	if err := s.cfg.Raft().ReloadConfig(rc); err != nil {
		return err
	}
	begun, spent := s.cfg.Mono(), s.cfg.Machine.Spent()
	err = s.cfg.Raft().Snapshot().Error()
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
		s.cfg.Machine.Forget(spent)
	}
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err == nil {
		s.cfg.Taken.Inc()
		s.cfg.Logger.Info("snapshot taken", "took", s.cfg.Mono()-begun,
			"log_bytes_before", average*int64(last-first), "log_bytes", s.cfg.Stores.LogBytes(),
			"trailing_entries", rc.TrailingLogs)
	}
	return err
}
