package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// cycled is a machine to which BenchmarkLockCycles applies the cycles of one kind.
type cycled struct {
	m         *fsm.Machine
	index     uint64
	seq       uint64
	take, end string // command lines with a verb for the key
	// taken and ended are the times that the entries took.
	taken, ended []time.Duration
}

// median returns the median time of a cycle, in nanoseconds. Unlike the mean, it does
// not contain the time in which other processes run.
func (c *cycled) median() float64 {
	slices.Sort(c.taken)
	slices.Sort(c.ended)
	return float64(c.taken[len(c.taken)/2]+c.ended[len(c.ended)/2]) / cycleClients
}

// cycleClients is the number of clients of BenchmarkLockCycles.
const cycleClients = 50

// entry applies an entry with one group for each client.
func (c *cycled) entry(b *testing.B, line string, round int) time.Duration {
	b.Helper()
	var batch fsm.BatchBuilder
	var g fsm.Group
	for i := range cycleClients {
		g.Reset(2, uint64(i))
		args := bytes.Fields(fmt.Appendf(nil, line, round*cycleClients+i))
		if string(args[0]) == command.AcquireCommand {
			args = append(args, nil) // the client has no name
		}
		g.Command(c.m.Table().Find(args[0]), 0, args)
		c.seq++
		batch.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, c.seq-1, c.seq, g.Bytes())
	}
	c.index++
	e := batch.Encode(fsm.Header{Term: 1, Stamp: int64(c.index)})
	start := time.Now()
	_, err := c.m.Apply(c.index, 1, e)
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkLockCycles measures the cost of taking and releasing a lock when 50
// clients do it at the same time, each on a key of its own. The commands have the form
// in which nodes log them. The entries of the two kinds of cycles alternate, so that
// other work of the computer affects both.
func BenchmarkLockCycles(b *testing.B) {
	set := &cycled{take: "set lock:%d owner NX PX 30000", end: "delifeq lock:%d owner"}
	lock := &cycled{
		take: "_lock ACQUIRE lock:%d owner PX 30000 CLIENT 127.0.0.1:40000", end: "lock RELEASE lock:%d owner",
	}
	for _, c := range []*cycled{set, lock} {
		c.m = fsm.New(command.NewTable())
		c.m.RecordLocks(true)
		c.index = 1
		t := fsm.TermStart{NodeID: "n1", Boot: 1, Features: fsm.MaxFeatures}
		if _, err := c.m.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1}, t)); err != nil {
			b.Fatal(err)
		}
		c.entry(b, "set other:%d owner PX 30000000", 0) // the indexes never become empty
		c.entry(b, "lock acquire held:%d owner PX 30000000", 0)
	}
	round := 0
	for b.Loop() {
		round++
		for _, c := range []*cycled{set, lock} {
			c.taken = append(c.taken, c.entry(b, c.take, round))
			c.ended = append(c.ended, c.entry(b, c.end, round))
		}
	}
	b.ReportMetric(set.median(), "ns/SET")
	b.ReportMetric(lock.median(), "ns/LOCK")
	b.ReportMetric(lock.median()/set.median(), "LOCK/SET")
}
