package fsm_test

import (
	"strconv"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestWaitServed_Features: below FeatureMend, SuspendEnd also removes served
// waiters, and SuspendDrop has no effect.
func TestWaitServed_Features(t *testing.T) {
	for features, want := range map[int][2]int{fsm.FeatureAbsent: {0, 2}, fsm.FeatureMend: {1, 0}} {
		for i, word := range []string{fsm.SuspendEnd, fsm.SuspendDrop} {
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
			apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", ClusterID: "c", Features: features}))
			run := func(id fsm.SessionID, origin uint64, args ...string) {
				t.Helper()
				var g fsm.Group
				g.Reset(2, origin)
				raw := respwire.Args(args...)
				g.Command(m.Table().Find(raw[0]), 0, raw)
				var b fsm.BatchBuilder
				seq++
				b.Add(id, 0, seq, g.Bytes())
				apply(b.Encode(fsm.Header{Term: 1, Stamp: int64(index)}))
			}
			n := fsm.SessionID{NodeID: "n", Boot: 1}
			run(n, 1, "blpop", "q", "0")
			run(n, 2, "blpop", "q", "0")
			run(n, 3, "rpush", "q", "x")
			run(n, 4, fsm.SuspendCommand, "1", "n", strconv.Itoa(1), word)
			if left := len(m.WaitersOf(n)); left != want[i] {
				t.Errorf("feature version %d: %d waiters are left after %q, want %d", features, left, word, want[i])
			}
			sessions := m.WaitSessions()
			if features < fsm.FeatureMend || word != fsm.SuspendEnd {
				continue
			}
			if len(sessions) != 1 || sessions[0].Open != 0 || sessions[0].Served != 1 {
				t.Errorf("sessions are %+v, want one with one served waiter", sessions)
			}
		}
	}
}
