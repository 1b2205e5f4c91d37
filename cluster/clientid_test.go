package cluster_test

import (
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// The numbers of connections are unique across all nodes and all their starts,
// and the numbers of one start ascend. Numbers that are assigned before there
// is a leader are unique too.
func TestClientIDs(t *testing.T) {
	c := prepare(t, 3)
	ids := c.ids()
	var mu sync.Mutex
	seen := make(map[uint64]string)
	take := func(id string, early bool, n int) {
		node, last := c.node(id), uint64(0)
		for range n {
			got := node.ClientID()
			mu.Lock()
			if other := seen[got]; other != "" {
				t.Errorf("%s and %s have both assigned the number %d", other, id, got)
			}
			seen[got] = id
			mu.Unlock()
			if got <= last || early != (got > fsm.MaxClientID) || got >= 1<<53 {
				t.Errorf("%s has assigned the number %d after the number %d: not ascending, or not in its range", id, got, last)
			}
			last = got
		}
	}
	reserved := func() {
		for _, id := range ids {
			eventually(t, "numbers for "+id, func() bool {
				got := c.node(id).ClientID()
				mu.Lock()
				defer mu.Unlock()
				seen[got] = id
				return got <= fsm.MaxClientID
			})
		}
	}
	c.open(ids[0]) // one of three: no leader
	take(ids[0], true, 1000)
	c.open(ids[1:]...)
	for range 2 {
		c.ready(ids...)
		reserved()
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() { take(id, false, 1000) })
		}
		wg.Wait()
		for _, id := range ids {
			c.stop(id)
		}
		c.open(ids...)
	}
	c.ready(ids...)
	reserved()
	c.stop(ids[0])
	c.stop(ids[1]) // no majority is left
	take(ids[2], false, 1000)
}
