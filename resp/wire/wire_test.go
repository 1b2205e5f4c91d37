package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestReplyLen(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int
	}{
		{"+OK\r\n", 5}, {"+\r\n", 3}, {"-ERR x\r\nrest", 8}, {":1\r\n", 4}, {"_\r\n", 3}, {",1.5\r\n", 6}, {"#t\r\n", 4}, {"(12\r\n", 5},
		{"$-1\r\n", 5}, {"*-1\r\n", 5}, {"$0\r\n\r\n", 6}, {"$3\r\nabc\r\n", 9}, {"$3\r\n\r\n\r\r\nx", 9}, {"=7\r\ntxt:abc\r\n", 13},
		{"*0\r\n", 4}, {"*2\r\n:1\r\n$1\r\na\r\n:9\r\n", 15}, {"%1\r\n+a\r\n~1\r\n_\r\n", 15}, {">1\r\n*1\r\n*0\r\n", 12},
		// These replies are incomplete or invalid.
		{"", 0}, {"\n", 0}, {"\r\n", 0}, {"+OK\n", 0}, {"+OK", 0}, {"$3\r\nab", 0}, {"$3\r\nabc\r", 0}, {"*2\r\n:1\r\n", 0}, {"$x\r\n", 0}, {"?\r\n", 0},
		{"*9223372036854775807\r\n", 0}, {"%9223372036854775807\r\n", 0}, {"$9223372036854775807\r\n", 0}, {"*1000000\r\n" + strings.Repeat("+\r\n", 10), 0},
	} {
		if got := Len([]byte(tc.in)); got != tc.want {
			t.Errorf("Len(%q) = %d, want %d", tc.in, got, tc.want)
		}
	}
	deep := []byte(strings.Repeat("*1\r\n", 1<<20) + ":1\r\n") // must not exhaust the stack
	if got := Len(deep); got != len(deep) {
		t.Errorf("Len of a deeply nested reply is %d, want %d", got, len(deep))
	}
}

// slowReplyLen computes the same as Len in the simplest way.
func slowReplyLen(b []byte) int {
	head, payload, inner := Head(b)
	if head == 0 || head+payload > len(b) {
		return 0
	}
	size := head + payload
	for range inner {
		n := slowReplyLen(b[size:])
		if n == 0 {
			return 0
		}
		size += n
	}
	return size
}

func FuzzReplyLen(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "*2\r\n$1\r\na\r\n-ERR x\r\n", "%1\r\n+a\r\n:1\r\n", "$-1\r\n", "=5\r\ntxt:a\r\n", "*1\r\n*1\r\n*1\r\n_\r\n", "*3\r\n", "$99\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		n := Len(b)
		if n < 0 || n > len(b) {
			t.Fatalf("Len(%q) = %d, want 0 to the length of the argument", b, n)
		}
		if want := slowReplyLen(b); n != want {
			t.Fatalf("Len(%q) = %d, want %d", b, n, want)
		}
		if n > 0 {
			if n < len(b) && Len(b[:n]) != n || Len(b[:n-1]) != 0 {
				t.Fatalf("Len(%q) = %d, but Len of the first reply alone differs", b, n)
			}
			errors := 0
			EachError(b[:n], func(line []byte) {
				errors++
				if bytes.ContainsAny(line, "\n") {
					t.Fatalf("EachError passed the line %q of %q, want one without a line end", line, b)
				}
			})
			if errors > 0 && !MayHoldError(b[:n]) {
				t.Fatalf("MayHoldError(%q) is false for a reply with %d errors", b[:n], errors)
			}
		}
	})
}
