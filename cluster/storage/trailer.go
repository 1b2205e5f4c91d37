package storage

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// Every stored entry ends with a trailer, after the content of
// raft.Log.Extensions. raft-boltdb has no checksums, and raft-wal checks only
// the checksum of its last batch, and only at start. Neither would detect a bit
// that flips later.
//
//	0  mark   8 bytes, random, one for each data directory
//	8  batch  uint64, index of the first entry of the append
//	16  index  uint64, index of this entry
//	24  sum    uint32, CRC-32C of the entry
//	28  check  uint32, CRC-32C of bytes 0..27
//
// The mark is random and never leaves this node. So no client can write a value
// that looks like a trailer to the scan for lost batches (walscan.go), and an
// entry of another directory is not mistaken for an entry of this one. The
// field check tells that scan whether a trailer is complete.
const trailerLen = 32

// mark is the entry mark of a data directory.
type mark [8]byte

// trailer is the decoded trailer of one entry.
type trailer struct {
	batch uint64
	index uint64
	sum   uint32
}

// append appends the trailer to b.
func (t trailer) append(b []byte, m mark) []byte {
	n := len(b)
	b = append(b, m[:]...)
	b = binary.LittleEndian.AppendUint64(b, t.batch)
	b = binary.LittleEndian.AppendUint64(b, t.index)
	b = binary.LittleEndian.AppendUint32(b, t.sum)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// decodeTrailer decodes the trailer at the start of b.
func decodeTrailer(b []byte, m mark) (t trailer, ok bool) {
	if len(b) < trailerLen || [8]byte(b) != m {
		return t, false
	}
	if crc32.Checksum(b[:28], castagnoli) != binary.LittleEndian.Uint32(b[28:]) {
		return t, false
	}
	t.batch = binary.LittleEndian.Uint64(b[8:])
	t.index = binary.LittleEndian.Uint64(b[16:])
	t.sum = binary.LittleEndian.Uint32(b[24:])
	return t, true
}

// entrySum returns the checksum of all fields of an entry. ext is the content
// of Extensions without the trailer.
func entrySum(l *raft.Log, ext []byte, batch uint64) uint32 {
	var h [53]byte
	binary.LittleEndian.PutUint64(h[0:], l.Index)
	binary.LittleEndian.PutUint64(h[8:], l.Term)
	binary.LittleEndian.PutUint64(h[16:], batch)
	binary.LittleEndian.PutUint64(h[24:], uint64(len(l.Data)))
	binary.LittleEndian.PutUint64(h[32:], uint64(len(ext)))
	binary.LittleEndian.PutUint64(h[40:], uint64(l.AppendedAt.Unix()))
	binary.LittleEndian.PutUint32(h[48:], uint32(l.AppendedAt.Nanosecond()))
	h[52] = byte(l.Type)
	sum := crc32.Checksum(h[:], castagnoli)
	sum = crc32.Update(sum, castagnoli, l.Data)
	return crc32.Update(sum, castagnoli, ext)
}

// sealLogs returns copies of logs that carry trailers. It does not modify the
// originals, because raft's log cache and its replication goroutines use them
// too.
func sealLogs(logs []*raft.Log, m mark) []*raft.Log {
	vals := make([]raft.Log, len(logs))
	refs := make([]*raft.Log, len(logs))
	batch := logs[0].Index
	for i, l := range logs {
		vals[i] = *l
		ext := make([]byte, 0, len(l.Extensions)+trailerLen)
		ext = append(ext, l.Extensions...)
		t := trailer{batch: batch, index: l.Index, sum: entrySum(l, l.Extensions, batch)}
		vals[i].Extensions = t.append(ext, m)
		refs[i] = &vals[i]
	}
	return refs
}

// unsealLog checks the trailer of a stored entry and removes it. It returns a
// description of the damage, or "" if there is none.
func unsealLog(l *raft.Log, index uint64, m mark) string {
	n := len(l.Extensions) - trailerLen
	if n < 0 {
		return "the entry has no checksum"
	}
	t, ok := decodeTrailer(l.Extensions[n:], m)
	if !ok {
		return "the entry has no valid checksum of this data directory"
	}
	ext := l.Extensions[:n:n]
	if l.Index != index || t.index != index {
		return "the entry belongs to another index"
	}
	if t.sum != entrySum(l, ext, t.batch) {
		return "the checksum of the entry does not match"
	}
	if n == 0 {
		ext = nil
	}
	l.Extensions = ext
	return ""
}
