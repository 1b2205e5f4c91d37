package locking

import (
	"testing"
	"time"
)

// TestLockOptions_Grace checks that the default of --grace depends on --ttl, and
// that --grace 0 means 0.
func TestLockOptions_Grace(t *testing.T) {
	for _, c := range []struct {
		o    lockOptions
		want time.Duration
		ok   bool
	}{
		{lockOptions{ttl: 6 * time.Second}, time.Second, true},
		{lockOptions{ttl: 6 * time.Second, graceful: true}, 0, true},
		{lockOptions{ttl: 6 * time.Second, graceful: true, grace: 3 * time.Second}, 3 * time.Second, true},
		{lockOptions{ttl: 6 * time.Second, graceful: true, grace: 4 * time.Second}, 4 * time.Second, false},
		{lockOptions{ttl: 6 * time.Second, graceful: true, grace: -1}, -1, false},
	} {
		o := c.o
		if err := o.check(); (err == nil) != c.ok || o.grace != c.want {
			t.Errorf("%+v: grace %v, %v, want %v", c.o, o.grace, err, c.want)
		}
	}
}
