package fsm_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// acquires returns the commands of n clients that wait for a lock.
func acquires(key, owner string, n int) [][]string {
	commands := make([][]string, n)
	for i := range commands {
		commands[i] = []string{"LOCK", "ACQUIRE", key, owner + strconv.Itoa(i), "PX", "900000", "WAIT", "0"}
	}
	return commands
}

func reply(res *fsm.Result) string { return string(res.Groups[0].Reply) }

// TestHeir_Time checks that commands for a lock do not each visit all waiters
// that are passed over, and that these waiters can get the lock when their node
// is connected again.
func TestHeir_Time(t *testing.T) {
	if testing.Short() {
		t.Skip("needs tens of thousands of waiters")
	}
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	q := newQueue(t, fsm.FeatureDeferred)
	q.run(other, 1, "SET", "lock", "someone")
	waiters := fsm.MaxWaitWeight / 4
	lost := fsm.SessionID{NodeID: "lost", Boot: 1}
	q.wait(lost, "ann", acquires("lock", "o", waiters)...)
	q.suspend(lost, fsm.SuspendPass)
	q.run(other, 1, "DEL", "lock")
	const rounds = 300
	before := threadTime(t)
	for i := range rounds {
		if got := reply(q.run(other, 1, "LOCK", "ACQUIRE", "lock", "me", "PX", "900000")); !strings.HasPrefix(got, ":") {
			t.Fatalf("acquire %d: %q, want a token, because all waiters are passed over", i, got)
		}
		q.run(other, 1, "LOCK", "RELEASE", "lock", "me")
	}
	if took := threadTime(t) - before; took > rounds*time.Millisecond/5 {
		t.Errorf("%d rounds with %d waiters that are passed over took %v of processor time", rounds, waiters, took)
	}
	q.suspend(lost, fsm.SuspendOff)
	for range waiters { // a later entry serves the first of these waiters
		if q.m.Waiting() < waiters {
			break
		}
		q.run(other, 1, "GET", "lock")
	}
	if got := reply(q.run(other, 1, "GET", "lock")); got != "$2\r\no0\r\n" {
		t.Errorf("the owner after the node has returned: %q, want o0", got)
	}
}

// TestHeir_Random compares a machine at every step with a machine that was just
// restored from its snapshot and therefore remembers nothing about the queues.
func TestHeir_Random(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := newQueue(t, fsm.FeatureDeferred)
		nodes := []fsm.SessionID{{NodeID: "a", Boot: 1}, {NodeID: "b", Boot: 1}, {NodeID: "c", Boot: 1}}
		next := make(map[fsm.SessionID]uint64)
		for step := range 60 {
			id, key := nodes[r.IntN(len(nodes))], "lock"+strconv.Itoa(r.IntN(2))
			var list []spoken
			admin := func(words ...string) { list = append(list, spoken{other, 1, "", words}) }
			leader := func(state string) {
				admin(fsm.SuspendCommand, "1", id.NodeID, strconv.FormatUint(id.Boot, 10), state)
			}
			switch r.IntN(8) {
			case 0, 1:
				for range r.IntN(200) {
					next[id]++
					owner := id.NodeID + strconv.FormatUint(next[id], 10)
					list = append(list, spoken{id, next[id], "", []string{"LOCK", "ACQUIRE", key, owner, "PX", "900000", "WAIT", "0"}})
				}
			case 2:
				leader(fsm.SuspendPass)
			case 3:
				leader([]string{fsm.SuspendOff, fsm.SuspendOn, fsm.SuspendEnd, fsm.SuspendDrop}[r.IntN(4)])
			case 4:
				i := r.IntN(len(nodes))
				nodes[i].Boot++
			}
			for range r.IntN(6) {
				switch r.IntN(3) {
				case 0:
					admin("DEL", key)
				case 1:
					admin("LOCK", "ACQUIRE", key, "me", "PX", "900000")
				default:
					admin("LOCK", "RELEASE", key, "me")
				}
			}
			admin("GET", key)
			fresh := *q
			fresh.m = restore(t, snapshotOf(t, q.m))
			var b fsm.BatchBuilder
			for _, c := range list {
				q.seq[c.id]++
				b.Add(c.id, q.seq[c.id]-1, q.seq[c.id], q.body(c.origin, c.user, c.words...))
			}
			entry := b.Encode(fsm.Header{Term: 1, Stamp: int64(q.index)})
			got, want := q.apply(entry), fresh.apply(entry)
			for i := range want.Groups {
				if g, w := string(got.Groups[i].Reply), string(want.Groups[i].Reply); g != w {
					t.Fatalf("seed %d, step %d, %q: %q, want %q", seed, step, list[i].words, g, w)
				}
			}
			_, gotHash := q.m.Hash()
			if _, wantHash := fresh.m.Hash(); gotHash != wantHash || q.state() != fresh.state() {
				t.Fatalf("seed %d, step %d: the states differ after %+v", seed, step, list)
			}
		}
	}
}
