package testutil

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Log stores log lines. Tests use it to find a line, or to print the end of the
// log when they fail. It is an io.Writer that several goroutines may use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Lines returns the lines that contain text.
func (l *Log) Lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// Count returns how often text occurs in the log.
func (l *Log) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// Tail returns the last n lines that contain none of the texts.
func (l *Log) Tail(n int, without ...string) string {
	lines := slices.DeleteFunc(l.Lines(""), func(line string) bool {
		return slices.ContainsFunc(without, func(text string) bool { return strings.Contains(line, text) })
	})
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
