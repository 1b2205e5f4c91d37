package fsm_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// BenchmarkEvents measures the cost of events: with none wanted, with changes
// wanted, and with changes and notifications wanted.
func BenchmarkEvents(b *testing.B) {
	for _, bench := range []struct {
		name  string
		kinds fsm.EventKinds
	}{{"none", 0}, {"changed", fsm.Kinds(fsm.EventChanged)}, {"all", fsm.Kinds(fsm.EventChanged, fsm.EventKeyspace)}} {
		b.Run(bench.name, func(b *testing.B) {
			m := fsm.New(command.NewTable())
			m.Want(bench.kinds)
			var g fsm.Group
			g.Reset(2, 1)
			set := m.Table().Find([]byte("set"))
			for i := range 100 {
				g.Command(set, 0, [][]byte{[]byte("set"), []byte(fmt.Sprint("key:", i)), []byte("value")})
			}
			var seq uint64
			var setting fsm.Group
			setting.Reset(2, 1)
			row := m.Table().Find([]byte(fsm.SetSettingCommand))
			setting.Command(row, 0, [][]byte{nil, []byte(fsm.SettingNotify), []byte("KEA")})
			apply := func(g *fsm.Group) {
				seq++
				var batch fsm.BatchBuilder
				batch.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, seq-1, seq, g.Bytes())
				if _, err := m.Apply(seq, 1, batch.Encode(fsm.Header{Term: 1, Stamp: 1})); err != nil {
					b.Fatal(err)
				}
			}
			apply(&setting)
			for b.Loop() {
				apply(&g)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/SET")
		})
	}
}
