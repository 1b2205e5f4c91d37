package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a node's source of time. Tests replace it.
type Clock interface {
	// Mono returns the time since an arbitrary moment. It never goes back and
	// does not follow changes of the wall clock.
	Mono() time.Duration
	// Wall returns the wall clock.
	Wall() time.Time
}

// systemClock is the system's clock. Mono reads CLOCK_BOOTTIME, which unlike
// Go's own monotonic clock advances while the machine is suspended. Without
// that, leases would last longer by the time that the machine was suspended,
// which would still be safe.
type systemClock struct{}

func (systemClock) Mono() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("cluster: CLOCK_BOOTTIME: " + err.Error()) // available since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

func (systemClock) Wall() time.Time { return time.Now() }
