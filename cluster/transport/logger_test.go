package transport

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestRepeatLogger checks that a member causes two errors a minute in the log
// if it does not answer, or if it does not accept a snapshot. It also checks
// that other errors are not limited.
func TestRepeatLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newRepeatLogger(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info}))
		for range 4 * 3600 {
			log.Error("failed to heartbeat to", "peer", "n4:1", "error", "refused")
			time.Sleep(time.Second / 4)
		}
		log.Error("failed to heartbeat to", "peer", "n5:1", "error", "refused")
		for range 6 { // for a minute
			log.Error("failed to send snapshot to", "peer", "n6:1", "error", "newer")
			log.Error("failed to finalize snapshot", "error", "newer of n7")
			time.Sleep(10 * time.Second)
		}
		log.Error("failed to take snapshot", "error", "disk")
		log.Error("failed to take snapshot", "error", "disk")
		for text, want := range map[string]int{"n4:1": 120, "n5:1": 1, "n6:1": 2, "n7": 2, "take snapshot": 2} {
			if got := strings.Count(out.String(), text); got != want {
				t.Errorf("%d lines with %s, want %d", got, text, want)
			}
		}
	})
}
