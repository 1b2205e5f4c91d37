package history

import (
	"cmp"
	"context"
	"errors"
	"math"
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

// State is what a query needs to know about the state of the node.
type State struct {
	Index uint64 // log index of the last entry that has changed the state
	Clock fsm.Clock
	// Holders are the owners that hold the lock. They complete the answer if the
	// node got a snapshot in place of the entries with their grants, and if a
	// restore has brought back their grants.
	Holders []fsm.LockHolder
}

// Answer is the answer to a query.
type Answer struct {
	// Grants are the grants of the lock, the newest first. If several owners share
	// the lock, each of them has a grant.
	Grants []Grant
	// Gaps are the gaps in which grants may have begun or ended that were held at
	// the times of the query, the newest first.
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
	// Known says whether the beginning of the grant is known. If it is not, only
	// Token, Owner and the fields of the end are set, and Shared and Limit if the
	// grant has not ended.
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

// Query answers a query from the events of all entries up to the last one that was
// passed to Applied, and from the state after that entry or after a later one.
// Query returns ErrBusy if it has not finished after searchTime, because too many
// other queries run or because there is too much to search.
func (s *Store) Query(ctx context.Context, q Query, state State) (Answer, error) {
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
	w := newWalk(q, state, marks)
	answer := Answer{Until: state.Clock.Wall}
	if len(segments) > 0 && (segments[0].number > 1 || horizon > 0) {
		answer.Since = segments[0].wall
		if horizon > 0 && len(marks) > 0 {
			answer.Since = max(answer.Since, marks[0].clock.Wall)
		}
		w.removed = true
	}
	answer.Gaps = gapsIn(marks, q, w.holders != nil, w.removed)
	if err := s.search(ctx, w, segments, horizon); err != nil {
		return Answer{}, err
	}
	w.to(position{}) // the marks before the last frame that was read
	w.rest()
	w.addHolders()
	answer.Grants = w.found[:min(len(w.found), q.Count)]
	return answer, nil
}

// search passes the frames with the key of a query to w, from the newest to the
// oldest, until the walk is complete. horizon is Store.horizon.
func (s *Store) search(ctx context.Context, w *walk, segments []*segment, horizon uint64) error {
	hash := keyHash(w.query.Key)
	for _, g := range slices.Backward(segments) {
		s.index.RLock()
		offsets := g.frames(hash)
		s.index.RUnlock()
		for _, offset := range slices.Backward(offsets) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.index.RLock()
			f, err := g.read(offset)
			s.index.RUnlock()
			if errors.Is(err, os.ErrClosed) { // it was the oldest segment, and was removed meanwhile
				w.removed = true
				return nil
			}
			if err != nil {
				return err
			}
			if f.index <= horizon {
				return nil
			}
			if w.frame(&f) {
				return nil
			}
		}
	}
	return nil
}

// gapsIn returns the gaps in which a grant that was held at the times of a query may
// have begun or ended without another trace, the newest first, but at most maxGaps.
//
//   - These are the gaps that overlap the times of the query.
//   - The last gap before these times is one of them if the end of a grant may have
//     no event: in a later gap, by a flush or a restore, or because the present
//     holders are not known.
//   - The first gap after these times is one of them if the beginning of a grant may
//     have no event: it was removed, or came with a backup.
func gapsIn(marks []mark, q Query, holdersKnown, removed bool) (gaps []Gap) {
	later, earlier, restored := !holdersKnown, false, false
	var after *Gap // the oldest gap after the times of the query
	db := q.DB
marks:
	for _, m := range slices.Backward(marks) {
		g := Gap{m.gap.wall, m.clock.Wall}
		switch {
		case m.Kind == fsm.LocksSwapped:
			db = swapped(db, &m)
		case m.Kind == fsm.LocksReplaced, m.Kind == fsm.LocksFlushed && m.DB == db:
			later = later || m.clock.Wall+wallSlack >= q.From
			restored = restored || m.Kind == fsm.LocksReplaced && m.clock.Wall-wallSlack <= q.To
		case m.Kind != kindGap:
		case g.From > q.To:
			later, after = true, &g
		case g.To >= q.From:
			if gaps = append(gaps, g); len(gaps) == maxGaps {
				return gaps
			}
		default:
			if later && !earlier {
				gaps, earlier = append(gaps, g), true
			}
			if g.To+wallSlack < q.From {
				break marks
			}
		}
	}
	if after != nil && (removed || restored) {
		gaps = append([]Gap{*after}, gaps...)
	}
	return gaps[:min(len(gaps), maxGaps)]
}

// swapped returns the database that had the content of db before a mark.
func swapped(db int, m *mark) int {
	switch {
	case m.Kind == fsm.LocksSwapped && m.DB == db:
		return m.With
	case m.Kind == fsm.LocksSwapped && m.With == db:
		return m.DB
	}
	return db
}

// walk goes through the history of a key, from its end to its beginning.
type walk struct {
	query Query
	state State
	db    int    // the database that had the key at the current position
	marks []mark // marks before the current position

	ends     map[fsm.Pos]*ending // ends of grants whose beginning has not been found yet
	all      *ending             // the first event after the current position that ends all grants of the database
	gap      bool                // there is a gap after the current position
	newer    bool                // there is a grant after the current position
	replaced bool                // one of the grants after the current position is not shared
	found    []Grant
	// back contains the grants that a restore has brought back, and whose
	// beginning has not been found yet. It maps their tokens to their positions in
	// found.
	back map[fsm.Pos]int

	// holders contains the elements of state.Holders that are not in the answer yet.
	// It is nil if the holders are not known: see newWalk.
	holders   map[fsm.Pos]*fsm.LockHolder
	index     uint64 // log index of the current frame
	lastEnd   int64  // latest end of a grant before the current position whose end is lost
	gapBegin  int64  // beginning of the oldest gap after the current position
	exclusive int64  // beginning of the oldest grant after the current position that is not shared
	restored  bool   // there is a restore after the current position
	removed   bool   // the beginning of the history was removed
}

// newWalk returns a walk that has not begun. The holders of the state are not known
// if a mark that concerns the key follows the entry of the state: then a holder may
// have lost the lock without an event of its own.
func newWalk(q Query, state State, marks []mark) *walk {
	w := &walk{
		query: q, db: q.DB, state: state, marks: marks, ends: make(map[fsm.Pos]*ending), back: make(map[fsm.Pos]int),
		exclusive: math.MaxInt64,
	}
	for _, m := range slices.Backward(marks) {
		if m.index <= state.Index {
			break
		}
		if m.Kind == kindGap || m.Kind == fsm.LocksReplaced || m.DB == q.DB ||
			m.Kind == fsm.LocksSwapped && m.With == q.DB {
			return w
		}
	}
	w.holders = make(map[fsm.Pos]*fsm.LockHolder, len(state.Holders))
	for i := range state.Holders {
		h := &state.Holders[i]
		w.holders[h.Token] = h
	}
	return w
}

// ending is the end of a grant.
type ending struct {
	fsm.LockEvent
	clock fsm.Clock
}

// frame handles the events of a frame, from the last one to the first. It
// reports whether the walk is complete.
func (w *walk) frame(f *frame) (done bool) {
	w.index = f.index
	for i, e := range slices.Backward(f.events) {
		w.to(position{f.index, i})
		if e.DB != w.db || e.Key != w.query.Key {
			continue
		}
		switch e.Kind {
		case fsm.LockEnded:
			if f.index > w.state.Index {
				delete(w.holders, e.Token)
			}
			w.ends[e.Token] = &ending{copied(e.LockEvent), f.clock}
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
			// A grant before the gap may have ended in the gap, or by the flush or
			// the restore that follows the gap.
			w.lastEnd = max(w.lastEnd, m.clock.Wall)
			if w.all != nil {
				w.lastEnd = max(w.lastEnd, w.all.clock.Wall)
			}
			w.gap, w.all, w.gapBegin = true, nil, m.gap.wall
		case m.Kind == fsm.LocksSwapped:
			w.db = swapped(w.db, m)
		case m.Kind == fsm.LocksFlushed && m.DB == w.db:
			w.all = &ending{fsm.LockEvent{How: fsm.LockFlushed}, m.clock}
		case m.Kind == fsm.LocksReplaced:
			// The ends that are left in w.ends belong to grants of locks that
			// the backup contained. The same grants may have another end before
			// the restore, so w.ends must be empty when the walk continues.
			w.restored = true
			w.rest()
			clear(w.ends)
			w.addHolders()
			for i, g := range w.found {
				if _, holds := w.holders[g.Token]; holds || !g.Known {
					w.back[g.Token] = i
				}
			}
			clear(w.holders)
			w.all = &ending{fsm.LockEvent{How: fsm.LockReplaced}, m.clock}
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
	_, holds := w.holders[e.Token]
	delete(w.holders, e.Token)
	last := int64(math.MaxInt64) // the latest time at which the grant can have ended
	switch {
	case holds:
		g.How, g.Held = StillHeld, max(w.state.Clock.Lease-begun, 0)
	case end == nil && w.all != nil:
		end = w.all
		fallthrough
	case end != nil:
		g.ends(end)
		g.Held = max(end.clock.Lease-begun, 0)
	case w.gap || w.replaced || w.newer && !g.Shared:
		g.How, last = Unknown, w.exclusive
		if w.gap && w.holders != nil {
			last = min(last, w.lastEnd) // the owner no longer holds the lock
		}
	default:
		g.How, g.Held = StillHeld, max(w.state.Clock.Lease-begun, 0)
	}
	w.newer, w.replaced = true, w.replaced || !g.Shared
	if !g.Shared {
		w.exclusive = min(w.exclusive, g.Acquired)
	}
	if last >= w.query.From {
		w.add(g, e)
	}
	// The walk may stop here if all earlier grants ended before From. A grant
	// that is not shared begins only when no other grant of the key is left.
	// And if w.ends is empty, no earlier grant ended after this one began.
	// The holders of the state are not the present ones if the frame is newer.
	early := g.Acquired+wallSlack < w.query.From && !g.Shared && len(w.ends) == 0 && w.index <= w.state.Index
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

// rest adds the grants whose ends the walk has passed, and whose beginnings it has
// not found. It is called at a restore, and when the walk is complete. These grants
// began in a gap or in a part of the history that was removed, or came with the
// backup. Or the walk ended before their beginning: then they are behind the grants
// for which the answer has room.
func (w *walk) rest() {
	var more []Grant
	for _, e := range w.ends {
		// A grant in w.back is already in the answer, because it ended again after
		// a restore had brought it back. And a holder has not ended: a restore has
		// brought back its grant after this end.
		_, found := w.back[e.Token]
		_, holds := w.holders[e.Token]
		if found || holds || w.earliest(e.Token) > w.query.To || e.clock.Wall < w.query.From {
			continue
		}
		g := Grant{Token: e.Token, Owner: e.Owner, Held: -1}
		g.ends(e)
		more = append(more, g)
	}
	w.merge(more)
}

// merge adds grants whose places in the walk are not known. It places each of them
// before the first grant of the answer that has a lower token. It takes linear time,
// apart from sorting, because thousands of owners may share a lock.
func (w *walk) merge(more []Grant) {
	if len(more) == 0 {
		return
	}
	slices.SortFunc(more, func(a, b Grant) int { return cmp.Compare(b.Token, a.Token) })
	found, moved := make([]Grant, 0, len(w.found)+len(more)), make([]int, len(w.found))
	for i := range w.found {
		for len(more) > 0 && more[0].Token > w.found[i].Token {
			found, more = append(found, more[0]), more[1:]
		}
		moved[i] = len(found)
		found = append(found, w.found[i])
	}
	w.found = append(found, more...)
	for token, i := range w.back {
		w.back[token] = moved[i]
	}
}
