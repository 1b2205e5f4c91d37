package load

import (
	"testing"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestOutcomeOf checks which outcome the history has for a command with an
// error reply. If a refused command had the outcome done, a checker would
// report that it is missing from the log.
func TestOutcomeOf(t *testing.T) {
	for text, want := range map[string]checker.Outcome{
		"":                                checker.Done,
		"ERR value is not an integer":     checker.Done,
		"WRONGTYPE Operation":             checker.Done,
		"UNKNOWN outcome of the command":  checker.Unknown,
		"CLUSTERDOWN no leader":           checker.Refused,
		"MISCONF the disk is almost full": checker.Refused,
		"EXECABORT Transaction discarded because of: MISCONF the disk is almost full": checker.Refused,
	} {
		if got := outcomeOf(respwire.Value{Err: text}); got != want {
			t.Errorf("%q: outcome %v, want %v", text, got, want)
		}
	}
}
