package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/attack"
)

// TestLiveProgress_NoTerminal checks the progress if the output is not a
// terminal: a line every ten seconds and a line when the load has ended,
// without escape sequences.
func TestLiveProgress_NoTerminal(t *testing.T) {
	var out strings.Builder
	p := showProgress(&out, 25*time.Second)
	for ms := 0; ms < 25_000; ms += 250 {
		p.at(attack.Progress{Took: time.Duration(ms) * time.Millisecond, Commands: ms, Leader: "n2"})
	}
	p.at(attack.Progress{Took: 25 * time.Second, Commands: 25_000, Leader: "n2", Checking: true})
	p.stop()
	want := "10s of 25s: 10000 commands, n2 leads\n20s of 25s: 20000 commands, n2 leads\n" +
		"25000 commands; checking the history\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
