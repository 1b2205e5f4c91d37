// Package bytequeue limits the total size of the large items that a sender has
// on their way at the same time. An item for which there is no room waits, in
// order of arrival. The sender does not put small items into the queue, but
// sends them at once. Therefore a small item waits behind at most as many bytes
// of large items as the limit allows, or behind one item that is larger than
// the limit.
package bytequeue

import "slices"

// Queue is a queue of large items. It is not safe for concurrent use.
type Queue[T any] struct {
	// Room is the maximum total size, in bytes, of the items that are on their
	// way. An item that is larger than Room is sent only while no other item is
	// on its way.
	Room int

	under   int // total size of the items that are on their way, in bytes
	waiting []item[T]
}

type item[T any] struct {
	x    T
	size int
}

// Enter reports whether x, of size bytes, may be sent now. If not, x waits, and
// a later call of Next returns it. The sender must call Leave with the same
// size when the item is no longer on its way.
func (q *Queue[T]) Enter(x T, size int) bool {
	if len(q.waiting) > 0 || !q.fits(size) {
		q.waiting = append(q.waiting, item[T]{x, size})
		return false
	}
	q.under += size
	return true
}

func (q *Queue[T]) fits(size int) bool { return q.under == 0 || q.under+size <= q.Room }

// Leave records that an item of size bytes is no longer on its way.
func (q *Queue[T]) Leave(size int) { q.under -= size }

// Next returns the item that has waited longest, if there is room for it. The
// item then counts as on its way.
func (q *Queue[T]) Next() (x T, ok bool) {
	if len(q.waiting) == 0 || !q.fits(q.waiting[0].size) {
		return x, false
	}
	first := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.under += first.size
	return first.x, true
}

// Remove removes the waiting items for which match returns true, and returns
// them in order.
func (q *Queue[T]) Remove(match func(x T) bool) (removed []T) {
	q.waiting = slices.DeleteFunc(q.waiting, func(i item[T]) bool {
		if !match(i.x) {
			return false
		}
		removed = append(removed, i.x)
		return true
	})
	return removed
}

// Waiting calls f for each waiting item, in order.
func (q *Queue[T]) Waiting(f func(x T)) {
	for _, i := range q.waiting {
		f(i.x)
	}
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int { return len(q.waiting) }
