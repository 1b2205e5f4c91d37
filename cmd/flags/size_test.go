package flags

import "testing"

func TestSize(t *testing.T) {
	n := int64(1)
	s := size[int64]{&n}
	for text, want := range map[string]int64{"1048576": 1 << 20, "64mb": 64 << 20, "2GiB": 2 << 30, "1k": 1024, "0": 0} {
		if err := s.Set(text); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "-1", "many", "1 x", "99999999999999999999gb"} {
		if err := s.Set(text); err == nil {
			t.Errorf("%q is accepted as %d", text, n)
		}
	}
	for n, want := range map[int64]string{0: "0", 1000: "1000", 1 << 20: "1mb", 3 << 30: "3gb", 1536: "1536", 2048: "2kb"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
