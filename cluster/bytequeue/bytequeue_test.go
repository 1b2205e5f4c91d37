package bytequeue_test

import (
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/bytequeue"
)

func TestQueue(t *testing.T) {
	q := bytequeue.Queue[string]{Room: 100}
	for _, step := range []struct {
		x    string
		size int
		now  bool
	}{
		{"a", 60, true},
		{"b", 40, true},
		{"c", 1, false},
		{"larger than the room", 500, false},
		{"d", 10, false},
	} {
		if got := q.Enter(step.x, step.size); got != step.now {
			t.Fatalf("Enter(%s) = %v, want %v", step.x, got, step.now)
		}
	}
	next := func() (all []string) {
		for {
			x, ok := q.Next()
			if !ok {
				return all
			}
			all = append(all, x)
		}
	}
	if got := next(); got != nil {
		t.Fatalf("Next = %v while there is no room, want nothing", got)
	}
	q.Leave(40)
	// The large item must not be overtaken by d, or it could wait forever.
	if got := next(); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("after b has left: Next = %v, want c", got)
	}
	q.Leave(60)
	if got := next(); got != nil {
		t.Fatalf("after a has left: Next = %v, want nothing while c is on its way", got)
	}
	q.Leave(1)
	if got := next(); !slices.Equal(got, []string{"larger than the room"}) {
		t.Fatalf("after c has left: Next = %v, want only the large item", got)
	}
	q.Leave(500)
	if got := next(); !slices.Equal(got, []string{"d"}) || q.Len() != 0 {
		t.Fatalf("after the large item has left: Next = %v and %d items wait, want d and 0", got, q.Len())
	}
}

func TestQueue_Remove(t *testing.T) {
	q := bytequeue.Queue[int]{Room: 1}
	for i := range 6 {
		q.Enter(i, 1)
	}
	if got := q.Remove(func(i int) bool { return i%2 == 1 }); !slices.Equal(got, []int{1, 3, 5}) {
		t.Errorf("Remove = %v, want [1 3 5]", got)
	}
	var left []int
	q.Waiting(func(i int) { left = append(left, i) })
	if !slices.Equal(left, []int{2, 4}) || q.Len() != 2 {
		t.Errorf("waiting items: %v, want 2 and 4", left)
	}
}
