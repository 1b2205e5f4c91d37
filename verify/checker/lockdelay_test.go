package checker

import (
	"testing"
	"time"
)

// delays adds a lock delay to the views between two times. The delay ends at
// the second time.
func (s *lockStory) delays(from, end int) {
	for _, v := range s.h.Views {
		if millis(from) <= v.Clock && v.Clock < millis(end) {
			v.Delay = millis(end) - v.Clock
		}
	}
}

// delayStories contains histories of a lock with a delay of half a second, each
// with the checks that must fail.
var delayStories = []struct {
	what  string
	build func(s *lockStory)
	want  string // the checks that must fail, "" for none
}{
	{"an expiry with a delay", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 1530, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1500, "", "b")
		s.sees(1500, 2000, "b")
		s.delays(1000, 1500)
	}, ""},
	{"a grant during the delay", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 1230, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1200, "", "b")
		s.sees(1200, 2000, "b")
		s.delays(1000, 1200)
		s.h.Views[50].Delay = 500 * time.Millisecond
	}, "lock delay"},
	{"a grant during the delay, with the delay still in the views", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 1230, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1200, "", "b")
		s.sees(1200, 2000, "b")
		s.delays(1000, 1500)
	}, "lock delay"},
	{"a grant in the entry that begins the delay", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 1010, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1500, "b")
		s.delays(1000, 1500)
	}, "lock delay"},
	{"an expiry without a delay", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 1010, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 1500, "b")
	}, "lock delay"},
	{"a release needs no delay", func(s *lockStory) {
		s.call("a", 0, 10, 1).step(LockRelease, 900, 920, true)
		s.waits("b", 20, 930, 2)
		s.sees(40, 900, "a", "b")
		s.sees(920, 1500, "b")
	}, ""},
	{"a break without a delay", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.h.Breaks = append(s.h.Breaks, LockBreak{Lock: "l", Call: millis(300), Return: millis(310), Broke: true})
		s.sees(40, 300, "a")
		s.sees(320, 800, "")
	}, "lock delay"},
	{"a break before the setting is in force", func(s *lockStory) {
		s.h.DelaysSince = millis(400)
		s.call("a", 0, 10, 1)
		s.h.Breaks = append(s.h.Breaks, LockBreak{Lock: "l", Call: millis(300), Return: millis(310), Broke: true})
		s.sees(40, 300, "a")
		s.sees(320, 800, "")
	}, ""},
	{"a delay that does not end", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 3010, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 3000, "", "b")
		for _, v := range s.h.Views {
			if v.Clock >= millis(1000) {
				v.Clock, v.Delay = millis(1000), millis(500)
			}
		}
		s.sees(3000, 3500, "b")
	}, "lock delay"},
	{"a delay that does not end, and whose end moves", func(s *lockStory) {
		s.call("a", 0, 10, 1)
		s.waits("b", 20, 3010, 2)
		s.sees(40, 1000, "a", "b")
		s.sees(1000, 3000, "", "b")
		for _, v := range s.h.Views {
			if v.Clock >= millis(1000) {
				v.Delay = millis(500)
			}
		}
		s.sees(3000, 3500, "b")
	}, "lock delay"},
}

// TestLockQueues_Delay checks histories of a lock with a delay of 500 ms. The
// owner a has a lease of one second.
func TestLockQueues_Delay(t *testing.T) {
	for _, tc := range delayStories {
		s := &lockStory{h: LockHistory{LeaveWithin: 2500 * time.Millisecond,
			Delays: map[string]time.Duration{"l": 500 * time.Millisecond}}}
		tc.build(s)
		s.check(t, tc.what, tc.want)
	}
}
