package platform

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Processors is a set of processors.
type Processors = unix.CPUSet

// Affinity returns the processors on which the calling thread may run.
func Affinity() (Processors, error) {
	var all Processors
	err := unix.SchedGetaffinity(0, &all)
	return all, err
}

// Pin restricts the thread with the id tid to the given processors. The error is
// ESRCH if there is no such thread.
func Pin(tid int, where *Processors) error { return unix.SchedSetaffinity(tid, where) }

// OwnMounts gives the calling thread a mount namespace of its own, and returns
// the id of the thread. The caller must have locked the goroutine to its thread.
// OwnMounts needs root privileges.
func OwnMounts() (tid int, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("unshare: %w", err)
	}
	return unix.Gettid(), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
}

// Allocate reserves size bytes of a file, starting at the offset, and extends the
// file if necessary. The error is ENOSPC if the disk has no room.
func Allocate(f *os.File, offset, size int64) error {
	return unix.Fallocate(int(f.Fd()), 0, offset, size)
}
