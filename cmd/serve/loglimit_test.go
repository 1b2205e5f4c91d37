package serve

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestLineLimit(t *testing.T) {
	now := time.Unix(0, 0)
	var reports []string
	l := newLineLimit(func() time.Time { return now }, func(message string, suppressed int) {
		reports = append(reports, fmt.Sprint(message, " ", suppressed))
	})
	var out bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &out, Exclude: l.suppress, Level: hclog.Debug, DisableTime: true})
	lines := func() int {
		n := strings.Count(out.String(), "\n")
		out.Reset()
		return n
	}
	// A peer is down for an hour, with three lines a second.
	for range 3 * 3600 {
		log.Error("failed to heartbeat", "peer", "n2", "backoff", now)
		now = now.Add(time.Second / 3)
	}
	if n := lines(); n < lineBurst+119 || n > lineBurst+120 {
		t.Errorf("%d lines in an hour, want %d and one every %v", n, lineBurst, lineEvery)
	}
	if len(reports) < 2 || reports[1] != "failed to heartbeat 89" { // one of the 90 lines in 30 s is written
		t.Errorf("first reports %q", reports[:min(3, len(reports))])
	}
	// Lines about another peer, or with another message, have a limit of their
	// own. Lines of level debug have no limit.
	for range 100 {
		log.Error("failed to heartbeat", "peer", "n3")
	}
	if n := lines(); n != lineBurst {
		t.Errorf("%d lines about another peer, want %d", n, lineBurst)
	}
	for range 100 {
		log.Debug("failed to heartbeat", "peer", "n3")
	}
	if n := lines(); n != 100 {
		t.Errorf("%d debug lines, want 100", n)
	}
	for i := range 10 * maxLineKinds {
		log.Info(fmt.Sprint("message ", i))
	}
	if n := lines(); n != 10*maxLineKinds || len(l.kinds) > maxLineKinds {
		t.Errorf("%d lines, %d kinds are remembered, at most %d are allowed", n, len(l.kinds), maxLineKinds)
	}
}

// TestLimitedLogger checks that the logger writes a line after it has suppressed
// lines of the same kind, and reports the number of the suppressed lines. An
// earlier version waited forever for the mutex of the logger when it wrote the
// report, so the node wrote no further lines.
func TestLimitedLogger(t *testing.T) {
	var out bytes.Buffer
	var now time.Time
	log, _ := new(nodeLog).limitedLogger(hclog.LoggerOptions{Level: hclog.Info, Output: &out}, func() time.Time { return now })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range lineBurst + 3 {
			log.Info("again")
		}
		now = now.Add(lineEvery)
		log.Info("again")
		log.Info("other")
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a log line waits forever")
	}
	text := out.String()
	if !strings.Contains(text, "suppressed repeated log lines: message=again lines=3") {
		t.Errorf("no report of the suppressed lines in %q", text)
	}
	if got := strings.Count(text, "[INFO]  again"); got != lineBurst+1 {
		t.Errorf("the line was written %d times, want %d", got, lineBurst+1)
	}
	if !strings.Contains(text, "other") {
		t.Errorf("the line \"other\" is missing in %q", text)
	}
}
