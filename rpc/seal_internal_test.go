package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// pipeEnd is a connection in memory. Its writes sometimes stop short, as at a
// deadline.
type pipeEnd struct {
	net.Conn // nil: only Read and Write are used
	in, out  *bytes.Buffer
	rng      *rand.Rand
	limit    int // maximum number of bytes that one Write accepts, 0 for no limit
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

// sealedPair returns the writing end and the reading end of a connection, and
// the bytes between them. keyed says whether the connection has a secret.
func sealedPair(rng *rand.Rand, limit int, keyed bool) (w, r *sealedConn, wire *bytes.Buffer) {
	wire = &bytes.Buffer{}
	w = &sealedConn{Conn: &pipeEnd{out: wire, rng: rng, limit: limit}}
	r = &sealedConn{Conn: &pipeEnd{in: wire, rng: rng}}
	sealAs(w, keyed, "hello")
	sealAs(r, keyed, "hello")
	return w, r, wire
}

// sealAs makes a connection use records from now on. Here, transcript is what
// the dialer has sent in the handshake, and both directions use the same key.
func sealAs(c *sealedConn, keyed bool, transcript string) {
	if !keyed {
		c.seal([]byte(transcript), []byte("welcome"))
		return
	}
	ring, err := newKeyring(bytes.Repeat([]byte("s"), MinSecret), nil, false)
	if err != nil {
		panic(err)
	}
	key, _, err := ring.keys[0].keys([]byte(transcript + "welcome"))
	if err != nil {
		panic(err)
	}
	c.sealKeyed(key, key)
}

// TestSealedConn_CarriesBytes checks that the same bytes arrive, whatever the
// sizes of the writes are and wherever they are cut short and continued.
func TestSealedConn_CarriesBytes(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w, r, _ := sealedPair(rng, []int{0, 10, 1000, 100_000}[seed%4], seed >= 200)
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
			if len(w.left) > 0 { // continue with the same bytes, as Write requires
				for len(w.left) > 0 {
					k, err := w.Write(left[n:])
					if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("seed %d: continued write: %v", seed, err)
					}
					n += k
				}
			}
			left = left[n:]
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes were written and %d bytes were read, %v, want the same bytes", seed, len(sent), len(got), err)
		}
	}
}

// TestSealedConn_NoticesChanges checks that every flipped bit is detected
// before a byte of its record is used. A missing record is detected too, and so
// is a handshake that differed between the two sides.
func TestSealedConn_NoticesChanges(t *testing.T) {
	t.Run("sums", func(t *testing.T) { noticesChanges(t, false) })
	t.Run("tags", func(t *testing.T) { noticesChanges(t, true) })
}

func noticesChanges(t *testing.T, keyed bool) {
	rng := rand.New(rand.NewPCG(1, 1))
	w, _, wire := sealedPair(rng, 0, keyed)
	for _, text := range []string{"first record", "second", "third"} {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(wire.Bytes())
	read := func(bytes []byte, transcript string) (string, error) {
		_, r, wire := sealedPair(rng, 0, keyed)
		sealAs(r, keyed, transcript)
		wire.Write(bytes)
		got, err := io.ReadAll(r)
		return string(got), err
	}
	const text = "first recordsecondthird"
	if got, err := read(whole, "hello"); err != nil || got != text {
		t.Fatalf("read of all records: %q, %v, want the whole text", got, err)
	}
	for bit := range 8 * len(whole) {
		spoiled := bytes.Clone(whole)
		spoiled[bit/8] ^= 1 << (bit % 8)
		got, err := read(spoiled, "hello")
		if !errors.Is(err, ErrDamaged) || !bytes.HasPrefix([]byte(text), []byte(got)) {
			t.Errorf("bit %d flipped: %q, %v, want the text before the damage and ErrDamaged", bit, got, err)
		}
	}
	second := w.header + len("first record")
	third := second + w.header + len("second")
	if got, err := read(append(bytes.Clone(whole[:second]), whole[third:]...), "hello"); !errors.Is(err, ErrDamaged) || got != "first record" {
		t.Errorf("second record missing: %q, %v, want the first record and ErrDamaged", got, err)
	}
	if got, err := read(whole, "hallo"); !errors.Is(err, ErrDamaged) || got != "" {
		t.Errorf("another handshake: %q, %v, want no bytes and ErrDamaged", got, err)
	}
}

// TestSealedConn_NoticesForgeries checks that an attacker that knows everything
// that was sent, but not the secret, cannot make a valid record: not with a
// checksum, not with a key of another secret, not by repeating a record, and not
// by sending back what the other side has sent.
func TestSealedConn_NoticesForgeries(t *testing.T) {
	transcript := [][]byte{[]byte("hello"), []byte("welcome")}
	end := func(secret string, accepted bool, wire *bytes.Buffer) *conn {
		t.Helper()
		m := &Mux{}
		var key *authenticator
		if secret != "" {
			ring, err := newKeyring([]byte(secret), nil, false)
			if err != nil {
				t.Fatal(err)
			}
			m.ring.Store(ring)
			key = ring.keys[0]
		}
		c := &conn{sealedConn: sealedConn{Conn: &pipeEnd{in: wire, out: wire, rng: rand.New(rand.NewPCG(1, 1))}}, mux: m, accepted: accepted}
		if err := m.seal(c, key, transcript...); err != nil {
			t.Fatal(err)
		}
		return c
	}
	const ours, theirs = "the secret of the cluster, 32 bytes", "another secret, also of 32 bytes or more"
	for _, test := range []struct {
		name     string
		secret   string // secret of the writer
		accepted bool   // the writer accepted the connection
		times    int
		want     string
	}{
		{"the dialer", ours, false, 1, "yes"},
		{"a sum", "", false, 1, ""},
		{"another secret", theirs, false, 1, ""},
		{"repeated", ours, false, 2, "yes"},
		{"sent back", ours, true, 1, ""},
	} {
		wire := &bytes.Buffer{}
		w := end(test.secret, test.accepted, wire)
		if _, err := w.Write([]byte("yes")); err != nil {
			t.Fatal(err)
		}
		record := bytes.Clone(wire.Bytes())
		for range test.times - 1 {
			wire.Write(record)
		}
		wire.Write(make([]byte, keyedHeader)) // the reader checks a record only when it has keyedHeader bytes
		got, err := io.ReadAll(end(ours, true, wire))
		if string(got) != test.want || !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %q, %v; want %q and then damage", test.name, got, err, test.want)
		}
	}
}

// BenchmarkGuard measures how long the writing side takes to compute the header
// of a record.
func BenchmarkGuard(b *testing.B) {
	for _, size := range []int{64, maxRecord} {
		for _, keyed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/keyed=%v", size, keyed), func(b *testing.B) {
				var c sealedConn
				sealAs(&c, keyed, "hello")
				payload, out := make([]byte, size), make([]byte, 0, keyedHeader)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					out = c.writeCheck.append(out[:0], payload)
				}
			})
		}
	}
}
