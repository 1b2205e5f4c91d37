package flags

import (
	"errors"
	"strings"
)

// YesNo is the value of a flag that accepts yes and no, like settings of Redis, and
// also true and false.
type YesNo bool

// Set implements pflag.Value.
func (y *YesNo) Set(text string) error {
	switch strings.ToLower(text) {
	case "yes", "true", "1":
		*y = true
	case "no", "false", "0":
		*y = false
	default:
		return errors.New("must be yes or no")
	}
	return nil
}

// String implements pflag.Value.
func (y *YesNo) String() string { return YesNoText(bool(*y)) }

// Type implements pflag.Value.
func (y *YesNo) Type() string { return "yes|no" }

// YesNoText returns "yes" or "no".
func YesNoText(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
