package fsm_test

import (
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// deferredCase is a command that satisfies many waiters at once.
type deferredCase struct {
	name  string
	setup [][]string
	wait  func(i int) []string
	ends  []string
}

// most is a number of waiters so large that one entry cannot serve all of them.
const most = 5 * fsm.FewReady

func deferredCases() []deferredCase {
	push := []string{"RPUSH", "l"}
	scored := []string{"ZADD", "z"}
	var set [][]string
	for i := range most {
		push = append(push, "e"+strconv.Itoa(i))
		scored = append(scored, strconv.Itoa(i), "m"+strconv.Itoa(i))
		set = append(set, []string{"SET", "own" + strconv.Itoa(i), "someone"})
	}
	own := func(i int) []string {
		return []string{"LOCK", "ACQUIRE", "own" + strconv.Itoa(i), "me", "PX", "900000", "WAIT", "0"}
	}
	return []deferredCase{
		{"XADD", [][]string{{"XADD", "s", "1-1", "f", "v"}},
			func(int) []string { return []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "1-1"} },
			[]string{"XADD", "s", "2-1", "f", "v"}},
		{"RPUSH", nil, func(int) []string { return []string{"BLPOP", "l", "0"} }, push},
		{"ZADD", nil, func(int) []string { return []string{"BZPOPMIN", "z", "0"} }, scored},
		{"DEL stream", [][]string{{"XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"}},
			func(i int) []string {
				return []string{"XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"}
			},
			[]string{"DEL", "s"}},
		{"FLUSHALL", set, own, []string{"FLUSHALL"}},
		{"FLUSHDB", set, own, []string{"FLUSHDB"}},
		{"SWAPDB", set, own, []string{"SWAPDB", "0", "1"}},
		{"DEL lock", [][]string{{"SET", "lock", "someone"}},
			func(i int) []string {
				return []string{"LOCK", "ACQUIRE", "lock", "o" + strconv.Itoa(i), "PX", "900000", "SHARED", "WAIT", "0"}
			},
			[]string{"DEL", "lock"}},
	}
}

// prepare returns a queue in which the clients of a case wait.
func (tc *deferredCase) prepare(t *testing.T, features int) *queue {
	t.Helper()
	q := newQueue(t, features)
	for _, words := range tc.setup {
		q.run(other, 1, words...)
	}
	var commands [][]string
	for i := range most {
		commands = append(commands, tc.wait(i))
	}
	q.wait(dead, "bob", commands...)
	if got := q.m.Waiting(); got != most {
		t.Fatalf("%d clients wait, want %d", got, most)
	}
	return q
}

// replies are the replies that waiters got, in order.
type replies struct {
	origins []uint64
	texts   []string
}

func (r *replies) add(t *testing.T, res *fsm.Result) {
	t.Helper()
	for _, w := range res.Woken {
		if w.Reply() == nil {
			t.Errorf("the wait of %d ended without a reply", w.Origin())
		}
		r.origins = append(r.origins, w.Origin())
		r.texts = append(r.texts, string(w.Reply()))
	}
}

// TestDeferred: from FeatureDeferred on, an entry serves a bounded number of
// waiters, and the next entries serve the others. The waiters get the same
// replies as if one entry served all of them, apart from the tokens of locks. The
// waiters for a list or a sorted set are also served in the same order.
func TestDeferred(t *testing.T) {
	for _, tc := range deferredCases() {
		t.Run(tc.name, func(t *testing.T) {
			var whole, parts replies
			q := tc.prepare(t, fsm.FeatureWaits)
			whole.add(t, q.run(other, 2, tc.ends...))
			if q.m.Deferred() != 0 || len(whole.origins) != most {
				t.Fatalf("below FeatureDeferred, one entry served %d waiters, want %d", len(whole.origins), most)
			}

			q = tc.prepare(t, fsm.FeatureDeferred)
			res := q.run(other, 2, tc.ends...)
			for entries := 1; ; entries++ {
				if got, bound := len(res.Woken), fsm.ServeWork/fsm.ServedWork+1; got > bound {
					t.Fatalf("entry %d served %d waiters, want at most %d", entries, got, bound)
				}
				parts.add(t, res)
				if res.Deferred != (q.m.Deferred() > 0) {
					t.Errorf("Result.Deferred is %v with %d deferred keys", res.Deferred, q.m.Deferred())
				}
				if !res.Deferred {
					break
				}
				if due := q.m.NextDeadline(); due == 0 || due > max(q.m.Clock().Lease, 1) {
					t.Fatalf("with deferred keys, the next deadline is %d, want one that has passed", due)
				}
				if entries > 2*most/fsm.FewReady+2 {
					t.Fatalf("after %d entries, %d keys are left", entries, q.m.Deferred())
				}
				res = q.run(other, 2, "GET", "nothing")
			}
			q.state()
			if len(parts.origins) != most {
				t.Fatalf("%d waiters were served, want %d", len(parts.origins), most)
			}
			byOrigin := func(r replies) map[uint64]string {
				m := make(map[uint64]string)
				for i, origin := range r.origins {
					m[origin] = r.texts[i]
				}
				return m
			}
			want, got := byOrigin(whole), byOrigin(parts)
			for origin := range want {
				if w, g := want[origin], got[origin]; w != g && (w[0] != ':' || g[0] != ':') { // tokens differ
					t.Errorf("client %d got %q, want %q", origin, g, w)
				}
			}
			if tc.setup == nil && !slices.Equal(parts.origins, whole.origins) {
				t.Error("the waiters for a key were served in another order")
			}
		})
	}
}

// TestDeferred_Reserved: while the key of a lock that ended is deferred, the lock is
// reserved for its waiters.
func TestDeferred_Reserved(t *testing.T) {
	i := slices.IndexFunc(deferredCases(), func(tc deferredCase) bool { return tc.name == "FLUSHALL" })
	tc := deferredCases()[i]
	q := tc.prepare(t, fsm.FeatureDeferred)
	if q.run(other, 2, "FLUSHALL"); q.m.Deferred() != most {
		t.Fatalf("%d keys are deferred, want all %d", q.m.Deferred(), most)
	}
	last := "own" + strconv.Itoa(fsm.FewReady+50) // behind the keys that the next entry serves
	var b []spoken
	for i, words := range [][]string{
		{"SETNX", last, "thief"}, {"SET", last, "thief", "NX", "PX", "1000"}, {"LOCK", "ACQUIRE", last, "thief", "PX", "1000"},
	} {
		b = append(b, spoken{other, uint64(i + 10), "", words})
	}
	res := q.together(b...)
	for i, want := range []string{":0\r\n", "$-1\r\n", "$-1\r\n"} {
		if got := string(res.Groups[i].Reply); got != want {
			t.Errorf("%q: got %q, want %q", b[i].words, got, want)
		}
	}
	for q.m.Deferred() > 0 {
		q.run(other, 2, "GET", "nothing")
	}
	if got := string(q.run(other, 2, "GET", last).Groups[0].Reply); got != "$2\r\nme\r\n" {
		t.Errorf("the lock has the value %q, want the owner of its waiter", got)
	}
}

// TestDeferred_NoneServed: an entry visits a bounded number of deferred keys
// even if it serves no waiter. In this test, the waiters are suspended or the
// keys do not satisfy them.
func TestDeferred_NoneServed(t *testing.T) {
	i := slices.IndexFunc(deferredCases(), func(tc deferredCase) bool { return tc.name == "SWAPDB" })
	tc := deferredCases()[i]
	most := 3 * fsm.ServeWork / fsm.ReadyWork
	for _, suspended := range []bool{false, true} {
		q := newQueue(t, fsm.FeatureDeferred)
		var commands [][]string
		for i := range most {
			q.run(other, 1, "SET", "own"+strconv.Itoa(i), "someone")
			commands = append(commands, tc.wait(i))
		}
		q.wait(dead, "bob", commands...)
		if suspended {
			q.suspend(dead, fsm.SuspendOn)
			q.run(other, 2, "FLUSHALL")
		} else {
			q.together(spoken{other, 2, "", []string{"SWAPDB", "0", "1"}}, spoken{other, 2, "", []string{"SWAPDB", "0", "1"}})
		}
		entries := 0
		for left := q.m.Deferred(); left > 0; entries++ {
			res := q.run(other, 2, "GET", "nothing")
			if visited := left - q.m.Deferred(); visited > fsm.ServeWork/fsm.ReadyWork+1 || len(res.Woken) > 0 {
				t.Fatalf("an entry visited %d keys and served %d waiters, want at most %d and none",
					visited, len(res.Woken), fsm.ServeWork/fsm.ReadyWork+1)
			}
			left = q.m.Deferred()
		}
		if entries < 3 {
			t.Errorf("suspended %v: %d entries visited %d keys", suspended, entries, most)
		}
		q.state()
	}
}

// TestDeferred_Turns: a stream that gets a value in every entry does not delay
// the waiters for other keys. It does not delay its own waiters either, even if
// they are behind many waiters that the values do not satisfy.
func TestDeferred_Turns(t *testing.T) {
	q := newQueue(t, fsm.FeatureDeferred)
	q.run(other, 1, "XADD", "s", "1-1", "f", "v")
	const idle = 4 * fsm.FewReady * fsm.ServedWork / fsm.CheckedWork // one entry cannot check them all
	var commands [][]string
	for range idle {
		commands = append(commands, []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "9000000-1"})
	}
	commands = append(commands, []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "1-1"}, []string{"BLPOP", "z", "0"})
	half := len(commands) / 2
	q.wait(dead, "bob", commands[:half]...)
	q.wait(other, "ann", commands[half:]...)
	served := make(map[uint64]int)
	for n := range 12 {
		words := []string{"XADD", "s", strconv.Itoa(n+2) + "-1", "f", "v"}
		add := spoken{other, 1 << 40, "", words}
		push := spoken{other, 1 << 41, "", []string{"RPUSH", "z", "x"}}
		for _, w := range q.together(add, push).Woken {
			served[w.Origin()] = n
		}
	}
	origins := []uint64{uint64(len(commands) - half - 1), uint64(len(commands) - half)}
	for _, origin := range origins {
		if _, ok := served[origin]; !ok {
			t.Errorf("connection %d was not served in 12 entries; served were %v", origin, served)
		}
	}
	q.state()
}

// TestDeferred_Later: a value that a deferred key gets also serves the waiters of
// the key that were checked before. Restored machines do the same in the same
// entries, and a clone keeps its own deferred keys.
func TestDeferred_Later(t *testing.T) {
	q := newQueue(t, fsm.FeatureDeferred)
	q.run(other, 1, "XADD", "s", "1-1", "f", "v")
	const early = 3 * fsm.FewReady * fsm.ServedWork / fsm.CheckedWork // one entry checks less than half
	commands := make([][]string, early)
	for i := range commands {
		commands[i] = []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "2-1"}
	}
	commands[early-1] = []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "1-1"}
	q.wait(dead, "bob", commands[:early/2]...)
	q.wait(other, "ann", commands[early/2:]...)
	q.run(other, 1<<40, "XADD", "s", "2-1", "f", "v") // satisfies only the last waiter
	if q.m.Deferred() != 1 {
		t.Fatal("the entry has checked all waiters, want some left")
	}
	clone := q.m.Clone()
	before := snapshotOf(t, clone)
	q.run(other, 1<<40, "XADD", "s", "3-1", "f", "v") // satisfies all
	total := 0
	for entries := 0; q.m.Deferred() > 0; entries++ {
		if entries > early/fsm.FewReady*2+10 {
			t.Fatalf("after %d entries, %d clients still wait", entries, q.m.Waiting())
		}
		copied := *q
		copied.m = restore(t, snapshotOf(t, q.m))
		total += len(q.run(other, 1<<40, "GET", "nothing").Woken)
		q.seq[other]-- // the restored machine gets the same entry
		copied.run(other, 1<<40, "GET", "nothing")
		if !slices.Equal(snapshotOf(t, copied.m), snapshotOf(t, q.m)) {
			t.Fatalf("after entry %d, the restored machine differs from the original", entries)
		}
	}
	if q.m.Waiting() != 0 {
		t.Errorf("%d clients still wait, want none", q.m.Waiting())
	}
	if total == 0 {
		t.Error("the entries served no waiter of a deferred key")
	}
	if !slices.Equal(snapshotOf(t, clone), before) {
		t.Error("a clone has changed with the original")
	}
	q.state()
}

// TestDeferred_Time: no entry that serves waiters takes 10 ms of processor time,
// even if a command satisfies as many waiters for one stream as two nodes may
// have, or as many waiters for 300 lists each as one node may have.
func TestDeferred_Time(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	q := newQueue(t, fsm.FeatureDeferred)
	q.run(other, 1, "XADD", "s", "1-1", "f", "v")
	commands := make([][]string, fsm.MaxWaitWeight/2)
	for i := range commands {
		commands[i] = []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "1-1"}
	}
	q.wait(dead, "bob", commands...)
	q.wait(other, "ann", commands...)
	entries, longest := q.drain("XADD", "s", "2-1", "f", "v")
	many := []string{"BLPOP"}
	for i := range 300 {
		many = append(many, "list"+strconv.Itoa(i))
	}
	commands = make([][]string, fsm.MaxWaitWeight/301)
	for i := range commands {
		commands[i] = append(many, "0")
	}
	q.wait(dead, "bob", commands...)
	push := []string{"RPUSH", "list7"}
	n, took := q.drain(append(push, many...)...)
	entries, longest = entries+n, max(longest, took)
	if q.m.Waiting() != 0 {
		t.Errorf("%d clients still wait, want none", q.m.Waiting())
	}
	if longest >= 10*time.Millisecond {
		t.Errorf("one of %d entries took %v of processor time, want less than 10 ms", entries, longest)
	}
}

// drain executes a command, and then further entries until no deferred keys are
// left. It returns the number of entries and the longest processor time of one
// of them. It stops the garbage collector, because otherwise the goroutine would
// do a part of the collector's work when it allocates memory.
func (q *queue) drain(words ...string) (entries int, longest time.Duration) {
	q.t.Helper()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for {
		before := threadTime(q.t)
		res := q.run(other, 1<<40, words...)
		longest = max(longest, threadTime(q.t)-before)
		if entries++; !res.Deferred {
			return entries, longest
		}
		words = []string{"GET", "nothing"}
	}
}

// TestDeferred_Most: FLUSHALL, FLUSHDB and SWAPDB, and the entries that serve
// waiters after them, each take less than 10 ms of processor time. As many
// clients wait for locks of their own as three nodes may have, and there are
// many other keys.
func TestDeferred_Most(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	q := newQueue(t, fsm.FeatureDeferred)
	set := func(n int, name string) {
		for from := 0; from < n; from += 1000 {
			var list []spoken
			for i := range min(1000, n-from) {
				words := []string{"SET", name + strconv.Itoa(from+i), "someone", "PX", "900000000"}
				list = append(list, spoken{other, 1, "", words})
			}
			q.together(list...)
		}
	}
	set(50_000, "other")
	for _, node := range []string{"n1", "n2", "n3"} {
		set(fsm.MaxWaitWeight/4, node)
		commands := make([][]string, fsm.MaxWaitWeight/4)
		for i := range commands {
			commands[i] = []string{"LOCK", "ACQUIRE", node + strconv.Itoa(i), "me", "PX", "60000", "WAIT", "0"}
		}
		q.wait(fsm.SessionID{NodeID: node, Boot: 1}, node, commands...)
	}
	full := snapshotOf(t, q.m)
	for _, words := range [][]string{{"FLUSHALL"}, {"FLUSHDB"}, {"SWAPDB", "0", "1"}} {
		least, entries := time.Duration(math.MaxInt64), 0
		for tries := 0; least >= 10*time.Millisecond && tries < 10; tries++ { // other programs may disturb a try
			copied := *q
			copied.m, copied.seq = restore(t, full), maps.Clone(q.seq)
			var longest time.Duration
			entries, longest = copied.drain(words...)
			if least = min(least, longest); copied.m.Waiting() != 0 {
				t.Errorf("%s: %d clients still wait, want none", words[0], copied.m.Waiting())
			}
		}
		if least >= 10*time.Millisecond {
			t.Errorf("%s: in each of ten tries, an entry took %v or more of processor time", words[0], least)
		}
		longest := least
		t.Logf("%s: %d entries, the longest took %v of processor time", words[0], entries, longest)
	}
}

// TestDeferred_Resume: when a suspended node is connected again, no entry takes
// 10 ms of processor time, even if all locks that its clients wait for have
// become free in the meantime, and as many clients wait on each of two other
// nodes.
func TestDeferred_Resume(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	const most = fsm.MaxWaitWeight / 4
	q := newQueue(t, fsm.FeatureDeferred)
	for _, node := range []string{"n1", "n2", "n3"} {
		commands := make([][]string, most)
		for i := range commands {
			key := strconv.Itoa(i*7919%most) + node // not in the order of the waits
			q.run(other, 1, "SET", key, "someone")
			commands[i] = []string{"LOCK", "ACQUIRE", key, "me", "PX", "60000", "WAIT", "0"}
		}
		q.wait(fsm.SessionID{NodeID: node, Boot: 1}, node, commands...)
	}
	n1 := fsm.SessionID{NodeID: "n1", Boot: 1}
	q.suspend(n1, fsm.SuspendOn)
	for i := range most {
		q.run(other, 1, "DEL", strconv.Itoa(i)+"n1")
	}
	full := snapshotOf(t, q.m)
	least, entries := time.Duration(math.MaxInt64), 0
	for tries := 0; least >= 10*time.Millisecond && tries < 10; tries++ { // other programs may disturb a try
		copied := *q
		copied.m, copied.seq = restore(t, full), maps.Clone(q.seq)
		var longest time.Duration
		entries, longest = copied.drain(fsm.SuspendCommand, "1", n1.NodeID, "1", fsm.SuspendOff)
		if least = min(least, longest); copied.m.Waiting() != 2*most {
			t.Errorf("%d clients still wait, want those of the other nodes, %d", copied.m.Waiting(), 2*most)
		}
	}
	if least >= 10*time.Millisecond {
		t.Errorf("in each of ten tries, an entry took %v or more of processor time", least)
	}
	t.Logf("%d entries, the longest took %v of processor time", entries, least)
}

// TestDeferred_ResumeServes: several entries check the waiters of a node that
// was suspended. In the meantime, if a waiter leaves, the client behind it gets
// the value of the key. A removed stream ends the waits for it. If the node is
// suspended again, its waiters are not served.
func TestDeferred_ResumeServes(t *testing.T) {
	const most = 10 * fsm.FewReady
	q := newQueue(t, fsm.FeatureDeferred)
	q.run(other, 1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
	list := func(i int) string { return "l" + strconv.Itoa(i) }
	commands := make([][]string, most)
	for i := range commands {
		commands[i] = []string{"BLPOP", list(i), "0"}
		if i%5 == 4 {
			commands[i] = []string{"XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"}
		}
	}
	q.wait(dead, "bob", commands...)
	waiters := q.m.WaitersOf(dead)
	q.suspend(dead, fsm.SuspendOn)
	q.run(other, 1, "DEL", "s")
	behind := fsm.SessionID{NodeID: "behind", Boot: 1}
	for i := range most {
		if i%5 < 3 { // the lists with i%5 == 3 stay absent
			q.run(other, 1, "RPUSH", list(i), "v"+strconv.Itoa(i))
			q.together(spoken{behind, uint64(i + 1), "ann", []string{"BLPOP", list(i), "0"}})
		}
	}
	first, second := newEnded(), newEnded()
	drain := func(res *fsm.Result, entries int) {
		for {
			first.add(res, dead.NodeID)
			second.add(res, behind.NodeID)
			q.state()
			if !res.Deferred || entries == 0 {
				return
			}
			entries--
			copied := *q
			copied.m, copied.seq = restore(t, snapshotOf(t, q.m)), maps.Clone(q.seq)
			res = q.run(other, 1<<40, "GET", "nothing")
			copied.run(other, 1<<40, "GET", "nothing") // the restored machine gets the same entry
			if !slices.Equal(snapshotOf(t, copied.m), snapshotOf(t, q.m)) {
				t.Fatal("the restored machine differs from the original")
			}
		}
	}
	drain(q.suspend(dead, fsm.SuspendOff), 1)
	if q.m.Deferred() == 0 {
		t.Fatal("two entries have checked all waiters, want some left")
	}
	drain(q.suspend(dead, fsm.SuspendOn), 0) // there are deferred keys before this entry
	early := len(first.served)
	drain(q.run(other, 1, "GET", "nothing"), 1<<20)
	if got := len(first.served); got != early || q.m.Deferred() != 0 {
		t.Errorf("while the node is suspended again, %d of its clients were served, want none", got-early)
	}
	res := q.suspend(dead, fsm.SuspendOff)
	first.add(res, dead.NodeID)
	var leave []spoken
	for i := most - 1; i > most-100; i-- { // clients that no entry has checked yet
		if state, _ := q.m.Waiter(dead, waiters[i].Origin, waiters[i].Pos); i%5 == 1 && state == fsm.WaitOpen {
			name := []string{strconv.FormatUint(waiters[i].Origin, 10), strconv.FormatUint(uint64(waiters[i].Pos), 10)}
			leave = append(leave, spoken{dead, waiters[i].Origin, "bob", append([]string{fsm.UnwaitCommand}, name...)})
		}
	}
	left := len(leave)
	drain(q.together(leave...), 1<<20)
	if got, want := len(first.served), most*4/5-left; got != want {
		t.Errorf("%d clients of the node were served, want %d", got, want)
	}
	if got := len(second.served); got != left {
		t.Errorf("%d clients that waited behind others were served, want %d, one for each client that left", got, left)
	}
	if got, want := q.m.Waiting(), most/5+most*3/5-left; got != want {
		t.Errorf("%d clients still wait, want %d", got, want)
	}
	q.state()
}
