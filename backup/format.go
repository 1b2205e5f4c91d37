// Package backup reads and writes the files of the command holdfast backup. It is
// not a supported API.
//
// A backup file is a sequence of blocks after the magic string and the version:
//
//	"HFBACKUP" version
//	block: kind byte, length uint32, crc32c uint32 of kind and payload, payload
//
// All numbers are little-endian. The first block is the header, and the last
// block is the trailer. Both are in JSON. The blocks between them contain a
// snapshot of package fsm, which has checksums of its own. The trailer contains
// the size of the snapshot and the number of its keys, so a reader refuses a
// file that was cut off anywhere.
package backup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Version is the version of the format that this program writes.
const Version = 1

const (
	magic     = "HFBACKUP"
	blockSize = 256 << 10
	// maxBlock is the maximum length, in bytes, of a block that a reader
	// accepts.
	maxBlock = 16 << 20

	kindHeader  = 'H'
	kindData    = 'D'
	kindTrailer = 'E'

	blockHead = 1 + 4 + 4
)

// Header describes a backup.
type Header struct {
	fsm.SnapshotHead
	Node    string `json:"node"`    // id of the node that wrote the snapshot
	Created string `json:"created"` // RFC 3339, by the clock of the program that wrote the file
	Program string `json:"program"` // version of that program
}

// Trailer is the end of a backup.
type Trailer struct {
	Bytes int64 `json:"bytes"` // bytes of the snapshot
	Keys  int   `json:"keys"`
	// LongestTTL is the longest remaining time to live of a key, in nanoseconds.
	LongestTTL int64 `json:"longest_ttl"`
}

// DamagedError says that a file is not a whole backup.
type DamagedError struct {
	Offset int64 // offset, in the file, up to which all blocks were read
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("damaged backup, at byte %d: %s", e.Offset, e.Reason)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a backup file. It is not safe for concurrent use.
type Writer struct {
	w     *bufio.Writer
	buf   []byte
	bytes int64
}

// NewWriter writes the beginning of a backup file.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	b := &Writer{w: bufio.NewWriterSize(w, blockSize)}
	if _, err := b.w.WriteString(magic + string(rune(Version))); err != nil {
		return nil, err
	}
	return b, b.json(kindHeader, h)
}

func (w *Writer) json(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.block(kind, text)
}

func (w *Writer) block(kind byte, payload []byte) error {
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	head = binary.LittleEndian.AppendUint32(head, checksum(kind, payload))
	if _, err := w.w.Write(head); err != nil {
		return err
	}
	_, err := w.w.Write(payload)
	return err
}

func checksum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
}

// Write adds bytes of the snapshot.
func (w *Writer) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	w.bytes += int64(len(p))
	for len(w.buf) >= blockSize {
		if err := w.block(kindData, w.buf[:blockSize]); err != nil {
			return 0, err
		}
		w.buf = w.buf[:copy(w.buf, w.buf[blockSize:])]
	}
	return len(p), nil
}

// Close writes the end of the file with the trailer t. It fills in t.Bytes
// itself.
func (w *Writer) Close(t Trailer) error {
	if len(w.buf) > 0 {
		if err := w.block(kindData, w.buf); err != nil {
			return err
		}
	}
	t.Bytes = w.bytes
	if err := w.json(kindTrailer, t); err != nil {
		return err
	}
	return w.w.Flush()
}

// Reader reads a backup file. Its Read returns the bytes of the snapshot. It
// returns io.EOF only after the trailer has confirmed that these bytes are
// complete. Errors of Read about the content are *DamagedError.
type Reader struct {
	r       *bufio.Reader
	offset  int64 // offset, in the file, of the next block
	bytes   int64 // bytes of the snapshot
	rest    []byte
	err     error
	header  Header
	trailer Trailer
}

// NewReader reads the beginning of a backup file.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{r: bufio.NewReaderSize(r, blockSize)}
	head := make([]byte, len(magic)+1)
	if _, err := io.ReadFull(b.r, head); err != nil || string(head[:len(magic)]) != magic {
		return nil, &DamagedError{0, "it is not a backup file of holdfast"}
	}
	if v := head[len(magic)]; v != Version {
		return nil, fmt.Errorf("backup format %d, this program reads %d: use the program that wrote it, or a newer one",
			v, Version)
	}
	b.offset = int64(len(head))
	kind, payload, err := b.block()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader {
		return nil, b.damaged("the header is missing")
	}
	if err := json.Unmarshal(payload, &b.header); err != nil {
		return nil, b.damaged("the header does not decode: " + err.Error())
	}
	return b, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Trailer returns the trailer, after Read has returned io.EOF.
func (r *Reader) Trailer() Trailer { return r.trailer }

func (r *Reader) damaged(reason string) error { return &DamagedError{r.offset, reason} }

// block reads a block. It advances the offset only past whole blocks.
func (r *Reader) block() (kind byte, payload []byte, err error) {
	var head [blockHead]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, r.cut(err, "block head")
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n == 0 || n > maxBlock {
		return 0, nil, r.damaged(fmt.Sprintf("a block has the invalid length %d", n))
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r.r, payload); err != nil {
		return 0, nil, r.cut(err, fmt.Sprintf("block of %d bytes", n))
	}
	if checksum(head[0], payload) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, r.damaged("the checksum of a block does not match")
	}
	r.offset += blockHead + int64(n)
	return head[0], payload, nil
}

// cut returns the error for a block that could not be read because of err. The
// argument what names the part of the block that was being read.
func (r *Reader) cut(err error, what string) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.damaged("the file is cut off in a " + what)
	}
	return fmt.Errorf("read backup at byte %d: %w", r.offset, err)
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next reads the next block. It returns io.EOF after the trailer.
func (r *Reader) next() error {
	kind, payload, err := r.block()
	switch {
	case err != nil:
		return err
	case kind == kindData:
		r.rest = payload
		r.bytes += int64(len(payload))
		return nil
	case kind != kindTrailer:
		return r.damaged(fmt.Sprintf("a block has the unknown kind %q", kind))
	}
	if err := json.Unmarshal(payload, &r.trailer); err != nil {
		return r.damaged("the trailer does not decode: " + err.Error())
	}
	if r.trailer.Bytes != r.bytes {
		return r.damaged(fmt.Sprintf("it contains %d bytes of data instead of %d", r.bytes, r.trailer.Bytes))
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return r.damaged("there are bytes after the end")
	}
	return io.EOF
}
