package checker

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// lockStory builds the history of one lock. Its times are in milliseconds.
type lockStory struct{ h LockHistory }

// call adds an answered LOCK ACQUIRE with a lease of one second. token is 0 if
// another owner held the lock.
func (s *lockStory) call(owner string, call, ret int, token int64) *LockCall {
	c := &LockCall{Lock: "l", Owner: owner, TTL: time.Second, Call: millis(call), Return: millis(ret), Token: token}
	s.h.Calls = append(s.h.Calls, c)
	return c
}

// waits adds a LOCK ACQUIRE with WAIT.
func (s *lockStory) waits(owner string, call, ret int, token int64) *LockCall {
	c := s.call(owner, call, ret, token)
	c.Waits = true
	return c
}

// left adds a LOCK ACQUIRE with WAIT whose client closes its connection.
func (s *lockStory) left(owner string, call, left int) *LockCall {
	c := s.waits(owner, call, 0, 0)
	c.Outcome, c.Left = Unknown, millis(left)
	return c
}

func (c *LockCall) step(kind LockStepKind, call, ret int, mine bool) *LockCall {
	c.Steps = append(c.Steps, LockStep{Kind: kind, Step: Step{Call: millis(call), Return: millis(ret), Mine: mine}})
	return c
}

func (c *LockCall) mode(m LockMode) *LockCall {
	c.Mode = m
	return c
}

// sees adds a view every 20 ms. holder is the owner, or "" for a free lock. The
// view has the token that the holder's call returned. The waiters are in the
// order of the queue.
func (s *lockStory) sees(from, to int, holder string, waiters ...string) {
	v := LockView{Lock: "l"}
	for _, c := range s.h.Calls {
		if holder != "" && c.Owner == holder {
			v.Mode, v.Holders = c.Mode, []LockHolder{{holder, max(c.Token, 1)}}
		}
	}
	for _, w := range waiters {
		at := slices.IndexFunc(s.h.Calls, func(c *LockCall) bool { return c.Owner == w })
		v.Waiters = append(v.Waiters, LockWaiter{w, s.h.Calls[at].Mode})
	}
	for at := from; at < to; at += 20 {
		v.Call, v.Return, v.Clock = millis(at), millis(at), millis(at)
		at := v
		s.h.Views = append(s.h.Views, &at)
	}
}

// Modes of the locks of the stories.
var (
	readers    = LockMode{Shared: true}
	twoPermits = LockMode{Limit: 2}
)

// lockStories contains histories of one lock, each with the checks that must
// fail.
var lockStories = []struct {
	what  string
	build func(s *lockStory)
	want  string // the checks that must fail, "" for none
}{
	{"one after the other", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRelease, 20, 30, true)
		s.call("b", 40, 50, 2)
	}, ""},
	{"two owners", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.call("b", 40, 50, 2)
	}, "lock exclusion"},
	{"two owners after a renewal", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRenew, 900, 910, true)
		s.call("b", 1500, 1510, 2)
	}, "lock exclusion"},
	{"after the lease", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.call("b", 1005, 1010, 2)
	}, ""},
	{"after a break", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRelease, 60, 70, false)
		s.h.Breaks = []LockBreak{{Lock: "l", Call: millis(20), Return: millis(30), Broke: true}}
		s.call("b", 40, 50, 2)
	}, ""},
	{"after a break of another grant", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.h.Breaks = []LockBreak{{Lock: "l", Token: 7, Call: millis(20), Return: millis(30), Broke: true}}
		s.call("b", 40, 50, 2)
	}, "lock exclusion"},
	{"after a break that found nothing", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockCheck, 60, 70, false)
		s.h.Breaks = []LockBreak{{Lock: "l", Call: millis(20), Return: millis(30)}}
	}, "lock not lost"},
	{"readers together", func(s *lockStory) {
		s.call("a", 0, 10, 1).mode(readers)
		s.call("b", 20, 30, 2).mode(readers)
	}, ""},
	{"a reader and a writer", func(s *lockStory) {
		s.call("a", 0, 10, 1).mode(readers)
		s.call("b", 20, 30, 2)
	}, "lock exclusion"},
	{"two permits", func(s *lockStory) {
		s.call("a", 0, 10, 1).mode(twoPermits)
		s.call("b", 20, 30, 2).mode(twoPermits)
	}, ""},
	{"three owners of two permits", func(s *lockStory) {
		s.call("a", 0, 10, 1).mode(twoPermits)
		s.call("b", 20, 30, 2).mode(twoPermits)
		s.call("c", 40, 50, 3).mode(twoPermits)
	}, "lock exclusion"},
	{"a waiter's lease begins after it was last seen waiting", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRelease, 990, 1000, true)
		s.waits("b", 20, 1010, 2).TTL = 500 * time.Millisecond
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1400, "b")
		s.sees(1400, 1420, "")
	}, "lock not lost"},
	{"a waiter's lease ends", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRelease, 990, 1000, true)
		s.waits("b", 20, 1010, 2).TTL = 400 * time.Millisecond
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1400, "b")
		s.sees(1400, 1420, "")
	}, ""},
	{"lost before its lease ends", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRenew, 500, 510, false)
	}, "lock not lost"},
	{"lost after a renewal", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRenew, 900, 910, true).step(LockCheck, 1500, 1510, false)
	}, "lock not lost"},
	{"ended by its lease", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRenew, 1010, 1020, false)
	}, ""},
	{"seen to be free before its lease ends", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.sees(500, 520, "")
	}, "lock not lost"},
	{"held long after its lease", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.sees(20, 2000, "a")
	}, "lock late expiry"},
	{"refused and granted", func(s *lockStory) {
		s.call("a", 0, 10, 0).Outcome = Refused
		s.sees(20, 40, "a")
	}, "lock refused"},
	{"a token that does not grow", func(s *lockStory) {
		s.call("a", 0, 10, 2).step(LockRelease, 20, 30, true)
		s.call("b", 40, 50, 1).Lock = "other"
	}, "lock token"},
	{"a token twice", func(s *lockStory) {
		s.call("a", 0, 10, 2).step(LockRelease, 20, 30, true)
		s.call("b", 5, 50, 2).Lock = "other"
	}, "lock token"},
	{"tokens of two grants at the same time", func(s *lockStory) {
		s.call("a", 0, 30, 2)
		s.call("b", 20, 50, 1).Lock = "other"
	}, ""},
	{"a renewal that returns another token", func(s *lockStory) {
		s.call("a", 0, 10, 2).step(LockRenew, 20, 30, true).Steps[0].Token = 3
	}, "lock token"},
	{"the same owner asks again", func(s *lockStory) {
		s.call("a", 0, 10, 0).Outcome = Unknown
		s.call("a", 20, 30, 1)
		s.call("b", 1010, 1015, 0)
		s.call("c", 1040, 1050, 2)
	}, ""},
	{"the same owner gets another grant", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.call("a", 20, 30, 2)
	}, "lock token"},
	{"in the order of their arrival", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 195, 205, true)
		s.waits("a", 20, 210, 2).step(LockRelease, 295, 305, true)
		s.waits("b", 40, 310, 3)
		s.sees(60, 200, "x", "a", "b")
		s.sees(200, 300, "a", "b")
		s.sees(300, 400, "b")
	}, ""},
	{"a waiter overtakes another", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 195, 205, true)
		s.waits("a", 20, 310, 3)
		s.waits("b", 40, 210, 2).step(LockRelease, 295, 305, true)
		s.sees(60, 200, "x", "a", "b")
		s.sees(200, 300, "b", "a")
		s.sees(300, 400, "a")
	}, "lock order"},
	{"a client that comes later overtakes a waiter", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 195, 205, true)
		s.waits("a", 20, 310, 3)
		s.call("b", 195, 210, 2).step(LockRelease, 295, 305, true)
		s.sees(60, 200, "x", "a")
		s.sees(200, 300, "b", "a")
		s.sees(300, 400, "a")
	}, "lock order"},
	{"a client comes before a waiter whose grant was broken", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 185, 195, true)
		s.waits("a", 20, 310, 3)
		s.h.Breaks = []LockBreak{{Lock: "l", Call: millis(190), Return: millis(198), Outcome: Done, Broke: true}}
		s.call("b", 195, 210, 2).step(LockRelease, 295, 305, true)
		s.sees(60, 200, "x", "a")
		s.sees(200, 300, "b", "a")
		s.sees(300, 400, "a")
	}, ""},
	{"a client overtakes a waiter after a break", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 185, 195, true)
		s.waits("a", 20, 310, 3)
		s.h.Breaks = []LockBreak{{Lock: "l", Call: millis(90), Return: millis(98), Outcome: Done, Broke: true}}
		s.call("b", 195, 210, 2).step(LockRelease, 295, 305, true)
		s.sees(100, 200, "x", "a")
		s.sees(200, 300, "b", "a")
		s.sees(300, 400, "a")
	}, "lock order"},
	{"a client overtakes a waiter whose node is down", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 195, 205, true)
		s.left("a", 20, 150)
		s.call("b", 195, 210, 2).step(LockRelease, 295, 305, true)
		s.sees(60, 200, "x", "a")
		s.sees(200, 300, "b", "a")
	}, ""},
	{"a waiter loses its position", func(s *lockStory) {
		s.call("x", 0, 10, 1)
		s.waits("a", 20, 900, 0)
		s.waits("b", 40, 900, 0)
		s.sees(60, 200, "x", "a", "b")
		s.sees(200, 300, "x", "b", "a")
	}, "lock order"},
	{"a client that comes later is ahead of a waiter", func(s *lockStory) {
		s.call("x", 0, 10, 1)
		s.waits("a", 20, 900, 0)
		s.waits("b", 190, 900, 0)
		s.sees(60, 200, "x", "a")
		s.sees(200, 300, "x", "b", "a")
	}, "lock order"},
	{"a client overtakes a waiter between two views", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 185, 188, true)
		s.waits("a", 20, 199, 3)
		s.waits("b", 184, 190, 2).step(LockRelease, 193, 195, true)
		s.sees(60, 181, "x", "a")
		s.sees(200, 300, "a")
	}, "lock order"},
	{"free while a client waits", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 90, 100, true)
		s.waits("a", 20, 310, 2)
		s.sees(60, 100, "x", "a")
		s.sees(100, 300, "", "a")
		s.sees(300, 400, "a")
	}, "lock wake-up"},
	{"free for an instant", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 90, 100, true)
		s.waits("a", 20, 210, 2)
		s.sees(60, 100, "x", "a")
		s.sees(100, 200, "", "a")
		s.sees(200, 400, "a")
	}, ""},
	{"a permit is free while a client waits", func(s *lockStory) {
		s.call("x", 0, 10, 1).mode(twoPermits)
		s.waits("a", 20, 310, 2).mode(twoPermits)
		s.sees(60, 300, "x", "a")
	}, "lock wake-up"},
	{"a writer waits for a reader", func(s *lockStory) {
		s.call("x", 0, 10, 1).mode(readers)
		s.waits("a", 20, 310, 0)
		s.sees(40, 300, "x", "a")
	}, ""},
	{"a waiter is forgotten", func(s *lockStory) {
		s.call("x", 0, 10, 1)
		s.waits("a", 20, 980, 0)
		s.sees(40, 100, "x", "a")
		s.sees(100, 980, "x")
	}, "lock queue"},
	{"a client never gets into the queue", func(s *lockStory) {
		s.call("x", 0, 10, 1).TTL = 9 * time.Second
		s.waits("a", 20, 4000, 0)
		s.sees(40, 4000, "x")
	}, "lock queue"},
	{"a client that left is still in the queue", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRenew, 900, 910, true).step(LockRenew, 1800, 1810, true).
			step(LockRenew, 2700, 2710, true)
		s.left("a", 20, 100)
		s.sees(40, 3000, "x", "a")
	}, "lock passed on"},
	{"a grant for a client that has left is not passed on", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 395, 405, true)
		s.left("a", 20, 100).TTL = 10 * time.Second
		s.sees(40, 400, "x", "a")
		s.sees(400, 4000, "a")
	}, "lock passed on"},
	{"a grant for a client that has left is passed on", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 395, 405, true)
		s.left("a", 20, 100).TTL = 10 * time.Second
		s.sees(40, 400, "x", "a")
		s.sees(400, 1500, "a")
		s.sees(1500, 4000, "")
	}, ""},
	{"a grant that may have been answered", func(s *lockStory) {
		s.call("x", 0, 10, 1).step(LockRelease, 95, 105, true)
		s.left("a", 20, 100).TTL = 10 * time.Second
		s.sees(40, 100, "x", "a")
		s.sees(100, 4000, "a")
	}, ""},
}

// check requires that exactly the checks in want fail. Commas separate their
// names.
func (s *lockStory) check(t *testing.T, what, want string) {
	t.Helper()
	_, bad := LockQueues(s.h, healthy(), healthy())
	var got []string
	for _, v := range bad {
		if !slices.Contains(got, v.Check) {
			got = append(got, v.Check)
		}
	}
	if strings.Join(got, ",") != want {
		t.Errorf("%s: %v, want violations of %q", what, bad, want)
	}
}

func TestLockQueues(t *testing.T) {
	for _, tc := range lockStories {
		s := &lockStory{h: LockHistory{LeaveWithin: 2500 * time.Millisecond}}
		tc.build(s)
		s.check(t, tc.what, tc.want)
		if tc.want == "lock order" || tc.want == "lock wake-up" || tc.want == "lock queue" {
			// During a fault, the order and the times of the queue are not checked.
			ill := healthy()
			ill.Add(0, 10*time.Second)
			if _, bad := LockQueues(s.h, healthy(), ill); len(bad) > 0 {
				t.Errorf("%s, during a fault: %v", tc.what, bad)
			}
		}
	}
}
