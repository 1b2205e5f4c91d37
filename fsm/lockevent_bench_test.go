package fsm_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// BenchmarkLocks measures the cost of applying commands on locks, with and without
// the events of locks.
func BenchmarkLocks(b *testing.B) {
	for _, bench := range []struct {
		name    string
		records bool
		lines   []string
	}{
		{"setnx", false, []string{"setnx key:%d owner", "del key:%d"}},
		{"set", false, []string{"set key:%d owner", "del key:%d"}},
		{"setnxpx", false, []string{"set key:%d owner NX PX 30000", "delifeq key:%d owner"}},
		{"acquire", false, []string{"lock acquire key:%d owner PX 30000", "lock release key:%d owner"}},
		{"setnx/recorded", true, []string{"setnx key:%d owner", "del key:%d"}},
		{"setnxpx/recorded", true, []string{"set key:%d owner NX PX 30000", "delifeq key:%d owner"}},
		{"acquire/recorded", true, []string{"lock acquire key:%d owner PX 30000", "lock release key:%d owner"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			m := fsm.New(command.NewTable())
			m.RecordLocks(bench.records)
			start := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, Features: fsm.MaxFeatures})
			if _, err := m.Apply(1, 1, start); err != nil {
				b.Fatal(err)
			}
			var g fsm.Group
			g.Reset(2, 1)
			for i := range 100 {
				for _, line := range bench.lines {
					args := bytes.Fields([]byte(fmt.Sprintf(line, i)))
					g.Command(m.Table().Find(args[0]), 0, args)
				}
			}
			seq := uint64(0)
			for b.Loop() {
				seq++
				var batch fsm.BatchBuilder
				batch.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, seq-1, seq, g.Bytes())
				if _, err := m.Apply(seq+1, 1, batch.Encode(fsm.Header{Term: 1, Stamp: 1})); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/cycle")
		})
	}
}
