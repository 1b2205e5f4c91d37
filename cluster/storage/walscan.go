package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
)

// This file scans the segments before raft-wal opens them.
//
// raft-wal reads its last segment from the start until a frame is invalid,
// treats everything from there on as a torn write, and appends over it. It
// checks the checksum of the last batch only, and nothing in a sealed segment.
// So one flipped bit in a frame header would lose every acknowledged entry
// after it without an error. This scan reads every byte, checks every batch
// and every entry, and identifies a torn write by the rules in doc.go. It
// changes nothing.

// Layout of a raft-wal segment, version 0 (raft-wal segment/format.go).
const (
	segmentMagic  = 0x58eb6b0d
	segmentHeader = 32
	frameHeader   = 8

	frameEntry  = 1
	frameIndex  = 2
	frameCommit = 3
)

// walScan is the content of the segments.
type walScan struct {
	span span
	tail tailScan
}

// tailScan is the state of the last segment.
type tailScan struct {
	info       types.SegmentInfo
	path       string
	end        int64  // end of the last complete batch
	dirty      int64  // end of the remains of a torn append; equal to end if there are none
	last       uint64 // last index in the file, BaseIndex-1 if it has no entry
	indexStart uint64 // not 0 if the file is sealed although the list does not say so
}

// segmentScanner scans the segments of one list.
type segmentScanner struct {
	list *segmentList
	m    mark
	bad  corrupter
	buf  []byte // content of one segment at a time
}

// scan reads all segments.
func (s *segmentScanner) scan() (w walScan, err error) {
	state := s.list.current()
	if err := s.checkOthers(state); err != nil {
		return w, err
	}
	segs := state.Segments
	for i, info := range segs {
		path := s.list.path(info)
		tail := i == len(segs)-1
		if tail != info.SealTime.IsZero() {
			return w, s.bad.file(s.list.kv.path, "the segment list says that %s is sealed: %v", path, !tail)
		}
		if i > 0 && (info.BaseIndex != segs[i-1].MaxIndex+1 || info.MinIndex != info.BaseIndex) ||
			info.MinIndex < info.BaseIndex {
			return w, s.bad.file(s.list.kv.path, "the segment list has a gap before %s", path)
		}
		if err := s.read(path, info); err != nil {
			return w, err
		}
		f := segmentFile{s: s, info: info, path: path, b: s.buf}
		if err := f.parse(); err != nil {
			return w, err
		}
		if tail {
			w.tail, err = f.checkTail()
		} else {
			err = f.checkSealed()
		}
		if err != nil {
			return w, err
		}
		for _, e := range f.entries {
			if e.index < info.MinIndex || !tail && e.index > info.MaxIndex {
				continue // the log no longer has e; its file is kept for other entries
			}
			if e.term < w.span.lastTerm() {
				return w, s.bad.at(path, e.index,
					"its term %d is lower than the term %d before it", e.term, w.span.lastTerm())
			}
			w.span.push(e.index, e.term, e.size)
		}
		if tail && info.MinIndex > info.BaseIndex && f.next() <= info.MinIndex {
			return w, s.bad.at(path, info.MinIndex, "the log starts there, but the segment ends at %d", f.next()-1)
		}
	}
	return w, nil
}

// checkOthers checks the segment files that the list does not name. raft-wal
// deletes them. There are two kinds of such files. The first kind exists if the
// process crashed after it had committed a list without them, and before it had
// deleted them. The second kind exists if the process crashed after makeFile
// and before the commit of the list. Files of the second kind contain only
// zeros. If a file that can only be of the second kind does not begin with
// zeros, the list is older than the files.
func (s *segmentScanner) checkOthers(state types.PersistentState) error {
	listed := make(map[string]bool)
	for _, info := range state.Segments {
		listed[s.list.path(info)] = true
	}
	names, err := os.ReadDir(s.list.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list segments: %w", err)
	}
	for _, d := range names {
		path := filepath.Join(s.list.dir, d.Name())
		if listed[path] || !strings.HasSuffix(path, ".wal") {
			continue
		}
		var base, id uint64
		if _, err := fmt.Sscanf(d.Name(), "%020d-%016x.wal", &base, &id); err != nil {
			return s.bad.file(path, "its name is not that of a segment")
		}
		if id < state.NextSegmentID {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open segment: %w", err)
		}
		head := make([]byte, 4096)
		n, err := io.ReadFull(f, head)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("close segment: %w", err)
		}
		if !allZero(head[:n]) {
			return s.bad.file(s.list.kv.path, "the segment list is older than %s", path)
		}
	}
	return nil
}

// read reads a whole segment file into buf.
func (s *segmentScanner) read(path string, info types.SegmentInfo) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return s.bad.file(path, "the segment is missing")
	}
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Size() < int64(info.SizeLimit) {
		return s.bad.file(path, "the segment has %d bytes, but it was made with %d", st.Size(), info.SizeLimit)
	}
	if int64(cap(s.buf)) < st.Size() {
		s.buf = make([]byte, st.Size())
	}
	s.buf = s.buf[:st.Size()]
	if _, err := io.ReadFull(f, s.buf); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// segmentFile is the content of one segment.
type segmentFile struct {
	s    *segmentScanner
	info types.SegmentInfo
	path string
	b    []byte

	entries []walEntry // entries of the complete batches
	end     int        // end of the last complete batch, 0 if there is none
	// indexStart is the offset of the index array if a complete batch sealed
	// the file, otherwise 0.
	indexStart int
	stop       string // reason why the next batch is not complete
}

type walEntry struct {
	index, term uint64
	size        uint32
	at          int // offset of the frame
}

// next returns the index that follows the last entry of the file.
func (f *segmentFile) next() uint64 { return f.info.BaseIndex + uint64(len(f.entries)) }

// parse reads and checks batches until one is not complete. It returns an error
// for damage that a torn write cannot cause.
func (f *segmentFile) parse() error {
	off, start := segmentHeader, 0
	var frames []int // offsets of the entries of the current batch
	index := 0
	for {
		if off+frameHeader > len(f.b) {
			f.stop = "the file ends"
			return nil
		}
		h := f.b[off : off+frameHeader]
		if h[1]|h[2]|h[3] != 0 {
			f.stop = "a frame header is damaged"
			return nil
		}
		val := binary.LittleEndian.Uint32(h[4:])
		switch h[0] {
		case frameEntry, frameIndex:
			if index > 0 {
				f.stop = "a frame follows the index"
				return nil
			}
			size := frameHeader + (int64(val)+7)&^7
			if int64(off)+size > int64(len(f.b)) {
				f.stop = "a frame is longer than the file"
				return nil
			}
			if h[0] == frameEntry {
				frames = append(frames, off)
			} else {
				index = off + frameHeader
			}
			off += int(size)
		case frameCommit:
			if crc32.Checksum(f.b[start:off], castagnoli) != val {
				f.stop = "the checksum of the batch does not match"
				return nil
			}
			if err := f.accept(frames, index); err != nil {
				return err
			}
			off += frameHeader
			f.end, start, frames = off, off, frames[:0]
			if index > 0 {
				f.indexStart = index
				f.stop = "the segment is sealed"
				return nil
			}
		default:
			f.stop = "the frames end"
			return nil
		}
	}
}

// accept checks the entries of a batch whose checksum matched. Such a batch was
// not torn, so every mismatch is damage.
func (f *segmentFile) accept(frames []int, index int) error {
	if f.end == 0 {
		if err := f.checkHeader(); err != nil {
			return err
		}
	}
	first := f.next()
	for _, at := range frames {
		n := binary.LittleEndian.Uint32(f.b[at+4:])
		var l raft.Log
		if err := decodeEntry(f.b[at+frameHeader:at+frameHeader+int(n)], &l); err != nil {
			return f.s.bad.at(f.path, f.next(), "the entry does not decode (%v)", err)
		}
		if why := unsealLog(&l, f.next(), f.s.m); why != "" {
			return f.s.bad.at(f.path, f.next(), "%s", why)
		}
		f.entries = append(f.entries, walEntry{index: l.Index, term: l.Term, size: payload(&l), at: at})
	}
	if index == 0 {
		return nil
	}
	if n := int(binary.LittleEndian.Uint32(f.b[index-4:])); n != 4*len(f.entries) {
		return f.s.bad.at(f.path, first, "the segment index has %d bytes for %d entries", n, len(f.entries))
	}
	for i, e := range f.entries {
		if int(binary.LittleEndian.Uint32(f.b[index+4*i:])) != e.at {
			return f.s.bad.at(f.path, e.index, "the segment index does not point to the entry")
		}
	}
	return nil
}

// checkHeader compares the file header with the list. The checksum of the first
// batch covers the header, so its bytes are those that were written.
func (f *segmentFile) checkHeader() error {
	h := f.b[:segmentHeader]
	if binary.LittleEndian.Uint64(h) != segmentMagic ||
		binary.LittleEndian.Uint64(h[8:]) != f.info.BaseIndex ||
		binary.LittleEndian.Uint64(h[16:]) != f.info.ID ||
		binary.LittleEndian.Uint64(h[24:]) != f.info.Codec {
		return f.s.bad.file(f.path, "its header is that of another segment")
	}
	return nil
}

// decodeEntry decodes an entry with raft-wal's codec. It recovers from a panic,
// because the codec panics on a malformed number.
func decodeEntry(b []byte, l *raft.Log) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return (&wal.BinaryCodec{}).Decode(b, l)
}

// checkSealed checks that the segment is complete, because the list calls it
// sealed. Everything in a sealed segment was acknowledged.
func (f *segmentFile) checkSealed() error {
	if f.indexStart == 0 {
		return f.s.bad.at(f.path, f.next(), "%s, but the segment was sealed", f.stop)
	}
	if uint64(f.indexStart) != f.info.IndexStart || f.info.MaxIndex >= f.next() || f.info.MinIndex > f.info.MaxIndex {
		return f.s.bad.at(f.path, f.next(), "the sealed segment does not match the segment list")
	}
	if !allZero(f.b[f.end:]) {
		return f.s.bad.file(f.path, "there are bytes after the sealed segment")
	}
	return nil
}

// checkTail decides whether the bytes after the last complete batch of the
// last segment are a torn append or damage.
func (f *segmentFile) checkTail() (t tailScan, err error) {
	t = tailScan{info: f.info, path: f.path, end: int64(f.end), dirty: int64(f.end),
		last: f.next() - 1, indexStart: uint64(f.indexStart)}
	rest := trimZeros(f.b[f.end:])
	if f.indexStart > 0 {
		if len(rest) > 0 {
			return t, f.s.bad.file(f.path, "there are bytes after the sealed segment")
		}
		return t, nil
	}
	// A torn append starts directly after the last complete batch, and nothing
	// follows it. A trailer may end with zeros, so extend the search by the
	// length of a trailer.
	search := f.b[f.end:min(f.end+len(rest)+trailerLen, len(f.b))]
	for at := 0; ; at++ {
		n := bytes.Index(search[at:], f.s.m[:])
		if n < 0 {
			break
		}
		at += n
		if tr, ok := decodeTrailer(search[at:], f.s.m); ok && tr.batch != f.next() {
			return t, f.s.bad.at(f.path, f.next(), "%s, and an entry of a later append (index %d) follows it, "+
				"so it had been acknowledged", f.stop, tr.index)
		}
	}
	t.dirty += int64(len(rest))
	return t, nil
}

var zeroBlock [4096]byte

// trimZeros returns b without the zeros at its end. It compares in blocks,
// because most of a segment is zeros.
func trimZeros(b []byte) []byte {
	for n := len(zeroBlock); len(b) >= n && bytes.Equal(b[len(b)-n:], zeroBlock[:]); {
		b = b[:len(b)-n]
	}
	return bytes.TrimRight(b, "\x00")
}

func allZero(b []byte) bool { return len(trimZeros(b)) == 0 }
