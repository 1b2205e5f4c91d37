package load

import (
	"testing"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestOutcomeOf checks the outcome that outcomeOf derives from a reply. If a
// refused command had the outcome Done, a checker would report that the effect
// of the command is missing.
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
