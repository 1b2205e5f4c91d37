package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// acked is the file that records how far this node has acknowledged its log and
// its stable store: a log index, and the number of a write of term and vote.
// Both are lower bounds. Without the file, a log that has lost its end cannot
// be distinguished from a shorter log.
//
// A separate goroutine writes the file, so that an append does not need a
// second fsync. The file may therefore be behind the log. It is made exact at
// Close, when a snapshot is completed, and before the log is truncated. Because
// of the last rule, the bounds never exceed the data on disk.
//
// The two slots are written alternately. They lie in different sectors, so that
// a torn write leaves the other slot intact.
type acked struct {
	f   *os.File
	m   mark
	g   *guard
	log hclog.Logger

	quit chan struct{}
	done chan struct{}

	mu    sync.Mutex
	note  note // content that the file should have; guarded by mu
	saved note // content of the slot that was written last; guarded by mu

	io sync.Mutex // held while a slot is written; acquired before mu
}

// note is the content of a slot.
type note struct {
	seq    uint64 // number of the write; the slot with the higher number is valid
	index  uint64 // the log reached at least this index, unless a snapshot covers it
	term   uint64 // term of that entry
	stable uint64 // seq of the raft record in the stable store (stable.go)
}

const (
	ackedSlot = 4096 // distance of the two slots in bytes
	ackedLen  = 8 + 4*8 + 4
)

func ackedPath(dir string) string { return filepath.Join(dir, "acked") }

func (n note) encode(m mark) []byte {
	b := append(make([]byte, 0, ackedLen), m[:]...)
	for _, v := range []uint64{n.seq, n.index, n.term, n.stable} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeNote(b []byte, m mark) (n note, ok bool) {
	sum := crc32.Checksum(b[:ackedLen-4], castagnoli)
	if [8]byte(b) != m || sum != binary.LittleEndian.Uint32(b[ackedLen-4:]) {
		return n, false
	}
	for i, p := range []*uint64{&n.seq, &n.index, &n.term, &n.stable} {
		*p = binary.LittleEndian.Uint64(b[8+8*i:])
	}
	return n, true
}

// createAcked creates the file in a new directory.
func createAcked(dir string, m mark) error {
	b := make([]byte, 2*ackedSlot)
	copy(b, note{seq: 0}.encode(m))
	copy(b[ackedSlot:], note{seq: 1}.encode(m))
	if err := replaceFile(ackedPath(dir), b); err != nil {
		return fmt.Errorf("make acked file: %w", err)
	}
	return nil
}

// openAcked reads the file. It starts no goroutine; follow does.
func openAcked(dir string, m mark, bad corrupter, g *guard, log hclog.Logger) (*acked, error) {
	path := ackedPath(dir)
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, bad.file(path, "it is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("read acked file: %w", err)
	}
	if len(b) != 2*ackedSlot {
		return nil, bad.file(path, "it has %d bytes instead of %d", len(b), 2*ackedSlot)
	}
	n0, ok0 := decodeNote(b, m)
	n1, ok1 := decodeNote(b[ackedSlot:], m)
	if !ok0 && !ok1 {
		return nil, bad.file(path, "neither of its two records is valid")
	}
	n := n0
	if !ok0 || ok1 && n1.seq > n0.seq {
		n = n1
	}
	if !ok0 || !ok1 {
		log.Warn("one of the two records of the acked file is not valid", "file", path)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open acked file: %w", err)
	}
	return &acked{f: f, m: m, g: g, log: log, note: n, saved: n}, nil
}

// follow starts the goroutine that writes the file at the given interval.
func (a *acked) follow(every time.Duration) {
	a.quit, a.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(a.done)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-a.quit:
				return
			case <-t.C:
				if a.flush() != nil {
					return // reported by flush
				}
			}
		}
	}()
}

// raise records that the log was acknowledged up to index.
func (a *acked) raise(index, term uint64) {
	a.mu.Lock()
	a.note.index, a.note.term = index, term
	a.mu.Unlock()
}

// raiseStable records that the raft record seq is durable.
func (a *acked) raiseStable(seq uint64) {
	a.mu.Lock()
	a.note.stable = seq
	a.mu.Unlock()
}

// lower records that the log is about to end at index. When it returns nil, the
// file claims no higher index. The caller must call it before it truncates the
// log.
func (a *acked) lower(index, term uint64) error {
	a.mu.Lock()
	if a.note.index > index {
		a.note.index, a.note.term = index, term
	}
	a.mu.Unlock()
	// A slot that is being written may still contain the old value. flush waits
	// for that write even if it has nothing to write itself.
	return a.flush()
}

// flush makes the file exact. A failure is final.
func (a *acked) flush() error {
	a.io.Lock()
	defer a.io.Unlock()
	if err := a.g.err(); err != nil {
		return err
	}
	a.mu.Lock()
	n, same := a.note, a.note == a.saved
	a.mu.Unlock()
	if same {
		return nil
	}
	n.seq++
	_, err := a.f.WriteAt(n.encode(a.m), int64(n.seq%2)*ackedSlot)
	if err == nil {
		err = a.f.Sync()
	}
	if err != nil {
		return a.g.fail(fmt.Errorf("write acked file: %w", err))
	}
	a.mu.Lock()
	a.note.seq, a.saved = n.seq, n
	a.mu.Unlock()
	return nil
}

// current returns the current bounds, which the file may not contain yet.
func (a *acked) current() note {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.note
}

// close stops the goroutine and closes the file. It does not flush.
func (a *acked) close() error {
	if a.quit != nil {
		close(a.quit)
		<-a.done
	}
	return a.f.Close()
}
