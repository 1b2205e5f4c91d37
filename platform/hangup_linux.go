package platform

import "golang.org/x/sys/unix"

// HungUp reports whether the peer of a connected socket has closed its sending
// side or has reset the connection. It does not wait. The socket may still contain
// bytes that the peer sent before. While the kernel's buffer for these bytes is
// full, the kernel may not know yet that the peer has closed its side.
func HungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
