package rdb

// This file implements LZF, the compression of Marc Lehmann's liblzf. A
// compressed text is a sequence of tokens:
//
//	000nnnnn                    n+1 literal bytes follow
//	nnnooooo oooooooo           repeat n+2 bytes that begin o+1 bytes back
//	111ooooo nnnnnnnn oooooooo  repeat n+9 bytes that begin o+1 bytes back

const (
	lzfLiteral   = 32      // maximum number of literal bytes in a token
	lzfDistance  = 1 << 13 // maximum distance of a repetition
	lzfRepeat    = 264     // maximum number of bytes in a repetition
	lzfHashBits  = 16
	lzfUnchecked = 16 // see match
	// lzfRatio is the largest expansion of a byte: a token of three bytes can
	// stand for lzfRepeat bytes.
	lzfRatio = lzfRepeat / 3
)

// lzf compresses texts to exactly the same bytes as the liblzf in Redis. Its
// hash table therefore works like that of liblzf: if the next three bytes have
// occurred several times, lzf repeats from the position that the table recorded
// last.
//
// An lzf compresses many texts with one table. The positions of each text begin
// after those of the previous text, so that the table need not be cleared.
type lzf struct {
	seen *[1 << lzfHashBits]uint32
	base uint32 // the position at which the current text begins
	out  []byte
}

// compress returns the compressed form of a text, which is valid until the next
// call. If ok is true, the compressed form is at least four bytes shorter than
// the text. As in liblzf, ok may be false although the compressed form would be
// just short enough.
func (z *lzf) compress(in string) (out []byte, ok bool) {
	if len(in) <= 4 {
		return nil, false
	}
	if z.seen == nil || z.base > 1<<31 {
		z.seen, z.base = new([1 << lzfHashBits]uint32), 0
	}
	limit := len(in) - 4
	z.out = append(z.out[:0], 0) // the token of the first literals
	literals := 0
	stop := func() { // completes the token of the literals
		if head := len(z.out) - literals - 1; literals > 0 {
			z.out[head] = byte(literals - 1)
		} else {
			z.out = z.out[:head]
		}
		literals = 0
	}
	literal := func(b byte) {
		z.out = append(z.out, b)
		if literals++; literals == lzfLiteral {
			stop()
			z.out = append(z.out, 0)
		}
	}
	i, end := 0, len(in)
	for i < end-2 {
		ref := z.swap(in, i)
		distance := i - ref - 1
		if ref <= 0 || distance >= lzfDistance || in[ref:ref+3] != in[i:i+3] {
			if len(z.out) >= limit {
				z.base += uint32(end)
				return nil, false
			}
			literal(in[i])
			i++
			continue
		}
		used := len(z.out)
		if literals == 0 {
			used--
		}
		if used+4 >= limit {
			z.base += uint32(end)
			return nil, false
		}
		stop()
		n := match(in, ref, i)
		if long := n - 2; long < 7 {
			z.out = append(z.out, byte(long<<5|distance>>8))
		} else {
			z.out = append(z.out, byte(7<<5|distance>>8), byte(long-7))
		}
		z.out = append(z.out, byte(distance), 0)
		if i += n; i >= end-2 {
			break
		}
		z.swap(in, i-2) // liblzf records only the last two positions within a repetition
		z.swap(in, i-1)
	}
	z.base += uint32(end)
	if len(z.out)+3 > limit {
		return nil, false
	}
	for ; i < end; i++ {
		literal(in[i])
	}
	stop()
	return z.out, true
}

// swap records that the three bytes at i were seen there. It returns the
// position at which bytes with the same hash were seen before. The caller must
// ignore a result of 0 or less: the bytes were then seen at position 0, in an
// earlier text, or never.
func (z *lzf) swap(in string, i int) int {
	h := uint32(in[i])<<16 | uint32(in[i+1])<<8 | uint32(in[i+2])
	p := &z.seen[(h>>(24-lzfHashBits)-h*5)&(1<<lzfHashBits-1)]
	old := *p
	*p = z.base + uint32(i)
	return int(int64(old) - int64(z.base))
}

// match returns the number of bytes at i that repeat the bytes at ref. The
// result is at least three. liblzf checks the limit only after its first
// sixteen comparisons, so match may exceed the limit in the same way near the
// end of a text.
func match(in string, ref, i int) int {
	most := min(len(in)-i-2, lzfRepeat)
	n := 2
	if most > lzfUnchecked {
		for range lzfUnchecked {
			if n++; in[ref+n] != in[i+n] {
				return n
			}
		}
	}
	for n++; n < most && in[ref+n] == in[i+n]; n++ {
	}
	return n
}

// lzfExpand decompresses LZF data and returns the text. ok is false if the data
// is not valid, or if the text does not have exactly size bytes.
func lzfExpand(in []byte, size int) (out []byte, ok bool) {
	if size/lzfRatio > len(in) {
		return nil, false
	}
	out = make([]byte, 0, size)
	for len(in) > 0 {
		token := int(in[0])
		in = in[1:]
		n := token + 1
		if token < lzfLiteral {
			if n > len(in) || n > size-len(out) {
				return nil, false
			}
			out, in = append(out, in[:n]...), in[n:]
			continue
		}
		n = token>>5 + 2
		if token>>5 == 7 && len(in) > 0 {
			n += int(in[0])
			in = in[1:]
		}
		if len(in) == 0 {
			return nil, false
		}
		from := len(out) - (token&31<<8 | int(in[0])) - 1
		in = in[1:]
		if from < 0 || n > size-len(out) {
			return nil, false
		}
		for ; n > 0; n-- { // byte by byte, because a repetition may overlap with its own output
			out = append(out, out[from])
			from++
		}
	}
	return out, len(out) == size
}
