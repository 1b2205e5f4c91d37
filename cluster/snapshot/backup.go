package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// maxBackups bounds the number of backups that a node streams at the same time.
// Each of them keeps a copy-on-write clone of the state.
const maxBackups = 4

// backupIdle is how long a backup waits for the next read of its client.
const backupIdle = time.Minute

// BackupInfo describes a backup that a node streams.
type BackupInfo struct {
	ID string `json:"id"` // for Read and Close
	fsm.SnapshotHead
	Node string `json:"node"`
	Keys int    `json:"keys"`
}

// Backups are the backups that this node streams to clients. A backup is the
// snapshot of a copy-on-write clone of the state, so the cluster does not wait
// for it. The client reads it piece by piece, and the goroutine that writes the
// snapshot waits while the client does not read.
type Backups struct {
	node    string // id of this node
	machine *machine.Machine
	log     hclog.Logger

	mu       sync.Mutex
	open     map[string]*openBackup
	starting int // number of backups whose clone is being made
	last     int
}

// openBackup is a backup that is being streamed. The mutex reading is locked
// while a call of Read reads a piece. When the timer idle expires, it closes the
// pipe, which ends the goroutine that writes the backup.
type openBackup struct {
	r       *io.PipeReader
	idle    *time.Timer
	reading sync.Mutex
}

// ErrNodeStops is the error of work that a node does not finish because it stops.
var ErrNodeStops = errors.New("this node is stopping")

var errBackupIdle = errors.New("the client did not read the backup for a minute")

// NewBackups returns the Backups of a node.
func NewBackups(node string, m *machine.Machine, log hclog.Logger) *Backups {
	return &Backups{node: node, machine: m, log: log}
}

// Begin makes a clone of the state and starts to write the clone's snapshot.
// The backup ends when ctx ends. spawn must start a goroutine for which the
// node waits when it stops.
func (b *Backups) Begin(ctx context.Context, spawn func(func())) (BackupInfo, error) {
	if err := b.reserve(); err != nil {
		return BackupInfo{}, err
	}
	// The clone needs the lock of the state machine, and mu must not be locked
	// meanwhile, so that other backups continue.
	clone := b.machine.Clone()
	clone.ForBackup()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting--
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
	stop := context.AfterFunc(ctx, func() { r.CloseWithError(ErrNodeStops) })
	spawn(func() {
		defer stop()
		err := clone.WriteSnapshot(w, fsm.Sessions{})
		w.CloseWithError(err) // if err is nil, the reader gets io.EOF
		if err != nil {
			b.log.Info("backup ended early", "id", id, "error", err)
		}
	})
	return BackupInfo{ID: id, SnapshotHead: clone.Head(), Node: b.node, Keys: clone.Len()}, nil
}

// reserve counts a backup as starting, unless there are maxBackups backups.
func (b *Backups) reserve() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.open) + b.starting; n >= maxBackups {
		return fmt.Errorf("this node is already streaming %d backups: try again later", n)
	}
	b.starting++
	return nil
}

func (b *Backups) forget(id string) *openBackup {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.open[id]
	delete(b.open, id)
	return o
}

// Read returns the next bytes of a backup, at most limit bytes. At the end of
// the backup, it returns no bytes.
func (b *Backups) Read(id string, limit int) ([]byte, error) {
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

// Close ends a backup.
func (b *Backups) Close(id string) {
	if o := b.forget(id); o != nil {
		o.idle.Stop()
		o.r.Close()
	}
}
