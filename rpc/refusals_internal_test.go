package rpc

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusals checks that a node that is refused all the time for the same
// reason causes few log lines, and that another reason is logged at once.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		lines, skipped := 0, 0
		removed := &refusal{ReasonNotMember, "n1 is not a member of this cluster"}
		for range 24 * 3600 {
			if n, ok := r.allow("n1", removed); ok {
				lines, skipped = lines+1, skipped+n
			}
			time.Sleep(time.Second)
		}
		if lines < 24 || lines > 40 {
			t.Errorf("%d lines in a day", lines)
		}
		if skipped < 23*3600 {
			t.Errorf("the lines say that %d others were left out", skipped)
		}
		if _, ok := r.allow("n1", &refusal{ReasonUnauthorized, "node is still starting"}); !ok {
			t.Error("another reason is not logged")
		}
		if _, ok := r.allow("n2", removed); !ok {
			t.Error("another node is not logged")
		}
	})
}
