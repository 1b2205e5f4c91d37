// Package locklist finds the oldest locks of a database for LOCK LIST. Only the
// locks that LOCK ACQUIRE has taken are in an index. If the database has other
// locks, such as those of SET NX, LOCK LIST visits all its keys. A client that
// asks for all pages of the list must not cause such a walk for each page. So
// one walk finds the locks of many pages, and Pages keeps them.
package locklist

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// Lock identifies a grant of a lock.
type Lock struct {
	Token keyspace.Pos
	Hash  uint64 // hash of the key
}

// LockBytes is the memory of a Lock.
const LockBytes = 16

// Oldest accepts locks in any order and keeps those with the lowest tokens.
type Oldest struct {
	most int
	heap []Lock // no lock has a higher token than its parent, which is at (i-1)/2
	left bool   // Add has dropped a lock
}

// NewOldest returns an empty Oldest that keeps at most the given number of
// locks, which must be positive.
func NewOldest(most int) *Oldest { return &Oldest{most: most} }

// Ignores reports whether Add would have no effect for a lock with this token.
func (o *Oldest) Ignores(token keyspace.Pos) bool {
	return o.left && len(o.heap) == o.most && token > o.heap[0].Token
}

// Add adds a lock. The lock with the highest token is dropped if there are too
// many. Add reports whether o needs more memory than before.
func (o *Oldest) Add(l Lock) (grown bool) {
	switch {
	case len(o.heap) < o.most:
		o.heap = append(o.heap, l)
		for i := len(o.heap) - 1; i > 0; {
			parent := (i - 1) / 2
			if o.heap[parent].Token >= o.heap[i].Token {
				break
			}
			o.heap[parent], o.heap[i] = o.heap[i], o.heap[parent]
			i = parent
		}
		return true
	case l.Token < o.heap[0].Token:
		o.heap[0] = l
		sink(o.heap)
	}
	o.left = true
	return false
}

// sink moves the first lock down to its position in the heap.
func sink(heap []Lock) {
	for i := 0; ; {
		high := 2*i + 1
		if high+1 < len(heap) && heap[high+1].Token > heap[high].Token {
			high++
		}
		if high >= len(heap) || heap[high].Token <= heap[i].Token {
			return
		}
		heap[i], heap[high] = heap[high], heap[i]
		i = high
	}
}

// Sorted returns the locks in the order of their tokens. If Add has dropped
// locks, next is the lowest token that a dropped lock can have; otherwise, next
// is 0. Sorted calls step for each lock except one. o must not be used
// afterward.
func (o *Oldest) Sorted(step func()) (locks []Lock, next keyspace.Pos) {
	for n := len(o.heap) - 1; n > 0; n-- {
		step()
		o.heap[0], o.heap[n] = o.heap[n], o.heap[0]
		sink(o.heap[:n])
	}
	if o.left {
		next = o.heap[len(o.heap)-1].Token + 1
	}
	return o.heap, next
}

// Query selects locks.
type Query struct {
	DB               int
	Match, Owner     string // "" for any; see also ByMatch and ByOwner
	ByMatch, ByOwner bool   // only the locks that match Match or have Owner, even if these are ""
	// Exchanged is the position of the last SWAPDB, restore or flush of many keys
	// that gave the database other locks or removed its locks.
	Exchanged keyspace.Pos
}

const (
	// walkParts is the number of walks that list all locks of a database if
	// each of its keys is a lock, and if neither minKept nor maxKept applies.
	walkParts = 16
	// minKept and maxKept bound the result of Keep.
	minKept = 1 << 14
	maxKept = 1 << 18
	// maxPages is the maximum number of walks whose locks Pages keeps.
	maxPages = 4
	// maxAge is the time for which the locks of a walk are used, in nanoseconds
	// of the lease clock.
	maxAge = int64(60e9)
)

// Keep returns the maximum number of locks that a walk through a database with
// the given number of keys should keep.
func Keep(keys int) int { return min(max(keys/walkParts, minKept), maxKept) }

// Keeper keeps the locks that the last walks have found: see Pages.
type Keeper interface {
	Find(q Query, from keyspace.Pos, now int64) (locks []Lock, next keyspace.Pos, found bool)
	Put(q Query, from, next keyspace.Pos, locks []Lock, now int64)
}

// Pages is a Keeper. It is not safe for concurrent use. The zero value is empty.
//
// A grant that begins after a walk has a higher token than all locks of the
// walk, and a grant keeps its token and its key until it ends. So the locks of
// a walk include every lock that was held at the time of the walk, is still
// held, and has a token in the range of the walk. A client that asks for all
// pages of the list therefore misses none of these locks.
type Pages struct {
	pages []page // in the order of their last use, the latest one last
}

// page contains the locks that a walk found. For the token t of each lock,
// from <= t < next.
type page struct {
	query      Query
	from, next keyspace.Pos
	locks      []Lock
	made       int64 // lease clock at the time of the walk
}

// Find returns the locks that Put has added at most maxAge ago for a query and
// for a range of tokens that contains from. The first of these locks may have
// tokens below from. now is the lease clock.
func (p *Pages) Find(q Query, from keyspace.Pos, now int64) (locks []Lock, next keyspace.Pos, found bool) {
	for i, g := range p.pages {
		if g.query == q && from >= g.from && from < g.next && now-g.made <= maxAge && now >= g.made {
			p.pages = append(slices.Delete(p.pages, i, i+1), g)
			return g.locks, g.next, true
		}
	}
	return nil, 0, false
}

// Put adds the locks that a walk has found: see Oldest.Sorted. The caller must not
// change locks afterward. from is the lowest token of the range that the walk has
// covered, and next is the first token after this range. next is never 0. If the walk
// found all locks, next is higher than all tokens at the time of the walk, because
// locks that are granted later have higher tokens.
func (p *Pages) Put(q Query, from, next keyspace.Pos, locks []Lock, now int64) {
	p.pages = slices.DeleteFunc(p.pages, func(g page) bool {
		return g.query == q && g.from == from || now-g.made > maxAge
	})
	if len(p.pages) == maxPages {
		p.pages = slices.Delete(p.pages, 0, 1)
	}
	p.pages = append(p.pages, page{q, from, next, slices.Clip(locks), now})
}
