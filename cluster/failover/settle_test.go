package failover

import (
	"errors"
	"testing"
)

// TestSettle: a vote request may arrive at any moment while a node decides whether
// it campaigns. The decision must not use a standing that the node had between the
// steps of handling the request.
func TestSettle(t *testing.T) {
	led := standing{"n3", 7, 7}
	forgot := standing{"", 7, 7} // raft has forgotten the leader, and stores the term
	risen := standing{"", 8, 7}  // raft has stored the term, and may store the vote
	voted := standing{"", 8, 8}
	for _, tc := range []struct {
		name string
		// steps are the standings in order. The last one is that of a node whose
		// raft has handled the request.
		steps []standing
	}{
		{"no request", []standing{led}},
		{"refused", []standing{led, forgot, risen}},
		{"granted", []standing{led, forgot, risen, voted}},
	} {
		last := len(tc.steps) - 1
		for arrives := range tc.steps { // the step at the first reading
			at := 0
			await := func() error {
				if at > 0 { // the request has arrived
					at = last
				}
				return nil
			}
			read := func() standing {
				if at == 0 {
					at = arrives
				}
				return tc.steps[at]
			}
			got, err := settle(await, read)
			if want := tc.steps[at]; err != nil || got != want || at != 0 && at != last {
				t.Errorf("%s, read at step %d: %+v, %v, want %+v", tc.name, arrives, got, err, want)
			}
		}
	}
	failed := errors.New("no answer")
	if _, err := settle(func() error { return failed }, func() standing { return led }); !errors.Is(err, failed) {
		t.Errorf("with a raft that does not answer: %v, want %v", err, failed)
	}
	n := uint64(0)
	if _, err := settle(func() error { return nil }, func() standing { n++; return standing{"", n, 0} }); err != nil || n != maxSettles {
		t.Errorf("with a standing that keeps changing: %d readings, %v, want %d", n, err, maxSettles)
	}
}
