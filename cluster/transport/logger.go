package transport

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatEvery is the minimum time between two lines at the error level about
// the same failure of the same peer.
const repeatEvery = 30 * time.Second

// repeatLogger is the logger that raft uses. If a member does not answer, raft
// tries again several times a second and logs every failure. A node that is
// down, or that was added and has not been started, would thus fill the
// leader's log. The leader also sends a snapshot again and again to a member
// that does not accept it. For each such message and peer, repeatLogger logs
// the first failure as an error, and after that at most one failure per
// repeatEvery. It logs the others at the debug level.
type repeatLogger struct {
	hclog.Logger

	mu   sync.Mutex
	last map[string]time.Time // time of the last line, by message and peer
}

// RaftLogger returns the logger for raft: log, with few lines about each member
// that does not answer.
func RaftLogger(log hclog.Logger) hclog.Logger { return newRepeatLogger(log) }

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

// repeated reports whether the line must not be logged as an error. That is the
// case if raft repeats such lines, and if a line with the same message and peer
// was logged as an error less than repeatEvery ago.
func (l *repeatLogger) repeated(msg string, args []any) bool {
	switch msg {
	case "failed to heartbeat to", "failed to install snapshot", "failed to send snapshot to":
		if len(args) < 2 || args[0] != "peer" {
			return false
		}
	case "failed to finalize snapshot", "failed to copy snapshot": // failures to accept a snapshot that the leader sent
		args = []any{"", ""}
	default:
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

// closingLogger logs errors at the debug level once the node is closing,
// because the transport reports an error for every connection that the node
// closes then.
type closingLogger struct {
	hclog.Logger
	closing func() bool
}

// Error implements hclog.Logger.
func (l closingLogger) Error(msg string, args ...any) {
	if l.closing() {
		l.Debug(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}
