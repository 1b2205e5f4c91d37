package script

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of redis.log. A client provides the script's text. Therefore a script
// must not be able to forge lines of the log, to control a terminal that shows
// the log, or to fill a disk.
const (
	// maxLogText is the maximum length of one line in bytes, before escaping.
	maxLogText = 1024
	// logSeconds is how many seconds' worth of lines scripts may write at once.
	logSeconds = 10
)

// logLimiter passes on the texts of redis.log, each as one line. In the long run,
// it passes on at most rate lines a second. It is safe for concurrent use.
type logLimiter struct {
	write func(level int, text string)
	now   func() time.Time
	rate  float64

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	dropped int // lines dropped since the last one that was passed on
}

func newLogLimiter(write func(level int, text string), rate int) *logLimiter {
	return &logLimiter{write: write, now: time.Now, rate: float64(rate), tokens: float64(rate * logSeconds)}
}

func (l *logLimiter) log(level int, text string) {
	l.mu.Lock()
	now := l.now()
	if !l.last.IsZero() {
		l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*l.rate, l.rate*logSeconds)
	}
	l.last = now
	if l.tokens < 1 {
		l.dropped++
		l.mu.Unlock()
		return
	}
	l.tokens--
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	text = logText(text)
	if dropped > 0 {
		text += fmt.Sprintf(" (%d lines of scripts before this one were suppressed)", dropped)
	}
	l.write(level, text)
}

// logText turns s into one line. It escapes control characters and bytes that
// are not valid UTF-8, and truncates a text that is too long.
func logText(s string) string {
	cut := ""
	if len(s) > maxLogText {
		cut = fmt.Sprintf("… (%d bytes)", len(s))
		s = s[:maxLogText]
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\uFFFD' && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == ' ' || strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String() + cut
}
