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

// Keys of stable.db. Keys of raft that are not part of the raft record
// (stable.go) have the prefix userPrefix, so that they cannot collide with
// ours.
const (
	keyRaftRecord = "holdfast/raft"
	keySegments   = "holdfast/segments"
	userPrefix    = "raft/"
)

// kv is stable.db, a raft-boltdb store. Its values carry a checksum, because
// bolt protects only its two meta pages. A failed write is final.
type kv struct {
	store   *raftboltdb.BoltStore
	path    string
	bad     corrupter
	g       *guard
	dog     *watchdog
	limit   time.Duration
	observe func(string, time.Duration, int)

	mu     sync.Mutex // serializes writes
	closed bool       // guarded by mu
}

func kvPath(dir string) string { return filepath.Join(dir, "stable.db") }

// boltOptions returns the options for every bolt file. Without a synced
// freelist, a commit writes two pages fewer; bolt rebuilds the list when it
// opens the file. The map freelist keeps allocation fast in a file with many
// free pages. mapBytes is the size of the initial memory mapping. It is large
// because remapping a file that has grown blocks all readers.
func boltOptions(mapBytes int) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         time.Second, // this process already has LOCK; never wait forever
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapBytes,
	}
}

// openBolt checks the pages of an existing bolt file and opens it.
func openBolt(path string, mapBytes int, bad corrupter) (*raftboltdb.BoltStore, error) {
	if err := checkBolt(path, bad); err != nil {
		return nil, err
	}
	s, err := raftboltdb.New(raftboltdb.Options{
		Path:        path,
		BoltOptions: boltOptions(mapBytes),
		// This option must not change: see its documentation.
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// createBolt creates an empty bolt file. The file gets its final name only when
// it is complete, because bolt cannot open a file whose initialization a crash
// interrupted.
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

// get returns the value of key and whether the key exists.
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

// put stores a value durably, in one bolt transaction. An error is final.
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
		return err // the write returned after the watchdog had reported it
	}
	s.observe("stable", took, len(b))
	return nil
}

// close closes the file. Later writes return ErrClosed.
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
