// Package platform contains what Holdfast asks of the operating system and
// Go's packages do not offer alike on Linux and on darwin. Its functions may be
// called from any goroutine. It is not a supported API.
package platform

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Kernel returns the name, the release and the processor of the operating
// system, such as "Linux 6.1.0 x86_64".
func Kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " +
		unix.ByteSliceToString(u.Machine[:])
}
