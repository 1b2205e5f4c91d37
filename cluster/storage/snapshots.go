package storage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// snapshotStore is raft.FileSnapshotStore with additional checks.
//
// raft.FileSnapshotStore has a checksum of the state, but none of meta.json,
// which contains index, term and members. If the newest snapshot is unreadable,
// raft uses an older one, and the log has a gap after it.
// raft.FileSnapshotStore never deletes the unfinished snapshots that a crash
// leaves. snapshotStore protects meta.json with a seal beside it, and Open
// checks the snapshots before raft reads them.
//
// Snapshots are written by snapshotSink, in the layout of the file store. The
// sink of the file store cannot be read back before it is complete, and
// completing a snapshot deletes older ones.
type snapshotStore struct {
	*raft.FileSnapshotStore
	dir   string
	bad   corrupter
	g     *guard
	acked *acked

	mu          sync.Mutex
	index, term uint64 // newest snapshot, 0 if there is none; guarded by mu
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

const (
	snapshotBuffer = 1 << 20

	// Names that raft.FileSnapshotStore uses.
	metaName   = "meta.json"
	stateName  = "state.bin"
	tmpSuffix  = ".tmp"
	sealName   = "seal.json" // ours
	sealFormat = "{\"meta_crc32c\":\"%08x\"}\n"
)

func snapshotDir(dir string) string { return filepath.Join(dir, "snapshots") }

// HistoryDir returns the directory of the history of locks in a data directory. When
// Open creates a new data directory, it removes this directory.
func HistoryDir(dir string) string { return filepath.Join(dir, "history") }

// snapshotMeta is the content of meta.json, as raft.FileSnapshotStore writes
// it.
type snapshotMeta struct {
	raft.SnapshotMeta
	CRC []byte
}

// encode returns the same bytes as raft.FileSnapshotStore writes.
func (m snapshotMeta) encode() ([]byte, error) {
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(&m)
	return b.Bytes(), err
}

// seal returns the content of seal.json: a checksum of everything that is known
// when a snapshot is begun. Size and CRC are not part of it; state.bin itself
// confirms them.
func (m snapshotMeta) seal() ([]byte, error) {
	m.Size, m.CRC = 0, nil
	b, err := m.encode()
	return fmt.Appendf(nil, sealFormat, crc32.Checksum(b, castagnoli)), err
}

// snapshotScan is the result of scanSnapshots.
type snapshotScan struct {
	index, term uint64   // newest snapshot, 0 if there is none
	leftovers   []string // directories of unfinished or partly deleted snapshots
}

// scanSnapshots checks the newest snapshot completely, and the others without
// reading their state. It changes nothing.
func scanSnapshots(dir string, bad corrupter) (s snapshotScan, err error) {
	type named struct {
		path        string
		term, index uint64
		msec        int64
	}
	var all []named
	ds, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("list snapshots: %w", err)
	}
	for _, d := range ds {
		n := named{path: filepath.Join(dir, d.Name())}
		switch _, err := fmt.Sscanf(d.Name(), "%d-%d-%d", &n.term, &n.index, &n.msec); {
		case !d.IsDir():
		case strings.HasSuffix(d.Name(), tmpSuffix):
			s.leftovers = append(s.leftovers, n.path)
		case err != nil || fmt.Sprintf("%d-%d-%d", n.term, n.index, n.msec) != d.Name():
			return s, bad.file(n.path, "its name is not that of a snapshot")
		default:
			all = append(all, n)
		}
	}
	// Newest first, in the order of raft.FileSnapshotStore.
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.term != b.term {
			return a.term > b.term
		}
		if a.index != b.index {
			return a.index > b.index
		}
		return filepath.Base(a.path) > filepath.Base(b.path)
	})
	for i, n := range all {
		err := checkSnapshot(n.path, n.term, n.index, i == 0, bad)
		// The deletion of an old snapshot is not atomic. The newest snapshot is
		// never deleted.
		if i > 0 && errors.Is(err, os.ErrNotExist) {
			s.leftovers = append(s.leftovers, n.path)
			continue
		}
		if errors.Is(err, os.ErrNotExist) {
			return s, bad.file(n.path, "the snapshot is not complete (%v)", err)
		}
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.index, s.term = n.index, n.term
		}
	}
	return s, nil
}

// checkSnapshot checks one snapshot. It reads the state only if full is set. If
// a file is missing, the error is os.ErrNotExist.
func checkSnapshot(path string, term, index uint64, full bool, bad corrupter) error {
	m, err := checkMeta(path, bad)
	if err != nil {
		return err
	}
	if m.ID != filepath.Base(path) || m.Term != term || m.Index != index {
		return bad.file(filepath.Join(path, metaName), "it belongs to another snapshot")
	}
	state := filepath.Join(path, stateName)
	f, err := os.Open(state)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != m.Size {
		return bad.at(state, index, "the snapshot has %d bytes instead of %d", info.Size(), m.Size)
	}
	if !full {
		return nil
	}
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, f, make([]byte, snapshotBuffer)); err != nil {
		return fmt.Errorf("read %s: %w", state, err)
	}
	if !bytes.Equal(h.Sum(nil), m.CRC) {
		return bad.at(state, index, "the checksum of the snapshot does not match")
	}
	return nil
}

// checkMeta reads meta.json and compares it with the seal. If a file is
// missing, the error is os.ErrNotExist.
func checkMeta(path string, bad corrupter) (m snapshotMeta, err error) {
	file := filepath.Join(path, metaName)
	b, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	seal, err := os.ReadFile(filepath.Join(path, sealName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, bad.file(file, "it does not decode (%v)", err)
	}
	// The seal covers the values. Comparing with the encoding also covers the
	// bytes between them.
	same, err := m.encode()
	if err != nil {
		return m, fmt.Errorf("encode %s: %w", file, err)
	}
	want, err := m.seal()
	if err != nil {
		return m, fmt.Errorf("encode %s: %w", file, err)
	}
	if !bytes.Equal(b, same) || !bytes.Equal(seal, want) {
		return m, bad.file(file, "it does not match %s beside it", sealName)
	}
	return m, nil
}

// openSnapshots removes the leftovers that scanSnapshots has found, and opens
// the store.
func openSnapshots(
	cfg Config, s snapshotScan, bad corrupter, g *guard, a *acked, log hclog.Logger,
) (*snapshotStore, error) {
	dir := snapshotDir(cfg.Dir)
	for _, path := range s.leftovers {
		log.Info("removing the remains of a snapshot", "path", path)
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	fs, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, cfg.SnapshotRetain, log.Named("snapshot"))
	if err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	if err := syncPath(cfg.Dir); err != nil {
		return nil, fmt.Errorf("sync %s: %w", cfg.Dir, err)
	}
	return &snapshotStore{FileSnapshotStore: fs, dir: dir, bad: bad, g: g, acked: a, index: s.index, term: s.term}, nil
}

// newest returns index and term of the newest snapshot, 0 if there is none.
func (s *snapshotStore) newest() (index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index, s.term
}

func (s *snapshotStore) added(index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term > s.term || term == s.term && index > s.index {
		s.index, s.term = index, term
	}
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64,
	members raft.Configuration, membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if err := s.g.err(); err != nil {
		return nil, err
	}
	if version != 1 { // version 0 has no Configuration
		return nil, fmt.Errorf("snapshot version %d is not supported", version)
	}
	id := fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixMilli())
	sink := &snapshotSink{
		store: s,
		tmp:   filepath.Join(s.dir, id+tmpSuffix),
		meta: snapshotMeta{SnapshotMeta: raft.SnapshotMeta{
			Version: version, ID: id, Index: index, Term: term,
			Configuration: members, ConfigurationIndex: membersIndex,
		}},
		crc: crc64.New(crc64.MakeTable(crc64.ECMA)),
	}
	if err := os.Mkdir(sink.tmp, 0o700); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(sink.tmp, stateName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create snapshot: %w", err), os.RemoveAll(sink.tmp))
	}
	sink.f, sink.w = f, bufio.NewWriterSize(io.MultiWriter(f, sink.crc), snapshotBuffer)
	return sink, nil
}

// Open implements raft.SnapshotStore. If the snapshot has become corrupt since
// the start, the error is final, as it would be at the next start.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	path := filepath.Join(s.dir, id)
	if _, err := checkMeta(path, s.bad); err != nil {
		return nil, nil, s.report(err)
	}
	meta, r, err := s.FileSnapshotStore.Open(id)
	// raft has no variable for this error
	if err != nil && err.Error() == "CRC mismatch" {
		err = s.bad.file(filepath.Join(path, stateName), "the checksum of the snapshot does not match")
	}
	return meta, r, s.report(err)
}

// report makes a failure of the disk final. It returns other errors unchanged,
// such as the error for a snapshot that was deleted after it was listed.
func (s *snapshotStore) report(err error) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) || errors.Is(err, syscall.EIO) {
		return s.g.fail(err)
	}
	return err
}

// snapshotSink writes one snapshot. It is not safe for concurrent use. Close
// may be called more than once and always returns the same result: raft calls
// it again after the state machine has called it, and deletes the entries that
// the snapshot covers if the result is nil.
type snapshotSink struct {
	store *snapshotStore
	meta  snapshotMeta
	tmp   string // directory until the snapshot is complete
	f     *os.File
	crc   hash.Hash64 // checksum of the bytes that w has written to f
	w     *bufio.Writer

	closed bool
	err    error // result of Close
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.meta.ID }

// Write implements io.Writer.
func (s *snapshotSink) Write(b []byte) (int, error) {
	failpoint.HitAfter(failpoint.SnapshotTorn, func() {
		// a failure here is no worse than the kill that follows
		_, _ = s.w.Write(b[:len(b)/2])
		_ = s.w.Flush()
	})
	return s.w.Write(b)
}

// Written syncs the bytes that were written so far, and returns a reader of the
// file. At the end of the file, the reader returns an error if the bytes differ
// from those that were written.
func (s *snapshotSink) Written() (io.ReadCloser, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	f, err := os.Open(s.f.Name())
	if err != nil {
		return nil, err
	}
	return &writtenReader{f: f, crc: crc64.New(crc64.MakeTable(crc64.ECMA)), want: s.crc.Sum64()}, nil
}

// writtenReader reads a file and compares its checksum at the end.
type writtenReader struct {
	f    *os.File
	crc  hash.Hash64
	want uint64
}

// Read implements io.Reader.
func (r *writtenReader) Read(b []byte) (int, error) {
	n, err := r.f.Read(b)
	_, _ = r.crc.Write(b[:n]) // never fails
	if err == io.EOF && r.crc.Sum64() != r.want {
		err = fmt.Errorf("%s: the file does not contain the bytes that were written to it", r.f.Name())
	}
	return n, err
}

// Close implements io.Closer.
func (r *writtenReader) Close() error { return r.f.Close() }

// Close completes the snapshot. When it returns nil, the snapshot is durable
// and listed.
func (s *snapshotSink) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	if s.err = s.finish(); s.err != nil {
		s.err = errors.Join(s.err, os.RemoveAll(s.tmp))
	}
	return s.err
}

func (s *snapshotSink) flush() error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	return s.f.Sync()
}

func (s *snapshotSink) finish() error {
	err := s.flush()
	info, statErr := s.f.Stat()
	if err := errors.Join(err, statErr, s.f.Close()); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	// From now on, the snapshot may hide that the log has lost entries, so the
	// bound of the log must be exact first.
	if err := s.store.acked.flush(); err != nil {
		return err
	}
	seal, err := s.meta.seal()
	if err != nil {
		return fmt.Errorf("seal snapshot: %w", err)
	}
	s.meta.Size, s.meta.CRC = info.Size(), s.crc.Sum(nil)
	meta, err := s.meta.encode()
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{metaName, meta}, {sealName, seal}} {
		if err := writeFile(filepath.Join(s.tmp, f.name), f.data); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := syncPath(s.tmp); err != nil {
		return fmt.Errorf("sync snapshot: %w", err)
	}
	if err := os.Rename(s.tmp, filepath.Join(s.store.dir, s.meta.ID)); err != nil {
		return fmt.Errorf("name snapshot: %w", err)
	}
	if err := syncPath(s.store.dir); err != nil {
		return fmt.Errorf("sync snapshots: %w", err)
	}
	if err := s.store.ReapSnapshots(); err != nil {
		return fmt.Errorf("delete old snapshots: %w", err)
	}
	failpoint.Hit(failpoint.SnapshotNamed)
	s.store.added(s.meta.Index, s.meta.Term)
	return nil
}

// Cancel deletes the unfinished snapshot. After Close it does nothing.
func (s *snapshotSink) Cancel() error {
	if s.closed {
		return nil
	}
	s.closed, s.err = true, errors.New("snapshot was canceled")
	return errors.Join(s.f.Close(), os.RemoveAll(s.tmp))
}
