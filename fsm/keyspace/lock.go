package keyspace

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
)

// MaxHolders is the maximum number of owners that may hold one lock at a time.
const MaxHolders = 10_000

// Lock is the value of a lock that several owners hold at a time. Each of them
// has its own fencing token and lease. The deadline of the object is the end of
// the last lease.
type Lock struct {
	// Limit is the maximum number of holders. It is 0 for a lock in the mode
	// SHARED, which only MaxHolders limits.
	Limit int
	// Due is the end of the lease that ends first. It is stored apart from the
	// field leases: a change of the lock may change the tree nodes of this
	// field in place, and the index of deadlines then still needs the Due of
	// the previous object.
	Due int64

	holders container.Seq[Holder]   // holders in the order of their tokens
	owners  container.Dict[Pos]     // token of each owner
	leases  container.Seq[leaseEnd] // ends of the leases in ascending order; equal ends are in the order of the tokens
}

// Holder is an owner that holds a Lock.
type Holder struct {
	Owner              string
	Token              Pos
	Deadline, ExpireAt int64 // end of the lease: see Object
}

// leaseEnd is the end of a lease.
type leaseEnd struct {
	deadline int64
	token    Pos
}

// Len returns the number of holders. It counts a holder whose lease has ended
// until an entry removes the holder.
func (l *Lock) Len() int { return l.holders.Len() }

// At returns a holder by its position in the order of tokens.
func (l *Lock) At(i int) Holder { return l.holders.At(i) }

// LiveAt returns the number of holders whose lease ends after a time on the
// lease clock.
func (l *Lock) LiveAt(now int64) int {
	return l.Len() - l.leases.Search(func(e *leaseEnd) bool { return e.deadline <= now })
}

// Ascend calls f for the holders in the order of their tokens until f returns
// false.
func (l *Lock) Ascend(f func(h *Holder) bool) { l.holders.Ascend(0, f) }

// position returns the position of a token among the holders.
func (l *Lock) position(token Pos) (int, bool) {
	i := l.holders.Search(func(h *Holder) bool { return h.Token < token })
	return i, i < l.Len() && l.holders.At(i).Token == token
}

// WithToken returns the holder with a token.
func (l *Lock) WithToken(token Pos) (h Holder, found bool) {
	i, found := l.position(token)
	if found {
		h = l.holders.At(i)
	}
	return h, found
}

// Of returns the holder with the given owner.
func (l *Lock) Of(owner string) (h Holder, found bool) {
	token, found := l.owners.Get(owner)
	if found {
		h, found = l.WithToken(token)
	}
	return h, found
}

// Add adds a holder, whose token must be higher than the tokens of the other
// holders and whose owner must not hold the lock.
func (l *Lock) Add(o *container.Owner, h Holder) {
	l.holders.Insert(o, l.Len(), h)
	l.owners.Put(o, h.Owner, h.Token)
	l.leases.Insert(o, l.leasePosition(h), leaseEnd{h.Deadline, h.Token})
	l.updateDue()
}

// Renew replaces the holder that has the token of h. Only the end of its lease
// may differ.
func (l *Lock) Renew(o *container.Owner, h Holder) {
	i, _ := l.position(h.Token)
	l.leases.Delete(o, l.leasePosition(l.holders.At(i)))
	l.holders.Set(o, i, h)
	l.leases.Insert(o, l.leasePosition(h), leaseEnd{h.Deadline, h.Token})
	l.updateDue()
}

// Remove removes a holder.
func (l *Lock) Remove(o *container.Owner, h Holder) {
	i, _ := l.position(h.Token)
	l.leases.Delete(o, l.leasePosition(l.holders.Delete(o, i)))
	l.owners.Remove(o, h.Owner)
	l.updateDue()
}

// First returns the holder whose lease ends first. There must be a holder.
func (l *Lock) First() Holder {
	h, _ := l.WithToken(l.leases.At(0).token)
	return h
}

// last returns the holder whose lease ends last. There must be a holder.
func (l *Lock) last() Holder {
	h, _ := l.WithToken(l.leases.At(l.leases.Len() - 1).token)
	return h
}

func (l *Lock) leasePosition(h Holder) int {
	return l.leases.Search(func(e *leaseEnd) bool {
		return e.deadline < h.Deadline || e.deadline == h.Deadline && e.token < h.Token
	})
}

func (l *Lock) updateDue() {
	if l.Due = 0; l.leases.Len() > 0 {
		l.Due = l.leases.At(0).deadline
	}
}

// NewLock returns an object for key with a lock that has no holder.
func NewLock(key []byte, limit int) *Object {
	o := NewObject(key, nil)
	o.Type, o.Coll = TypeLock, &Collection{Lock: &Lock{Limit: limit}}
	return o
}

// Due returns the time on the lease clock at which an entry must remove the
// object or a part of it. For a lock with several holders, this is the end of
// the first lease, and for all other objects the deadline. 0 means never.
func (o *Object) Due() int64 {
	if o.Type == TypeLock {
		return o.Coll.Lock.Due
	}
	return o.Deadline
}

// EditLock returns a copy of o with a copy of its lock, which the caller may
// change. The copy shares tree nodes with o, and a change of the copy may
// change these nodes in place. So o must not be used afterward, except to
// replace it with the copy.
func (o *Object) EditLock() *Object {
	n, l := *o, *o.Coll.Lock
	n.Coll = &Collection{Lock: &l}
	return &n
}

// UpdateEnd sets the deadline of an object to the end of the last lease of its
// lock, which must have a holder.
func (o *Object) UpdateEnd() {
	h := o.Coll.Lock.last()
	o.Deadline, o.ExpireAt = h.Deadline, h.ExpireAt
}

// memory estimates the size of a lock, in bytes.
func (l *Lock) memory() int64 {
	// The owner is stored twice, and each holder is an element of three
	// containers.
	n, bytes := int64(l.Len()), 0
	seen := 0
	l.Ascend(func(h *Holder) bool {
		bytes += 2 * len(h.Owner)
		seen++
		return seen < memorySamples
	})
	return 3*n*ElementOverhead + n*int64(bytes)/int64(max(seen, 1))
}

// appendHolder appends the encoding of a holder.
func appendHolder(b []byte, h *Holder) []byte {
	b = binary.AppendUvarint(codec.AppendString(b, h.Owner), uint64(h.Token))
	return binary.AppendVarint(binary.AppendVarint(b, h.Deadline), h.ExpireAt)
}

// readHolder reads the encoding of a holder and adds it to the lock of o.
func readHolder(d *codec.Decoder, o *Object, owner *container.Owner) error {
	h := Holder{
		Owner: string(d.Bytes()), Token: Pos(d.Uvarint()), Deadline: d.Varint(), ExpireAt: d.Varint(),
	}
	if d.Err != nil {
		return d.Err
	}
	l := o.Coll.Lock
	due := l.Due
	_, twice := l.Of(h.Owner)
	n := l.Len()
	if twice || h.Token > o.Token || n > 0 && l.At(n-1).Token >= h.Token || n == MaxHolders {
		return fmt.Errorf("holder with token %d of key %q: %w", h.Token, o.Key, codec.ErrFormat)
	}
	l.Add(owner, h)
	l.Due = due // keep the value that the record of the object announced; Add has changed it
	return nil
}

// CheckLock returns an error if the lock of an object that was read from a
// snapshot has too many holders, or differs from what the record of the object
// announced: due is the end of the lease that ends first, and deadline is the
// end of the lease that ends last.
func (o *Object) CheckLock(due, deadline int64) error {
	l := o.Coll.Lock
	if l.leases.At(0).deadline != due || l.last().Deadline != deadline || l.Limit > 0 && l.Len() > l.Limit {
		return fmt.Errorf("holders of key %q: %w", o.Key, codec.ErrFormat)
	}
	return nil
}

// MoveLeases replaces the end of each lease of a lock that is being read from a
// snapshot. move must not change the order of the ends.
func (o *Object) MoveLeases(owner *container.Owner, move func(h Holder) Holder) {
	moved := &Lock{Limit: o.Coll.Lock.Limit}
	o.Coll.Lock.Ascend(func(h *Holder) bool {
		moved.Add(owner, move(*h))
		return true
	})
	o.Coll = &Collection{Lock: moved}
	o.UpdateEnd()
}

// readLock reads the limit and the due time of a lock as AppendObject wrote
// them. It returns false if one of them is not allowed.
func readLock(d *codec.Decoder, l *Lock) bool {
	limit := d.Uvarint()
	l.Limit, l.Due = int(min(limit, math.MaxInt32)), d.Varint()
	return limit <= MaxHolders && l.Due != 0
}
