package storage

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/raft-wal/types"
)

// written is a file in memory that records the offsets of the writes.
type written struct {
	types.WritableFile
	data   []byte
	writes []int64 // offsets of the writes
	err    error   // error of all writes but the first; nil for none
}

func (w *written) WriteAt(b []byte, at int64) (int, error) {
	if w.err != nil && len(w.writes) > 0 {
		return 0, w.err
	}
	w.writes = append(w.writes, at)
	if at+int64(len(b)) > int64(len(w.data)) {
		return copy(w.data[at:], b), io.ErrShortWrite
	}
	return copy(w.data[at:], b), nil
}

func TestAhead(t *testing.T) {
	const size = 3*aheadBytes + 1000
	// Regions that have not been written contain bytes other than zero.
	w := &written{data: bytes.Repeat([]byte{0xee}, size)}
	f := &aheadFile{WritableFile: w, size: size}
	var want []byte
	for i := 0; len(want) < size; i++ {
		b := bytes.Repeat([]byte{byte(1 + i%200)}, min(5000, size-len(want)))
		if n, err := f.WriteAt(b, int64(len(want))); n != len(b) || err != nil {
			t.Fatalf("append %d: wrote %d bytes, error %v, want all bytes", i, n, err)
		}
		want = append(want, b...)
		ahead := w.data[len(want):f.zeroed]
		if !bytes.Equal(w.data[:len(want)], want) || len(bytes.Trim(ahead, "\x00")) > 0 {
			t.Fatalf("after append %d the file does not contain the appends followed by zeros", i)
		}
		if rest := w.data[f.zeroed:]; len(bytes.Trim(rest, "\xee")) > 0 {
			t.Fatalf("after append %d bytes were written after the zeros", i)
		}
	}
	appends := (size + 4999) / 5000
	if zeroed := len(w.writes) - appends; zeroed > 5 {
		t.Errorf("zeroed %d times for %d bytes, want at most 5 times", zeroed, size)
	}
}

// TestAhead_Fails checks that an append fails if the zeros after it cannot be
// written.
func TestAhead_Fails(t *testing.T) {
	broken := errors.New("broken")
	f := &aheadFile{WritableFile: &written{data: make([]byte, 2*aheadBytes), err: broken}, size: 2 * aheadBytes}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, broken) {
		t.Errorf("WriteAt: %v, want the error of the second write", err)
	}
}
