package history

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

// log is a log with events of locks, and the store of a node that applies it.
type log struct {
	t       testing.TB
	s       *Store
	cfg     Config
	text    *bytes.Buffer
	entries []*fsm.Result
	holders map[string][]fsm.LockHolder // by key; nil if a query gets no holders of the state
}

func newLog(t testing.TB, size int64) *log {
	l := &log{t: t, text: &bytes.Buffer{}}
	l.cfg = Config{
		Dir: filepath.Join(t.TempDir(), "history"), Bytes: size,
		Gaps:   prometheus.NewCounter(prometheus.CounterOpts{Name: "gaps"}),
		Logger: hclog.New(&hclog.LoggerOptions{Output: l.text, Mutex: &sync.Mutex{}}),
	}
	l.open()
	t.Cleanup(func() { l.s.Close() })
	return l
}

func (l *log) open() {
	l.t.Helper()
	var err error
	if l.s, err = Open(l.cfg); err != nil {
		l.t.Fatal(err)
	}
}

// clockAt returns the clock after an entry. Each entry advances the clock by
// one second.
func clockAt(index uint64) fsm.Clock {
	return fsm.Clock{Lease: int64(index) * 1e9, Wall: 1_700_000_000_000_000 + int64(index)*1e6}
}

// add applies an entry with events.
func (l *log) add(events ...fsm.LockEvent) {
	res := &fsm.Result{Index: uint64(len(l.entries) + 1), Locks: events}
	l.entries = append(l.entries, res)
	l.s.Applied(clockAt(res.Index), res)
}

// restart opens the store again and applies all entries after a log index again.
func (l *log) restart(snapshot uint64) {
	l.t.Helper()
	l.s.Close()
	l.open()
	l.replay(snapshot)
}

func (l *log) replay(snapshot uint64) {
	if snapshot > 0 {
		l.s.Restored(snapshot, clockAt(snapshot), 0)
	}
	for _, res := range l.entries[snapshot:] {
		l.s.Applied(clockAt(res.Index), res)
	}
}

func (l *log) sync() {
	l.t.Helper()
	if err := l.s.await(item{}, syncWait); err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) query(q Query) Answer {
	l.t.Helper()
	if q.Count == 0 {
		q.Count = MaxCount
	}
	if q.To == 0 {
		q.To = math.MaxInt64
	}
	state := State{Clock: clockAt(uint64(len(l.entries)))}
	if l.holders != nil {
		state.Index, state.Holders = uint64(len(l.entries)), l.holders[q.Key]
	}
	a, err := l.s.Query(l.t.Context(), q, state)
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// grants describes the grants of a key: token, owner, the indices of the
// entries at which each grant began and ended, how it ended, and for how many
// seconds it was held.
func (l *log) grants(q Query) string {
	l.t.Helper()
	var all []string
	for _, g := range l.query(q).Grants {
		at := func(us int64) int64 { return max(us-clockAt(0).Wall, 0) / 1e6 }
		all = append(all, fmt.Sprintf("%d %s %d-%d %s %d", g.Token, g.Owner, at(g.Acquired), at(g.Ended), g.How, g.Held/1e9))
	}
	return strings.Join(all, "; ")
}

func (l *log) want(q Query, want string) {
	l.t.Helper()
	if got := l.grants(q); got != want {
		l.t.Errorf("history of %q: %s\nwant: %s", q.Key, got, want)
	}
}

func begins(token fsm.Pos, key, owner string) fsm.LockEvent {
	return fsm.LockEvent{Kind: fsm.LockGranted, Token: token, Key: key, Owner: owner}
}

// shares returns the event of a grant of the shared lock k.
func shares(token fsm.Pos, owner string) fsm.LockEvent {
	e := begins(token, "k", owner)
	e.Shared = true
	return e
}

func ends(token fsm.Pos, key, owner, how string) fsm.LockEvent {
	return fsm.LockEvent{Kind: fsm.LockEnded, Token: token, Key: key, Owner: owner, How: how}
}

func at(index uint64) int64 { return clockAt(index).Wall }

// TestStore checks the answers to queries, also after a restart.
func TestStore(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"), begins(2, "other", "x"))
	l.add()
	l.add(ends(1, "k", "a", fsm.LockReleased), begins(3, "k", "b"))
	l.add(begins(4, "k2", "c"))
	l.add(ends(3, "k", "b", fsm.LockExpired))
	l.add(begins(5, "k", "d"))
	for range 2 {
		l.want(Query{Key: "k"}, "5 d 6-0 held 0; 3 b 3-5 expired 2; 1 a 1-3 released 2")
		l.want(Query{Key: "k", Count: 2}, "5 d 6-0 held 0; 3 b 3-5 expired 2")
		l.want(Query{Key: "k", From: at(4), To: at(4)}, "3 b 3-5 expired 2")
		l.want(Query{Key: "k", To: at(2)}, "1 a 1-3 released 2")
		l.want(Query{Key: "k", From: at(6)}, "5 d 6-0 held 0")
		l.want(Query{Key: "k", DB: 1}, "")
		l.want(Query{Key: "missing"}, "")
		if a := l.query(Query{Key: "k"}); len(a.Gaps) > 0 || a.Since != 0 || a.Until != at(6) {
			t.Errorf("gaps %v, since %d, until %d; want no gaps, since 0, and until the time of entry 6",
				a.Gaps, a.Since, a.Until)
		}
		l.restart(0)
	}
}

// TestStore_Fields: an answer contains all fields of the events of a grant,
// with long texts cut. A key that is too long has no history.
func TestStore_Fields(t *testing.T) {
	l := newLog(t, MinBytes)
	b := fsm.LockEvent{
		Kind: fsm.LockGranted, DB: 3, Token: fsm.MaxToken, Key: "k", Owner: strings.Repeat("o", 2000),
		LockClient: fsm.LockClient{Node: "n1", ID: 1 << 51, Addr: "1.2.3.4:5", Name: "job"},
		Meta:       "meta", Shared: true, Limit: 7, Waited: 5e9, Before: 2e9,
	}
	e := fsm.LockEvent{
		Kind: fsm.LockEnded, DB: 3, Token: b.Token, Key: "k", Owner: b.Owner, How: fsm.LockBroken,
		LockClient: fsm.LockClient{Node: "n2", ID: 9}, Renewals: 4,
	}
	l.add(b)
	l.add(e)
	want := Grant{
		Token: b.Token, Owner: b.Owner[:maxText], Known: true, LockClient: b.LockClient, Meta: "meta", Shared: true, Limit: 7,
		Acquired: at(1) - 2e6, Waited: 5e9, Ended: at(2), How: fsm.LockBroken, Held: 3e9, EndedBy: e.LockClient, Renewals: 4,
	}
	if got := l.query(Query{DB: 3, Key: "k"}).Grants; len(got) != 1 || got[0] != want {
		t.Errorf("grants %+v, want only %+v", got, want)
	}
	l.add(begins(9, strings.Repeat("k", MaxKey+1), "a"))
	l.want(Query{Key: strings.Repeat("k", MaxKey+1)}, "")
}

// TestStore_Shared: the holders of a shared lock have grants of their own.
func TestStore_Shared(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(shares(1, "a"))
	l.add(shares(2, "b"))
	for range 200 {
		l.add()
	}
	l.add(shares(3, "c"), ends(2, "k", "b", fsm.LockReleased))
	l.want(Query{Key: "k"}, "3 c 203-0 held 0; 2 b 2-203 released 201; 1 a 1-0 held 202")
	l.want(Query{Key: "k", From: at(203)}, "3 c 203-0 held 0; 2 b 2-203 released 201; 1 a 1-0 held 202")
	l.add(begins(4, "k", "w")) // the exclusive grant shows that the other grants have ended, but their ends are missing
	l.want(Query{Key: "k", To: at(100)}, "2 b 2-203 released 201; 1 a 1-0 unknown 0")
}

// TestStore_Databases: FLUSHDB ends all grants of a database, SWAPDB exchanges
// the grants of two databases, and a restore ends all grants.
func TestStore_Databases(t *testing.T) {
	l := newLog(t, MinBytes)
	in := func(db int, e fsm.LockEvent) fsm.LockEvent { e.DB = db; return e }
	l.add(begins(1, "k", "a"), in(1, begins(2, "k", "b")))
	l.add(fsm.LockEvent{Kind: fsm.LocksSwapped, DB: 0, With: 1})
	l.add(in(1, ends(1, "k", "a", fsm.LockReleased)), in(1, begins(3, "k", "c")))
	l.want(Query{Key: "k"}, "2 b 1-0 held 2")
	l.want(Query{Key: "k", DB: 1}, "3 c 3-0 held 0; 1 a 1-3 released 2")
	l.add(fsm.LockEvent{Kind: fsm.LocksFlushed, DB: 1})
	l.add(in(1, begins(4, "k", "d")))
	l.want(Query{Key: "k"}, "2 b 1-0 held 4")
	l.want(Query{Key: "k", DB: 1}, "4 d 5-0 held 0; 3 c 3-4 flushed 1; 1 a 1-3 released 2")
	l.add(fsm.LockEvent{Kind: fsm.LocksReplaced})
	l.restart(0)
	l.want(Query{Key: "k"}, "2 b 1-6 restored 5")
	l.want(Query{Key: "k", DB: 1}, "4 d 5-6 restored 1; 3 c 3-4 flushed 1; 1 a 1-3 released 2")
}

// TestStore_RestoredToken: a restore brings back a lock that had been released
// after the backup, with its token. The lock ends a second time, and the history
// still has one grant.
func TestStore_RestoredToken(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.add(fsm.LockEvent{Kind: fsm.LocksReplaced})
	l.add(ends(1, "k", "a", fsm.LockExpired))
	l.want(Query{Key: "k"}, "1 a 1-4 expired 0")
}

// TestStore_RestoredTwice: locks that one or two restores have brought back are
// listed once, even if they were held at the time of the restore. The answer
// has at most COUNT grants.
func TestStore_RestoredTwice(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a")) // index 1
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.add(begins(2, "k", "b")) // index 3
	l.add(fsm.LockEvent{Kind: fsm.LocksReplaced})
	l.add(ends(2, "k", "b", fsm.LockReleased)) // index 5
	l.add(fsm.LockEvent{Kind: fsm.LocksReplaced})
	l.add(ends(2, "k", "b", fsm.LockExpired)) // index 7
	l.add(begins(3, "k", "c"))
	l.want(Query{Key: "k"}, "3 c 8-0 held 0; 2 b 3-7 expired 0; 1 a 1-2 released 1")
	l.want(Query{Key: "k", Count: 2}, "3 c 8-0 held 0; 2 b 3-7 expired 0")
	l.want(Query{Key: "k", Count: 1}, "3 c 8-0 held 0")
	l.want(Query{Key: "k", To: at(2)}, "1 a 1-2 released 1")
}

// TestStore_GapBeforeFlush: a grant that may have ended in a gap has not
// necessarily ended with the FLUSHDB after the gap.
func TestStore_GapBeforeFlush(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.s.Close()
	l.entries = append(l.entries, &fsm.Result{Index: 2}, &fsm.Result{Index: 3})
	l.open()
	l.replay(3)
	l.add(fsm.LockEvent{Kind: fsm.LocksFlushed})
	l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
}

// TestStore_Bounded: the files do not exceed Config.Bytes, and the oldest
// history is removed first.
func TestStore_Bounded(t *testing.T) {
	l := newLog(t, MinBytes)
	for i := range 20_000 {
		token := fsm.Pos(2*i + 1)
		l.add(begins(token, "k", strings.Repeat("o", 100)), ends(token, "k", "o", fsm.LockReleased))
		if i%500 != 0 {
			continue
		}
		l.sync()
		var size int64
		paths, err := filepath.Glob(filepath.Join(l.cfg.Dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if size > MinBytes || size != l.s.Bytes() {
			t.Fatalf("%d bytes in %d files, and Bytes = %d; want the same and at most MinBytes", size, len(paths), l.s.Bytes())
		}
	}
	for range 2 {
		a := l.query(Query{Key: "k"})
		if n := len(a.Grants); n != MaxCount || a.Grants[0].Token != 39_999 || a.Since <= at(10_000) {
			t.Errorf("%d grants, the newest with token %d, since %d; want MaxCount, 39999, and a time after entry 10000",
				n, a.Grants[0].Token, a.Since)
		}
		if a := l.query(Query{Key: "k", To: at(5000)}); len(a.Grants) > 0 {
			t.Errorf("%d grants from the time of removed entries, want none", len(a.Grants))
		}
		l.restart(0)
	}
}

// TestStore_Torn cuts the last segment at every byte, and appends remains of a torn
// write. The store keeps the complete frames, and replaying the log restores the
// others.
func TestStore_Torn(t *testing.T) {
	l := newLog(t, MinBytes)
	for i := range 6 {
		l.add(begins(fsm.Pos(i+1), "k", "a"), ends(fsm.Pos(i+1), "k", "a", fsm.LockReleased))
	}
	want := l.grants(Query{Key: "k"})
	l.s.Close()
	path := segmentPath(l.cfg.Dir, 1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		for _, tail := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\x05\x00\x00\x00garbage"} {
			if err := os.WriteFile(path, append(slices.Clone(whole[:size]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			if size < len(segmentMagic) && tail != "" {
				continue // a file with a damaged header is not a torn write
			}
			l.open()
			l.replay(0)
			l.want(Query{Key: "k"}, want)
			l.s.Close()
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, whole) {
				t.Fatalf("file cut at %d bytes, with %q at its end: after replay it differs from the original (error %v)",
					size, tail, err)
			}
		}
	}
	if n := strings.Count(l.text.String(), "removing the torn end"); n < len(whole) || strings.Contains(l.text.String(), "ERROR") {
		t.Errorf("%d lines about torn ends, want at least one for each size, and no ERROR: %s", n, l.text)
	}
}

// TestStore_Damaged: a segment that is damaged in the middle of the history leaves
// a gap.
func TestStore_Damaged(t *testing.T) {
	l := newLog(t, MinBytes)
	for i := range 3000 {
		l.add(begins(fsm.Pos(i+1), "k", strings.Repeat("o", 50)), ends(fsm.Pos(i+1), "k", "a", fsm.LockReleased))
	}
	l.s.Close()
	path := segmentPath(l.cfg.Dir, 2)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, header := range []bool{false, true} {
		if header {
			b[7] = 9 // a format that this program does not know
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.restart(0)
		a := l.query(Query{Key: "k", To: at(1)})
		if len(a.Grants) != 1 || len(a.Gaps) != 0 {
			t.Errorf("%d grants and gaps %v before the damage, want 1 grant and no gap", len(a.Grants), a.Gaps)
		}
		a = l.query(Query{Key: "k"})
		if len(a.Gaps) != 1 || a.Gaps[0].From <= at(100) || a.Gaps[0].To >= at(3000) || a.Gaps[0].To <= a.Gaps[0].From {
			t.Errorf("gaps %v, want one gap between the entries 100 and 3000", a.Gaps)
		}
		if !strings.Contains(l.text.String(), "history of locks is damaged") {
			t.Errorf("logged %s, want a line about the damage", l.text)
		}
		l.text.Reset()
	}
	l.s.Close()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Error("the store has changed a file of another format")
	}
}

// TestStore_Snapshot: a snapshot from the leader leaves a gap, and a snapshot of the
// node itself does not.
func TestStore_Snapshot(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.add(begins(2, "j", "b"))
	for range 5 {
		l.add()
	}
	l.s.Sync(7, clockAt(7))
	l.restart(7)
	if a := l.query(Query{Key: "k"}); len(a.Gaps) != 0 {
		t.Errorf("gaps %v after the node's own snapshot, want none", a.Gaps)
	}
	for range 3 {
		l.entries = append(l.entries, &fsm.Result{Index: uint64(len(l.entries) + 1)})
	}
	l.s.Restored(10, clockAt(10), at(7))
	l.add(ends(2, "j", "b", fsm.LockReleased))
	for range 2 {
		l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
		l.want(Query{Key: "j"}, "2 b 2-11 released 9")
		if a := l.query(Query{Key: "k"}); len(a.Gaps) != 1 || a.Gaps[0] != (Gap{at(7), at(10)}) {
			t.Errorf("gaps %v, want one from entry 7 to entry 10", a.Gaps)
		}
		l.held("k")
		if a := l.query(Query{Key: "k", From: at(11)}); len(a.Gaps) != 0 {
			t.Errorf("gaps %v in an answer that begins after the gap, want none", a.Gaps)
		}
		l.holders = nil
		if a := l.query(Query{Key: "k", From: at(11)}); len(a.Gaps) != 1 {
			t.Errorf("gaps %v in an answer without the holders, want one", a.Gaps)
		}
		l.s.Sync(11, clockAt(11))
		l.restart(10)
	}
	// The node applies the next entries while its history is turned off.
	l.s.Close()
	l.add()
	l.add(ends(9, "new", "x", fsm.LockReleased))
	l.open()
	l.replay(12)
	l.want(Query{Key: "new"}, "9 x 0-13 released 0")
	if a := l.query(Query{Key: "new"}); len(a.Gaps) != 2 || a.Gaps[0] != (Gap{at(11), at(12)}) || a.Grants[0].Known {
		t.Errorf("gaps %v, grants %+v; want a second gap from entry 11 to 12, and a grant without a known beginning",
			a.Gaps, a.Grants)
	}
}

// TestStore_QueueFull: while the goroutine that writes is stuck, Applied does not
// wait, and events that do not fit into the queue become a gap.
func TestStore_QueueFull(t *testing.T) {
	l := newLog(t, 64<<20)
	l.add(begins(1, "k", "a"))
	l.sync()
	l.s.index.Lock()
	l.add(begins(2, "j", "a"))
	for range 3000 {
		l.add(begins(3, strings.Repeat("x", MaxKey), "a"))
	}
	l.s.index.Unlock()
	l.sync()
	l.add(ends(1, "k", "a", fsm.LockReleased))
	l.want(Query{Key: "k"}, "1 a 1-3003 released 3002")
	a := l.query(Query{Key: "k"})
	if len(a.Gaps) != 1 || a.Gaps[0].To != at(3002) {
		t.Errorf("gaps %v, want one that ends at entry 3002", a.Gaps)
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if n := len(l.s.queue.buf); n != 0 || l.s.dropped != nil {
		t.Errorf("%d bytes are queued, want an empty queue and no gap that grows", n)
	}
}

// TestStore_TooMany: an entry with too many events becomes a gap.
func TestStore_TooMany(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.entries = append(l.entries, &fsm.Result{Index: 2, LocksCut: true, Locks: []fsm.LockEvent{begins(2, "k", "b")}})
	l.s.Applied(clockAt(2), l.entries[1])
	var events []fsm.LockEvent
	for i := range 100 {
		events = append(events, begins(fsm.Pos(i+10), strings.Repeat("x", MaxKey), "a"))
	}
	l.add(events...)
	l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
	if a := l.query(Query{Key: "k"}); len(a.Gaps) != 2 {
		t.Errorf("gaps %v, want 2", a.Gaps)
	}
}

// TestStore_WriteFails: a disk that refuses writes leaves a gap, and the store
// continues when the disk works again.
func TestStore_WriteFails(t *testing.T) {
	l := newLog(t, MinBytes)
	l.add(begins(1, "k", "a"))
	l.sync()
	l.s.index.Lock()
	g := l.s.segments[0]
	good := g.file
	broken, err := os.Open(g.path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	g.file = broken
	l.s.index.Unlock()
	for i := range 3 {
		l.add(begins(fsm.Pos(i+2), "j", "a"))
		l.sync()
	}
	l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
	if a := l.query(Query{Key: "k"}); len(a.Gaps) != 1 || a.Gaps[0] != (Gap{at(2), at(4)}) {
		t.Errorf("gaps while writing fails: %v, want one from entry 2 to 4", a.Gaps)
	}
	l.s.index.Lock()
	g.file = good
	l.s.index.Unlock()
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	l.add(begins(9, "m", "a"))
	for range 2 {
		l.want(Query{Key: "k"}, "1 a 1-0 unknown 0")
		l.want(Query{Key: "j"}, "")
		l.want(Query{Key: "m"}, "9 a 5-0 held 0")
		if a := l.query(Query{Key: "k"}); len(a.Gaps) != 1 || a.Gaps[0] != (Gap{at(2), at(4)}) {
			t.Errorf("gaps %v, want one from entry 2 to 4", a.Gaps)
		}
		l.restart(0)
	}
	if n := strings.Count(l.text.String(), "failed to write"); n != 1 {
		t.Errorf("%d lines about failed writes, want 1: %s", n, l.text)
	}
}

// modelGrant is a grant in the model of TestStore_Random.
type modelGrant struct {
	token      fsm.Pos
	key, owner string
	db         int
	from, to   uint64
	how        string
}

// model computes the history of a key in the simplest way.
func model(entries []*fsm.Result, db int, key string) string {
	var all []*modelGrant
	byToken := make(map[fsm.Pos]*modelGrant)
	endAll := func(index uint64, how string, in func(g *modelGrant) bool) {
		for _, g := range all {
			if g.to == 0 && in(g) {
				g.to, g.how = index, how
			}
		}
	}
	for _, res := range entries {
		for _, e := range res.Locks {
			switch e.Kind {
			case fsm.LockGranted:
				g := &modelGrant{token: e.Token, key: e.Key, owner: e.Owner, db: e.DB, from: res.Index, how: StillHeld}
				all, byToken[e.Token] = append(all, g), g
			case fsm.LockEnded:
				byToken[e.Token].to, byToken[e.Token].how = res.Index, e.How
			case fsm.LocksFlushed:
				endAll(res.Index, fsm.LockFlushed, func(g *modelGrant) bool { return g.db == e.DB })
			case fsm.LocksReplaced:
				endAll(res.Index, fsm.LockReplaced, func(*modelGrant) bool { return true })
			case fsm.LocksSwapped:
				for _, g := range all {
					switch g.db {
					case e.DB:
						g.db = e.With
					case e.With:
						g.db = e.DB
					}
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *modelGrant) int { return cmp.Compare(b.token, a.token) })
	var text []string
	for _, g := range all {
		if g.db != db || g.key != key {
			continue
		}
		to := cmp.Or(g.to, uint64(len(entries)))
		text = append(text, fmt.Sprintf("%d %s %d-%d %s %d", g.token, g.owner, g.from, g.to, g.how, to-g.from))
	}
	return strings.Join(text, "; ")
}

// TestStore_Random: two stores that get the same entries have the same history as a
// simple model, although one of them is restarted and loses the end of its file.
func TestStore_Random(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		calm, harried := newLog(t, 16<<20), newLog(t, 16<<20)
		var open [3]map[string]fsm.LockEvent
		for i := range open {
			open[i] = make(map[string]fsm.LockEvent)
		}
		token := fsm.Pos(0)
		snapshot := uint64(0)
		for range 300 {
			var events []fsm.LockEvent
			for range rng.IntN(4) {
				db, key := rng.IntN(len(open)), fmt.Sprint("k", rng.IntN(4))
				e, held := open[db][key]
				switch n := rng.IntN(40); {
				case n == 0:
					events = append(events, fsm.LockEvent{Kind: fsm.LocksFlushed, DB: db})
					clear(open[db])
				case n < 3 && db > 0:
					events = append(events, fsm.LockEvent{Kind: fsm.LocksSwapped, DB: db, With: 0})
					open[db], open[0] = open[0], open[db]
				case n == 3:
					events = append(events, fsm.LockEvent{Kind: fsm.LocksReplaced})
					for i := range open {
						clear(open[i])
					}
				case held:
					events = append(events, fsm.LockEvent{
						Kind: fsm.LockEnded, DB: db, Token: e.Token, Key: key, Owner: e.Owner, How: fsm.LockExpired,
					})
					delete(open[db], key)
				default:
					token++
					e = fsm.LockEvent{Kind: fsm.LockGranted, DB: db, Token: token, Key: key, Owner: fmt.Sprint("o", token)}
					events = append(events, e)
					open[db][key] = e
				}
			}
			calm.add(events...)
			harried.add(events...)
			n := uint64(len(harried.entries))
			switch rng.IntN(40) {
			case 0:
				snapshot = uint64(rng.IntN(int(n-snapshot)+1)) + snapshot
				harried.s.Sync(snapshot, clockAt(snapshot))
			case 1:
				harried.restart(snapshot)
			case 2: // a loss of power, after which the end of the file is missing
				harried.s.Sync(snapshot, clockAt(snapshot))
				path := segmentPath(harried.cfg.Dir, 1)
				harried.sync()
				synced, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				harried.add()
				calm.add()
				harried.add(begins(token+1, "power", "a"))
				calm.add(begins(token+1, "power", "a"))
				token++
				open[0]["power"] = calm.entries[len(calm.entries)-1].Locks[0]
				harried.s.Close()
				if err := os.Truncate(path, synced.Size()+int64(rng.IntN(12))); err != nil {
					t.Fatal(err)
				}
				harried.open()
				harried.replay(snapshot)
			}
		}
		for db := range open {
			for i := range 4 {
				q := Query{DB: db, Key: fmt.Sprint("k", i)}
				want := model(calm.entries, db, q.Key)
				calm.want(q, want)
				harried.want(q, want)
			}
		}
		if a := harried.query(Query{Key: "k0"}); len(a.Gaps) > 0 {
			t.Errorf("gaps %v, want none", a.Gaps)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// BenchmarkStore measures the cost of the history of locks for the goroutine
// that applies entries and for the goroutine that writes the history.
func BenchmarkStore(b *testing.B) {
	l := newLog(b, 64<<20)
	var events []fsm.LockEvent
	for i := range 25 {
		key, owner := fmt.Sprint("lock:", i), fmt.Sprint("owner-0123456789abcdef-", i)
		events = append(events, begins(fsm.Pos(2*i+1), key, owner), ends(fsm.Pos(2*i+1), key, owner, fsm.LockReleased))
	}
	b.ReportAllocs()
	index := uint64(0)
	for b.Loop() {
		index++
		l.s.Applied(clockAt(index), &fsm.Result{Index: index, Locks: events})
		if index%100 == 0 { // wait, so that the queue is never full
			l.sync()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/25, "ns/cycle")
	l.s.Close()
}
