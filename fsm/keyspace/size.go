package keyspace

import "github.com/holdfast-kv/holdfast/fsm/container"

// These are the approximate sizes, in bytes, of the objects that a key needs in
// addition to its name and its value. TestMachine_Bytes of package fsm compares them
// with the heap. They are not part of the meaning of an entry.
const (
	objectBytes     = 128 // the object, and its slot in a DB
	expiryBytes     = 48  // the element of the ExpiryIndex
	collectionBytes = 320 // the Collection, and its first node
	lockBytes       = 640 // the Lock, and the first nodes of two more containers
)

// Bytes returns the approximate memory of the key and its value, in bytes. It
// depends only on the current content of both, and not on their history, so all
// nodes count the same size. It takes O(1).
func (o *Object) Bytes() int64 {
	n := objectBytes + container.TextBytes(len(o.Key)+len(o.Str))
	if o.Deadline != 0 {
		n += expiryBytes
	}
	if v := o.Coll; v != nil {
		n += collectionBytes + v.Hash.Bytes() + v.List.Bytes() + v.Set.Bytes() + v.Score.Bytes() + v.Order.Bytes() +
			v.Stream.Entries.Bytes() + v.Stream.Groups.Bytes()
		if l := v.Lock; l != nil {
			n += lockBytes + l.holders.Bytes() + l.owners.Bytes() + l.leases.Bytes()
		}
	}
	return n
}

// Bytes implements container.Sized.
func (h *Holder) Bytes() int64 {
	const words = 2 + 3 // owner, token, and the end of the lease
	return container.ItemBytes(words) + container.TextBytes(len(h.Owner))
}

// Bytes implements container.Sized.
func (e *leaseEnd) Bytes() int64 { return container.ItemBytes(2) }
