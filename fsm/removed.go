package fsm

import (
	"encoding/binary"
	"fmt"
)

// removed tells WATCH whether a key that is absent was there in between: who
// watches an absent key and then reads it may have seen a value, and must not
// commit when it is gone again. Keys share buckets by their hash; a bucket holds the
// sum of the versions of the objects that were removed. A sum does not depend on the
// order, and so it is known beforehand what it will be when a key has expired that
// is still to be taken out. Another key of the bucket that is removed makes a
// transaction fail for nothing; its client tries again, as always.
//
// It is part of the state, from FeatureAbsent on.
type removed struct {
	counts bool
	sums   seq[uint64] // all zeros if empty
}

const (
	removedBuckets = 4096
	// absentVersion marks the version of an absent key: no position is as large.
	absentVersion = Pos(1) << 62
)

func removedBucket(hash uint64) int { return int(hash >> (hashBits - 12)) }

// add notes that an object was removed.
func (r *removed) add(owner *seqOwner, o *object) {
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

// version is what WATCH remembers of an absent key: 0 if nothing that shares its
// bucket was removed. due is the object of the key if it has expired and is
// still to be taken out, or nil.
func (r *removed) version(hash uint64, due *object) Pos {
	if !r.counts {
		return 0
	}
	sum := uint64(0)
	if r.sums.Len() > 0 {
		sum = r.sums.At(removedBucket(hash))
	}
	if due != nil {
		sum += uint64(due.version)
	}
	if sum == 0 {
		return 0
	}
	return absentVersion | Pos(sum)&(absentVersion-1)
}

// append writes the buckets that are not 0 into a snapshot, nothing if they are not
// counted.
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

// removed reads what append has written.
func (l *snapshotLoader) removed(d *decoder) error {
	r := &l.m.removed
	if r.sums.Len() > 0 || r.counts && l.m.features < FeatureMend {
		return fmt.Errorf("removed keys twice: %w", ErrFormat)
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
