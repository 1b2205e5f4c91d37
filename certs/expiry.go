package certs

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// The warnings of an ExpiryLog begin maxNotice before a certificate expires, or
// when a quarter of its validity is left, whichever is later. Without the
// second limit, certificates that are valid for a day would always cause
// warnings.
const (
	maxNotice     = 30 * 24 * time.Hour
	noticeDivisor = 4
)

// repeatNotice is the time between two log lines about a certificate.
const repeatNotice = 24 * time.Hour

// An ExpiryLog logs certificates that expire soon or have expired. It logs each
// such certificate at most once a day, and once more when the certificate has
// expired. It is not safe for concurrent use.
type ExpiryLog struct {
	log     hclog.Logger
	notices map[Files]notice // the last log line about each certificate
}

// notice is a line that an ExpiryLog has written.
type notice struct {
	at, until time.Time
	expired   bool
}

// NewExpiryLog returns an ExpiryLog that writes to log.
func NewExpiryLog(log hclog.Logger) *ExpiryLog {
	return &ExpiryLog{log: log, notices: make(map[Files]notice)}
}

// Check logs the certificates of the stores that expire soon or have expired at
// the time now. It skips a certificate that it has logged less than a day ago
// in the same state, that is, before or after the expiry.
func (e *ExpiryLog) Check(now time.Time, stores ...*Store) {
	for _, s := range stores {
		from, until := s.Validity()
		if left := until.Sub(now); left > min(maxNotice, until.Sub(from)/noticeDivisor) {
			continue
		}
		n := notice{at: now, until: until, expired: now.After(until)}
		last := e.notices[s.files]
		if last.until.Equal(until) && last.expired == n.expired && now.Sub(last.at) < repeatNotice {
			continue
		}
		e.notices[s.files] = n
		expires := until.UTC().Format(time.RFC3339)
		if n.expired {
			e.log.Error("TLS certificate has expired, so new connections that use it fail: replace its files", "file",
				s.files.Cert, "expired", expires)
		} else {
			e.log.Warn("TLS certificate expires soon: replace its files", "file", s.files.Cert, "expires", expires,
				"left", until.Sub(now).Round(time.Second))
		}
	}
}

// Forget makes the next Check log every certificate that expires soon or has
// expired.
func (e *ExpiryLog) Forget() { clear(e.notices) }
