package rpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func sample() Hello {
	return Hello{Service: ServiceRead, Proto: Proto, ClusterID: "cluster", NodeID: "n1", Instance: "ü-disk", Boot: 1 << 40, To: "n2"}
}

func TestPrelude_RoundTrip(t *testing.T) {
	for _, want := range []Hello{{}, sample(), {Boot: 1<<64 - 1, NodeID: strings.Repeat("n", 4000)}} {
		msg, err := appendPrelude([]byte("before"), want, nil)
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		r := bytes.NewReader(append(msg[len("before"):], "raft"...))
		got, _, err := readPrelude(iotest.OneByteReader(r))
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		if got, want := r.Len(), len("raft"); got != want {
			t.Errorf("got %d bytes left for the service, want %d", got, want)
		}
	}
}

// decodeAnswer reads and decodes one answer.
func decodeAnswer(r io.Reader) (peer Hello, reason Reason, text string, err error) {
	a, err := readAnswer(r)
	if err != nil {
		return Hello{}, 0, "", err
	}
	return a.decode()
}

func TestAnswer_RoundTrip(t *testing.T) {
	want := sample()
	msg, err := appendAnswer(nil, want)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if got, reason, _, err := decodeAnswer(bytes.NewReader(msg)); err != nil || reason != 0 || got != want {
		t.Errorf("got %+v, %d, %v, want %+v", got, reason, err, want)
	}
	msg = appendRefusal(nil, ReasonWrongNode, "no\nway \xff")
	if _, reason, text, err := decodeAnswer(bytes.NewReader(msg)); err != nil || reason != ReasonWrongNode || text != "no way ?" {
		t.Errorf("got reason %d, text %q, %v, want ReasonWrongNode and the text without control characters", reason, text, err)
	}
	msg[len(magic)] = 9 // the refusal of a later node is still understood
	if _, reason, _, err := decodeAnswer(bytes.NewReader(msg)); err != nil || reason != ReasonWrongNode {
		t.Errorf("refusal in another layout: got reason %d, %v, want ReasonWrongNode", reason, err)
	}
	msg[len(magic)+1] = statusOK // the welcome of a later node is not understood
	var unknown layoutError
	if _, _, _, err := decodeAnswer(bytes.NewReader(msg)); !errors.As(err, &unknown) {
		t.Errorf("welcome in another layout: got %v, want a layoutError", err)
	}
}

// TestDecodeHello_SkipsUnknownFields checks that a later version may append
// fields.
func TestDecodeHello_SkipsUnknownFields(t *testing.T) {
	got, _, err := decodeHello(append(appendHello(nil, sample()), "\x03new"...))
	if want := sample(); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestDecodeHello_Malformed(t *testing.T) {
	body := appendHello(nil, sample())
	for n := range len(body) {
		if _, _, err := decodeHello(body[:n]); !errors.Is(err, ErrBadHello) {
			t.Errorf("%d of %d bytes: got %v, want %v", n, len(body), err, ErrBadHello)
		}
	}
	for _, id := range []string{"a\nb", "\x7f", "\xff"} {
		if _, _, err := decodeHello(appendHello(nil, Hello{NodeID: id})); !errors.Is(err, ErrBadHello) {
			t.Errorf("node id %q: got %v, want %v", id, err, ErrBadHello)
		}
	}
	huge := append([]byte{2, 1, 0}, bytes.Repeat([]byte{0xff}, 9)...)
	if _, _, err := decodeHello(append(huge, 1)); !errors.Is(err, ErrBadHello) {
		t.Errorf("text of 2^64-1 bytes: got %v, want %v", err, ErrBadHello)
	}
}

func TestReadPrelude_Limits(t *testing.T) {
	// A body over the limit must be refused without waiting for its bytes.
	_, _, err := readPrelude(io.MultiReader(strings.NewReader(magic+"\x01\xff\xff"), iotest.ErrReader(errors.New("read on"))))
	if err == nil || !strings.Contains(err.Error(), "65535 bytes exceeds the limit of 4096 bytes") {
		t.Errorf("got %v, want an error that names the limit", err)
	}
	if _, _, err := readPrelude(strings.NewReader("")); err != io.EOF {
		t.Errorf("nothing: got %v, want %v", err, io.EOF)
	}
	for _, cut := range []string{"\xf7H", magic, magic + "\x01\x00\x10abc"} {
		if _, _, err := readPrelude(strings.NewReader(cut)); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Errorf("%q: got %v, want the end of the bytes", cut, err)
		}
	}
}

func FuzzPrelude(f *testing.F) {
	msg, err := appendPrelude(nil, sample(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte(magic + "\x02\x00\x01x"))
	if msg, err = appendAnswer(nil, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Add(appendRefusal(nil, ReasonNoService, "not yet"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		if h, _, err := readPrelude(r); err == nil {
			again, err := appendPrelude(nil, h, nil)
			if err != nil {
				t.Fatalf("a hello that was read cannot be encoded again: %v", err)
			}
			if back, _, err := readPrelude(bytes.NewReader(again)); err != nil || back != h {
				t.Fatalf("got %+v, %v, want %+v", back, err, h)
			}
		}
		if used := len(wire) - r.Len(); used > preludeSize+maxHello {
			t.Fatalf("read %d bytes, more than a prelude may have", used)
		}
		r = bytes.NewReader(wire)
		if _, reason, text, err := decodeAnswer(r); err == nil && reason != 0 && !printable(text) {
			t.Fatalf("refusal %q could forge a line of the log", text)
		}
		if used := len(wire) - r.Len(); used > answerSize+maxHello {
			t.Fatalf("read %d bytes, more than an answer may have", used)
		}
	})
}
