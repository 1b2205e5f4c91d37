package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/snapshot"
	"github.com/holdfast-kv/holdfast/fsm"
)

// BackupInfo describes a backup that a node streams.
type BackupInfo = snapshot.BackupInfo

// BeginBackup begins to stream a backup of the state at one log index. The backup
// contains every write that was acknowledged before the call.
func (n *Node) BeginBackup(ctx context.Context) (BackupInfo, error) {
	if err := n.catchUp(ctx); err != nil {
		return BackupInfo{}, err
	}
	return n.backups.Begin(n.ctx, n.wg.Go)
}

// ReadBackup returns the next bytes of a backup, at most limit bytes. At the
// end of the backup, it returns no bytes. The backup ends if it is not read for
// a minute.
func (n *Node) ReadBackup(id string, limit int) ([]byte, error) {
	return n.backups.Read(id, limit)
}

// CloseBackup ends a backup.
func (n *Node) CloseBackup(id string) { n.backups.Close(id) }

// CheckEmpty returns an error if the cluster contains data that a restore would
// replace. The restore itself checks this again.
func (n *Node) CheckEmpty(ctx context.Context) error {
	if err := n.catchUp(ctx); err != nil {
		return err
	}
	var keys, libraries int
	n.machine.View(func(m *fsm.Machine) {
		keys = m.Len()
		libraries, _, _ = m.Libraries()
	})
	if keys > 0 || libraries > 0 {
		return fmt.Errorf("the cluster is not empty (%d keys, %d function libraries): to replace its data, "+
			"use --replace", keys, libraries)
	}
	return nil
}

// applyLimit bounds how long Restore waits for the outcome of its entry.
// Decoding a large backup takes about a second for a million keys, on every
// node.
const applyLimit = 10 * time.Minute

// Restore executes a step of a restore. args are the arguments of
// fsm.RestoreCommand. For the step "apply", Restore raises the token epoch in
// args to at least the epoch of this node's wall clock. If the error says that
// the outcome is unknown, the step may have been executed.
func (n *Node) Restore(ctx context.Context, args [][]byte) error {
	if len(args) == 5 && string(args[0]) == "apply" {
		var asked uint64
		if _, err := fmt.Sscanf(string(args[2]), "%d", &asked); err != nil {
			return fmt.Errorf("token epoch %q: %w", args[2], err)
		}
		args[2] = decimal(max(asked, fsm.TokenEpochAt(n.clock.Wall().Unix())))
	}
	if now := n.FeatureVersion(fsm.FeatureOperate); now < fsm.FeatureOperate {
		return fmt.Errorf("a restore needs feature version %d and the cluster uses %d: upgrade every node first",
			fsm.FeatureOperate, now)
	}
	if step := string(args[0]); step == "begin" || step == "data" {
		// Check the disks here, because the leader does not refuse the steps of
		// a restore: these steps do not count as commands that add data.
		if full := n.disk.Full(); full != "" {
			return errors.New("the restore is refused: " + strings.TrimPrefix(full, "MISCONF "))
		}
	}
	if len(args) == 4 && string(args[0]) == "begin" {
		size, err := strconv.ParseInt(string(args[2]), 10, 64)
		if err != nil {
			return fmt.Errorf("size of the backup: %w", err)
		}
		for _, st := range n.ClusterStatus(ctx) {
			if err := roomForRestore(st, size, machine.InMemory(size)); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	c := n.forwarder.command(n.Table(), append([][]byte{[]byte(fsm.RestoreCommand)}, args...))
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("the outcome of the restore is unknown: %w", ctx.Err())
	case <-n.ctx.Done():
		return fmt.Errorf("the outcome of the restore is unknown: %w", snapshot.ErrNodeStops)
	}
	if c.err != nil {
		return c.err
	}
	if text, failed := strings.CutPrefix(string(c.reply), "-"); failed {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(text), "ERR "))
	}
	return nil
}

// DefaultMaxMemory is machine.DefaultMaxMemory.
func DefaultMaxMemory(memory uint64) int64 { return machine.DefaultMaxMemory(memory) }

// These are estimates, in bytes, of the memory that a key takes in addition to
// its bytes in a backup. A small value takes much more memory than its bytes: for
// example, a hash with one field takes 330 bytes.
const (
	stringOverhead     = 200
	collectionOverhead = 400
)

// RoomForRestore returns an error if a restore would need more memory than a
// member may use for its data. keys maps each type to the number of keys of that
// type in the backup. The cluster itself does not know these numbers before it
// has received the backup.
func RoomForRestore(member NodeStatus, size int64, keys map[string]int) error {
	need := float64(size)
	for kind, n := range keys {
		overhead := collectionOverhead
		if kind == "string" {
			overhead = stringOverhead
		}
		need += float64(n) * float64(overhead)
	}
	return roomForRestore(member, size, max(machine.InMemory(size), need))
}

// roomForRestore returns an error if a restore would need more memory than a
// member may use for its data. Without this check, the kernel would end the
// member's process, and again after each restart, because the new process
// applies the same entry. While a node replaces its data, it holds the old
// data, the staging area of size bytes and the new data of inMemory bytes. If
// the member does not answer or runs an older version, its memory is not known,
// and roomForRestore returns no error.
func roomForRestore(member NodeStatus, size int64, inMemory float64) error {
	held, memory := member.DatasetBytes, member.ProcessMemory
	if size < 0 || held < 0 {
		return fmt.Errorf("the length of the backup (%d bytes) or the size of the member's data is negative", size)
	}
	need, most := float64(held)+float64(size)+inMemory, machine.Usable(memory)
	if memory == 0 || need <= most {
		return nil
	}
	remedy := "give the nodes more memory"
	if held > 0 {
		remedy += ", or delete their data first (FLUSHALL)"
	}
	return fmt.Errorf("the restore needs about %s of memory on every node, but the data of %s can use only %s: %s",
		units.BytesSize(need), member.ID, units.BytesSize(most), remedy)
}

// replay separates the entries that a node executes again when it starts from the
// entries that are new to it. last is set before raft starts. From then on, only
// calls from raft to the state machine use replay, and raft makes one such call at
// a time.
type replay struct {
	last uint64 // the last log index of the log and the snapshots at the start
	done bool   // an entry after last has been executed
	// quarantine reports whether a quarantine is in force, as of the last entry
	// or snapshot that began or ended a quarantine. If it is true and the
	// leader sends a snapshot without a quarantine, the quarantine has ended in
	// entries that this node does not execute.
	quarantine bool
}

const quarantineEnded = "quarantine ended: locks are granted again"

// announce logs the two effects for which an operator waits: the end of a
// restore, and the end of a quarantine. When a node starts, it executes
// the entries of its log again. announce logs nothing for these entries,
// because they are old. With the first entry that follows them, announce logs
// that a quarantine is in force, if one is.
func (n *Node) announce(index uint64, res *fsm.Result) {
	if res.Restored || res.QuarantineEnded {
		n.replay.quarantine = n.quarantine() > 0
	}
	if index <= n.replay.last {
		return
	}
	if res.Restored {
		n.log.Warn("replaced the data with the data of a backup", "index", index)
	}
	if res.Restored || !n.replay.done {
		n.announceQuarantine()
	}
	n.replay.done = true
	if res.QuarantineEnded {
		n.log.Warn(quarantineEnded, "index", index)
	}
}

// announceSnapshot logs that a quarantine is in force, if a snapshot of the leader
// contains one. If a quarantine was in force and the snapshot contains none, it logs
// that the quarantine has ended. It logs nothing for the snapshot with which the node
// starts: see announce.
func (n *Node) announceSnapshot() {
	before := n.replay.quarantine
	n.replay.quarantine = n.quarantine() > 0
	if n.replay.done {
		n.announceQuarantine()
	}
	if before && !n.replay.quarantine {
		n.log.Warn(quarantineEnded)
	}
}

// announceQuarantine logs that a quarantine is in force, if one is.
func (n *Node) announceQuarantine() {
	if left := n.quarantine(); left > 0 {
		n.log.Warn("quarantine: no lock is granted, because locks that were granted after the backup may still be held",
			"for", left.Round(time.Second))
	}
}

// quarantine returns how much of the quarantine is left, as of the last entry
// that this node has applied. It returns 0 if no quarantine is in force.
func (n *Node) quarantine() (left time.Duration) {
	n.machine.View(func(m *fsm.Machine) { left = quarantineOf(m) })
	return left
}

func quarantineOf(m *fsm.Machine) time.Duration {
	end := m.Quarantine()
	if end == 0 {
		return 0
	}
	return max(time.Duration(end-m.Clock().Lease), time.Nanosecond)
}
