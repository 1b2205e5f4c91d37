package script

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What redis.log may write. A script is a client's text, so it must neither forge
// lines of the log, nor control a terminal that shows it, nor fill a disk.
const (
	// maxLogText is the length of one line in bytes, before it is escaped.
	maxLogText = 1024
	// logBurst is how many lines scripts may write at once, and logRate how many a
	// second in the long run.
	logBurst = 100
	logRate  = 10
)

// logLimiter passes on the lines of redis.log, each as one line, as long as there
// are not too many. It is safe for concurrent use.
type logLimiter struct {
	write func(level int, text string)
	now   func() time.Time

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	dropped int // lines since the last one that was passed on
}

func newLogLimiter(write func(level int, text string)) *logLimiter {
	return &logLimiter{write: write, now: time.Now, tokens: logBurst}
}

func (l *logLimiter) log(level int, text string) {
	l.mu.Lock()
	now := l.now()
	if !l.last.IsZero() {
		l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*logRate, logBurst)
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

// logText makes a text one line: it escapes control characters and what is not
// valid UTF-8, and cuts what is too long.
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
