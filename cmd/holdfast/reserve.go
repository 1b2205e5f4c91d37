package main

import "fmt"

// reserve is the value of --disk-reserve: bytes, or -1 for "auto".
type reserve int64

// Set implements pflag.Value.
func (r *reserve) Set(text string) error {
	if text == "auto" {
		*r = -1
		return nil
	}
	var bytes int64
	if err := (size[int64]{&bytes}).Set(text); err != nil {
		return fmt.Errorf("%w, and not \"auto\"", err)
	}
	*r = reserve(bytes)
	return nil
}

// String implements pflag.Value.
func (r *reserve) String() string {
	if *r < 0 {
		return "auto"
	}
	return sizeText(int64(*r))
}

// Type implements pflag.Value.
func (*reserve) Type() string { return "size" }
