package fsm_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// BenchmarkWeigh measures the time that the leader takes to weigh a group
// before it proposes the group.
func BenchmarkWeigh(b *testing.B) {
	table := command.NewTable()
	group := func(n int, words ...string) []byte {
		g := &fsm.Group{}
		g.Reset(2, 1)
		for range n {
			args := respwire.Args(words...)
			g.Command(table.Find(args[0]), 0, args)
		}
		return g.Bytes()
	}
	m := fsm.New(table)
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"set", group(1, "set", "key:000000001", "value")},
		{"set100", group(100, "set", "key:000000001", "value")},
		{"lpop", group(1, "lpop", "list")},
		{"lpop100", group(100, "lpop", "list")},
	} {
		b.Run(c.name+"/check", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := table.Check(c.body, false); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/weigh", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Weigh(c.body)
			}
		})
		b.Run(c.name+"/divide", func(b *testing.B) {
			b.ReportAllocs()
			var batch, out, rest fsm.BatchBuilder
			for i := range 64 {
				batch.Add(fsm.SessionID{NodeID: "n", Boot: 1}, 0, uint64(i)+1, c.body)
			}
			limits := fsm.WorkLimits{Entry: 1 << 40, Operation: 1 << 40}
			for b.Loop() {
				out.Reset(1 << 20)
				rest.Reset(1 << 20)
				if _, err := m.Divide(&batch, &out, &rest, limits); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/group")
		})
		b.Run(c.name+"/apply", func(b *testing.B) {
			b.ReportAllocs()
			w := fsm.New(table)
			index := uint64(0)
			for b.Loop() {
				index++
				var batch fsm.BatchBuilder
				batch.Add(fsm.SessionID{NodeID: "n", Boot: 1}, index, index, c.body)
				if _, err := w.Apply(index, 1, batch.Encode(fsm.Header{Term: 1, Stamp: int64(index), Wall: 1, Seed: 1})); err != nil {
					b.Fatal(fmt.Errorf("apply: %w", err))
				}
			}
		})
	}
}
