package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatEvery is the least time between two log lines about the same failure of
// the same peer.
const repeatEvery = 30 * time.Second

// repeatLogger is raft's logger. raft tries a member that does not answer several
// times a second, and logs every failure: a node that is down, or that was added
// and is not started yet, would fill the log of the leader. The first failure is
// logged, and then one in every repeatEvery; the others are debug lines.
type repeatLogger struct {
	hclog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by message and peer
}

func newRepeatLogger(log hclog.Logger) *repeatLogger {
	return &repeatLogger{Logger: log, last: make(map[string]time.Time)}
}

// Error implements hclog.Logger.
func (l *repeatLogger) Error(msg string, args ...any) {
	if l.repeated(msg, args) {
		l.Debug(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}

// repeated reports whether a line is one of those that repeat, and was logged a
// short while ago.
func (l *repeatLogger) repeated(msg string, args []any) bool {
	if msg != "failed to heartbeat to" || len(args) < 2 || args[0] != "peer" {
		return false
	}
	key := fmt.Sprint(msg, args[1])
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[key]; ok && now.Sub(last) < repeatEvery {
		return true
	}
	l.last[key] = now
	return false
}
