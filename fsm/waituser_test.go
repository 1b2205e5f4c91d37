package fsm_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestWaitUser_Many: if so many waits of a user end at once that the machine
// builds new trees of waiters, the other waiters stay, those behind the ended
// waits are served, and all counts are right.
func TestWaitUser_Many(t *testing.T) {
	for _, features := range []int{fsm.FeatureDelay, fsm.FeatureParts} {
		q := newQueue(t, features)
		q.run(other, 1, fsm.SetuserCommand, "bob", "0", "on")
		q.run(other, 1, "SET", "lock", "someone")
		version := strconv.FormatUint(uint64(q.m.Users().Find("bob").Version), 10)
		var commands [][]string
		for i := range 2 * fsm.FewEnded {
			commands = append(commands, []string{"BLPOP", "q", "own" + strconv.Itoa(i), "0"}, []string{"LOCK", "ACQUIRE", "lock", "o", "PX", "9000", "WAIT", "0"})
		}
		q.wait(dead, "bob", commands...)
		q.wait(other, "alice", commands[:6]...)
		q.run(other, 9, "RPUSH", "own3", "x") // one of bob's clients is served
		q.suspend(dead, fsm.SuspendOn)
		q.run(other, 9, "RPUSH", "q", "x")
		q.run(other, 9, "DEL", "lock")
		before := q.m.Clone()
		res := q.run(other, 9, fsm.SetuserCommand, "bob", version, "off")
		if got := served(res); !slices.Equal(got, []uint64{1, 2}) {
			t.Errorf("feature version %d: connections %v were served, want 1 and 2, the first ones behind the ended "+
				"waits", features, got)
		}
		if len(res.Woken) != len(commands)-1+2 || q.m.Waiting() != 4 || before.Waiting() != len(commands)-1+6 {
			t.Errorf("feature version %d: %d waits ended, %d are left, and there were %d before",
				features, len(res.Woken), q.m.Waiting(), before.Waiting())
		}
		if list := q.m.WaitersOf(dead); len(list) != 1 || !list[0].Served {
			t.Errorf("waiters of the user: %v, want one served waiter", list)
		}
		q.state() // checks all counts
		whole := snapshotOf(t, q.m)
		if again := restore(t, whole); !slices.Equal(snapshotOf(t, again), whole) {
			t.Error("a restored machine differs from the original")
		}
	}
}

// TestWaitUser: from FeatureBudget on, a change of a user ends the waits of
// that user, and of clients whose user is not known, before they can be served.
// Then the waiters behind them are served. The waits of other users stay.
// Snapshots contain the users of the waiters.
func TestWaitUser(t *testing.T) {
	type waiting struct {
		origin uint64
		user   string // "" for none
	}
	list := []waiting{{1, "bob"}, {2, "alice"}, {3, ""}, {4, "bob"}}
	for _, tc := range []struct {
		name     string
		features int
		change   []string
		ended    []uint64
		served   uint64 // origin of the waiter that the next RPUSH serves
	}{
		{"below FeatureBudget", fsm.FeatureMend, []string{fsm.SetuserCommand, "bob", "V", "off"}, nil, 1},
		{"change", fsm.FeatureBudget, []string{fsm.SetuserCommand, "bob", "V", "off"}, []uint64{1, 3, 4}, 2},
		{"same rules", fsm.FeatureBudget, []string{fsm.SetuserCommand, "bob", "V", "on"}, nil, 1},
		{"other version", fsm.FeatureBudget, []string{fsm.SetuserCommand, "bob", "0", "off"}, nil, 1},
		{"new user", fsm.FeatureBudget, []string{fsm.SetuserCommand, "alice", "0", "off"}, []uint64{2, 3}, 1},
		{"delete", fsm.FeatureBudget, []string{fsm.DelusersCommand, "carol", "bob"}, []uint64{1, 3, 4}, 2},
		{"delete an unknown user", fsm.FeatureBudget, []string{fsm.DelusersCommand, "alice"}, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fsm.New(command.NewTable())
			index, seq := uint64(0), uint64(0)
			apply := func(entry []byte) *fsm.Result {
				t.Helper()
				index++
				res, err := m.Apply(index, 1, entry)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", ClusterID: "c", Features: tc.features}))
			n := fsm.SessionID{NodeID: "n", Boot: 1}
			run := func(origin uint64, user string, words ...string) *fsm.Result {
				t.Helper()
				var g fsm.Group
				g.Reset(2, origin)
				if user != "" {
					g.As(user)
				}
				raw := respwire.Args(words...)
				g.Command(m.Table().Find(raw[0]), 0, raw)
				var b fsm.BatchBuilder
				seq++
				b.Add(n, 0, seq, g.Bytes())
				return apply(b.Encode(fsm.Header{Term: 1, Stamp: int64(index)}))
			}
			run(9, "", fsm.SetuserCommand, "bob", "0", "on")
			version := strconv.FormatUint(uint64(m.Users().Find("bob").Version), 10)
			for _, w := range list {
				run(w.origin, w.user, "blpop", "q", "0")
			}
			whole := snapshotOf(t, m)
			if m = restore(t, whole); !slices.Equal(snapshotOf(t, m), whole) {
				t.Fatal("a restored machine differs from the original")
			}
			change := slices.Clone(tc.change)
			if i := slices.Index(change, "V"); i > 0 {
				change[i] = version
			}
			var ended []uint64
			for _, w := range run(9, "", change...).Woken {
				if w.Reply() != nil {
					t.Errorf("waiter %d was served %q, want its wait to end without a reply", w.Origin(), w.Reply())
				}
				ended = append(ended, w.Origin())
			}
			if !slices.Equal(ended, tc.ended) {
				t.Errorf("the waits of %v have ended, want %v", ended, tc.ended)
			}
			res := run(9, "", "rpush", "q", "x")
			if len(res.Woken) != 1 || res.Woken[0].Origin() != tc.served || res.Woken[0].Reply() == nil {
				t.Errorf("served are %+v, want %d", res.Woken, tc.served)
			}
		})
	}
}
