package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// pastBegan is the wall clock at the start of the stories.
const pastBegan = 1_000_000 * time.Second

// reported returns a grant. from, to and waited are in milliseconds; from and
// to count from the start of the story.
func reported(owner string, token int64, from, to, waited int, how string) LockGrant {
	g := LockGrant{Owner: owner, Token: token, How: how, Acquired: pastBegan + millis(from), Waited: millis(waited)}
	if how != pastHeld {
		g.Ended = pastBegan + millis(to)
	}
	return g
}

// TestLockPasts changes one thing at a time in the reports of two nodes, or in
// the history of the clients. In the correct history, owner a releases its
// grant, b has waited and gets the lock, and the lease of b ends.
func TestLockPasts(t *testing.T) {
	for _, tc := range []struct {
		what string
		edit func(first, second *LockPast, s *lockStory)
		want string // a part of the text of the violation, "" for none
	}{
		{"as it was", func(_, _ *LockPast, _ *lockStory) {}, ""},
		{"a node does not know a grant", func(_, n *LockPast, _ *lockStory) { n.Grants = n.Grants[:1] },
			"n1 knows the grant token 2 of b"},
		{"a node with a gap does not know a grant that ended in the gap", func(_, n *LockPast, _ *lockStory) {
			n.Grants, n.Gaps, n.GapEnd = n.Grants[:1], true, pastBegan+millis(1300)
		}, ""},
		{"a node with a gap does not know a grant that ended after the gap", func(_, n *LockPast, _ *lockStory) {
			n.Grants, n.Gaps, n.GapEnd = n.Grants[:1], true, pastBegan+millis(1000)
		}, "n1 knows the grant token 2 of b"},
		{"a node with a gap does not know a grant that has not ended", func(m, n *LockPast, _ *lockStory) {
			m.Grants[1].How, m.Grants[1].Ended = pastHeld, 0
			n.Grants, n.Gaps, n.GapEnd = n.Grants[:1], true, pastBegan+millis(1300)
		}, "n1 knows the grant token 2 of b"},
		{"a gap before which the wall clock went back", func(m, n *LockPast, _ *lockStory) {
			n.Grants, n.Gaps, n.GapEnd = n.Grants[:1], true, pastBegan+millis(1000)
			m.Grants = append(m.Grants, reported("b", 3, 100, 150, 0, pastExpired))
		}, ""},
		{"a node was asked during the gap", func(m, n *LockPast, _ *lockStory) {
			m.Grants[1].How, m.Grants[1].Ended = pastHeld, 0
			n.Grants, n.Gaps, n.GapEnd, n.Until = n.Grants[:1], true, pastBegan+millis(1300), pastBegan+millis(1200)
		}, ""},
		{"a node that has removed a part of its history", func(_, n *LockPast, _ *lockStory) {
			n.Grants, n.Gaps, n.Removed = n.Grants[:1], true, true
		}, ""},
		{"a node reports another end", func(_, n *LockPast, _ *lockStory) { n.Grants[1].Ended += time.Millisecond },
			"n1 reports token 2"},
		{"a node reports another time of waiting", func(n, _ *LockPast, _ *lockStory) { n.Grants[1].Waited++ },
			"n1 reports token 2"},
		{"a node was asked before the end", func(_, n *LockPast, _ *lockStory) {
			n.Grants[1].How, n.Grants[1].Ended = pastHeld, 0
		}, ""},
		{"both tell another owner", func(n, m *LockPast, _ *lockStory) {
			n.Grants[1].Owner, m.Grants[1].Owner = "a", "a"
		}, "but b (exclusive"},
		{"both report an owner that no client used", func(n, m *LockPast, _ *lockStory) {
			n.Grants, m.Grants = append(n.Grants, reported("x", 3, 1300, 1400, 0, pastExpired)),
				append(m.Grants, reported("x", 3, 1300, 1400, 0, pastExpired))
		}, "no client used this owner"},
		{"both tell another mode", func(n, m *LockPast, _ *lockStory) {
			n.Grants[1].Mode.Shared, m.Grants[1].Mode.Shared = true, true
		}, "but its client asked for exclusive"},
		{"neither knows a grant", func(n, m *LockPast, _ *lockStory) { n.Grants, m.Grants = n.Grants[:1], m.Grants[:1] },
			"n1 does not know the grant of b"},
		{"a release is reported as the end of the lease", func(n, m *LockPast, _ *lockStory) {
			n.Grants[0].How, m.Grants[0].How = pastExpired, pastExpired
		}, "must have ended as one of [released"},
		{"an answered grant is reported as not delivered", func(n, m *LockPast, _ *lockStory) {
			n.Grants[1].How, m.Grants[1].How = pastUndelivered, pastUndelivered
		}, "must have ended as one of [held"},
		{"a break is reported as the end of the lease", func(_, _ *LockPast, s *lockStory) {
			s.h.Breaks = []LockBreak{{Lock: "l", Token: 2, Broke: true}}
		}, "must have ended as one of [broken"},
		{"a release whose outcome is not known", func(n, m *LockPast, s *lockStory) {
			s.h.Calls[1].step(LockRelease, 500, 600, false).Steps[0].Outcome = Unknown
			n.Grants[1].How, m.Grants[1].How = pastReleased, pastReleased
		}, ""},
		{"free while a client waits", func(n, m *LockPast, _ *lockStory) {
			n.Grants[1].Acquired += 5 * time.Millisecond
			m.Grants[1].Acquired += 5 * time.Millisecond
		}, "was then free for 5ms"},
		{"free before a client waits", func(n, m *LockPast, _ *lockStory) {
			for _, past := range []*LockPast{n, m} {
				past.Grants[1].Acquired += 5 * time.Millisecond
				past.Grants[1].Waited = 4 * time.Millisecond
			}
		}, ""},
		{"a wall clock that went back", func(n, m *LockPast, _ *lockStory) {
			for _, past := range []*LockPast{n, m} {
				past.Grants[0].Acquired += time.Hour
				past.Grants[1].Acquired += 5 * time.Millisecond
			}
		}, ""},
	} {
		s := &lockStory{}
		s.call("a", 0, 10, 1).step(LockRelease, 200, 210, true)
		s.waits("b", 20, 210, 2)
		until := pastBegan + millis(5000)
		pasts := []LockPast{{Node: "n1", Lock: "l", Until: until}, {Node: "n2", Lock: "l", Until: until}}
		for i := range pasts {
			pasts[i].Grants = []LockGrant{reported("a", 1, 5, 205, 0, pastReleased), reported("b", 2, 205, 1205, 180, pastExpired)}
		}
		tc.edit(&pasts[0], &pasts[1], s)
		_, bad := LockPasts(s.h, pasts, pastBegan, healthy())
		switch {
		case tc.want == "" && len(bad) > 0, tc.want != "" && (len(bad) == 0 || !strings.Contains(bad[0].Text, tc.want)):
			t.Errorf("%s: %v, want %q", tc.what, bad, tc.want)
		}
	}
}

func TestLockPastOf(t *testing.T) {
	// Both grants have the same token, as after a restore. The first one has no
	// beginning.
	reply := "*10\r\n$3\r\nkey\r\n$1\r\nl\r\n$8\r\nsince-ms\r\n$-1\r\n$8\r\nuntil-ms\r\n:9\r\n$6\r\ngrants\r\n*2\r\n" +
		"*10\r\n$5\r\ntoken\r\n:7\r\n$5\r\nowner\r\n$1\r\na\r\n$4\r\nmode\r\n$-1\r\n" +
		"$11\r\nacquired-ms\r\n$-1\r\n$3\r\nhow\r\n$7\r\nexpired\r\n" +
		"*12\r\n$5\r\ntoken\r\n:7\r\n$5\r\nowner\r\n$1\r\na\r\n$4\r\nmode\r\n$6\r\nshared\r\n" +
		"$11\r\nacquired-ms\r\n:5\r\n$8\r\nended-ms\r\n$-1\r\n$3\r\nhow\r\n$4\r\nheld\r\n" +
		"$4\r\ngaps\r\n*0\r\n"
	v, _, err := respwire.Parse([]byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	past := LockPastOf("n1", "l", v)
	want := LockGrant{Owner: "a", Token: 7, Mode: LockMode{Shared: true}, How: pastHeld, Acquired: 5 * time.Millisecond}
	if past.Gaps || len(past.Grants) != 1 || past.Grants[0] != want || past.From != 0 || past.Until != millis(9) {
		t.Errorf("%+v, want the grant %+v", past, want)
	}
	// A full reply may lack older grants, even if two of its grants are
	// combined into one.
	grants := v.Elems[7]
	for len(grants.Elems) < MostGrants {
		grants.Elems = append(grants.Elems, grants.Elems[1])
	}
	v.Elems[7] = grants
	if past := LockPastOf("n1", "l", v); past.From != 7 || len(past.Grants) >= MostGrants {
		t.Errorf("a full reply: %d grants from %d", len(past.Grants), past.From)
	}
}
