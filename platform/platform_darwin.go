package platform

import (
	"time"

	"golang.org/x/sys/unix"
)

// Elapsed returns the time since the machine was started. Unlike Go's own
// monotonic clock, it advances while the machine is suspended: see the manual
// page clock_gettime(3) of darwin about CLOCK_MONOTONIC.
func Elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("platform: CLOCK_MONOTONIC: " + err.Error()) // available since darwin 16
	}
	return time.Duration(ts.Nano())
}

// Memory returns the size of the machine's memory in bytes.
func Memory() (uint64, error) { return unix.SysctlUint64("hw.memsize") }

// ProcessMemory returns how many bytes of memory this process may use.
func ProcessMemory() (uint64, error) { return Memory() }
