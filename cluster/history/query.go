package history

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

const (
	// MaxCount is the largest number of grants in the answer to a query.
	MaxCount = 1000
	// maxSearches is the largest number of queries that run at a time.
	maxSearches = 2
	// maxGaps is the maximum number of gaps in an answer. If there are more,
	// the answer has the newest ones.
	maxGaps = 100
	// searchTime bounds how long a query may search, and how long it waits
	// until earlier events are written.
	searchTime = 5 * time.Second
	// wallSlack is how far, in microseconds, the wall clock of a later entry may
	// be behind that of an earlier entry. A query allows for it, because the
	// leader's wall clock may jump.
	wallSlack = int64(time.Minute / time.Microsecond)
)

// Values of Grant.How in addition to those of package fsm.
const (
	// StillHeld: the grant has not ended.
	StillHeld = "held"
	// Unknown: the grant may have ended in a gap.
	Unknown = "unknown"
)

// These errors report why a query has no answer.
var (
	// ErrOff means that the node keeps no history.
	ErrOff = errors.New("this node keeps no history of locks (--lock-history-size is 0, or the log of the " +
		"node says why)")
	// ErrBusy means that the query was not executed, or took too long.
	ErrBusy = errors.New("the search in the history of locks took too long: ask for less with COUNT, or try " +
		"again later")
)

// Query asks for the grants of a lock. Times are on the wall clock of the cluster,
// in microseconds since 1970.
type Query struct {
	DB  int
	Key string
	// From and To select the grants that were held at some time between them.
	// From is 0, and To is math.MaxInt64, for no bound.
	From, To int64
	Count    int // largest number of grants, at most MaxCount
}

// Answer is the answer to a query.
type Answer struct {
	// Grants are the grants of the lock, the newest first. If several owners share
	// the lock, each of them has a grant.
	Grants []Grant
	// Gaps are the gaps that overlap the times of the query, the newest first.
	Gaps []Gap
	// Since is the time on the wall clock, in microseconds, before which the
	// history was removed. It is 0 if nothing was removed.
	Since int64
	// Until is the time on the wall clock, in microseconds, up to which the
	// answer is complete.
	Until int64
}

// Grant is a period in which an owner had a lock.
type Grant struct {
	Token fsm.Pos
	Owner string
	// Known says whether the beginning of the grant is in the history. If it is
	// not, only Token, Owner and the fields of the end are set.
	Known bool
	fsm.LockClient
	Meta   string
	Shared bool
	Limit  int
	// Acquired is the wall clock at the beginning of the grant, in microseconds.
	Acquired int64
	Waited   int64 // how long the client waited for the lock, in nanoseconds
	// Ended is the wall clock at the end of the grant in microseconds, 0 if it has
	// not ended, or if its end is not known.
	Ended int64
	How   string // how the grant ended: a constant such as fsm.LockReleased, StillHeld, or Unknown
	// Held is how long the owner had the lock, in nanoseconds of the lease clock,
	// up to now if it still has the lock. It is -1 if that is not known.
	Held     int64
	EndedBy  fsm.LockClient // client whose command ended the grant; zero if no command did
	Renewals uint64
}

// Gap is a period for which the store has no history.
type Gap struct {
	From, To int64 // wall clock in microseconds; From is 0 if it is not known
}

// Query answers a query from the events of all entries up to the last one that
// was passed to Applied. now is the clock after that entry or after a later
// one. Query returns ErrBusy if it has not finished after searchTime, because
// too many other queries run or because there is too much to search.
func (s *Store) Query(ctx context.Context, q Query, now fsm.Clock) (Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, searchTime, ErrBusy)
	defer cancel()
	select {
	case s.searching <- struct{}{}:
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	defer func() { <-s.searching }()
	if err := s.await(item{}, searchTime); err != nil {
		return Answer{}, err
	}
	s.index.RLock()
	segments, marks, horizon := s.segments, s.marks, s.horizon
	if s.unwritten != nil {
		marks = append(slices.Clip(marks), *s.unwritten)
	}
	s.index.RUnlock()
	w := &walk{query: q, db: q.DB, now: now, marks: marks, ends: make(map[fsm.Pos]*ending),
		back: make(map[fsm.Pos]int)}
	answer := Answer{Until: now.Wall, Gaps: gapsIn(marks, q)}
	if len(segments) > 0 && (segments[0].number > 1 || horizon > 0) {
		answer.Since = segments[0].wall
		if horizon > 0 && len(marks) > 0 {
			answer.Since = max(answer.Since, marks[0].clock.Wall)
		}
	}
	hash := keyHash(q.Key)
	for _, g := range slices.Backward(segments) {
		s.index.RLock()
		offsets := g.frames(hash)
		s.index.RUnlock()
		for _, offset := range slices.Backward(offsets) {
			if ctx.Err() != nil {
				return Answer{}, context.Cause(ctx)
			}
			s.index.RLock()
			f, err := g.read(offset)
			s.index.RUnlock()
			if errors.Is(err, os.ErrClosed) { // it was the oldest segment, and was removed meanwhile
				w.rest()
				answer.Grants = w.found
				return answer, nil
			}
			if err != nil {
				return Answer{}, err
			}
			if f.index <= horizon {
				w.rest()
				answer.Grants = w.found
				return answer, nil
			}
			if w.frame(&f) {
				answer.Grants = w.found
				return answer, nil
			}
		}
	}
	w.rest()
	answer.Grants = w.found
	return answer, nil
}

// gapsIn returns the gaps that overlap the times of a query, the newest first,
// but at most maxGaps.
func gapsIn(marks []mark, q Query) (gaps []Gap) {
	for _, m := range slices.Backward(marks) {
		if m.Kind == kindGap && m.gap.wall <= q.To && m.clock.Wall >= q.From && len(gaps) < maxGaps {
			gaps = append(gaps, Gap{m.gap.wall, m.clock.Wall})
		}
	}
	return gaps
}

// walk goes through the history of a key, from its end to its beginning.
type walk struct {
	query Query
	now   fsm.Clock
	db    int    // the database that had the key at the current position
	marks []mark // marks before the current position

	ends     map[fsm.Pos]*ending // ends of grants whose beginning has not been found yet
	all      *ending             // the first event after the current position that ends all grants of the database
	seen     int                 // number of ends that the walk has passed
	gap      bool                // there is a gap after the current position
	newer    bool                // there is a grant after the current position
	replaced bool                // one of the grants after the current position is not shared
	found    []Grant
	// back contains the grants that a restore has brought back, and whose
	// beginning has not been found yet. It maps their tokens to their positions in
	// found.
	back map[fsm.Pos]int
}

// ending is the end of a grant.
type ending struct {
	fsm.LockEvent
	clock fsm.Clock
	order int // position among the ends, in the order of the walk
}

// frame handles the events of a frame, from the last one to the first. It
// reports whether the walk is complete.
func (w *walk) frame(f *frame) (done bool) {
	for i, e := range slices.Backward(f.events) {
		w.to(position{f.index, i})
		if e.DB != w.db || e.Key != w.query.Key {
			continue
		}
		switch e.Kind {
		case fsm.LockEnded:
			w.seen++
			w.ends[e.Token] = &ending{copied(e.LockEvent), f.clock, w.seen}
		case fsm.LockGranted:
			if w.granted(&e, f.clock) {
				return true
			}
		}
	}
	return false
}

// to moves the walk back to a position.
func (w *walk) to(p position) {
	for len(w.marks) > 0 {
		m := &w.marks[len(w.marks)-1]
		if !m.after(p) {
			return
		}
		w.marks = w.marks[:len(w.marks)-1]
		switch {
		case m.Kind == kindGap:
			w.gap, w.all = true, nil // a grant before the gap may have ended in it
		case m.Kind == fsm.LocksSwapped && m.DB == w.db:
			w.db = m.With
		case m.Kind == fsm.LocksSwapped && m.With == w.db:
			w.db = m.DB
		case m.Kind == fsm.LocksFlushed && m.DB == w.db:
			w.all = &ending{fsm.LockEvent{How: fsm.LockFlushed}, m.clock, 0}
		case m.Kind == fsm.LocksReplaced:
			// The ends that are left in w.ends belong to grants of locks that
			// the backup contained. The same grants may have another end before
			// the restore, so w.ends must be empty when the walk continues.
			w.rest()
			clear(w.ends)
			for i, g := range w.found {
				if !g.Known {
					w.back[g.Token] = i
				}
			}
			w.all = &ending{fsm.LockEvent{How: fsm.LockReplaced}, m.clock, 0}
		}
	}
}

// granted handles the beginning of a grant. It reports whether the walk is
// complete.
func (w *walk) granted(e *event, clock fsm.Clock) (done bool) {
	g := Grant{
		Token: e.Token, Known: true, Shared: e.Shared, Limit: e.Limit,
		Acquired: clock.Wall - e.Before/1e3, Waited: e.Waited, Held: -1,
	}
	begun := clock.Lease - e.Before
	end := w.ends[e.Token]
	delete(w.ends, e.Token)
	if i, found := w.back[e.Token]; found {
		w.begins(i, &g, e)
		return len(w.found) >= w.query.Count && len(w.back) == 0
	}
	if len(w.found) >= w.query.Count {
		return len(w.back) == 0
	}
	switch {
	case end == nil && w.all != nil:
		end = w.all
		fallthrough
	case end != nil:
		g.ends(end)
		g.Held = max(end.clock.Lease-begun, 0)
	case w.gap || w.replaced || w.newer && !g.Shared:
		g.How = Unknown
	default:
		g.How, g.Held = StillHeld, max(w.now.Lease-begun, 0)
	}
	w.newer, w.replaced = true, w.replaced || !g.Shared
	w.add(g, e)
	// The walk may stop here if all earlier grants ended before From. A grant
	// that is not shared begins only when no other grant of the key is left.
	// And if w.ends is empty, no earlier grant ended after this one began.
	early := g.Acquired+wallSlack < w.query.From && !g.Shared && len(w.ends) == 0
	return (len(w.found) >= w.query.Count || early) && len(w.back) == 0
}

// begins completes a grant that ended after a restore had brought it back. g
// and e describe the beginning of the grant. The grant is listed once, because
// it has one token. It is not known for how long the owner had the lock: the
// grant may also have ended once before the restore, and the restore may have
// moved the lease clock.
func (w *walk) begins(i int, g *Grant, e *event) {
	old := &w.found[i]
	g.Ended, g.How, g.EndedBy, g.Renewals = old.Ended, old.How, old.EndedBy, old.Renewals
	delete(w.back, g.Token)
	w.newer, w.replaced = true, w.replaced || !g.Shared
	if g.Acquired <= w.query.To {
		g.describe(e)
		*old = *g
		return
	}
	w.found = slices.Delete(w.found, i, i+1)
	for token, j := range w.back {
		if j > i {
			w.back[token] = j - 1
		}
	}
}

// describe sets the texts of a grant.
func (g *Grant) describe(e *event) {
	texts := copied(e.LockEvent)
	g.Owner, g.LockClient, g.Meta = texts.Owner, texts.LockClient, texts.Meta
}

// ends sets the fields of g that describe its end.
func (g *Grant) ends(e *ending) {
	g.Ended, g.How, g.EndedBy, g.Renewals = e.clock.Wall, e.How, e.LockClient, e.Renewals
}

// add adds a grant to the answer if it was held at some time of the query. e
// contains the texts of the grant.
func (w *walk) add(g Grant, e *event) {
	if g.Acquired <= w.query.To && (g.Ended == 0 || g.Ended >= w.query.From) {
		g.describe(e)
		w.found = append(w.found, g)
	}
}

// copied returns an event that does not share the memory of its frame.
func copied(e fsm.LockEvent) fsm.LockEvent {
	for _, text := range []*string{&e.Key, &e.Owner, &e.Node, &e.Addr, &e.Name, &e.Meta, &e.How} {
		*text = strings.Clone(*text)
	}
	return e
}

// rest adds the grants whose ends the walk has passed, and whose beginnings it
// has not found. It is called at the beginning of the history and at a restore.
// These grants began earlier, or came with the backup.
func (w *walk) rest() {
	ends := make([]*ending, 0, len(w.ends))
	for _, e := range w.ends {
		ends = append(ends, e)
	}
	slices.SortFunc(ends, func(a, b *ending) int { return cmp.Compare(a.order, b.order) })
	for _, e := range ends {
		g := Grant{Token: e.Token, Held: -1}
		g.ends(e)
		// A grant in w.back is already in the answer, because it ended again after
		// a restore had brought it back.
		if _, found := w.back[e.Token]; !found && len(w.found) < w.query.Count {
			w.add(g, &event{LockEvent: fsm.LockEvent{Owner: e.Owner}})
		}
	}
}
