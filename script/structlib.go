package script

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// structLib packs and unpacks binary records, as Roberto Ierusalimschy's struct
// library does on 64-bit Linux.
var structLib = []entry{{"pack", structPack}, {"unpack", structUnpack}, {"size", structSize}}

const (
	maxIntSize = 32
	maxAlign   = 8
	intMax     = 1<<31 - 1
)

// layout parses a format string. It holds the byte order and the alignment that
// the options have set so far.
type layout struct {
	st     *State
	format string
	pos    int
	big    bool
	align  int
}

func newLayout(st *State, format string) *layout {
	return &layout{st: st, format: format, align: 1}
}

func (l *layout) more() bool { return l.pos < len(l.format) }

// number parses the digits of an option.
func (l *layout) number(def int) int {
	start, n := l.pos, 0
	for ; l.pos < len(l.format) && l.format[l.pos] >= '0' && l.format[l.pos] <= '9'; l.pos++ {
		d := int(l.format[l.pos] - '0')
		if n > intMax/10 || n*10 > intMax-d {
			l.st.Errorf("integral size overflow")
		}
		n = n*10 + d
	}
	if l.pos == start {
		return def
	}
	return n
}

// next parses an option. total is the number of bytes of data before the option.
// next returns the option, its size, and the padding that the option needs after
// these bytes.
func (l *layout) next(total int) (opt byte, size, pad int) {
	l.st.Step(1)
	opt = l.format[l.pos]
	l.pos++
	switch opt {
	case 'b', 'B', 'x':
		size = 1
	case 'h', 'H':
		size = 2
	case 'l', 'L', 'T', 'd':
		size = 8
	case 'f':
		size = 4
	case 'c':
		size = l.number(1)
	case 'i', 'I':
		if size = l.number(4); size > maxIntSize {
			l.st.Errorf("integral size %d is larger than limit of %d", size, maxIntSize)
		}
	}
	if size == 0 || opt == 'c' {
		return opt, size, 0
	}
	a := min(size, l.align)
	return opt, size, (a - total&(a-1)) & (a - 1)
}

// control applies an option that does not stand for data.
func (l *layout) control(opt byte) {
	switch opt {
	case ' ':
	case '>':
		l.big = true
	case '<':
		l.big = false
	case '!':
		a := l.number(maxAlign)
		if a <= 0 || a&(a-1) != 0 {
			l.st.Errorf("alignment %d is not a power of 2", a)
		}
		l.align = a
	default:
		l.st.ArgError(1, fmt.Sprintf("invalid format option '%c'", opt))
	}
}

func structPack(st *State, args []Value) []Value {
	l := newLayout(st, st.CheckString(args, 1))
	var out []byte
	args = append(args[:len(args):len(args)], Nil) // missing arguments are nil
	n := 1
	for l.more() {
		opt, size, pad := l.next(len(out))
		out = l.grow(out, pad)
		switch opt {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			n++
			f := st.CheckNumber(args, n)
			out = l.putInteger(l.reserve(out, size), f, size)
		case 'x':
			out = append(l.reserve(out, 1), 0)
		case 'f':
			n++
			out = l.order().AppendUint32(l.reserve(out, 4), math.Float32bits(float32(st.CheckNumber(args, n))))
		case 'd':
			n++
			out = l.order().AppendUint64(l.reserve(out, 8), math.Float64bits(st.CheckNumber(args, n)))
		case 'c', 's':
			n++
			s := st.CheckString(args, n)
			if size == 0 {
				size = len(s)
			}
			if len(s) < size {
				st.ArgError(n+1, "string too short")
			}
			out = append(l.reserve(out, size+1), s[:size]...)
			if opt == 's' {
				out = append(out, 0)
			}
		default:
			l.control(opt)
		}
	}
	return st.Ret(st.NewString(string(out)))
}

type byteOrder interface {
	AppendUint32([]byte, uint32) []byte
	AppendUint64([]byte, uint64) []byte
	Uint32([]byte) uint32
	Uint64([]byte) uint64
}

func (l *layout) order() byteOrder {
	if l.big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// reserve charges for n more bytes.
func (l *layout) reserve(out []byte, n int) []byte {
	l.st.Alloc(2 * n)
	l.st.Step(n >> 8)
	return out
}

func (l *layout) grow(out []byte, n int) []byte {
	return append(l.reserve(out, n), make([]byte, n)...)
}

// putInteger appends an integer of up to 32 bytes. Only the 8 low bytes can differ
// from zero, as in the C library.
func (l *layout) putInteger(out []byte, f float64, size int) []byte {
	var v uint64
	if f < 0 {
		v = uint64(numeral.ToInt64(f))
	} else {
		v = ToUint64(f)
	}
	start := len(out)
	for range size {
		out = append(out, byte(v))
		v >>= 8
	}
	if l.big {
		for i, j := start, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// integer decodes an integer that putInteger has encoded. Lower-case options
// are signed.
func (l *layout) integer(b string, opt byte) Value {
	var v uint64
	for i := range len(b) { // range over b would decode runes instead of bytes
		c := b[i]
		if !l.big {
			c = b[len(b)-1-i]
		}
		v = v<<8 | uint64(c)
	}
	if opt < 'a' { // unsigned
		return Number(float64(v))
	}
	if len(b) < 8 {
		shift := 64 - 8*len(b)
		return Number(float64(int64(v<<shift) >> shift))
	}
	return Number(float64(int64(v)))
}

func structUnpack(st *State, args []Value) []Value {
	l := newLayout(st, st.CheckString(args, 1))
	data := st.CheckString(args, 2)
	pos := st.OptInt(args, 3, 1)
	if pos == 0 {
		st.ArgError(3, "offset must be 1 or greater")
	}
	if pos--; pos < 0 || pos > len(data) {
		pos = len(data) + 1 // C converts pos to a large number, which is beyond the end of the data
	}
	var out []Value
	need := func(size int) {
		if size > len(data) || pos > len(data)-size {
			st.ArgError(2, "data string too short")
		}
	}
	for l.more() {
		opt, size, pad := l.next(pos)
		pos += pad
		need(size)
		st.Alloc(48)
		switch opt {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			out = append(out, l.integer(data[pos:pos+size], opt))
		case 'x':
		case 'f':
			out = append(out, Number(float64(math.Float32frombits(l.order().Uint32([]byte(data[pos:pos+4]))))))
		case 'd':
			out = append(out, Number(math.Float64frombits(l.order().Uint64([]byte(data[pos:pos+8])))))
		case 'c':
			if size == 0 {
				size, out = l.previousSize(out)
				need(size)
			}
			out = append(out, st.NewString(data[pos:pos+size]))
		case 's':
			end := strings.IndexByte(data[pos:], 0)
			if end < 0 {
				st.Errorf("unfinished string in data")
			}
			out = append(out, st.NewString(data[pos:pos+end]))
			size = end + 1
		default:
			l.control(opt)
		}
		pos += size
	}
	return append(out, Int(pos+1))
}

// previousSize implements the option c0, whose size is the previous value. It
// removes that value from out and returns it.
func (l *layout) previousSize(out []Value) (int, []Value) {
	if n := len(out); n > 0 {
		if f, ok := toNumber(out[n-1]); ok {
			size := int(numeral.ToInt64(f))
			if size < 0 {
				size = intMax
			}
			return size, out[:n-1]
		}
	}
	l.st.Errorf("format 'c0' needs a previous size")
	return 0, out
}

func structSize(st *State, args []Value) []Value {
	l := newLayout(st, st.CheckString(args, 1))
	total := 0
	for l.more() {
		opt, size, pad := l.next(total)
		total += pad
		switch {
		case opt == 's':
			st.ArgError(1, "option 's' has no fixed size")
		case opt == 'c' && size == 0:
			st.ArgError(1, "option 'c0' has no fixed size")
		case !numeral.IsAlnum(opt): // as in Redis, an unknown letter is not an error here: its size is 0
			l.control(opt)
		}
		total += size
	}
	return st.Ret(Int(total))
}
