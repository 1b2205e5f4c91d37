package cluster

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/machine"
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

// snapshotHealth is the outcome of the latest attempts to get a snapshot. mu
// guards the other fields.
type snapshotHealth struct {
	mu     sync.Mutex
	failed int           // attempts that failed since the last success
	err    error         // error of the last attempt, nil if it succeeded
	since  time.Time     // wall clock at the first of these failures
	again  time.Duration // monotonic time of the next attempt of keep
}

// note records the outcome of an attempt, at the given monotonic and wall time.
// It returns the time until the next attempt.
func (h *snapshotHealth) note(err error, mono time.Duration, wall time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.failed, h.err, h.again = 0, nil, 0
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

// waits reports whether it is too early for another attempt. mono is the
// monotonic time.
func (h *snapshotHealth) waits(mono time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return mono < h.again
}

// text describes the failure for an operator. It is empty while snapshots
// succeed.
func (h *snapshotHealth) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return ""
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

// done records the outcome of an attempt to get a snapshot, either of
// this node's own state or from the leader.
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
