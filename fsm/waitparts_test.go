package fsm_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// queue executes commands on a machine on which clients of several nodes wait.
type queue struct {
	t     testing.TB
	m     *fsm.Machine
	index uint64
	seq   map[fsm.SessionID]uint64
}

func newQueue(t testing.TB, features int) *queue {
	q := &queue{t: t, m: fsm.New(command.NewTable()), seq: make(map[fsm.SessionID]uint64)}
	q.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", ClusterID: "c", Features: features}))
	return q
}

func (q *queue) apply(entry []byte) *fsm.Result {
	q.t.Helper()
	q.index++
	res, err := q.m.Apply(q.index, 1, entry)
	if err != nil {
		q.t.Fatal(err)
	}
	return res
}

// spoken is a client's command that shares an entry with other commands.
type spoken struct {
	id     fsm.SessionID
	origin uint64
	user   string
	words  []string
}

// together executes several commands in one entry.
func (q *queue) together(commands ...spoken) *fsm.Result {
	q.t.Helper()
	var b fsm.BatchBuilder
	for _, c := range commands {
		q.seq[c.id]++
		b.Add(c.id, q.seq[c.id]-1, q.seq[c.id], q.body(c.origin, c.user, c.words...))
	}
	return q.apply(b.Encode(fsm.Header{Term: 1, Stamp: int64(q.index)}))
}

func (q *queue) body(origin uint64, user string, words ...string) []byte {
	var g fsm.Group
	g.Reset(2, origin)
	g.As(user)
	raw := respwire.Args(words...)
	row := q.m.Table().Find(raw[0])
	if waits := q.m.Table().Waits(row, raw); waits != nil {
		row = waits
	}
	g.Command(row, 0, raw)
	return bytes.Clone(g.Bytes())
}

func (q *queue) run(id fsm.SessionID, origin uint64, words ...string) *fsm.Result {
	q.t.Helper()
	return q.together(spoken{id, origin, "", words})
}

// wait makes clients of a session wait, one for each of the commands.
func (q *queue) wait(id fsm.SessionID, user string, commands ...[]string) {
	q.t.Helper()
	for from := 0; from < len(commands); from += 1000 {
		var list []spoken
		for i, words := range commands[from:min(from+1000, len(commands))] {
			list = append(list, spoken{id, uint64(from + i + 1), user, words})
		}
		q.together(list...)
	}
}

// suspend executes SuspendCommand, with which the leader changes the waiters of
// a session. The names are optional.
func (q *queue) suspend(id fsm.SessionID, state string, names ...string) *fsm.Result {
	q.t.Helper()
	return q.run(other, 1, append([]string{fsm.SuspendCommand, "1", id.NodeID, strconv.FormatUint(id.Boot, 10), state}, names...)...)
}

// part returns the names of the next waiters that the leader removes: the
// number of the connection and the position of each.
func (q *queue) part(id fsm.SessionID, from uint64, drop bool, work int) (names []string, next uint64) {
	list, next, _ := q.m.EndList(id, from, drop, work)
	for _, n := range list {
		names = append(names, fmt.Sprint(n.Origin), fmt.Sprint(uint64(n.Pos)))
	}
	return names, next
}

// state checks the invariants of the machine, and returns its state as StateOf
// writes it.
func (q *queue) state() string {
	q.t.Helper()
	var b bytes.Buffer
	if err := fsm.StateOf(q.m, &b); err != nil {
		q.t.Fatal(err)
	}
	if err := fsm.Broken(q.m); err != nil {
		q.t.Fatal(err)
	}
	return b.String()
}

var dead, other = fsm.SessionID{NodeID: "dead", Boot: 1}, fsm.SessionID{NodeID: "other", Boot: 1}

// crowd makes clients of the node "dead" wait for lists, streams and locks. Some of
// these clients are served. One of the served clients has a grant that is not
// claimed.
func crowd(t testing.TB, features int) *queue {
	q := newQueue(t, features)
	q.run(other, 1, "SET", "held", "someone")
	q.run(other, 1, "SET", "soon", "someone")
	q.run(other, 1, "LOCK", "ACQUIRE", "shared", "someone", "PX", "60000", "SHARED")
	var commands [][]string
	for i := range 20 {
		commands = append(commands,
			[]string{"BLPOP", "list", "0"},
			[]string{"BLPOP", fmt.Sprint("a", i), fmt.Sprint("b", i), "list", "0"},
			[]string{"XREAD", "BLOCK", "0", "STREAMS", "stream", "$"},
			[]string{"LOCK", "ACQUIRE", "held", fmt.Sprint("o", i), "PX", "60000", "WAIT", "0"},
			[]string{"LOCK", "ACQUIRE", "soon", fmt.Sprint("o", i), "PX", "60000", "WAIT", "0"},
			[]string{"LOCK", "ACQUIRE", "shared", fmt.Sprint("o", i), "PX", "60000", "WAIT", "0"})
	}
	q.wait(dead, "bob", commands...)
	q.run(other, 1, "RPUSH", "list", "x", "y", "z")
	q.run(other, 1, "RPUSH", "a9", "x")
	q.run(other, 1, "DEL", "soon") // a client of the node "dead" gets a grant
	q.suspend(dead, fsm.SuspendOn)
	if n := q.m.Waiting(); n != 115 {
		t.Fatalf("%d clients wait, want 115", n)
	}
	return q
}

// TestWaitParts: if the leader removes the waiters of a session in parts, the
// result is the same state as if it had removed them in one entry.
func TestWaitParts(t *testing.T) {
	for _, state := range []string{fsm.SuspendEnd, fsm.SuspendDrop} {
		for _, work := range []int{1, 1000, 5000, 1 << 40} {
			t.Run(fmt.Sprint(state, work), func(t *testing.T) {
				parts, whole := crowd(t, fsm.FeatureParts), crowd(t, fsm.FeatureParts)
				q := parts
				var ended, want []fsm.Woken
				for next := uint64(0); ; {
					var names []string
					if names, next = q.part(dead, next, state == fsm.SuspendDrop, work); len(names) == 0 {
						t.Fatal("EndList returned no waiter before the last part")
					}
					ended = append(ended, q.suspend(dead, state, names...).Woken...)
					whole.run(other, 1, "GET", "nothing")
					if next == 0 {
						break
					}
				}
				parts.run(other, 1, "GET", "nothing")
				want = whole.suspend(dead, state).Woken
				if parts.state() != whole.state() {
					t.Error("the states after removal in parts and in one entry differ")
				}
				if !slices.EqualFunc(ended, want, func(a, b fsm.Woken) bool {
					return a.Origin() == b.Origin() && a.Pos() == b.Pos() && a.Reply() == nil && b.Reply() == nil
				}) {
					t.Errorf("%d waiters ended in parts, and %d at once, want the same waiters", len(ended), len(want))
				}
				if left := len(q.m.WaitersOf(dead)); (left == 0) != (state == fsm.SuspendDrop) || q.m.Waiting() != 0 {
					t.Errorf("%d waiters are left, %d open, want none open, and served ones only after SuspendEnd",
						left, q.m.Waiting())
				}
				if got := q.run(other, 1, "GET", "soon"); string(got.Groups[0].Reply) != "$-1\r\n" {
					t.Errorf("value of the lock whose grant was not claimed: %q, want null", got.Groups[0].Reply)
				}
			})
		}
	}
}

// TestWaitParts_Names: SuspendEnd ignores the name of a waiter of another session,
// of another wait of a connection, and of a served waiter. It also ignores names
// that are not in the order of the origins. A command for another start of the node,
// and below FeatureParts any command with names, has no effect.
func TestWaitParts_Names(t *testing.T) {
	for _, features := range []int{fsm.FeatureDelay, fsm.FeatureParts} {
		q := newQueue(t, features)
		q.wait(dead, "", []string{"BLPOP", "q", "0"}, []string{"BLPOP", "r", "0"}, []string{"BLPOP", "s", "0"})
		q.wait(other, "", []string{"BLPOP", "q", "0"}, []string{"BLPOP", "q", "0"})
		q.run(other, 9, "RPUSH", "s", "x")
		names, next := q.part(dead, 0, true, 1<<40)
		if len(names) != 6 || next != 0 {
			t.Fatalf("names are %q, next is %d, want three waiters and 0", names, next)
		}
		foreign, _ := q.part(other, 0, true, 1<<40)
		for _, list := range [][]string{
			foreign, {names[0], "1"}, {"7", names[1]}, {names[0]}, {"x", names[1]}, {names[0], "-1"}, names[4:],
		} {
			if got := q.suspend(dead, fsm.SuspendEnd, list...); len(got.Woken) > 0 {
				t.Errorf("names %q ended the waits of %v, want none", list, got.Woken)
			}
		}
		if got := q.suspend(fsm.SessionID{NodeID: "dead", Boot: 2}, fsm.SuspendDrop, names...); len(got.Woken) > 0 {
			t.Errorf("the command for a later start ended the waits of %v, want none", got.Woken)
		}
		if got := len(q.m.WaitersOf(dead)); got != 3 {
			t.Errorf("the node has %d waiters, want all 3", got)
		}
		res := q.suspend(dead, fsm.SuspendEnd, names[2], names[3], names[0], names[1], names[2], names[3])
		// The names after the first one are not in the order of the origins, so
		// the command ignores them.
		want := map[int]int{fsm.FeatureDelay: 0, fsm.FeatureParts: 1}[features]
		if len(res.Woken) != want {
			t.Errorf("feature version %d: the waits of %v ended, want 1 from FeatureParts on, else 0",
				features, res.Woken)
		}
	}
}

// TestWaitParts_Behind: a waiter of a living node is served in the entry that
// removes the last suspended waiter before it. Waiters behind waiters that are
// passed over get a lock at once.
func TestWaitParts_Behind(t *testing.T) {
	q := newQueue(t, fsm.FeatureParts)
	q.run(other, 1, "SET", "lock", "someone")
	wait := []string{"LOCK", "ACQUIRE", "lock", "me", "PX", "60000", "WAIT", "0"}
	q.wait(dead, "", []string{"BLPOP", "a", "0"}, []string{"BLPOP", "b", "0"}, []string{"BLPOP", "a", "0"}, wait, wait)
	q.wait(other, "", []string{"BLPOP", "a", "0"}, []string{"BLPOP", "b", "0"}, wait)
	q.suspend(dead, fsm.SuspendPass)
	got := served(q.run(other, 9, "DEL", "lock"))
	if !slices.Equal(got, []uint64{3}) {
		t.Errorf("the lock went to %v, want the living client", got)
	}
	q.run(other, 9, "RPUSH", "a", "x")
	q.run(other, 9, "RPUSH", "b", "x")
	var order []uint64
	for next, first := uint64(0), true; first || next != 0; first = false {
		var names []string
		names, next = q.part(dead, next, false, 1)
		order = append(order, served(q.suspend(dead, fsm.SuspendEnd, names...))...)
		if err := fsm.IdleLock(q.m); err != nil {
			t.Error(err)
		}
		order = append(order, 0) // end of the part
	}
	if want := []uint64{0, 2, 0, 1, 0, 0, 0}; !slices.Equal(order, want) {
		t.Errorf("served by the parts: %v, want %v", order, want)
	}
}

// served returns the connections of the node "other" that got a reply in a
// result.
func served(res *fsm.Result) (origins []uint64) {
	for _, w := range res.Woken {
		if w.Reply() != nil && w.Session() == other {
			origins = append(origins, w.Origin())
		}
	}
	return origins
}

// TestWaitParts_Work: the estimate for a command that names waiters includes
// the work for the keys of the waiters. EndList returns as many waiters as the
// given work permits.
func TestWaitParts_Work(t *testing.T) {
	q := newQueue(t, fsm.FeatureParts)
	many := []string{"BLPOP"}
	for i := range 1000 {
		many = append(many, fmt.Sprint("absent", i))
	}
	q.wait(dead, "", []string{"BLPOP", "k", "0"}, append(many, "0"), []string{"BLPOP", "k", "0"}, []string{"BLPOP", "k", "0"})
	work := func(names ...string) int {
		words := append([]string{fsm.SuspendCommand, "1", "dead", "1", fsm.SuspendEnd}, names...)
		body := q.body(1, "", words...)
		if _, depends := q.m.Table().Weigh(body); depends != (len(names) > 0) {
			t.Errorf("the work of %.60q depends on the state: %v", words, depends)
		}
		steps, err := q.m.GroupWork(body)
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	none := work()
	for _, tc := range []struct {
		from      uint64
		work      int
		names     int
		next      uint64
		atLeast   int
		unlimited bool
	}{
		{0, 1, 1, 2, fsm.StepsPerWait, false},
		{2, 1, 1, 3, 1000 * fsm.StepsPerWait / 2, false},
		{3, 2 * fsm.StepsPerWait, 2, 0, 2 * fsm.StepsPerWait, false},
		{0, 1 << 40, 4, 0, 1000 * fsm.StepsPerWait / 2, true},
	} {
		names, next := q.part(dead, tc.from, false, tc.work)
		if len(names) != 2*tc.names || next != tc.next {
			t.Errorf("EndList from %d with %d steps: %d waiters, next is %d", tc.from, tc.work, len(names)/2, next)
		}
		if got := work(names...) - none; got < tc.atLeast || got > 3*tc.atLeast {
			t.Errorf("EndList from %d with %d steps: the removal is estimated as %d steps", tc.from, tc.work, got)
		}
	}
}

// processorTime returns the processor time that the process has used.
func processorTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkWaitEnd measures the time and the processor time of entries that end
// many waits, or that pass over or resume many waiters.
func BenchmarkWaitEnd(b *testing.B) {
	kinds := map[string]func(i int) []string{
		"list":      func(int) []string { return []string{"BLPOP", "q", "0"} },
		"own lists": func(i int) []string { return []string{"BLPOP", fmt.Sprint("q", i), "0"} },
		"lock":      func(int) []string { return []string{"LOCK", "ACQUIRE", "lock", "me", "PX", "60000", "WAIT", "0"} },
		"own locks": func(i int) []string {
			return []string{"LOCK", "ACQUIRE", fmt.Sprint("lock", i), "me", "PX", "60000", "WAIT", "0"}
		},
	}
	for _, features := range []int{fsm.FeatureDelay, fsm.FeatureParts, fsm.FeatureDeferred} {
		for kind, words := range kinds {
			for how, end := range map[string]func(q *queue, version string) []string{
				"user": func(q *queue, version string) []string { return []string{fsm.SetuserCommand, "bob", version, "off"} },
				"pass": func(q *queue, _ string) []string {
					return []string{fsm.SuspendCommand, "1", "dead", "1", fsm.SuspendPass}
				},
				"off": func(q *queue, _ string) []string {
					return []string{fsm.SuspendCommand, "1", "dead", "1", fsm.SuspendOff}
				},
				"whole": func(q *queue, _ string) []string {
					return []string{fsm.SuspendCommand, "1", "dead", "1", fsm.SuspendEnd}
				},
				"start": func(*queue, string) []string { return nil },
				"part": func(q *queue, _ string) []string {
					names, _ := q.part(dead, 0, false, 200_000)
					return append([]string{fsm.SuspendCommand, "1", "dead", "1", fsm.SuspendEnd}, names...)
				},
			} {
				most := fsm.MaxWaitWeight / 2 // waiters that the limit permits
				if strings.HasSuffix(kind, "lock") || strings.HasSuffix(kind, "locks") {
					most = fsm.MaxWaitWeight / 4
				}
				for _, n := range []int{7_000, most, 50_000} {
					if how == "part" && features < fsm.FeatureParts || n > most && features >= fsm.FeatureWaits {
						continue
					}
					b.Run(fmt.Sprintf("%d/%s/%s/%d", features, how, kind, n), func(b *testing.B) {
						var spent time.Duration
						for range b.N {
							b.StopTimer()
							q := newQueue(b, features)
							q.run(other, 1, fsm.SetuserCommand, "bob", "0", "on")
							version := strconv.FormatUint(uint64(q.m.Users().Find("bob").Version), 10)
							var commands [][]string
							for i := range n {
								if w := words(i); w[0] == "LOCK" {
									q.together(spoken{other, 1, "", []string{"SET", w[2], "someone"}})
								}
								commands = append(commands, words(i))
							}
							q.wait(dead, "bob", commands...)
							if q.m.Waiting() != n {
								b.Fatalf("%d clients wait, want one for each command", q.m.Waiting())
							}
							clone := q.m.Clone() // as a snapshot does
							state := fsm.SuspendOn
							q.suspend(dead, state)
							words := end(q, version)
							runtime.GC()
							before := processorTime(b)
							b.StartTimer()
							if how == "start" {
								q.run(fsm.SessionID{NodeID: dead.NodeID, Boot: dead.Boot + 1}, 2, "INCR", "n")
							} else {
								q.run(other, 2, words...)
							}
							b.StopTimer()
							spent += processorTime(b) - before
							_ = clone.Waiting()
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ms/entry")
						b.ReportMetric(spent.Seconds()*1e3/float64(b.N), "processor-ms/entry")
					})
				}
			}
		}
	}
}
