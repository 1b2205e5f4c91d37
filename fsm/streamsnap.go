package fsm

import (
	"encoding/binary"
	"fmt"
)

func appendStreamID(b []byte, id streamID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.ms), id.seq)
}

func (d *decoder) streamID() streamID { return streamID{d.uvarint(), d.uvarint()} }

func appendStreamInfo(b []byte, s *streamInfo) []byte {
	b = appendStreamID(appendStreamID(b, s.last), s.maxDeleted)
	return binary.AppendUvarint(b, s.added)
}

func (d *decoder) streamInfo() streamInfo {
	return streamInfo{last: d.streamID(), maxDeleted: d.streamID(), added: d.uvarint()}
}

func appendEntry(b []byte, e *streamEntry) []byte {
	b = binary.AppendUvarint(appendStreamID(b, e.id), uint64(len(e.fields)))
	for _, f := range e.fields {
		b = appendString(b, f)
	}
	return b
}

// entry reads an entry behind those that a stream has.
func (d *decoder) entry(v *collection, owner *seqOwner) error {
	e := streamEntry{id: d.streamID()}
	n := d.uvarint()
	if d.err == nil && (n == 0 || n%2 != 0 || n > uint64(len(d.b))) {
		return fmt.Errorf("%d fields and values: %w", n, ErrFormat)
	}
	for ; n > 0 && d.err == nil; n-- {
		e.fields = append(e.fields, string(d.bytes()))
	}
	if size := v.stream.Len(); size > 0 && d.err == nil && v.stream.At(size-1).id.compare(e.id) >= 0 || e.id.compare(v.info.last) > 0 {
		return fmt.Errorf("entry %v out of order: %w", e.id, ErrFormat)
	}
	v.stream.Insert(owner, v.stream.Len(), e)
	return d.err
}
