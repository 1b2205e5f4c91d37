package fsm_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestWaitLimit: from FeatureWaits on, the sum of the weights of the waiters of one
// user, and of those of one node, is limited (see maxWaitWeight). A command above
// the limit gets an error only if it would have to wait. Waiters of other users and
// of other nodes do not count. When waits end, another client can wait.
func TestWaitLimit(t *testing.T) {
	const (
		busyUser = "-BUSY too many clients of this user wait in blocking commands\r\n"
		busyNode = "-BUSY too many clients of this node wait in blocking commands, use another node\r\n"
	)
	for _, features := range []int{fsm.FeatureParts, fsm.FeatureWaits} {
		q := newQueue(t, features)
		ask := func(id fsm.SessionID, origin uint64, user string, words ...string) string {
			t.Helper()
			reply := string(q.together(spoken{id, origin, user, words}).Groups[0].Reply)
			if len(reply) > 0 && reply[0] == '@' {
				return "waits"
			}
			return reply
		}
		want := func(what, got, limited string) {
			t.Helper()
			if features < fsm.FeatureWaits {
				limited = "waits"
			}
			if got != limited {
				t.Errorf("feature version %d, %s: got %q, want %q", features, what, got, limited)
			}
		}
		q.run(other, 1, fsm.SetuserCommand, "bob", "0", "on")
		version := strconv.FormatUint(uint64(q.m.Users().Find("bob").Version), 10)
		half := make([][]string, fsm.MaxWaitWeight/4) // each wait has the weight 2
		for i := range half {
			half[i] = []string{"BLPOP", "own" + strconv.Itoa(i), "0"}
		}
		q.wait(dead, "bob", half...)
		q.wait(other, "bob", half[2:]...)
		many := []string{"BLPOP", "a", "b", "c", "d", "0"} // this wait has the weight 5
		want("more keys than there is room for", ask(other, 100_000, "bob", many...), busyUser)
		want("two keys", ask(other, 100_001, "bob", "BLPOP", "a", "b", "0"), "waits")
		want("the limit of the user", ask(dead, 100_000, "bob", "BLPOP", "a", "0"), busyUser)
		lock := []string{"LOCK", "ACQUIRE", "lock", "o", "PX", "9000", "WAIT", "0"}
		q.run(other, 1, "SET", "lock", "someone")
		want("a lock", ask(other, 100_003, "bob", lock...), busyUser) // this wait has the weight 4
		want("another user", ask(other, 100_002, "alice", "BLPOP", "z", "0"), "waits")
		q.run(other, 1, "RPUSH", "list", "x")
		if got := ask(dead, 100_000, "bob", "BLPOP", "list", "0"); got != "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n" {
			t.Errorf("a command that need not wait: %q, want the element at once", got)
		}
		want("a connection that waits again", ask(other, 100_001, "bob", "BLPOP", "a", "c", "0"), "waits")

		q.wait(dead, "alice", half...) // replaces the waiters of the same connections
		for i := range half {
			half[i] = []string{"BLPOP", "more" + strconv.Itoa(i), "0"}
		}
		var list []spoken
		for i, words := range half {
			list = append(list, spoken{dead, uint64(200_000 + i), "carol", words})
		}
		q.together(list...)
		want("the limit of the node", ask(dead, 300_000, "dave", "BLPOP", "z", "0"), busyNode)
		want("another node", ask(other, 300_000, "dave", "BLPOP", "z", "0"), "waits")
		q.state() // checks all counts
		whole := snapshotOf(t, q.m)
		if again := restore(t, whole); !slices.Equal(snapshotOf(t, again), whole) {
			t.Error("a restored machine differs from the original")
		}
		q.run(other, 1, fsm.SetuserCommand, "bob", version, "off")
		want("after the waits of the user have ended", ask(other, 100_000, "bob", many...), "waits")
		q.state()
	}
}

// TestWaitLimit_Start: one entry ends all waits of an earlier start, open and
// served ones, and serves the waiters behind them.
func TestWaitLimit_Start(t *testing.T) {
	for _, features := range []int{fsm.FeatureParts, fsm.FeatureWaits} {
		q := newQueue(t, features)
		q.run(other, 1, "SET", "lock", "someone")
		var commands [][]string
		for i := range 2 * fsm.FewEnded {
			commands = append(commands, []string{"BLPOP", "q", "own" + strconv.Itoa(i), "0"})
		}
		acquire := func(owner string) []string {
			return []string{"LOCK", "ACQUIRE", "lock", owner, "PX", "9000", "WAIT", "0"}
		}
		q.wait(dead, "bob", append(commands, acquire("first"), acquire("second"))...)
		q.wait(other, "bob", []string{"BLPOP", "q", "0"}, acquire("third"))
		q.run(other, 9, "RPUSH", "own3", "x") // serves a client of the earlier start
		q.run(other, 9, "DEL", "lock")        // grants the lock to the client with the owner "first"
		q.suspend(dead, fsm.SuspendOn)
		q.run(other, 9, "RPUSH", "q", "x")
		res := q.run(fsm.SessionID{NodeID: dead.NodeID, Boot: dead.Boot + 1}, 1, "INCR", "n")
		if list := q.m.WaitersOf(dead); len(list) != 0 {
			t.Errorf("feature version %d: %d waiters of the earlier start are left, want 0", features, len(list))
		}
		if got := served(res); !slices.Equal(got, []uint64{1, 2}) {
			t.Errorf("feature version %d: connections %v were served, want 1 and 2 of the other node", features, got)
		}
		if got, want := len(res.Woken), len(commands)+2+2; got != want {
			t.Errorf("feature version %d: %d waits ended, want %d", features, got, want)
		}
		q.state()
	}
}
