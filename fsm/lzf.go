package fsm

// LZF, the compression of Marc Lehmann's liblzf. A compressed text is a row of
// tokens: 000nnnnn stands before n+1 bytes to be taken as they are; nnnooooo
// oooooooo repeats n+2 bytes from o+1 bytes back, and where n is 7 a byte with
// what is to be added to it stands in the middle.

const (
	lzfLiteral   = 32      // bytes that a token can announce
	lzfDistance  = 1 << 13 // how far back a repetition may lie
	lzfRepeat    = 264     // bytes that it can have
	lzfHashBits  = 16
	lzfUnchecked = 16 // see lzf.match
	// lzfRatio bounds what a byte can become: a token of three of 264.
	lzfRatio = lzfRepeat / 3
)

// lzf compresses, to the byte as that library does in its usual build: which of
// several repetitions is taken depends on where its hash table says that three
// bytes were seen last. The table is used for many texts, whose places are
// counted on, so that it need not be cleared.
type lzf struct {
	seen *[1 << lzfHashBits]uint32
	base uint32 // places of this text begin here
	out  []byte
}

// compress returns a text in compressed form, valid until the next call; it is
// not ok unless it is shorter by more than four bytes.
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
	stop := func() { // ends the literals
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
		z.swap(in, i-2) // of what lies within a repetition, only its end is noted
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

// swap notes that the three bytes at i were seen there, and returns where
// bytes of the same hash were seen before, 0 or less for nowhere.
func (z *lzf) swap(in string, i int) int {
	h := uint32(in[i])<<16 | uint32(in[i+1])<<8 | uint32(in[i+2])
	p := &z.seen[(h>>(24-lzfHashBits)-h*5)&(1<<lzfHashBits-1)]
	old := *p
	*p = z.base + uint32(i)
	return int(int64(old) - int64(z.base))
}

// match returns how many bytes at i repeat those at ref, three at least. The
// library looks at the limit only after its first sixteen comparisons, which
// shows at the end of a text.
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

// lzfExpand returns the text of size bytes that in is the compressed form of.
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
		for ; n > 0; n-- { // byte by byte: it may repeat itself
			out = append(out, out[from])
			from++
		}
	}
	return out, len(out) == size
}
