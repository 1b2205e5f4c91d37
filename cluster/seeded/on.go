//go:build seededbug

package seeded

import "os"

// Possible says whether this build can have a mistake.
const Possible = true

// Variable is the environment variable that names the mistake.
const Variable = "HOLDFAST_SEEDED_BUG"

var bug = os.Getenv(Variable)

// On reports whether the program has the mistake.
func On(name string) bool { return bug == name }
