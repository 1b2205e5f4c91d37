package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// snapshotAfter is how long the entries since the last snapshot may have taken
// to apply before keep takes a snapshot. It bounds how long a few
// costly entries can delay a restart.
const snapshotAfter = 10 * time.Second

// After a failure the next attempt waits for snapshotRetry, then for twice as
// long each time, up to snapshotRetryMax, because each attempt writes and reads
// the whole state.
const (
	snapshotRetry    = time.Second
	snapshotRetryMax = 5 * time.Minute
)

// refusedEvery is the minimum time between two log lines about snapshots of the
// leader that this node does not accept. The leader sends such a snapshot again
// every few seconds.
const refusedEvery = 30 * time.Second

// snapshotHealth is the outcome of the latest attempts to get a snapshot. mu
// guards the other fields.
type snapshotHealth struct {
	mu     sync.Mutex
	failed int           // attempts that failed since the last success
	err    error         // error of the last attempt, nil if it succeeded
	since  time.Time     // wall clock at the first of these failures
	again  time.Duration // monotonic time of the next attempt of keep
	sent   bool          // the leader sent the snapshot that failed
	newer  bool          // a newer program wrote that snapshot
	at     uint64        // index that this node had applied then
	logged time.Duration // monotonic time of the last log line of refused
}

// note records the outcome of an attempt, at the given monotonic and wall time.
// It returns the time until the next attempt.
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

// behind describes why this node cannot catch up, because a newer program wrote
// the leader's snapshot. It is empty if nothing is known to prevent that.
func (h *snapshotHealth) behind(applied uint64) string {
	h.mu.Lock()
	newer := h.newer
	h.mu.Unlock()
	if !newer {
		return ""
	}
	return h.text(applied)
}

// refused records that a snapshot of the leader was not accepted, when this node
// had applied the index applied. It reports whether that must be logged.
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

// text describes the failure for an operator. It is empty while snapshots
// succeed, and if this node has applied entries since it refused a snapshot of
// the leader. applied is the index that it has applied.
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

// snapshotter takes the snapshots of a node.
type snapshotter struct {
	*environment
	raft    *raftInstance
	machine *machine.Machine
	backups *backups // backups of this node's state, for clients
	disk    *diskspace.Monitor
	health  snapshotHealth
}

// keep takes a snapshot when the log has grown by SnapshotBytes, or
// when the entries since the last snapshot took snapshotAfter to apply. raft by
// itself counts entries, although an entry can have a hundred bytes or 256 KiB,
// and take a microsecond or a second. keep runs until the node stops.
func (s *snapshotter) keep() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		if s.stores.LogBytes() < s.cfg.Options.SnapshotBytes && s.machine.Spent() < snapshotAfter {
			continue
		}
		if s.health.waits(s.clock.Mono()) {
			continue
		}
		_ = s.snapshot() // snapshot records, logs and counts an error
	}
}

// snapshot takes a snapshot now and deletes the entries that it covers, except
// for about TrailingBytes. If it fails, the log and the earlier snapshots remain.
func (s *snapshotter) snapshot() error {
	err := s.take()
	if s.ctx.Err() == nil {
		s.done(err)
	}
	return err
}

// refused records that this node does not accept a snapshot that the leader
// sent. If the cluster uses a feature version that this program does not know,
// the node ends, as it does at the entry that raises the version: it can never
// apply an entry again.
func (s *snapshotter) refused(err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.stats.SnapshotFailures.Inc()
	if errors.Is(err, fsm.ErrDowngrade) {
		s.fatal(fmt.Errorf("cannot read the leader's snapshot: %w", err))
		return
	}
	if errors.Is(err, fsm.ErrVersion) {
		err = fmt.Errorf("install the version of the leader on this node, which has %s: %w",
			cmp.Or(s.cfg.Version, "another version"), err)
	}
	if s.health.refused(err, s.machine.Applied(), s.clock.Mono(), s.clock.Wall()) {
		s.log.Error("snapshot of the leader refused, this node stays behind", "error", err)
	}
}

// done records the outcome of an attempt to get a snapshot: of this node's own
// state, or one of the leader that was accepted.
func (s *snapshotter) done(err error) {
	wait := s.health.note(err, s.clock.Mono(), s.clock.Wall())
	if err != nil {
		s.stats.SnapshotFailures.Inc()
		s.log.Error("snapshot failed, the log and the snapshots before it are kept",
			"error", err, "log_bytes", s.stores.LogBytes(), "retry_in", wait)
	}
}

// room returns an error if a snapshot of the size of the last one would take the
// space that the log needs for its next segment.
func (s *snapshotter) room() error {
	list, err := s.stores.Snapshots().List()
	if err != nil || len(list) == 0 {
		return err
	}
	return s.disk.RoomFor(list[0].Size)
}

func (s *snapshotter) take() error {
	first, err := s.stores.Log().FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.stores.Log().LastIndex()
	if err != nil {
		return err
	}
	if last <= first {
		return nil
	}
	if err := s.room(); err != nil {
		return err
	}
	average := max(s.stores.LogBytes()/int64(last-first), 1)
	rc := s.raft.running().ReloadableConfig()
	rc.TrailingLogs = uint64(min(max(s.cfg.Options.TrailingBytes/average, 64), 10240))
	if err := s.raft.running().ReloadConfig(rc); err != nil {
		return err
	}
	begun, spent := s.clock.Mono(), s.machine.Spent()
	err = s.raft.running().Snapshot().Error()
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
		s.machine.Forget(spent)
	}
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err == nil {
		s.stats.Snapshots.Inc()
		s.log.Info("snapshot taken", "took", s.clock.Mono()-begun,
			"log_bytes_before", average*int64(last-first), "log_bytes", s.stores.LogBytes(),
			"trailing_entries", rc.TrailingLogs)
	}
	return err
}
