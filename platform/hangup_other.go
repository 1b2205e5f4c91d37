//go:build !linux

package platform

// HungUp returns false, because the system does not report that a peer has closed
// its sending side while bytes from the peer are unread.
func HungUp(int) bool { return false }
