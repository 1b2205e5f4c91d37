package stream_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		strict bool
		want   stream.ID
		ok     bool
	}{
		{"5-7", true, stream.ID{Ms: 5, Seq: 7}, true},
		{"5", true, stream.ID{Ms: 5, Seq: 9}, true}, // 9 is the missing number below
		{" +5-07", true, stream.ID{Ms: 5, Seq: 7}, true},
		{"-", false, stream.ID{}, true},
		{"+", false, stream.MaxID, true},
		{"+", true, stream.ID{}, false},
		{"5-", true, stream.ID{}, false},
		{"x-1", true, stream.ID{}, false},
	} {
		id, ok := stream.ParseID([]byte(c.text), 9, c.strict)
		if ok != c.ok || ok && id != c.want {
			t.Errorf("%q: %v, %v, want %v, %v", c.text, id, ok, c.want, c.ok)
		}
	}
}

// TestGroup_Assign checks that an entry is pending for one consumer at a time.
func TestGroup_Assign(t *testing.T) {
	t.Parallel()
	owner, g := &container.Owner{}, stream.Group{}
	for i, name := range []string{"a", "b"} {
		g.Consumers.Insert(owner, i, stream.Consumer{Name: name})
	}
	counts := func() (a, b int) {
		first, second := g.Consumers.At(0), g.Consumers.At(1)
		return first.Pending.Len(), second.Pending.Len()
	}
	id := stream.ID{Ms: 1}
	for _, c := range []struct {
		to   string
		a, b int
	}{{"a", 1, 0}, {"a", 1, 0}, {"b", 0, 1}} {
		g.Assign(owner, stream.PendingEntry{ID: id, Consumer: c.to})
		if a, b := counts(); a != c.a || b != c.b || g.Pending.Len() != 1 {
			t.Errorf("assigned to %s: a has %d, b has %d and the group has %d pending entries",
				c.to, a, b, g.Pending.Len())
		}
	}
	if !g.Ack(owner, id) || g.Ack(owner, id) {
		t.Error("an entry was not acknowledged, or was acknowledged twice")
	}
	if a, b := counts(); a != 0 || b != 0 || g.Pending.Len() != 0 {
		t.Errorf("acknowledged: a has %d, b has %d and the group has %d pending entries, want 0", a, b, g.Pending.Len())
	}
}
