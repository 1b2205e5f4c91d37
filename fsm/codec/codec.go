// Package codec writes and reads the fields of entries, groups, snapshots and
// the files of the history of locks: variable-length integers as in
// encoding/binary, and strings that follow their length. These formats are kept
// on disk, so their encoding must not change.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// These errors report that bytes cannot be decoded.
var (
	// ErrShort means that the bytes end in the middle of a field.
	ErrShort = errors.New("ends in the middle of a field")
	// ErrChecksum means that bytes have changed since they were written.
	ErrChecksum = errors.New("checksum does not match")
	// ErrVersion means that a newer program must have written the bytes.
	ErrVersion = errors.New("format version is not known to this program")
	// ErrFormat means that the bytes do not have the required format.
	ErrFormat = errors.New("malformed")
)

// AppendString appends the length of s, in bytes, and then s.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Decoder reads fields one after the other. After an error, all further fields
// are read as zero, so a caller may read several fields before it checks Err. A
// Decoder is not safe for concurrent use.
type Decoder struct {
	Rest []byte // bytes that have not been read yet
	Err  error  // the first error
}

// Uvarint reads an unsigned integer of variable length.
func (d *Decoder) Uvarint() uint64 {
	// Nearly every field of a group takes one byte.
	if len(d.Rest) > 0 && d.Rest[0] < 0x80 {
		v := uint64(d.Rest[0])
		d.Rest = d.Rest[1:]
		return v
	}
	v, n := binary.Uvarint(d.Rest)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Varint reads a signed integer of variable length.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.Rest)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if len(d.Rest) == 0 {
		d.Fail()
		return 0
	}
	v := d.Rest[0]
	d.Rest = d.Rest[1:]
	return v
}

// Bytes reads a length and as many bytes. The result shares the memory of the
// input. Appending to the result copies it.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if n > uint64(len(d.Rest)) {
		d.Fail()
		return nil
	}
	v := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return v
}

// Fail records that the input ends in the middle of a field, unless there is an
// earlier error.
func (d *Decoder) Fail() {
	if d.Err == nil {
		d.Err = ErrShort
	}
	d.Rest = nil
}

// Done returns the first error, or an error if bytes are left.
func (d *Decoder) Done(what string) error {
	if d.Err != nil {
		return fmt.Errorf("%s: %w", what, d.Err)
	}
	if len(d.Rest) != 0 {
		return fmt.Errorf("%s: %d bytes too many: %w", what, len(d.Rest), ErrFormat)
	}
	return nil
}

// View returns a string that shares the memory of b. The string must not be
// used after b has changed.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
