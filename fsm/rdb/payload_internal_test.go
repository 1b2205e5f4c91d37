package rdb

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestCRC64Jones(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want uint64
	}{
		{"", 0},
		{"123456789", 0xe9c6d914c4b8d9ca},
	} {
		if got := crc64Jones([]byte(c.text)); got != c.want {
			t.Errorf("checksum of %q: %#x, want %#x", c.text, got, c.want)
		}
	}
}

// TestPayload_Known opens a payload that DUMP of redis-server 7.0.15 returned,
// and seals the same body.
func TestPayload_Known(t *testing.T) {
	t.Parallel()
	const known = "\x00\x03abc\n\x00\xd9\xac0=Ar\xa2\xe2"
	if body, ok := Open([]byte(known)); !ok || string(body) != "\x00\x03abc" {
		t.Errorf("Open returns %q, %v", body, ok)
	}
	if got := Seal([]byte("\x00\x03abc")); string(got) != known {
		t.Errorf("Seal returns %q, want %q", got, known)
	}
}

func TestPayload_Damaged(t *testing.T) {
	t.Parallel()
	whole := Seal([]byte("body"))
	for i := range whole {
		if _, ok := Open(whole[:i]); ok {
			t.Errorf("Open accepts the first %d of %d bytes", i, len(whole))
		}
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		if _, ok := Open(bad); ok {
			t.Errorf("Open accepts a payload in which byte %d was changed", i)
		}
	}
	for _, c := range []struct {
		version uint16
		want    bool
	}{{0, true}, {payloadVersion - 1, true}, {payloadVersion, true}, {payloadVersion + 1, false}, {1 << 15, false}} {
		b := binary.LittleEndian.AppendUint16([]byte("body"), c.version)
		b = binary.LittleEndian.AppendUint64(b, crc64Jones(b))
		if _, ok := Open(b); ok != c.want {
			t.Errorf("Open of version %d returns ok %v, want %v", c.version, ok, c.want)
		}
	}
}
