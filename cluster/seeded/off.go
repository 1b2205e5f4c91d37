//go:build !seededbug

package seeded

// Possible says whether this build can have a mistake.
const Possible = false

// On reports whether the program has the mistake.
func On(string) bool { return false }
