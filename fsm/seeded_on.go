//go:build seededbug

package fsm

// seededBug names the mistake that the machine has on purpose: see package
// cluster/seeded.
var seededBug string

// Seed gives the machine a mistake. It is called before any machine is made.
func Seed(bug string) { seededBug = bug }

func seeded(bug string) bool { return seededBug == bug }
