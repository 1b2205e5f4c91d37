package migrate

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// payloadOf returns the payload of a set with the given members.
func payloadOf(members ...string) []byte {
	w := rdb.NewWriter(1<<30, func(int) {}, func(int) {})
	w.Byte(typeSet)
	w.Byte(byte(len(members)))
	for _, m := range members {
		w.Text(m)
	}
	return w.Payload()
}

func TestSameValue(t *testing.T) {
	for _, tt := range []struct {
		what string
		a, b []byte
		want bool
	}{
		{"the same bytes", payloadOf("a", "b"), payloadOf("a", "b"), true},
		{"another order", payloadOf("a", "b"), payloadOf("b", "a"), true},
		{"another member", payloadOf("a", "b"), payloadOf("a", "c"), false},
		{"one member more", payloadOf("a"), payloadOf("a", "b"), false},
		{"one member that looks like two", payloadOf("a", "b"), payloadOf(`a" "b`), false},
		{"damaged", payloadOf("a")[1:], payloadOf("a")[1:], false},
	} {
		if got := sameValue(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: sameValue is %v, want the opposite", tt.what, got)
		}
	}
}

// TestTemporaryKey checks the prefix and the hash tag of a temporary key. The hash
// tag is the text between the first { of the key and the next }, or the whole key
// if there is no such text.
func TestTemporaryKey(t *testing.T) {
	for key, tag := range map[string]string{"k": "{k}", "a{b}c{d}": "{b}", "{b": "{{b}", "": "{}"} {
		if got := temporaryKey(key); !strings.HasPrefix(got, "holdfast:import:") || !strings.HasSuffix(got, tag) {
			t.Errorf("the temporary key of %q is %q, want the prefix of the import and the hash tag at its end", key, got)
		}
	}
}

// TestPieces_LargeElement checks that an element that is larger than an argument
// of a command may be is refused with its own size.
func TestPieces_LargeElement(t *testing.T) {
	p := &pieces{to: &target{maxBulk: 8}, key: "k"}
	if err := p.add("HSET", "field", "12345678"); err != nil {
		t.Errorf("an element of 8 bytes: %v", err)
	}
	const want = "an element of the value has 9 bytes, and the cluster accepts 8"
	if err := p.add("HSET", "field", "123456789"); err == nil || err.Error() != want {
		t.Errorf("an element of 9 bytes: got the error %v, want %q", err, want)
	}
}
