package rpc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// pipeEnd is a connection of memory whose writes stop short now and then, as at a
// deadline.
type pipeEnd struct {
	net.Conn // nil: only Read and Write are used
	in, out  *bytes.Buffer
	rng      *rand.Rand
	limit    int // bytes that one Write takes at most, 0 for all
}

func (p *pipeEnd) Read(b []byte) (int, error) {
	if len(b) > 1 {
		b = b[:1+p.rng.IntN(len(b))]
	}
	return p.in.Read(b)
}

func (p *pipeEnd) Write(b []byte) (int, error) {
	n := len(b)
	if p.limit > 0 {
		n = min(p.rng.IntN(p.limit), len(b))
	}
	p.out.Write(b[:n])
	if n < len(b) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

func sealedPair(rng *rand.Rand, limit int) (w, r *sealedConn, wire *bytes.Buffer) {
	wire = &bytes.Buffer{}
	w = &sealedConn{Conn: &pipeEnd{out: wire, rng: rng, limit: limit}}
	r = &sealedConn{Conn: &pipeEnd{in: wire, rng: rng}}
	w.seal([]byte("hello"), []byte("welcome"))
	r.seal([]byte("hello"), []byte("welcome"))
	return w, r, wire
}

// Whatever the sizes of writes, and wherever they are cut short and gone on with,
// the same bytes come out.
func TestSealedConn_CarriesBytes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w, r, _ := sealedPair(rng, []int{0, 10, 1000, 100_000}[seed%4])
		sent := make([]byte, 1+rng.IntN(3*maxRecord)*rng.IntN(8))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		for left := sent; len(left) > 0; {
			part := left[:1+rng.IntN(len(left))]
			n, err := w.Write(part)
			if err == nil && n != len(part) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("seed %d: write of %d: %d, %v", seed, len(part), n, err)
			}
			if len(w.left) > 0 { // go on with the same bytes, as Write demands
				for len(w.left) > 0 {
					k, err := w.Write(left[n:])
					if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("seed %d: %v", seed, err)
					}
					n += k
				}
			}
			left = left[n:]
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes became %d, %v", seed, len(sent), len(got), err)
		}
	}
}

// Every flipped bit is found before a byte of its record is believed, and so is a
// record that is left out, and a handshake that was not the same on both sides.
func TestSealedConn_NoticesChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w, _, wire := sealedPair(rng, 0)
	for _, text := range []string{"first record", "second", "third"} {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(wire.Bytes())
	read := func(bytes []byte, said string) (string, error) {
		_, r, wire := sealedPair(rng, 0)
		r.seal([]byte(said), []byte("welcome"))
		wire.Write(bytes)
		got, err := io.ReadAll(r)
		return string(got), err
	}
	const text = "first recordsecondthird"
	if got, err := read(whole, "hello"); err != nil || got != text {
		t.Fatalf("whole: %q, %v", got, err)
	}
	for bit := range 8 * len(whole) {
		spoiled := bytes.Clone(whole)
		spoiled[bit/8] ^= 1 << (bit % 8)
		got, err := read(spoiled, "hello")
		if !errors.Is(err, ErrDamaged) || !bytes.HasPrefix([]byte(text), []byte(got)) {
			t.Errorf("bit %d flipped: %q, %v", bit, got, err)
		}
	}
	second := recordHeader + len("first record")
	third := second + recordHeader + len("second")
	if got, err := read(append(bytes.Clone(whole[:second]), whole[third:]...), "hello"); !errors.Is(err, ErrDamaged) || got != "first record" {
		t.Errorf("second record missing: %q, %v", got, err)
	}
	if got, err := read(whole, "hallo"); !errors.Is(err, ErrDamaged) || got != "" {
		t.Errorf("another handshake: %q, %v", got, err)
	}
}
