package rpc

import (
	"fmt"
	"testing"
)

// TestRefusals_Strangers checks that a stranger who invents node names does not
// reset the pause of another refused node.
func TestRefusals_Strangers(t *testing.T) {
	var r refusals
	why := &refusal{text: "was removed"}
	if _, ok := r.allow("n1", why); !ok {
		t.Fatal("the first line about n1 is suppressed")
	}
	known := r.kinds[refusalKind{"n1", *why}]
	known.next = known.next.Add(maxRefusalPause) // as after many lines
	for i := range 3 * maxRefusalKinds {
		r.allow(fmt.Sprint("stranger", i), why)
	}
	if _, ok := r.allow("n1", why); ok {
		t.Error("the names of strangers have reset the pause of n1")
	}
	if got := len(r.kinds); got > maxRefusalKinds {
		t.Errorf("%d kinds are remembered, want at most %d", got, maxRefusalKinds)
	}
}
