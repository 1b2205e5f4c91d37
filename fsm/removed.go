package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// removed lets WATCH notice that an absent key existed in the meantime. A
// client that watches an absent key and then reads it may have seen a value.
// Its transaction must then fail, even if the key is absent again. Keys share
// buckets by their hash. A bucket contains the sum of the versions of the
// objects that were removed. A sum does not depend on the order of the
// removals. So the sum that a bucket will have after an expired key was removed
// is known before the removal. If another key of the bucket is removed, a
// transaction fails without need, and its client tries again as after any
// failed transaction.
//
// removed is part of the state from FeatureAbsent on.
type removed struct {
	counts bool
	sums   container.Seq[uint64] // all zeros if empty
}

// exchanges are the positions at which SWAPDB last exchanged each database. A
// watched key, present or absent, may have had another value between two
// exchanges, although no object has changed. So an exchange changes the
// versions of all keys of both databases. As with removed, a transaction may
// fail without need.
//
// exchanges is part of the state from FeatureMend on.
type exchanges [Databases]Pos

// append writes the exchanges into a snapshot. It writes nothing if there were
// none.
func (e *exchanges) append(b []byte) []byte {
	if *e == (exchanges{}) {
		return b
	}
	b = append(b, recordExchanged)
	for _, pos := range e {
		b = binary.AppendUvarint(b, uint64(pos))
	}
	return b
}

// exchanges reads the record that exchanges.append wrote.
func (l *snapshotLoader) exchanges(d *decoder) error {
	if l.m.exchanged != (exchanges{}) || l.m.features < FeatureMend {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	for i := range l.m.exchanged {
		l.m.exchanged[i] = Pos(d.uvarint())
	}
	if d.err == nil && l.m.exchanged == (exchanges{}) {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	return d.err
}

const (
	removedBuckets = 4096
	// absentVersion is a bit that marks the version of an absent key. All
	// positions are smaller.
	absentVersion = Pos(1) << 62
)

func removedBucket(hash uint64) int { return int(hash >> (container.HashBits - 12)) }

// add records that an object was removed.
func (r *removed) add(owner *container.Owner, o *object) {
	if !r.counts {
		return
	}
	if r.sums.Len() == 0 {
		for range removedBuckets {
			r.sums.Insert(owner, r.sums.Len(), 0)
		}
	}
	i := removedBucket(o.hash)
	r.sums.Set(owner, i, r.sums.At(i)+uint64(o.version))
}

// version returns the version of an absent key for WATCH. It is 0 if no key of
// the bucket was removed and the database was never exchanged. due is the
// object of the key if the key has expired and is not removed yet, else nil.
// Both parts of the sum only grow, so the sum changes whenever one of them
// does.
func (r *removed) version(hash uint64, due *object, exchanged Pos) Pos {
	if !r.counts {
		return 0
	}
	sum := uint64(exchanged)
	if r.sums.Len() > 0 {
		sum += r.sums.At(removedBucket(hash))
	}
	if due != nil {
		sum += uint64(due.version)
	}
	if sum == 0 {
		return 0
	}
	return absentVersion | Pos(sum)&(absentVersion-1)
}

// append writes the buckets that are not 0 into a snapshot. It writes nothing
// if removals are not counted.
func (r *removed) append(b []byte) []byte {
	if !r.counts {
		return b
	}
	n := 0
	var list []byte
	i := 0
	r.sums.Ascend(0, func(sum *uint64) bool {
		if *sum != 0 {
			n++
			list = binary.AppendUvarint(binary.AppendUvarint(list, uint64(i)), *sum)
		}
		i++
		return true
	})
	return append(binary.AppendUvarint(append(b, recordRemoved), uint64(n)), list...)
}

// removed reads the record that removed.append wrote.
func (l *snapshotLoader) removed(d *decoder) error {
	r := &l.m.removed
	if r.sums.Len() > 0 || r.counts && l.m.features < FeatureMend {
		return fmt.Errorf("duplicate record of removed keys: %w", ErrFormat)
	}
	r.counts = true
	l.m.features = max(l.m.features, FeatureAbsent)
	sums := make([]uint64, removedBuckets)
	next := uint64(0)
	n := d.uvarint()
	if n == 0 {
		return d.err
	}
	for ; n > 0 && d.err == nil; n-- {
		i, sum := d.uvarint(), d.uvarint()
		if d.err == nil && (i < next || i >= removedBuckets || sum == 0) {
			return fmt.Errorf("removed keys of bucket %d: %w", i, ErrFormat)
		}
		if d.err == nil {
			sums[i], next = sum, i+1
		}
	}
	for i, sum := range sums {
		r.sums.Insert(l.m.owner, i, sum)
	}
	return d.err
}
