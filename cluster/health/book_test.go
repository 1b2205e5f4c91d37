package health

import (
	"testing"
	"time"
)

// TestBook_Link checks what Link returns before the first answer of a member, after
// answers, and when the member no longer answers.
func TestBook_Link(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBook(func() time.Time { return now }, func() {})
	if l := b.Link("n2"); l != (Link{To: "n2"}) {
		t.Errorf("a member that was not asked: %+v", l)
	}
	b.learn([]NodeStatus{{ID: "n2", Reachable: true}})
	for _, ms := range []int{7, 3, 9} {
		b.Measured("n2", time.Duration(ms)*time.Millisecond)
	}
	if l := b.Link("n2"); l != (Link{To: "n2", Alive: true, RoundTrip: 3}) {
		t.Errorf("a member that answers: %+v", l)
	}
	for range roundTrips {
		b.Measured("n2", 5*time.Millisecond)
	}
	if l := b.Link("n2"); l.RoundTrip != 5 {
		t.Errorf("an old round trip counts: %+v", l)
	}
	b.learn([]NodeStatus{{ID: "n2"}})
	now = now.Add(4 * time.Second)
	if l := b.Link("n2"); l != (Link{To: "n2", Silent: 4}) {
		t.Errorf("a silent member: %+v", l)
	}
}

// TestMarkSilent checks that a member that has just not answered is not alive for the
// node that asked, whatever it answered before.
func TestMarkSilent(t *testing.T) {
	links := []Link{{To: "n2", Alive: true, RoundTrip: 3}, {To: "n3", Alive: true, RoundTrip: 4}, {To: "n4", Silent: 2}}
	MarkSilent(links, []NodeStatus{{ID: "n1", Reachable: true}, {ID: "n2"}, {ID: "n3", Reachable: true}, {ID: "n4"}})
	for i, want := range []Link{{To: "n2"}, {To: "n3", Alive: true, RoundTrip: 4}, {To: "n4", Silent: 2}} {
		if links[i] != want {
			t.Errorf("%+v, not %+v", links[i], want)
		}
	}
}
