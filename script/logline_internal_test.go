package script

import (
	"strings"
	"testing"
	"time"
)

func TestLogText(t *testing.T) {
	for in, want := range map[string]string{
		"plain 'text' ü":                    "plain 'text' ü",
		"a\n2026-11-23 [INFO] forged":       `a\n2026-11-23 [INFO] forged`,
		"\x1b[2J\r\x00\x7f":                 `\x1b[2J\r\x00\x7f`,
		"bad \xff utf8 \uFFFD":              "bad \\xff utf8 \uFFFD",
		"\u2028line\u202eleft":              `\u2028line\u202eleft`,
		strings.Repeat("x", maxLogText+100): strings.Repeat("x", maxLogText) + "… (1124 bytes)",
	} {
		if got := logText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestLogLimiter checks that a loop of redis.log writes a bounded number of lines,
// and that the first line after a pause contains the number of lines that were
// dropped.
func TestLogLimiter(t *testing.T) {
	var lines []string
	const logRate, logBurst = 7, 70
	l := newLogLimiter(func(_ int, text string) { lines = append(lines, text) }, logRate)
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	for range 100_000 {
		l.log(LogNotice, "x")
	}
	if len(lines) != logBurst {
		t.Fatalf("got %d lines at once, want %d", len(lines), logBurst)
	}
	now = now.Add(time.Second)
	for range 1000 {
		l.log(LogNotice, "y")
	}
	if got := len(lines) - logBurst; got != logRate {
		t.Errorf("got %d lines in the next second, want %d", got, logRate)
	}
	if want := "y (99930 lines of scripts before this one were suppressed)"; lines[logBurst] != want {
		t.Errorf("got %q, want %q", lines[logBurst], want)
	}
}
