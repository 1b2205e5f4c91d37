// Package keyspace contains the keys of a state machine and their values: the
// databases, the index of the keys that expire, and the encoding of keys and
// values in snapshots. It defines the content of values and keeps their parts
// consistent; the commands are in package command. Package fsm adds the effects
// of a change of a key: fencing tokens, events and waiters.
//
// A value of this package must not be used while another goroutine changes it.
// A DB and its clones are independent, and so are an ExpiryIndex and its
// clones. The clones share objects, so an Object must not be changed once a
// clone may contain it. The collections of objects share tree nodes. A change
// of a collection needs the container.Owner of the machine: it copies the tree
// nodes of other owners before it changes them, but changes the tree nodes of
// this owner in place. The changed collection may share these tree nodes with
// the collection from which it was copied, and the change then affects both.
//
// Lease clock times are nanoseconds since the cluster was formed.
package keyspace

import (
	"strings"
	"unsafe"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// Type is the type of a value. Its numbers are part of the format of snapshots.
type Type byte

// These are the types.
const (
	TypeString Type = iota
	TypeList
	TypeSet
	TypeZSet
	TypeHash
	TypeStream
	TypeLock // a lock that several owners hold: see Lock
)

// TypeNames are the names of the types in the reply to TYPE, by Type.
var TypeNames = [...]string{"string", "list", "set", "zset", "hash", "stream", "lock"}

// Object is a key with its value. Once a clone or a snapshot may share an
// object, the object is never changed, only replaced.
type Object struct {
	Hash uint64 // container.Hash of Key
	Key  string
	Str  string      // the value of a string
	Coll *Collection // the value of any other type
	// Deadline is the time on the lease clock at which the key expires, or 0
	// for never. ExpireAt is the same time on the wall clock, in milliseconds. It
	// is for EXPIRETIME, for comparing times to live, and for the TTL of a key
	// whose Deadline is fsm.Never. It does not decide when the key expires.
	Deadline int64
	ExpireAt int64
	// Token is the fencing token of the key's value: see package fsm. It only
	// grows. For a Lock, it is the token of the latest grant, which may have
	// ended. Version is the position of the last change that WATCH notices:
	// Ctx.StoreMetadata of package fsm does not change it.
	Token   Pos
	Version Pos
	Touched int64 // lease clock at the last write, for OBJECT IDLETIME
	Type    Type
	Raw     bool // a command such as APPEND, SETBIT or PFADD built the string, for OBJECT ENCODING
	// Granted is set if the object is a string and LOCK ACQUIRE made the grant
	// that Token identifies: see package fsm.
	Granted bool
	Mark    LockMark // NoLock unless the object is a string
}

// LockMark says whether a string is a lock. Its numbers are part of the format
// of snapshots.
type LockMark byte

const (
	// NoLock: the string is not known to be a lock.
	NoLock LockMark = iota
	// MadeIfAbsent: a command that sets only absent keys, such as SETNX, or a
	// native lock script made the string, without a time to live. The string
	// becomes a lock when it gets a time to live.
	MadeIfAbsent
	// IsLock: the string is a lock.
	IsLock
)

// NewObject returns an object for key with the string val. The key and val
// share one allocation.
func NewObject(key, val []byte) *Object {
	var both strings.Builder
	both.Grow(len(key) + len(val))
	both.Write(key)
	both.Write(val)
	s := both.String()
	return &Object{Hash: container.Hash(key), Key: s[:len(key)], Str: s[len(key):]}
}

// With returns a copy of o with the string val.
func (o *Object) With(val string) *Object {
	n := *o
	n.Str = val
	return &n
}

// Named returns a copy of o under another key.
func (o *Object) Named(key []byte) *Object {
	n := *o
	n.Key, n.Hash = string(key), container.Hash(key)
	return &n
}

// Integer returns the number that Redis would store instead of o's text. It
// returns false if Redis would store the text.
func (o *Object) Integer() (int64, bool) {
	if o.Raw || o.Type != TypeString {
		return 0, false
	}
	return number.ParseInt([]byte(o.Str))
}

// HasMember reports whether a set contains a member. o may be nil.
func (o *Object) HasMember(member string) bool { return o != nil && o.Coll.HasMember(member) }

// Members returns the number of members of a set or a sorted set. o may be nil.
func (o *Object) Members() int {
	if o == nil {
		return 0
	}
	return o.Coll.Len(o.Type)
}

// Overlaid returns a copy of o in which val overwrites the value from offset
// on. If the old value ends before offset, zeros fill the gap.
func (o *Object) Overlaid(offset int, val []byte) *Object {
	n, b := o.Extended(offset + len(val))
	copy(b[offset:], val)
	return n
}

// Extended returns a copy of o whose value has at least size bytes: zeros follow
// the old value. value shares the memory of the new value. The caller may change it
// until it uses n. The copy also has a new copy of the key. A key that shared the
// allocation of the old value would keep that whole allocation alive.
func (o *Object) Extended(size int) (n *Object, value []byte) {
	b := make([]byte, len(o.Key)+max(len(o.Str), size))
	copy(b, o.Key)
	value = b[len(o.Key):]
	copy(value, o.Str)
	both := unsafe.String(unsafe.SliceData(b), len(b))
	extended := *o
	extended.Key, extended.Str, extended.Raw = both[:len(o.Key)], both[len(o.Key):], true
	return &extended, value
}
