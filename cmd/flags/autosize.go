package flags

import "fmt"

// Reserve is the value of --disk-reserve: bytes, or -1 for "auto".
type Reserve int64

// Set implements pflag.Value.
func (r *Reserve) Set(text string) error {
	if text == "auto" {
		*r = -1
		return nil
	}
	var bytes int64
	if err := (size[int64]{&bytes}).Set(text); err != nil {
		return fmt.Errorf("%w, and not \"auto\"", err)
	}
	*r = Reserve(bytes)
	return nil
}

// String implements pflag.Value.
func (r *Reserve) String() string {
	if *r < 0 {
		return "auto"
	}
	return sizeText(int64(*r))
}

// Type implements pflag.Value.
func (*Reserve) Type() string { return "size" }
