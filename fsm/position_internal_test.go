package fsm

import "testing"

// TestSetPosition_ManyOperations checks that, from FeatureDeferred on, no operation
// of an entry gets a position of another entry, or a lower position than an earlier
// operation, even if there are more than MaxOps operations.
func TestSetPosition_ManyOperations(t *testing.T) {
	c := &Ctx{m: &Machine{features: FeatureDeferred}, index: 7}
	last := c.pos
	for _, n := range []int{0, 1, MaxOps - 1, MaxOps, 2*MaxOps + 5} {
		c.setPosition(n)
		if c.pos.Index() != 7 || c.pos < last {
			t.Errorf("operation %d has position %d of entry %d, want entry 7 and at least %d", n, c.pos, c.pos.Index(), last)
		}
		last = c.pos
	}
}
