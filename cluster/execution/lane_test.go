package execution

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/platform"
)

// laneMost is the maximum number of waiting dry runs in the lanes of these
// tests.
const laneMost = 1024

// TestLane_Short checks that a short dry run waits for few other dry runs, even
// if many connections repeat long dry runs. It also checks that other clients
// get most of the proposer's time.
func TestLane_Short(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const brief, long = 10 * time.Millisecond, 400 * time.Millisecond
		short, slow := newLane(shortDryRuns*brief, laneMost, platform.Elapsed), newLane(math.MaxInt64, laneMost, platform.Elapsed)
		stop := make(chan struct{})
		var runs atomic.Int64
		for conn := range uint64(25) {
			go func() {
				for {
					p, refusal := slow.enter(scriptWorker(conn, ""), 100, time.Hour, stop)
					if refusal != "" {
						return
					}
					runs.Add(1)
					<-time.After(long)
					slow.leave(p, long, brief)
				}
			}()
		}
		begun := time.Now()
		for range 100 { // run short scripts while the long ones run
			since := time.Now()
			p, refusal := short.enter(scriptWorker(99, ""), 100, time.Hour, stop)
			if refusal != "" {
				t.Fatal(refusal)
			}
			<-time.After(brief)
			short.leave(p, brief, brief)
			if took := time.Since(since); took > 2*brief {
				t.Errorf("a short dry run took %v, want at most 20ms", took)
			}
			<-time.After(long)
		}
		if most := int64(time.Since(begun)/(laneShare*long)) + 1; runs.Load() > most || runs.Load() < most/2 {
			t.Errorf("%d long dry runs within %v, want at most %d and at least half of that",
				runs.Load(), time.Since(begun), most)
		}
		// Among long dry runs, a new connection goes before connections that
		// have had their slot already.
		before := runs.Load()
		p, refusal := slow.enter(scriptWorker(98, ""), 100, time.Hour, stop)
		if refusal != "" || runs.Load() > before+1 {
			t.Errorf("%d other connections were served before a new one, want at most 1 (refusal: %s)",
				runs.Load()-before, refusal)
		}
		p.Leave()
		close(stop)
		<-time.After(laneShare * long)
	})
}

// The number of waiting dry runs of a user and the bytes of all waiting groups
// are limited, and a dry run that gives up no longer counts.
func TestLane_Full(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(math.MaxInt64, laneMost, platform.Elapsed)
		stop := make(chan struct{})
		p, _ := l.enter(fairshare.Worker{User: "first"}, 1, time.Hour, stop)
		for i := range uint64(laneMost / laneUsers) {
			go l.enter(scriptWorker(i, "greedy"), 1, time.Hour, stop)
		}
		synctest.Wait()
		refused := func(user string, size int, want string) {
			t.Helper()
			if _, got := l.enter(fairshare.Worker{User: user}, size, time.Second, stop); got != want {
				t.Errorf("a group of %d bytes of user %s: refusal %q, want %q", size, user, got, want)
			}
		}
		refused("greedy", 1, msgScriptQueue)
		refused("other", maxLaneBytes, msgScriptQueue)
		refused("other", 1, msgScriptRoom) // it was put into the queue, and got no slot in time
		close(stop)
		synctest.Wait()
		if l.total != 0 || l.bytes != 0 || len(l.waiting) != 0 {
			t.Errorf("%d dry runs with %d bytes still wait, want none", l.total, l.bytes)
		}
		p.Leave()
	})
}
