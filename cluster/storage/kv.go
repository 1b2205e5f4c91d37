package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Keys of stable.db. Those of raft that are not part of the raft record (stable.go)
// go below userPrefix, so that none can meet ours.
const (
	keyRaftRecord = "holdfast/raft"
	keySegments   = "holdfast/segments"
	userPrefix    = "raft/"
)

// kv is stable.db: a raft-boltdb store whose values carry a checksum, because
// bolt protects only its two meta pages, and whose failures are final.
type kv struct {
	store   *raftboltdb.BoltStore
	path    string
	bad     corrupter
	g       *guard
	dog     *watchdog
	limit   time.Duration
	observe func(string, time.Duration, int)

	mu     sync.Mutex // serialises writes
	closed bool       // guarded by mu
}

func kvPath(dir string) string { return filepath.Join(dir, "stable.db") }

// boltOptions returns how every bolt file is opened. Without a synced freelist
// a commit writes two pages less (it is rebuilt at open), and the map freelist
// keeps allocation quick in a file with many free pages. mapBytes is mapped from
// the start, because remapping a grown file stops all readers.
func boltOptions(mapBytes int) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         time.Second, // LOCK is already ours; never wait for ever
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapBytes,
	}
}

// openBolt opens a bolt file that exists, after checking its pages.
func openBolt(path string, mapBytes int, bad corrupter) (*raftboltdb.BoltStore, error) {
	if err := checkBolt(path, bad); err != nil {
		return nil, err
	}
	s, err := raftboltdb.New(raftboltdb.Options{
		Path:                    path,
		BoltOptions:             boltOptions(mapBytes),
		MsgpackUseNewTimeFormat: true, // never change: see doc of that option
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// createBolt makes an empty bolt file under its final name only when it is
// whole, because bolt does not survive a crash while it initialises a file.
func createBolt(path string) error {
	tmp := path + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	s, err := raftboltdb.New(raftboltdb.Options{Path: tmp, BoltOptions: boltOptions(0)})
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// get returns the value of key and whether there is one.
func (s *kv) get(key string) ([]byte, bool, error) {
	b, err := s.store.Get([]byte(key))
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %q from %s: %w", key, s.path, err)
	}
	n := len(b) - 4
	if n < 0 || kvSum(key, b[:n]) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, false, s.bad.file(s.path, "the checksum of %q does not match", key)
	}
	return b[:n:n], true, nil
}

// put sets key durably, in one bolt transaction.
func (s *kv) put(key string, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.g.err(); err != nil {
		return err
	}
	b := make([]byte, 0, len(val)+4)
	b = append(b, val...)
	b = binary.LittleEndian.AppendUint32(b, kvSum(key, val))

	x := s.dog.begin("stable", s.limit)
	err := s.store.Set([]byte(key), b)
	took := s.dog.end(x)
	if err != nil {
		return s.g.fail(fmt.Errorf("write %q to %s: %w", key, s.path, err))
	}
	if err := s.g.err(); err != nil {
		return err // it came back after the watchdog had given it up
	}
	s.observe("stable", took, len(b))
	return nil
}

// close closes the file. Writes after it return ErrClosed.
func (s *kv) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.store.Close()
}

func kvSum(key string, val []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, val)
}
