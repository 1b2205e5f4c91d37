package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
)

// These functions define the encoding of streams in snapshots. It must not
// change, because snapshots are kept on disk.

// AppendID appends the encoding of an ID.
func AppendID(b []byte, id ID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.Ms), id.Seq)
}

// ReadID reads the encoding of AppendID.
func ReadID(d *codec.Decoder) ID { return ID{Ms: d.Uvarint(), Seq: d.Uvarint()} }

// AppendInfo appends the encoding of the parts of a stream other than its entries
// and groups.
func AppendInfo(b []byte, s *Info) []byte {
	b = AppendID(AppendID(b, s.Last), s.MaxDeleted)
	return binary.AppendUvarint(b, s.Added)
}

// ReadInfo reads the encoding of AppendInfo.
func ReadInfo(d *codec.Decoder) Info {
	return Info{Last: ReadID(d), MaxDeleted: ReadID(d), Added: d.Uvarint()}
}

// AppendEntry appends the encoding of an entry.
func AppendEntry(b []byte, e *Entry) []byte {
	b = binary.AppendUvarint(AppendID(b, e.ID), uint64(len(e.Fields)))
	for _, f := range e.Fields {
		b = codec.AppendString(b, f)
	}
	return b
}

// ReadEntry reads the encoding of AppendEntry and appends the entry to s. It
// returns an error if the ID of the entry is not higher than the IDs of the
// entries of s, or if it is higher than s.Last.
func ReadEntry(d *codec.Decoder, s *Stream, owner *container.Owner) error {
	e := Entry{ID: ReadID(d)}
	n := d.Uvarint()
	if d.Err == nil && (n == 0 || n%2 != 0 || n > uint64(len(d.Rest))) {
		return fmt.Errorf("%d fields and values: %w", n, codec.ErrFormat)
	}
	for ; n > 0 && d.Err == nil; n-- {
		e.Fields = append(e.Fields, string(d.Bytes()))
	}
	size := s.Entries.Len()
	if size > 0 && d.Err == nil && s.Entries.At(size-1).ID.Compare(e.ID) >= 0 ||
		e.ID.Compare(s.Last) > 0 {
		return fmt.Errorf("entry %v out of order: %w", e.ID, codec.ErrFormat)
	}
	s.Entries.Insert(owner, s.Entries.Len(), e)
	return d.Err
}

// AppendMoment appends the encoding of a moment.
func AppendMoment(b []byte, m Moment) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, m.Lease), m.Wall)
}

// ReadMoment reads the encoding of AppendMoment.
func ReadMoment(d *codec.Decoder) Moment {
	return Moment{Lease: d.Varint(), Wall: d.Varint()}
}
