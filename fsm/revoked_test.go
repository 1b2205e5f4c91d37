package fsm_test

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// setUser creates a user, or changes the rights of the user. The entry also
// contains, after this change, the commands of the parameter behind.
func (q *queue) setUser(name string, behind ...spoken) *fsm.Result {
	q.t.Helper()
	version := fsm.Pos(0)
	if u := q.m.Users().Find(name); u != nil {
		version = u.Version
	}
	words := []string{fsm.SetuserCommand, name, strconv.FormatUint(uint64(version), 10), fmt.Sprint("on ~", q.index)}
	res := q.together(append([]spoken{{other, 1 << 40, "", words}}, behind...)...)
	if got := string(res.Groups[0].Reply); got != ":1\r\n" {
		q.t.Fatalf("change of user %s: %s", name, got)
	}
	return res
}

// ended counts, for each connection of a node, the waits that ended without a
// reply and those that ended with one.
type ended struct{ revoked, served map[uint64]int }

func newEnded() *ended { return &ended{make(map[uint64]int), make(map[uint64]int)} }

func (e *ended) add(res *fsm.Result, node string) {
	for _, w := range res.Woken {
		switch {
		case w.Session().NodeID != node:
		case w.Reply() == nil:
			e.revoked[w.Origin()]++
		default:
			e.served[w.Origin()]++
		}
	}
}

// checkEnded requires that got counts one wait for each of the connections 1 to n,
// and none for other connections. Its errors begin with the parameter what.
func checkEnded(t *testing.T, what string, got map[uint64]int, n int) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%s: %d connections, want %d", what, len(got), n)
	}
	for origin := range uint64(n) {
		if got[origin+1] != 1 {
			t.Fatalf("%s: connection %d %d times, want once", what, origin+1, got[origin+1])
		}
	}
}

// plenty is a number of waits so large that one entry cannot end all of them.
const plenty = 3 * fsm.ServeWork / fsm.EndedWork

// TestRevoked: the entry that changes the rights of a user ends only a part of
// the user's waits. Later entries end the others. No entry serves a wait of the
// user that began before the change. The clients of another user in the same queue
// are served as if the revoked waits did not exist.
func TestRevoked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup []string
		wait  func(i int) []string
		feed  func(i int) []string
	}{
		{"list", nil, func(int) []string { return []string{"BLPOP", "l", "0"} },
			func(i int) []string { return []string{"RPUSH", "l", "e" + strconv.Itoa(i)} }},
		{"stream", []string{"XADD", "s", "1-1", "f", "v"},
			func(int) []string { return []string{"XREAD", "BLOCK", "0", "STREAMS", "s", "1-1"} },
			func(i int) []string { return []string{"XADD", "s", fmt.Sprint(i+2, "-1"), "f", "v"} }},
		{"group", []string{"XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"},
			func(int) []string {
				return []string{"XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"}
			},
			func(int) []string { return []string{"DEL", "s"} }},
		{"lock", []string{"SET", "lock", "someone"},
			func(i int) []string {
				return []string{"LOCK", "ACQUIRE", "lock", "o" + strconv.Itoa(i), "PX", "900000", "SHARED", "WAIT", "0"}
			},
			func(int) []string { return []string{"DEL", "lock"} }},
	} {
		for _, suspended := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, "/", suspended), func(t *testing.T) {
				q := newQueue(t, fsm.FeatureDeferred)
				q.setUser("bob")
				if tc.setup != nil {
					q.run(other, 1, tc.setup...)
				}
				const anns = 20
				const bobs = plenty / anns * anns
				// The waits of bob stand before and between those of ann in the
				// queue. Entries end revoked waits in the order of their
				// connection numbers, and the connection numbers of bob's waits
				// descend along the queue. So the waits at the front of the queue
				// end last, unless an entry that serves the queue ends them.
				for i := range anns {
					var first []spoken
					for k := range plenty / anns {
						n := i*(plenty/anns) + k
						first = append(first, spoken{dead, uint64(bobs - n), "bob", tc.wait(n)})
					}
					q.together(append(first, spoken{other, uint64(i + 1), "ann", tc.wait(plenty + i)})...)
				}
				if suspended {
					q.suspend(dead, fsm.SuspendOn)
				}
				bob, ann := newEnded(), newEnded()
				late := spoken{dead, 1 << 30, "bob", []string{"BLPOP", "late", "0"}}
				for res, entries := q.setUser("bob", late), 0; ; entries++ {
					bob.add(res, dead.NodeID)
					ann.add(res, other.NodeID)
					q.state()
					if len(res.Woken) > 2*fsm.ServeWork/fsm.EndedWork {
						t.Fatalf("entry %d ended %d waits, want a bounded number", entries, len(res.Woken))
					}
					if entries == 0 && (q.m.Deferred() == 0 || len(bob.revoked) == 0) {
						t.Fatalf("the change ended %d waits and left %d users, want a part of the waits and a user", len(bob.revoked), q.m.Deferred())
					}
					if entries > anns && q.m.Deferred() == 0 {
						break
					}
					copied := *q
					copied.m, copied.seq = restore(t, snapshotOf(t, q.m)), maps.Clone(q.seq)
					words := []string{"GET", "nothing"}
					if entries < anns {
						words = tc.feed(entries)
					}
					res = q.run(other, 1<<40, words...)
					copied.run(other, 1<<40, words...) // the restored machine gets the same entry
					if !slices.Equal(snapshotOf(t, copied.m), snapshotOf(t, q.m)) {
						t.Fatalf("after entry %d, the restored machine differs from the original", entries)
					}
				}
				checkEnded(t, "waits of bob that were revoked", bob.revoked, bobs)
				checkEnded(t, "waits of bob that were served", bob.served, 0)
				checkEnded(t, "waits of ann that were served", ann.served, anns)
				checkEnded(t, "waits of ann that were revoked", ann.revoked, 0)
				if got := q.m.Waiting(); got != 1 {
					t.Errorf("%d clients wait, want the one that began to wait after the change", got)
				}
			})
		}
	}
}

// TestRevoked_Again: the rights of a user change again, and those of other users
// change, while entries end the waits that the first change revoked. A wait that
// began between the changes ends, and a wait that began after the last change does
// not.
func TestRevoked_Again(t *testing.T) {
	q := newQueue(t, fsm.FeatureDeferred)
	pop := func(i int) []string { return []string{"BLPOP", "l" + strconv.Itoa(i), "0"} }
	var commands [][]string
	for i := range plenty {
		commands = append(commands, pop(i))
	}
	users := []string{"ann", "bob", "eve"}
	node := func(user string) fsm.SessionID { return fsm.SessionID{NodeID: "node of " + user, Boot: 1} }
	for _, user := range users {
		q.setUser(user)
		q.wait(node(user), user, commands...)
	}
	all := map[string]*ended{"ann": newEnded(), "bob": newEnded(), "eve": newEnded()}
	add := func(res *fsm.Result) {
		for user, e := range all {
			e.add(res, node(user).NodeID)
		}
		q.state()
	}
	waitAgain := func(user string, origin uint64) spoken { return spoken{node(user), origin, user, pop(plenty)} }
	add(q.setUser("bob", waitAgain("bob", plenty+1)))
	add(q.setUser("eve"))
	add(q.setUser("bob", waitAgain("bob", plenty+2))) // ends the wait plenty+1
	add(q.setUser("dan", waitAgain("eve", plenty+1)))
	for entries := 0; q.m.Deferred() > 0; entries++ {
		if entries > 40*plenty*fsm.EndedWork/fsm.ServeWork {
			t.Fatalf("after %d entries, waits of %d users are left", entries, q.m.Deferred())
		}
		add(q.run(other, 1, "GET", "nothing"))
	}
	for user, want := range map[string]int{"ann": 0, "bob": plenty + 1, "eve": plenty} {
		checkEnded(t, "waits of "+user+" that were revoked", all[user].revoked, want)
		checkEnded(t, "waits of "+user+" that were served", all[user].served, 0)
	}
	if got := q.m.Waiting(); got != plenty+2 {
		t.Errorf("%d clients wait, want those of ann, one of bob, and one of eve", got)
	}
}

// TestRevoked_Time: no entry that ends waits of a user takes 10 ms of processor
// time, even if as many clients wait as the limits of three nodes permit. The best
// of three attempts counts.
func TestRevoked_Time(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	for _, tc := range []struct {
		name string
		wait func(key string) []string
		most int
	}{
		{"list", func(string) []string { return []string{"BLPOP", "l", "0"} }, fsm.MaxWaitWeight / 2},
		{"own lists", func(key string) []string { return []string{"BLPOP", key, "0"} }, fsm.MaxWaitWeight / 2},
		{"lock", func(string) []string {
			return []string{"LOCK", "ACQUIRE", "lock", "me", "PX", "60000", "WAIT", "0"}
		}, fsm.MaxWaitWeight / 4},
		{"own locks", func(key string) []string {
			return []string{"LOCK", "ACQUIRE", "held:" + key, "me", "PX", "60000", "WAIT", "0"}
		}, fsm.MaxWaitWeight / 4},
	} {
		q := newQueue(t, fsm.FeatureDeferred)
		q.setUser("n1")
		q.run(other, 1, "SET", "lock", "someone")
		for _, node := range []string{"n1", "n2", "n3"} { // the names of the nodes are those of the users too
			var commands [][]string
			for i := range tc.most {
				key := node + ":" + strconv.Itoa(i)
				commands = append(commands, tc.wait(key))
				if tc.name == "own locks" {
					q.run(other, 1, "SET", "held:"+key, "someone")
				}
			}
			q.wait(fsm.SessionID{NodeID: node, Boot: 1}, node, commands...)
		}
		if got := q.m.Waiting(); got != 3*tc.most {
			t.Fatalf("%s: %d clients wait, want %d", tc.name, got, 3*tc.most)
		}
		full, version := snapshotOf(t, q.m), strconv.FormatUint(uint64(q.m.Users().Find("n1").Version), 10)
		least, entries := time.Duration(math.MaxInt64), 0
		for range 3 { // other programs may disturb an attempt
			copied := *q
			copied.m, copied.seq = restore(t, full), maps.Clone(q.seq)
			var longest time.Duration
			entries, longest = copied.drain(fsm.SetuserCommand, "n1", version, "off")
			if least = min(least, longest); copied.m.Waiting() != 2*tc.most {
				t.Errorf("%s: %d clients still wait, want those of the other users, %d", tc.name, copied.m.Waiting(), 2*tc.most)
			}
		}
		if least >= 10*time.Millisecond {
			t.Errorf("%s: in each of three attempts, an entry took %v or more of processor time", tc.name, least)
		}
		t.Logf("%s: %d entries, the longest took %v of processor time", tc.name, entries, least)
	}
}

// TestRevoked_PassedOver: no entry after the change of a user's rights takes 10 ms
// of processor time if, in the queue of a lock, revoked waits stand behind equally
// many waits that are passed over. The best of three attempts counts.
func TestRevoked_PassedOver(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	q := newQueue(t, fsm.FeatureDeferred)
	q.setUser("bob")
	q.run(other, 1, "SET", "lock", "someone")
	commands := make([][]string, fsm.MaxWaitWeight/4)
	for i := range commands {
		commands[i] = []string{"LOCK", "ACQUIRE", "lock", "o" + strconv.Itoa(i), "PX", "900000", "WAIT", "0"}
	}
	lost := fsm.SessionID{NodeID: "lost", Boot: 1}
	q.wait(lost, "ann", commands...)
	q.wait(dead, "bob", commands...)
	q.suspend(lost, fsm.SuspendPass)
	full := snapshotOf(t, q.m)
	least, entries := time.Duration(math.MaxInt64), 0
	for range 3 { // other programs may disturb an attempt
		copied := *q
		copied.m, copied.seq = restore(t, full), maps.Clone(q.seq)
		copied.setUser("bob")
		var longest time.Duration
		entries, longest = copied.drain("DEL", "lock")
		if least = min(least, longest); copied.m.Waiting() != len(commands) {
			t.Errorf("%d clients still wait, want the %d that are passed over", copied.m.Waiting(), len(commands))
		}
	}
	if least >= 10*time.Millisecond {
		t.Errorf("in each of three attempts, an entry took %v or more of processor time", least)
	}
	t.Logf("%d entries, the longest took %v of processor time", entries, least)
}
