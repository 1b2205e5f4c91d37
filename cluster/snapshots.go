package cluster

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotAfter is how long entries may have taken since the last snapshot, that a
// restart is not kept by a few that were costly.
const snapshotAfter = 10 * time.Second

// keepSnapshots takes a snapshot when the log has grown by SnapshotBytes: raft
// itself counts entries, which may be of a hundred bytes or of 256 KiB, and cost a
// microsecond or a second.
func (n *Node) keepSnapshots() {
	defer n.wg.Done()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		if n.stores.LogBytes() < n.cfg.Options.SnapshotBytes && n.machine.spent.Load() < int64(snapshotAfter) {
			continue
		}
		if err := n.snapshot(); err != nil && n.ctx.Err() == nil {
			n.log.Warn("snapshot failed, will be tried again", "error", err)
		}
	}
}

// snapshot takes a snapshot now and cuts the log behind it to about
// TrailingBytes.
func (n *Node) snapshot() error {
	first, err := n.stores.Log().FirstIndex()
	if err != nil {
		return err
	}
	last, err := n.stores.Log().LastIndex()
	if err != nil {
		return err
	}
	if last <= first {
		return nil
	}
	average := max(n.stores.LogBytes()/int64(last-first), 1)
	rc := n.raft.ReloadableConfig()
	rc.TrailingLogs = uint64(min(max(n.cfg.Options.TrailingBytes/average, 64), 10240))
	if err := n.raft.ReloadConfig(rc); err != nil {
		return err
	}
	begun, spent := n.clock.Mono(), n.machine.spent.Load()
	err = n.raft.Snapshot().Error()
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
		n.machine.spent.Add(-spent)
	}
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err == nil {
		n.log.Info("snapshot taken", "took", n.clock.Mono()-begun, "log_bytes_before", average*int64(last-first), "log_bytes", n.stores.LogBytes(), "trailing_entries", rc.TrailingLogs)
	}
	return err
}
