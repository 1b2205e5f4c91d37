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

// cycled is a machine on which clients take and release locks. A cycle is one
// command that takes a lock and one that releases it.
type cycled struct {
	m         *fsm.Machine
	index     uint64
	seq       uint64
	stamp     int64
	take, end string // commands of a cycle, with %d in the name of the key
	// taken contains the durations of applying the entries with the command in
	// the field take. ended contains those for the field end.
	taken, ended []time.Duration
}

// median returns the sum of the median times of the two commands of a cycle, in
// nanoseconds. Unlike a mean, it is hardly affected by interruptions in which
// other processes run.
func (c *cycled) median() float64 {
	slices.Sort(c.taken)
	slices.Sort(c.ended)
	return float64(c.taken[len(c.taken)/2]+c.ended[len(c.ended)/2]) / cycleClients
}

// cycleClients is the number of clients of BenchmarkLockCycles.
const cycleClients = 50

// newCycled returns a machine that also has other keys and locks, so that its
// indexes never become empty.
func newCycled(b testing.TB, take, end string) *cycled {
	b.Helper()
	c := &cycled{m: fsm.New(command.NewTable()), index: 1, take: take, end: end}
	c.m.RecordLocks(true)
	t := fsm.TermStart{NodeID: "n1", Boot: 1, Features: fsm.MaxFeatures}
	if _, err := c.m.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1}, t)); err != nil {
		b.Fatal(err)
	}
	c.apply(b, c.entry("set other:%d owner PX 30000000", 0))
	c.apply(b, c.entry("lock acquire held:%d owner PX 30000000", 0))
	return c
}

// cyclesOf returns a machine for cycles of SET NX and one for cycles of LOCK.
func cyclesOf(b testing.TB) (set, lock *cycled) {
	b.Helper()
	return newCycled(b, "set lock:%d owner NX PX 30000", "delifeq lock:%d owner"),
		newCycled(b, "_lock ACQUIRE lock:%d owner PX 30000 CLIENT 127.0.0.1:40000", "lock RELEASE lock:%d owner")
}

// entry returns an entry with one group for each client. round determines the
// keys.
func (c *cycled) entry(line string, round int) []byte {
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
	c.stamp++
	return batch.Encode(fsm.Header{Term: 1, Stamp: c.stamp})
}

// apply applies an entry and returns how long that took.
func (c *cycled) apply(b testing.TB, e []byte) time.Duration {
	b.Helper()
	c.index++
	start := time.Now()
	_, err := c.m.Apply(c.index, 1, e)
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkLockCycles compares the cost of taking and releasing a lock with SET
// NX and with LOCK, when 50 clients do it at the same time, each on a key of
// its own. The commands have the form in which nodes log them. Entries with SET
// NX and entries with LOCK alternate, so that other load on the machine affects
// both.
func BenchmarkLockCycles(b *testing.B) {
	set, lock := cyclesOf(b)
	round := 0
	for b.Loop() {
		round++
		for _, c := range []*cycled{set, lock} {
			c.taken = append(c.taken, c.apply(b, c.entry(c.take, round)))
			c.ended = append(c.ended, c.apply(b, c.entry(c.end, round)))
		}
	}
	b.ReportMetric(set.median(), "ns/SET")
	b.ReportMetric(lock.median(), "ns/LOCK")
	b.ReportMetric(lock.median()/set.median(), "LOCK/SET")
}

// TestLockCycle_Allocations: a cycle of LOCK makes at most 2.5 more allocations
// than a cycle of SET NX. The additional allocations are for the grant and for
// the address of its client.
func TestLockCycle_Allocations(t *testing.T) {
	set, lock := cyclesOf(t)
	allocations := func(c *cycled) float64 {
		const runs = 20
		var entries [][]byte
		for round := range runs + 1 { // AllocsPerRun calls the function once more
			entries = append(entries, c.entry(c.take, round), c.entry(c.end, round))
		}
		return testing.AllocsPerRun(runs, func() {
			c.apply(t, entries[0])
			c.apply(t, entries[1])
			entries = entries[2:]
		}) / cycleClients
	}
	if s, l := allocations(set), allocations(lock); l > s+2.5 {
		t.Errorf("a cycle of LOCK makes %.2f allocations, one of SET NX %.2f", l, s)
	}
}
