//go:build !seededbug

package fsm

// seeded reports whether the machine has a mistake on purpose: see package
// cluster/seeded. A normal build has none.
func seeded(string) bool { return false }
