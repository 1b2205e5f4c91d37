package clientid

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestAllocator_Blocks checks that the numbers continue in the next block if
// that block was reserved in time. It also checks that a reply without a block
// changes nothing.
func TestAllocator_Blocks(t *testing.T) {
	ids := New(fsm.SessionID{NodeID: "n1", Boot: 7}, nil)
	other := New(fsm.SessionID{NodeID: "n1", Boot: 8}, nil)
	if a, b := ids.Take(), other.Take(); a <= fsm.MaxClientID || a >= 1<<53 || a>>earlyBits == b>>earlyBits {
		t.Errorf("early numbers %d and %d, want numbers between MaxClientID and 1<<53 with different hashes", a, b)
	}
	for _, reply := range []string{"", "-ERR the numbers of clients are used up\r\n", ":x\r\n", "$1\r\n5\r\n"} {
		if ids.reserved([]byte(reply), nil); ids.next != 0 {
			t.Fatalf("the reply %q reserved a block, want none", reply)
		}
	}
	if ids.reserved([]byte(":1\r\n"), errors.New("outcome unknown")); ids.next != 0 {
		t.Fatal("an error reserved a block, want none")
	}
	for _, first := range []uint64{1, 1 + 5*clientBlock} {
		if !ids.low() {
			t.Error("low is false without a next block, want true")
		}
		ids.reserved(fmt.Appendf(nil, ":%d\r\n", first), nil)
		for i := range uint64(clientBlock) {
			if got := ids.Take(); got != first+i {
				t.Fatalf("want number %d, Take returned %d", first+i, got)
			}
			if low := i > clientBlock/2; i < clientBlock-1 && ids.low() != low && i != clientBlock/2 {
				t.Fatalf("low is %t with %d numbers left, want the other value", !low, clientBlock-1-i)
			}
		}
	}
	if got := ids.Take(); got <= fsm.MaxClientID {
		t.Errorf("Take = %d without a block, want a number above MaxClientID", got)
	}
}
