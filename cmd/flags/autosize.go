package flags

import "fmt"

// AutoSize is the value of a flag for a size in bytes whose default depends on the
// machine. It is the number of bytes, or -1 for "auto".
type AutoSize int64

// Set implements pflag.Value.
func (r *AutoSize) Set(text string) error {
	if text == "auto" {
		*r = -1
		return nil
	}
	var bytes int64
	if err := (size[int64]{&bytes}).Set(text); err != nil {
		return fmt.Errorf("%w, and not \"auto\"", err)
	}
	*r = AutoSize(bytes)
	return nil
}

// String implements pflag.Value.
func (r *AutoSize) String() string {
	if *r < 0 {
		return "auto"
	}
	return sizeText(int64(*r))
}

// Type implements pflag.Value.
func (*AutoSize) Type() string { return "size" }
