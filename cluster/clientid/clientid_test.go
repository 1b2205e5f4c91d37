package clientid

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestAllocator_Blocks checks that the numbers continue in the next block if it
// was reserved in time, and that a reply that reserves no block changes
// nothing.
func TestAllocator_Blocks(t *testing.T) {
	ids := New(fsm.SessionID{NodeID: "n1", Boot: 7}, nil)
	other := New(fsm.SessionID{NodeID: "n1", Boot: 8}, nil)
	if a, b := ids.Take(), other.Take(); a <= fsm.MaxClientID || a >= 1<<53 || a>>earlyBits == b>>earlyBits {
		t.Errorf("early numbers %d and %d", a, b)
	}
	for _, reply := range []string{"", "-ERR the numbers of clients are used up\r\n", ":x\r\n", "$1\r\n5\r\n"} {
		if ids.reserved([]byte(reply), nil); ids.next != 0 {
			t.Fatalf("a block from %q", reply)
		}
	}
	if ids.reserved([]byte(":1\r\n"), errors.New("outcome unknown")); ids.next != 0 {
		t.Fatal("a block from an error")
	}
	for _, first := range []uint64{1, 1 + 5*clientBlock} {
		if !ids.low() {
			t.Error("a block is not missed")
		}
		ids.reserved(fmt.Appendf(nil, ":%d\r\n", first), nil)
		for i := range uint64(clientBlock) {
			if got := ids.Take(); got != first+i {
				t.Fatalf("number %d is %d", first+i, got)
			}
			if low := i > clientBlock/2; i < clientBlock-1 && ids.low() != low && i != clientBlock/2 {
				t.Fatalf("low is %t with %d numbers left", !low, clientBlock-1-i)
			}
		}
	}
	if got := ids.Take(); got <= fsm.MaxClientID {
		t.Errorf("number %d was not reserved", got)
	}
}
