package platform

import (
	"time"

	"golang.org/x/sys/unix"
)

// Elapsed returns the time since the machine was started. Unlike Go's own
// monotonic clock, it advances while the machine is suspended.
func Elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("platform: CLOCK_BOOTTIME: " + err.Error()) // available since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// Memory returns the size of the machine's memory in bytes.
func Memory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil
}

// ProcessMemory returns the number of bytes of memory that this process may
// use. That is the memory of the machine, or the limit of the process's control
// groups if that limit is lower.
func ProcessMemory() (uint64, error) {
	memory, err := Memory()
	limit, limited := cgroupMemory("/")
	if limited && (err != nil || limit < memory) {
		return limit, nil
	}
	return memory, err
}
