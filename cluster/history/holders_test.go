package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// skip lets the store get a snapshot in place of an entry with the given events.
func (l *log) skip(events ...fsm.LockEvent) {
	before := clockAt(uint64(len(l.entries)))
	res := &fsm.Result{Index: uint64(len(l.entries) + 1), Locks: events}
	l.entries = append(l.entries, res)
	l.s.Restored(res.Index, clockAt(res.Index), before.Wall)
}

// held sets the holders of a key.
func (l *log) held(key string, holders ...fsm.LockHolder) {
	l.holders = map[string][]fsm.LockHolder{key: holders}
}

// TestHolders_Gap: a grant that began in a gap and that has not ended is in the
// answer, and a grant that ended in the gap is in the answers for the times up to
// the end of the gap only.
func TestHolders_Gap(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add()
	l.skip(ends(1, "k", "a", fsm.LockReleased), begins(2, "k", "b"))
	l.add()
	l.add(begins(3, "j", "x"))
	l.held("k", fsm.LockHolder{Token: 2, Owner: "b"})
	l.want(Query{Key: "k"}, "2 b 0-0 held 0; 1 a 1-0 unknown 0")
	l.want(Query{Key: "k", From: at(4)}, "2 b 0-0 held 0")
	l.want(Query{Key: "k", From: at(2), To: at(2)}, "2 b 0-0 held 0; 1 a 1-0 unknown 0")
	l.want(Query{Key: "k", To: at(1)}, "1 a 1-0 unknown 0")
	l.want(Query{Key: "k", Count: 1}, "2 b 0-0 held 0")
	l.held("k", fsm.LockHolder{Token: 2, Owner: "b", Grant: &fsm.Grant{Token: 2, Wall: at(3), Lease: clockAt(3).Lease, Meta: "m"}})
	l.want(Query{Key: "k", From: at(3)}, "2 b 3-0 held 2; 1 a 1-0 unknown 0")
	l.want(Query{Key: "k", To: at(2)}, "1 a 1-0 unknown 0")
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a"}) // it still has the lock, in spite of the gap
	l.want(Query{Key: "k"}, "1 a 1-0 held 4")
	l.held("k")
	l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
	l.want(Query{Key: "k", From: at(4)}, "")
	l.add(ends(2, "k", "b", fsm.LockExpired))
	l.want(Query{Key: "k", From: at(4)}, "2 b 0-6 expired 0")
}

// TestHolders_Late: a holder that loses the lock after the state of the query is
// known as a former holder.
func TestHolders_Late(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add()
	l.skip(begins(1, "k", "a"))
	l.add(ends(1, "k", "a", fsm.LockReleased))
	state := State{Index: 2, Clock: clockAt(2), Holders: []fsm.LockHolder{{Token: 1, Owner: "a"}}}
	want := func(how string) {
		t.Helper()
		a, err := l.s.Query(t.Context(), Query{Key: "k", To: at(99), Count: 10}, state)
		if err != nil || len(a.Grants) != 1 || a.Grants[0].How != how {
			t.Errorf("%+v, %v, want one grant that ended as %s", a.Grants, err, how)
		}
	}
	want(fsm.LockReleased)
	l.skip()
	want(fsm.LockReleased)
}

// TestHolders_Restored: a lock that a restore has brought back is listed once, as
// held, until it ends.
func TestHolders_Restored(t *testing.T) {
	for _, released := range []bool{false, true} {
		l := newLog(t, MinBytes)
		l.add(begins(1, "k", "a"))
		if l.add(); released {
			l.add(ends(1, "k", "a", fsm.LockReleased), begins(2, "k", "b"))
		}
		l.add(fsm.LockEvent{Kind: fsm.LocksReplaced})
		l.held("k", fsm.LockHolder{Token: 1, Owner: "a"})
		want := "1 a 1-0 held 0"
		if released {
			want += "; 2 b 3-4 restored 1"
		}
		l.want(Query{Key: "k"}, want)
		l.held("other", fsm.LockHolder{Token: 9, Owner: "x"}) // a lock of the backup, without a history
		l.want(Query{Key: "other"}, "9 x 0-0 held 0")
	}
}

// TestHolders_Shared: the holders of a shared lock that began in a gap are listed
// between the other holders, in the order of their tokens.
func TestHolders_Shared(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(shares(1, "a"))
	l.skip(shares(2, "b"))
	l.add(shares(3, "c"))
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a", Shared: true}, fsm.LockHolder{Token: 2, Owner: "b", Shared: true},
		fsm.LockHolder{Token: 3, Owner: "c", Shared: true})
	l.want(Query{Key: "k"}, "3 c 3-0 held 0; 2 b 0-0 held 0; 1 a 1-0 held 2")
	l.want(Query{Key: "k", To: at(0)}, "")
	l.want(Query{Key: "k", Count: 2}, "3 c 3-0 held 0; 2 b 0-0 held 0")
}

// TestHolders_RestoredTwice: a holder is listed once if its grant ended between two
// restores, and after a gap. COUNT does not change the first grant.
func TestHolders_RestoredTwice(t *testing.T) {
	restore := fsm.LockEvent{Kind: fsm.LocksReplaced}
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add(restore)
	l.add(ends(1, "k", "a", fsm.LockExpired))
	l.add(restore)
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a"})
	l.want(Query{Key: "k"}, "1 a 1-0 held 0")
	l.want(Query{Key: "k", Count: 1}, "1 a 1-0 held 0")

	l = newLog(t, MinBytes)
	l.add()
	l.skip(begins(1, "k", "a"))
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.add(restore)
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a"})
	l.want(Query{Key: "k"}, "1 a 0-0 held 0")

	l = newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add(ends(1, "k", "a", fsm.LockReleased), begins(2, "k", "b"))
	l.add(restore)
	for range 100 {
		l.add()
	}
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a"})
	l.want(Query{Key: "k", Count: 1}, "1 a 1-0 held 0")
	l.want(Query{Key: "k", From: at(90)}, "1 a 1-0 held 0")
}

// TestHolders_Flush: a flush or a restore that follows a gap may have ended a grant
// that began before the gap or in it.
func TestHolders_Flush(t *testing.T) {
	for _, kind := range []fsm.LockEventKind{fsm.LocksFlushed, fsm.LocksReplaced} {
		l := newLog(t, MinBytes)
		l.add(begins(1, "k", "a"))
		l.add()
		l.skip()
		l.add()
		l.add()
		l.add(fsm.LockEvent{Kind: kind})
		l.add()
		l.held("k")
		l.want(Query{Key: "k", From: at(5), To: at(5)}, "1 a 1-0 unknown 0")
		l.want(Query{Key: "k", From: at(7)}, "")

		l = newLog(t, MinBytes)
		l.add()
		l.skip(begins(1, "k", "a"))
		l.add()
		l.add(fsm.LockEvent{Kind: kind})
		l.held("k")
		if a := l.query(Query{Key: "k", From: at(3), To: at(3)}); len(a.Gaps) != 1 {
			t.Errorf("kind %d: gaps %v, want one", kind, a.Gaps)
		}
	}
}

// TestHolders_Bounds: the gap before a grant without a beginning bounds its
// beginning, and a later grant that is not shared bounds the end of a former one.
func TestHolders_Bounds(t *testing.T) {
	l := newLog(t, MinBytes)
	for range 4 {
		l.add()
	}
	l.skip(begins(1, "k", "a"))
	l.add()
	l.held("k", fsm.LockHolder{Token: 1, Owner: "a"})
	l.want(Query{Key: "k", From: at(2), To: at(2)}, "")
	l.want(Query{Key: "k", From: at(5), To: at(5)}, "1 a 0-0 held 0")
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.held("k")
	l.want(Query{Key: "k", From: at(2), To: at(2)}, "")

	l = newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add()
	l.skip(ends(1, "k", "a", fsm.LockReleased))
	l.add()
	l.add(begins(2, "k", "b"))
	l.add()
	l.add()
	l.skip()
	l.held("k", fsm.LockHolder{Token: 2, Owner: "b"})
	l.want(Query{Key: "k", From: at(7), To: at(7)}, "2 b 5-0 held 3")
}

// TestHolders_OtherDatabase: the flush of another database after the state of a
// query does not make the holders unknown. A state that is older than the history
// names no former owner as a holder.
func TestHolders_OtherDatabase(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add()
	l.skip(begins(1, "k", "a"))
	l.add()
	state := State{Index: 3, Clock: clockAt(3), Holders: []fsm.LockHolder{{Token: 1, Owner: "a"}}}
	want := func(from int64, owners ...string) {
		t.Helper()
		a, err := l.s.Query(t.Context(), Query{Key: "k", From: from, To: math.MaxInt64, Count: 10}, state)
		var got []string
		for _, g := range a.Grants {
			got = append(got, g.Owner)
		}
		if err != nil || !slices.Equal(got, owners) {
			t.Errorf("%q, %v, want %q", got, err, owners)
		}
	}
	l.add(fsm.LockEvent{Kind: fsm.LocksFlushed, DB: 5})
	want(at(3), "a")
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.add(begins(2, "k", "b"))
	for range 100 {
		l.add()
	}
	want(at(90), "b")
}

// TestGaps_Lost: the gap in which a grant of a backup may have ended is named.
func TestGaps_Lost(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(fsm.LockEvent{Kind: fsm.LocksReplaced}) // brings back the grant 9
	l.add()
	l.add()
	l.skip(ends(9, "k", "x", fsm.LockReleased))
	l.add()
	l.held("k")
	if a := l.query(Query{Key: "k", From: at(2), To: at(2)}); !slices.Equal(a.Gaps, []Gap{{at(3), at(4)}}) {
		t.Errorf("gaps %v, want the gap from entry 3 to 4", a.Gaps)
	}
}

// TestGaps_Earlier: a grant that began in a gap and ended in a later one is not in
// the history. An answer for a time between the gaps names the first gap.
func TestGaps_Earlier(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add()
	l.skip(begins(1, "k", "a"))
	l.add()
	l.held("k")
	q := Query{Key: "k", From: at(3), To: at(3)}
	if a := l.query(q); len(a.Gaps) != 0 {
		t.Errorf("gaps %v, want none: the state tells who holds a lock since the gap", a.Gaps)
	}
	l.add()
	l.skip(ends(1, "k", "a", fsm.LockReleased))
	if a := l.query(q); !slices.Equal(a.Gaps, []Gap{{at(1), at(2)}}) {
		t.Errorf("gaps %v, want the gap from entry 1 to 2", a.Gaps)
	}
}

// TestHolders_Random compares the answers of a store with gaps with a simple model.
// An answer contains each grant that was held at the time of the query, or names a
// gap. It never says that an owner holds the lock that does not hold it.
func TestHolders_Random(t *testing.T) {
	type grant struct {
		token    fsm.Pos
		from, to uint64 // to is 0 if the grant has not ended
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := newLog(t, 16<<20)
		var all []*grant
		var now *grant
		skipped := false
		for range 60 {
			index := uint64(len(l.entries) + 1)
			var events []fsm.LockEvent
			switch n := rng.IntN(6); {
			case n == 0 && now != nil:
				now.to = index
				events = append(events, ends(now.token, "k", fmt.Sprint(now.token), fsm.LockReleased))
				now = nil
			case n == 1 && now == nil:
				now = &grant{token: fsm.Pos(len(all) + 1), from: index}
				all = append(all, now)
				events = append(events, begins(now.token, "k", fmt.Sprint(now.token)))
			}
			if skipped {
				skipped = rng.IntN(4) > 0
			} else {
				skipped = rng.IntN(15) == 0
			}
			if skipped {
				l.skip(events...)
			} else {
				l.add(events...)
			}
		}
		l.held("k")
		if now != nil {
			l.held("k", fsm.LockHolder{Token: now.token, Owner: fmt.Sprint(now.token)})
		}
		for index := uint64(1); index <= uint64(len(l.entries)); index++ {
			a := l.query(Query{Key: "k", From: at(index), To: at(index)})
			for _, g := range all {
				i := slices.IndexFunc(a.Grants, func(o Grant) bool { return o.Token == g.token })
				then := g.from <= index && (g.to == 0 || g.to >= index)
				switch {
				case then && i < 0 && len(a.Gaps) == 0:
					t.Errorf("seed %d: at entry %d, grant %+v is missing, and there is no gap", seed, index, *g)
				case i >= 0 && (a.Grants[i].How == StillHeld) != (g == now):
					t.Errorf("seed %d: at entry %d, grant %+v: %s", seed, index, *g, a.Grants[i].How)
				case i >= 0 && !then && len(a.Gaps) == 0 && (g.from > index || a.Grants[i].How == Unknown):
					t.Errorf("seed %d: at entry %d, grant %+v: %+v, and there is no gap", seed, index, *g, a.Grants[i])
				}
			}
		}
		if now != nil && !slices.ContainsFunc(l.query(Query{Key: "k"}).Grants, func(g Grant) bool { return g.Token == now.token }) {
			t.Errorf("seed %d: the present holder %d is missing", seed, now.token)
		}
		if t.Failed() {
			return
		}
	}
}
