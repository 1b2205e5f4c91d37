package keyspace

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// MaxElements is the maximum number of elements of one collection. A command
// that would exceed it fails. The limit of Redis is 2^32-1.
const MaxElements = 1 << 26

// These are the limits of the compact encodings of Redis. A value that exceeds one
// of them gets the encoding of large values and keeps it, even if the value
// shrinks again. The limits are part of the meaning of an entry, because the
// encoding decides the order of the elements.
const (
	CompactMembers = 128 // members of a sorted set
	CompactBytes   = 64  // bytes of each name and value
	compactFields  = 512 // fields of a hash
	intsetEntries  = 512 // members of a set of integers
)

// Collection is the value of a key that is not a string. An object uses only
// the fields of its type. Each node of its sequences belongs to an owner, and
// other collections may share the node: see the package comment.
type Collection struct {
	// Big is set if the value has exceeded the limits of the compact encoding.
	// The encoding decides the order of the elements.
	Big bool

	Hash  container.Dict[string]
	List  container.Seq[string]
	Set   container.Dict[struct{}]
	Score container.Dict[float64]         // scores of a sorted set, by member
	Order container.Seq[container.Scored] // members of a sorted set, in the order of their scores

	Stream stream.Stream

	Lock *Lock // set if the value is a lock; to change it, see Object.EditLock
}

// NewCollection returns an empty value of type t.
func NewCollection(t Type) *Collection {
	v := &Collection{}
	switch t {
	case TypeHash:
		v.Hash.Order = container.ByArrival
	case TypeSet:
		v.Set.Order = container.ByNumber
	case TypeLock:
		v.Lock = &Lock{}
	}
	return v
}

// Len returns the number of elements of a value of type t.
func (v *Collection) Len(t Type) int {
	switch t {
	case TypeHash:
		return v.Hash.Len()
	case TypeList:
		return v.List.Len()
	case TypeSet:
		return v.Set.Len()
	case TypeStream:
		return v.Stream.Entries.Len()
	case TypeLock:
		return v.Lock.Len()
	}
	return v.Order.Len()
}

// Encoding returns the name of the encoding that Redis would use for a value that
// is not a string. For a Lock, which Redis does not have, it returns "holders".
func (o *Object) Encoding() string {
	switch {
	case o.Type == TypeList:
		return "quicklist"
	case o.Type == TypeStream:
		return "stream"
	case o.Type == TypeLock:
		return "holders"
	case o.Type == TypeZSet && o.Coll.Big:
		return "skiplist"
	case o.Coll.Big:
		return "hashtable"
	case o.Type == TypeSet:
		return "intset"
	}
	return "listpack"
}

// Grow converts a value of type t to the encoding of large values.
func (v *Collection) Grow(o *container.Owner, t Type) {
	if v.Big {
		return
	}
	v.Big = true
	switch t {
	case TypeHash:
		v.Hash.Rehash(o)
	case TypeSet:
		v.Set.Rehash(o)
	}
}

// PutField sets a field of a hash and reports whether the field is new. It
// copies the name of a new field, but not the value.
func (v *Collection) PutField(o *container.Owner, field, value string) (added bool) {
	if len(field) > CompactBytes || len(value) > CompactBytes {
		v.Grow(o, TypeHash)
	}
	added = v.Hash.Put(o, field, value)
	if v.Hash.Len() > compactFields {
		v.Grow(o, TypeHash)
	}
	return added
}

// PutMember adds a member to a set and reports whether the member is new. The
// set keeps a copy of the string.
func (v *Collection) PutMember(o *container.Owner, member string) (added bool) {
	if _, ok := number.ParseInt([]byte(member)); !ok {
		v.Grow(o, TypeSet)
	}
	if _, ok := v.Set.Find(member); ok {
		return false
	}
	v.Set.Put(o, member, struct{}{})
	if v.Set.Len() > intsetEntries {
		v.Grow(o, TypeSet)
	}
	return true
}

// PutScore sets the score of a member of a sorted set and replaces the old score
// if there is one. The sorted set keeps a copy of the string.
func (v *Collection) PutScore(o *container.Owner, member string, score float64) {
	i, ok := v.Score.Find(member)
	if !ok && (v.Order.Len() >= CompactMembers || len(member) > CompactBytes) {
		v.Big = true
	}
	if !v.Big && score == 0 {
		score = 0 // the compact encoding of Redis does not preserve -0
	}
	if ok {
		e := v.Score.At(i)
		v.Order.Delete(o, v.Rank(container.Scored{Score: e.Value, Member: e.Name}))
		e.Value = score
		v.Score.Set(o, i, e)
		n := container.Scored{Score: score, Member: e.Name}
		v.Order.Insert(o, v.Rank(n), n)
		return
	}
	member = strings.Clone(member)
	v.Score.Put(o, member, score)
	n := container.Scored{Score: score, Member: member}
	v.Order.Insert(o, v.Rank(n), n)
}

// CompactScores converts a sorted set to the compact encoding if its members
// are few and short enough.
func (v *Collection) CompactScores(o *container.Owner) {
	if v.Order.Len() > CompactMembers {
		return
	}
	small := NewCollection(TypeZSet)
	v.Order.Ascend(0, func(m *container.Scored) bool {
		small.PutScore(o, m.Member, m.Score)
		return !small.Big
	})
	if !small.Big {
		*v = *small
	}
}

// Rank returns the position of a member in the order of scores.
func (v *Collection) Rank(m container.Scored) int {
	return v.Order.Search(func(e *container.Scored) bool { return e.Compare(&m) < 0 })
}

// DeleteScore removes a member of a sorted set and reports whether the sorted set
// contained it.
func (v *Collection) DeleteScore(o *container.Owner, member string) bool {
	score, ok := v.Score.Get(member)
	if ok {
		v.Score.Remove(o, member)
		v.Order.Delete(o, v.Rank(container.Scored{Score: score, Member: member}))
	}
	return ok
}

// Push adds an element at one end of a list.
func (v *Collection) Push(o *container.Owner, left bool, element string) {
	at := v.List.Len()
	if left {
		at = 0
	}
	v.List.Insert(o, at, element)
}

// Pop removes and returns the element at one end of a list, which must not be
// empty.
func (v *Collection) Pop(o *container.Owner, left bool) string {
	at := v.List.Len() - 1
	if left {
		at = 0
	}
	return v.List.Delete(o, at)
}

// Offset converts an index of a list to a position. A negative index counts
// from the end. Offset returns false if the list has no such position.
func (v *Collection) Offset(index int64) (int, bool) {
	n := int64(v.List.Len())
	if index < 0 {
		index += n
	}
	return int(index), index >= 0 && index < n
}

// DeleteMember removes a member of a set and reports whether the set contained
// it.
func (v *Collection) DeleteMember(o *container.Owner, member string) bool {
	return v.HasMember(member) && v.Set.Remove(o, member)
}

// HasMember reports whether a set contains a member. A set of integers can
// contain only integers.
func (v *Collection) HasMember(member string) bool {
	if !v.Big {
		if _, ok := number.ParseInt([]byte(member)); !ok {
			return false
		}
	}
	_, ok := v.Set.Find(member)
	return ok
}

const (
	// ElementOverhead is the estimated memory of an element in addition to its
	// text, in bytes.
	ElementOverhead = 48
	// pendingOverhead is the estimated memory of a pending entry, including its
	// ID in the list of its consumer, in bytes.
	pendingOverhead = 96
	// memorySamples is the maximum number of elements that an estimate reads,
	// as in Redis.
	memorySamples = 5
)

// Memory estimates the size of a collection from its first elements, in bytes.
func (v *Collection) Memory(t Type) int64 {
	if t == TypeLock {
		return v.Lock.memory()
	}
	bytes, seen := 0, 0
	look := func(n int) bool {
		bytes += n
		seen++
		return seen < memorySamples
	}
	switch t {
	case TypeHash:
		v.Hash.Ascend(0, func(e *container.Item[string]) bool { return look(len(e.Name) + len(e.Value)) })
	case TypeList:
		v.List.Ascend(0, func(s *string) bool { return look(len(*s)) })
	case TypeSet:
		v.Set.Ascend(0, func(e *container.Item[struct{}]) bool { return look(len(e.Name)) })
	case TypeStream:
		v.Stream.Entries.Ascend(0, func(e *stream.Entry) bool {
			n := 16
			for _, f := range e.Fields {
				n += len(f)
			}
			return look(n)
		})
	case TypeZSet:
		v.Order.Ascend(0, func(m *container.Scored) bool { return look(len(m.Member) + ElementOverhead) })
	}
	n := int64(v.Len(t))
	return n*ElementOverhead + n*int64(bytes)/int64(max(seen, 1)) + v.groupsMemory()
}

// groupsMemory estimates the size of the groups of a stream, in bytes.
func (v *Collection) groupsMemory() int64 {
	n := int64(0)
	v.Stream.Groups.Ascend(0, func(g *stream.Group) bool {
		n += int64(len(g.Name)) + ElementOverhead + int64(g.Pending.Len())*pendingOverhead
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			n += int64(len(k.Name)) + ElementOverhead
			return true
		})
		return true
	})
	return n
}
