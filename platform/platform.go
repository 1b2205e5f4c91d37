// Package platform hides differences between Linux and macOS. It wraps system
// calls for which Go's standard library has no common interface. Its functions
// are safe for concurrent use. It is not a supported API.
package platform

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Kernel returns the name and the release of the operating system, and the type of
// the processor, such as "Linux 6.1.0 x86_64".
func Kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " +
		unix.ByteSliceToString(u.Machine[:])
}
