package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// BenchmarkAppend measures one durable append of one entry, on the disk under
// $TMPDIR. The percentiles are in microseconds.
//
//	go test -run - -bench Append -benchtime 3000x ./cluster/storage
func BenchmarkAppend(b *testing.B) {
	for _, kind := range kinds {
		for _, size := range []int{200, 16 << 10} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				cfg := config(b, b.TempDir(), kind)
				cfg.SegmentBytes = 64 << 20
				var took []time.Duration
				cfg.Observe = func(op string, d time.Duration, _ int) {
					if op == "append" {
						took = append(took, d)
					}
				}
				s := open(b, cfg)
				setTerm(b, s, 1)
				data := make([]byte, size)
				var index uint64
				b.SetBytes(int64(size))
				for b.Loop() {
					index++
					store(b, s, &raft.Log{Index: index, Term: 1, Data: data, AppendedAt: time.Now()})
				}
				slices.Sort(took)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(took[len(took)*p/100].Nanoseconds())/1e3, fmt.Sprintf("p%d-µs", p))
				}
			})
		}
	}
}

// BenchmarkOpen measures the time to open and close a data directory, including
// the full check of its log: of an empty log, and of a log of 128 MiB.
func BenchmarkOpen(b *testing.B) {
	for _, kind := range kinds {
		for _, mib := range []int{0, 128} {
			b.Run(fmt.Sprintf("%s/%dMiB", kind, mib), func(b *testing.B) {
				cfg := config(b, b.TempDir(), kind)
				cfg.SegmentBytes = 64 << 20
				s := open(b, cfg)
				setTerm(b, s, 1)
				data := make([]byte, 16<<10)
				for i := range mib {
					var ls []*raft.Log
					for j := range 64 {
						ls = append(ls, &raft.Log{Index: uint64(i*64 + j + 1), Term: 1, Data: data})
					}
					store(b, s, ls...)
				}
				closeStores(b, s)
				for b.Loop() {
					s, err := storage.Open(cfg)
					if err != nil {
						b.Fatal(err)
					}
					closeStores(b, s)
				}
			})
		}
	}
}
