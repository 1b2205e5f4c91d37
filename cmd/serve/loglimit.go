package serve

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Limits of repeated log lines. raft logs several lines a second while a peer is
// down. Without the limits, these lines took 48 MB a day.
const (
	// lineBurst is how many lines with the same message and peer are written
	// before further lines are suppressed.
	lineBurst = 20
	// lineEvery is the time between two lines that are written after that.
	lineEvery = 30 * time.Second
	// maxLineKinds bounds the memory of a lineLimit.
	maxLineKinds = 1000
)

// lineLimit suppresses log lines that repeat. Lines repeat if their message and
// their peer are the same; other fields, such as a time or an address, may
// differ. It is safe for concurrent use.
type lineLimit struct {
	now func() time.Time
	// report receives the number of suppressed lines of a kind when a line of that
	// kind is written again. lineLimit calls it without mu held.
	report func(message string, suppressed int)

	mu    sync.Mutex
	kinds map[string]*lineKind // by message and peer, guarded by mu
}

// lineKind is a token bucket for lines with the same message and peer.
type lineKind struct {
	tokens     float64
	at         time.Time // time of the last change of tokens
	suppressed int       // since the last line that was written
}

func newLineLimit(now func() time.Time, report func(message string, suppressed int)) *lineLimit {
	return &lineLimit{now: now, report: report, kinds: make(map[string]*lineKind)}
}

// suppress reports whether a line is left out. It has the form of
// hclog.LoggerOptions.Exclude.
func (l *lineLimit) suppress(level hclog.Level, message string, args ...any) bool {
	if level < hclog.Info {
		return false // the operator has asked for every line
	}
	key := message
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "peer" {
			key = fmt.Sprintf("%s %v", message, args[i+1])
		}
	}
	suppressed, written := l.take(key)
	if written && suppressed > 0 {
		l.report(message, suppressed)
	}
	return !written
}

// take takes a token for a line. ok says whether there was a token. If so,
// suppressed is the number of lines of the kind that were suppressed since the last
// line that was written.
func (l *lineLimit) take(key string) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	k := l.kinds[key]
	if k == nil {
		if len(l.kinds) >= maxLineKinds {
			l.forget(now)
		}
		k = &lineKind{tokens: lineBurst, at: now}
		l.kinds[key] = k
	}
	k.tokens = min(lineBurst, k.tokens+float64(now.Sub(k.at))/float64(lineEvery))
	k.at = now
	if k.tokens < 1 {
		k.suppressed++
		return 0, false
	}
	k.tokens--
	suppressed, k.suppressed = k.suppressed, 0
	return suppressed, true
}

// forget drops the kinds whose buckets are full again, because their last line
// is old enough. If there are no such kinds, it drops all kinds. The caller
// holds mu.
func (l *lineLimit) forget(now time.Time) {
	for key, k := range l.kinds {
		if now.Sub(k.at) > lineBurst*lineEvery {
			delete(l.kinds, key)
		}
	}
	if len(l.kinds) >= maxLineKinds {
		clear(l.kinds)
	}
}
