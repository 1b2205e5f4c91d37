package flags

import (
	"fmt"
	"strconv"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"
)

// size is the value of a flag that counts bytes. It accepts units, which are
// powers of 1,024: 64mb, 64MiB, 1g.
type size[T int | int64] struct{ bytes *T }

// SizeVar defines a flag that counts bytes.
func SizeVar[T int | int64](f *pflag.FlagSet, bytes *T, name, usage string) {
	f.Var(size[T]{bytes}, name, usage)
	f.Lookup(name).DefValue = sizeText(int64(*bytes))
}

// Set implements pflag.Value.
func (s size[T]) Set(text string) error {
	n, err := units.RAMInBytes(text)
	if err != nil || n < 0 || int64(T(n)) != n {
		return fmt.Errorf("%q is not a size such as 1048576, 64kb, 64mb or 2gb", text)
	}
	*s.bytes = T(n)
	return nil
}

// String implements pflag.Value. It returns the number of bytes, because
// CONFIG GET and INFO show it.
func (s size[T]) String() string {
	if s.bytes == nil {
		return "0" // pflag calls String on a zero value
	}
	return strconv.FormatInt(int64(*s.bytes), 10)
}

// Type implements pflag.Value.
func (s size[T]) Type() string { return "size" }

// sizeText writes a number of bytes with the largest unit that divides it.
func sizeText(n int64) string {
	for _, u := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "gb"}, {1 << 20, "mb"}, {1 << 10, "kb"}} {
		if n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
