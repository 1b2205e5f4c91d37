package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// maxBackups bounds the backups that a node streams at the same time. Each of
// them keeps a copy-on-write clone of the state.
const maxBackups = 4

// backupIdle is how long a backup waits for the next read of its client.
const backupIdle = time.Minute

// BackupInfo describes a backup that a node streams.
type BackupInfo struct {
	ID string `json:"id"` // for ReadBackup and CloseBackup
	fsm.SnapshotHead
	Node string `json:"node"`
	Keys int    `json:"keys"`
}

// backups are the backups that this node streams to clients. A backup is the
// snapshot of a copy-on-write clone of the state, so the cluster does not wait
// for it. The client reads it piece by piece, and the goroutine that writes the
// snapshot waits while the client does not read.
type backups struct {
	*environment
	machine *machine.Machine

	mu   sync.Mutex
	open map[string]*openBackup
	last int
}

// openBackup is a backup that is being streamed. A call that reads a piece
// holds reading. The idle timer closes the pipe, which ends the writing
// goroutine.
type openBackup struct {
	r       *io.PipeReader
	idle    *time.Timer
	reading sync.Mutex
}

var errNodeStops = errors.New("this node is stopping")

var errBackupIdle = errors.New("the client did not read the backup for a minute")

// begin makes a clone of the state and starts to write its snapshot. spawn starts a
// goroutine that the node waits for.
func (b *backups) begin(spawn func(func())) (BackupInfo, error) {
	clone := b.machine.Clone()
	clone.ForBackup()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= maxBackups {
		return BackupInfo{}, fmt.Errorf("this node already streams %d backups: try again later", len(b.open))
	}
	b.last++
	id := fmt.Sprint(b.last)
	r, w := io.Pipe()
	o := &openBackup{r: r}
	o.idle = time.AfterFunc(backupIdle, func() {
		b.forget(id)
		r.CloseWithError(errBackupIdle)
	})
	if b.open == nil {
		b.open = make(map[string]*openBackup)
	}
	b.open[id] = o
	stop := context.AfterFunc(b.ctx, func() { r.CloseWithError(errNodeStops) })
	spawn(func() {
		defer stop()
		err := clone.WriteSnapshot(w, fsm.Sessions{})
		w.CloseWithError(err) // nil is io.EOF for the reader
		if err != nil {
			b.log.Info("backup ended early", "id", id, "error", err)
		}
	})
	return BackupInfo{ID: id, SnapshotHead: clone.Head(), Node: b.cfg.NodeID, Keys: clone.Len()}, nil
}

func (b *backups) forget(id string) *openBackup {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.open[id]
	delete(b.open, id)
	return o
}

// read returns the next bytes of a backup, at most limit. It returns none at the end.
func (b *backups) read(id string, limit int) ([]byte, error) {
	b.mu.Lock()
	o := b.open[id]
	b.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("no backup %q on this node: it has ended, or was not read for a minute", id)
	}
	o.reading.Lock()
	defer o.reading.Unlock()
	o.idle.Stop()
	defer o.idle.Reset(backupIdle)
	buf := make([]byte, limit)
	n, err := io.ReadFull(o.r, buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return buf[:n], err
}

// close ends a backup.
func (b *backups) close(id string) {
	if o := b.forget(id); o != nil {
		o.idle.Stop()
		o.r.Close()
	}
}

// BeginBackup begins to stream a backup of the state at one log index. The backup
// contains every write that was acknowledged before the call.
func (n *Node) BeginBackup(ctx context.Context) (BackupInfo, error) {
	if err := n.catchUp(ctx); err != nil {
		return BackupInfo{}, err
	}
	return n.snapshots.backups.begin(n.wg.Go)
}

// ReadBackup returns the next bytes of a backup, at most limit, and none at the
// end. The backup ends if it is not read for a minute.
func (n *Node) ReadBackup(id string, limit int) ([]byte, error) {
	return n.snapshots.backups.read(id, limit)
}

// CloseBackup ends a backup.
func (n *Node) CloseBackup(id string) { n.snapshots.backups.close(id) }

// CheckEmpty returns an error if a restore needs to replace data. The restore itself
// checks it again.
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

// applyLimit bounds how long Restore waits for its entry. Decoding a large backup
// takes about a second for a million keys, on every node.
const applyLimit = 10 * time.Minute

// Restore executes a step of a restore: see fsm.RestoreCommand. args are its
// arguments. The token epoch of the step "apply" is at least that of this node's
// wall clock. An error with an unknown outcome may come after the step was done.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	c := n.forwarder.command(n.Table(), append([][]byte{[]byte(fsm.RestoreCommand)}, args...))
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("the outcome of the restore is unknown: %w", ctx.Err())
	case <-n.ctx.Done():
		return fmt.Errorf("the outcome of the restore is unknown: %w", errNodeStops)
	}
	if c.err != nil {
		return c.err
	}
	if text, failed := strings.CutPrefix(string(c.reply), "-"); failed {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(text), "ERR "))
	}
	return nil
}

// announce logs the effects of an entry that an operator waits for.
func (n *Node) announce(index uint64, res *fsm.Result) {
	if res.Restored {
		n.log.Warn("data replaced with that of a backup", "index", index)
		n.announceQuarantine()
	}
	if res.QuarantineEnded {
		n.log.Warn("quarantine ended: locks are granted again", "index", index)
	}
}

// announceQuarantine logs that a quarantine is in force, if it is.
func (n *Node) announceQuarantine() {
	if left := n.quarantine(); left > 0 {
		n.log.Warn("quarantine: no lock is granted, because locks that were granted after the backup may still be held",
			"for", left.Round(time.Second))
	}
}

// quarantine returns how long the quarantine lasts, as of the last entry that this
// node has applied, 0 if there is none.
func (n *Node) quarantine() (left time.Duration) { return quarantineOf(n.machine) }

func quarantineOf(a *machine.Machine) (left time.Duration) {
	a.View(func(m *fsm.Machine) {
		if end := m.Quarantine(); end != 0 {
			left = max(time.Duration(end-m.Clock().Lease), time.Nanosecond)
		}
	})
	return left
}
