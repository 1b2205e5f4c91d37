package health

import (
	"testing"
	"time"
)

// TestBook_Link checks the results of Link before the first answer of a member,
// after answers, and when the member no longer answers.
func TestBook_Link(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBook(func() time.Time { return now }, func() {})
	if l := b.Link("n2"); l != (Link{To: "n2"}) {
		t.Errorf("a member that was not asked: link %+v, want only its id", l)
	}
	b.learn([]NodeStatus{{ID: "n2", Reachable: true}})
	for _, ms := range []int{7, 3, 9} {
		b.Measured("n2", time.Duration(ms)*time.Millisecond)
	}
	if l := b.Link("n2"); l != (Link{To: "n2", Alive: true, RoundTrip: 3}) {
		t.Errorf("a member that answers: link %+v, want alive and a round trip of 3 ms", l)
	}
	for range roundTrips {
		b.Measured("n2", 5*time.Millisecond)
	}
	if l := b.Link("n2"); l.RoundTrip != 5 {
		t.Errorf("an old round trip counts: link %+v, want a round trip of 5 ms", l)
	}
	b.learn([]NodeStatus{{ID: "n2"}})
	now = now.Add(4 * time.Second)
	if l := b.Link("n2"); l != (Link{To: "n2", Silent: 4}) {
		t.Errorf("a silent member: link %+v, want not alive and 4 s without an answer", l)
	}
}

// TestMarkSilent checks that MarkSilent marks a link as not alive if the member
// has not answered the latest request, even if the member answered earlier
// requests.
func TestMarkSilent(t *testing.T) {
	links := []Link{{To: "n2", Alive: true, RoundTrip: 3}, {To: "n3", Alive: true, RoundTrip: 4}, {To: "n4", Silent: 2}}
	MarkSilent(links, []NodeStatus{{ID: "n1", Reachable: true}, {ID: "n2"}, {ID: "n3", Reachable: true}, {ID: "n4"}})
	for i, want := range []Link{{To: "n2"}, {To: "n3", Alive: true, RoundTrip: 4}, {To: "n4", Silent: 2}} {
		if links[i] != want {
			t.Errorf("link %+v, want %+v", links[i], want)
		}
	}
}
