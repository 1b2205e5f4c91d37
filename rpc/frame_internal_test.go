package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func frameBytes(typ byte, payload []byte) []byte {
	return append(appendFrameHeader(nil, typ, len(payload)), payload...)
}

// splitReader returns a stream of bytes in pieces of random size.
type splitReader struct {
	r      io.Reader
	random *rand.Rand
}

func (s *splitReader) Read(p []byte) (int, error) {
	return s.r.Read(p[:min(len(p), 1+s.random.IntN(1<<s.random.IntN(17)))])
}

func TestFrameReader_AnySizeAnySplit(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		var wire []byte
		var want [][]byte
		for range 60 {
			payload := make([]byte, random.IntN(1<<random.IntN(19)))
			for i := range payload {
				payload[i] = byte(random.Uint32())
			}
			want = append(want, payload)
			wire = append(wire, frameBytes(byte(len(want)), payload)...)
		}
		frames := newFrameReader(&splitReader{bytes.NewReader(wire), random}, 1<<20)
		for i, payload := range want {
			typ, got, err := frames.next()
			if err != nil || typ != byte(i+1) || !bytes.Equal(got, payload) {
				t.Fatalf("seed %d, frame %d: got type %d, %d bytes, %v; want %d bytes", seed, i, typ, len(got), err, len(payload))
			}
		}
		if _, _, err := frames.next(); err != io.EOF {
			t.Errorf("seed %d: got %v, want %v", seed, err, io.EOF)
		}
	}
}

func TestFrameReader_CutShort(t *testing.T) {
	for _, size := range []int{0, 10, 100_000} {
		wire := frameBytes(1, make([]byte, size))
		for _, have := range []int{1, 4, 5, 9, 70_000, len(wire) - 1} {
			if have >= len(wire) {
				continue
			}
			_, _, err := newFrameReader(bytes.NewReader(wire[:have]), 1<<20).next()
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d of %d bytes: got %v, want %v", have, len(wire), err, io.ErrUnexpectedEOF)
			}
		}
	}
}

func TestFrameReader_PassesConnectionErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, wire := range [][]byte{nil, {0}, {0, 0, 0, 9, 1, 1}, append([]byte{0, 1, 0, 0, 1}, make([]byte, 10)...)} {
		_, _, err := newFrameReader(io.MultiReader(bytes.NewReader(wire), iotest.ErrReader(broken)), 1<<20).next()
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: got %v, want %v", len(wire), err, broken)
		}
	}
}

// TestFrameReader_ClaimIsNotAllocated checks that the memory for a frame grows
// with the bytes that arrive, and not with the 32 MiB that the header claims.
func TestFrameReader_ClaimIsNotAllocated(t *testing.T) {
	const limit = 32 << 20
	for _, sent := range []int{0, 100_000, 1 << 20} {
		wire := append(appendFrameHeader(nil, 1, limit), make([]byte, sent)...)
		result := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, _, err := newFrameReader(bytes.NewReader(wire), limit).next(); !errors.Is(err, io.ErrUnexpectedEOF) {
					b.Fatalf("got %v, want %v", err, io.ErrUnexpectedEOF)
				}
			}
		})
		// The limit covers the read buffer, the buffers of the payload and
		// small allocations. Each buffer of the payload is twice as large as
		// the one before, so together they have less than 4*max(sent,
		// readBuffer) bytes.
		if got, want := result.AllocedBytesPerOp(), int64(readBuffer+4*max(sent, readBuffer)+4096); got > want {
			t.Errorf("%d bytes sent: got %d bytes allocated, want at most %d", sent, got, want)
		}
	}
}

func TestFrameReader_GivesBackBigBuffers(t *testing.T) {
	wire := bytes.Join([][]byte{frameBytes(1, make([]byte, keepBuffer)), frameBytes(2, make([]byte, keepBuffer+1)), frameBytes(3, nil)}, nil)
	frames := newFrameReader(bytes.NewReader(wire), 1<<22)
	for i, want := range []bool{true, true, false} {
		if _, _, err := frames.next(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if got := frames.big != nil; got != want {
			t.Errorf("frame %d: the big buffer is kept: got %v, want %v", i, got, want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{}, 100)
	f.Add(frameBytes(1, nil), 100)
	f.Add(bytes.Join([][]byte{frameBytes(1, []byte("a")), frameBytes(255, make([]byte, 300))}, nil), 400)
	f.Add([]byte{255, 255, 255, 255, 0}, 1<<30)
	f.Add([]byte{0, 0, 0, 101, 0}, 100)
	f.Fuzz(func(t *testing.T, wire []byte, limit int) {
		limit = max(1, min(limit, 1<<30))
		// A small read buffer makes short inputs use both ways of reading a
		// payload.
		whole := &frameReader{br: bufio.NewReaderSize(bytes.NewReader(wire), 64), limit: limit}
		dripping := &frameReader{br: bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(wire)), 64), limit: limit}
		var again []byte
		for {
			typ, payload, err := whole.next()
			typ2, payload2, err2 := dripping.next()
			if fmt.Sprint(err) != fmt.Sprint(err2) || typ != typ2 || !bytes.Equal(payload, payload2) {
				t.Fatalf("frame read in whole: type %d, %d bytes, %v; in pieces: type %d, %d bytes, %v; want the same", typ, len(payload), err, typ2, len(payload2), err2)
			}
			if len(payload) > limit {
				t.Fatalf("got %d bytes over a limit of %d", len(payload), limit)
			}
			if err == nil {
				again = append(again, frameBytes(typ, payload)...)
				continue
			}
			if !bytes.HasPrefix(wire, again) {
				t.Fatal("frames differ from what was sent")
			}
			if err == io.EOF && len(again) != len(wire) {
				t.Fatalf("io.EOF after %d of %d bytes, want io.ErrUnexpectedEOF", len(again), len(wire))
			}
			return
		}
	})
}
