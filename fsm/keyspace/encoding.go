package keyspace

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// These are the flags of an object in a snapshot.
const (
	flagRaw = 1 // strings: see Object.Raw
	flagBig = 2 // collections: see Collection.Big
	// flagGroups marks a stream with groups. Programs that do not know groups
	// refuse an object with this flag.
	flagGroups = 4
	// markShift is the position of the two bits with the LockMark of a string.
	markShift = 3
	flagMark  = 3 << markShift
)

// AppendObject appends the encoding of an object: a string with its value, or a
// collection with the numbers of its elements and of its groups. AppendElements
// encodes the elements. These encodings must not change, because snapshots are
// kept on disk.
func AppendObject(b []byte, db int, o *Object) []byte {
	b = append(b, byte(db), byte(o.Type))
	var flags byte
	if o.Raw {
		flags |= flagRaw
	}
	if o.Coll != nil && o.Coll.Big {
		flags |= flagBig
	}
	if o.Coll != nil && o.Coll.Stream.Groups.Len() > 0 {
		flags |= flagGroups
	}
	b = append(b, flags|byte(o.Mark)<<markShift)
	b = codec.AppendString(b, o.Key)
	b = binary.AppendUvarint(b, uint64(o.Token))
	b = binary.AppendUvarint(b, uint64(o.Version))
	b = binary.AppendVarint(b, o.Touched)
	b = binary.AppendVarint(b, o.Deadline)
	b = binary.AppendVarint(b, o.ExpireAt)
	if o.Coll != nil {
		b = binary.AppendUvarint(b, uint64(o.Coll.Len(o.Type)))
		if o.Type == TypeStream {
			b = stream.AppendInfo(b, &o.Coll.Stream.Info)
		}
		if l := o.Coll.Lock; l != nil {
			b = binary.AppendVarint(binary.AppendUvarint(b, uint64(l.Limit)), l.Due)
		}
		if flags&flagGroups != 0 {
			b = binary.AppendUvarint(b, uint64(o.Coll.Stream.Groups.Len()))
		}
		return b
	}
	return codec.AppendString(b, o.Str)
}

// ReadObject reads the encoding of AppendObject into o, which must be empty. It
// also returns the database, and the numbers of the elements and of the groups
// that follow. If view is set, o.Key and o.Str share the memory of the input,
// and o must not be used after the input has changed.
func ReadObject(d *codec.Decoder, o *Object, view bool) (db int, elements, groups uint64, err error) {
	text := func() string {
		b := d.Bytes()
		if view {
			return codec.View(b)
		}
		return string(b)
	}
	db = int(d.Byte())
	o.Type = Type(d.Byte())
	flags := d.Byte()
	o.Raw = flags&flagRaw != 0
	o.Key = text()
	o.Token = Pos(d.Uvarint())
	o.Version = Pos(d.Uvarint())
	o.Touched = d.Varint()
	o.Deadline = d.Varint()
	o.ExpireAt = d.Varint()
	o.Mark = LockMark(flags & flagMark >> markShift)
	allowed := byte(flagRaw)
	switch o.Type {
	case TypeString:
		if o.Mark <= IsLock {
			allowed |= flagMark
		}
	case TypeStream:
		allowed = flagBig | flagGroups
	case TypeLock:
		allowed = 0
	default:
		allowed = flagBig
	}
	if d.Err == nil && (db >= Databases || o.Type > TypeLock || flags&^allowed != 0) {
		return 0, 0, 0, fmt.Errorf("object in db %d of type %d, flags %#x: %w", db, o.Type, flags, codec.ErrVersion)
	}
	o.Hash = container.Hash([]byte(o.Key))
	if o.Type == TypeString {
		o.Str = text()
		return db, 0, 0, d.Err
	}
	if elements = d.Uvarint(); d.Err == nil && (elements == 0 && o.Type != TypeStream || elements > MaxElements) {
		return 0, 0, 0, fmt.Errorf("key %q with %d elements: %w", o.Key, elements, codec.ErrFormat)
	}
	o.Coll = NewCollection(o.Type)
	if flags&flagBig != 0 {
		o.Coll.Grow(nil, o.Type)
	}
	if o.Type == TypeStream {
		o.Coll.Stream.Info = stream.ReadInfo(d)
	}
	if l := o.Coll.Lock; l != nil && !readLock(d, l) && d.Err == nil {
		return 0, 0, 0, fmt.Errorf("lock %q: %w", o.Key, codec.ErrFormat)
	}
	if flags&flagGroups != 0 {
		if groups = d.Uvarint(); d.Err == nil && (groups == 0 || groups > MaxElements) {
			return 0, 0, 0, fmt.Errorf("key %q with %d groups: %w", o.Key, groups, codec.ErrFormat)
		}
	}
	return db, elements, groups, d.Err
}

// AppendElements appends the encoding of each element of a collection to *b. It
// calls added after each element until added returns false. added may shorten
// *b.
func (o *Object) AppendElements(b *[]byte, added func() bool) {
	switch v := o.Coll; o.Type {
	case TypeHash:
		v.Hash.Ascend(0, func(e *container.Item[string]) bool {
			*b = codec.AppendString(codec.AppendString(*b, e.Name), e.Value)
			return added()
		})
	case TypeList:
		v.List.Ascend(0, func(s *string) bool {
			*b = codec.AppendString(*b, *s)
			return added()
		})
	case TypeSet:
		v.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
			*b = codec.AppendString(*b, e.Name)
			return added()
		})
	case TypeStream:
		v.Stream.Entries.Ascend(0, func(e *stream.Entry) bool {
			*b = stream.AppendEntry(*b, e)
			return added()
		})
	case TypeLock:
		v.Lock.Ascend(func(h *Holder) bool {
			*b = appendHolder(*b, h)
			return added()
		})
	case TypeZSet:
		v.Order.Ascend(0, func(m *container.Scored) bool {
			*b = codec.AppendString(binary.LittleEndian.AppendUint64(*b, math.Float64bits(m.Score)), m.Member)
			return added()
		})
	}
}

// ReadElement reads one element and adds it to the collection of o. The nodes
// that it creates belong to owner.
func ReadElement(d *codec.Decoder, o *Object, owner *container.Owner) error {
	v, size := o.Coll, o.Coll.Len(o.Type)
	switch o.Type {
	case TypeHash:
		field := string(d.Bytes())
		v.PutField(owner, field, string(d.Bytes()))
	case TypeList:
		v.List.Insert(owner, size, string(d.Bytes()))
	case TypeSet:
		v.PutMember(owner, string(d.Bytes()))
	case TypeStream:
		if err := stream.ReadEntry(d, &v.Stream, owner); err != nil {
			return fmt.Errorf("entry of key %q: %w", o.Key, err)
		}
	case TypeLock:
		if err := readHolder(d, o, owner); err != nil {
			return err
		}
	case TypeZSet:
		if len(d.Rest) < 8 {
			d.Fail()
			break
		}
		score := math.Float64frombits(binary.LittleEndian.Uint64(d.Rest))
		d.Rest = d.Rest[8:]
		if math.IsNaN(score) {
			return fmt.Errorf("score of key %q: %w", o.Key, codec.ErrFormat)
		}
		v.PutScore(owner, string(d.Bytes()), score)
	}
	if d.Err == nil && o.Coll.Len(o.Type) == size {
		return fmt.Errorf("duplicate element of key %q: %w", o.Key, codec.ErrFormat)
	}
	return d.Err
}
