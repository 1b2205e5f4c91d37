package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is where a node's time comes from; tests put their own in its place.
type Clock interface {
	// Mono is time since an arbitrary moment. It never goes back and does not
	// follow the wall clock.
	Mono() time.Duration
	// Wall is the wall clock.
	Wall() time.Time
}

// systemClock reads CLOCK_BOOTTIME, which unlike Go's own monotonic clock goes
// on while the machine is suspended: leases would otherwise run long by the
// time asleep. Undercounting would still be safe.
type systemClock struct{}

func (systemClock) Mono() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("cluster: CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

func (systemClock) Wall() time.Time { return time.Now() }
