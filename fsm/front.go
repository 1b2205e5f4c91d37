package fsm

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Front makes Machine.Read execute only the front of a group whose replies are
// large. A client that does not read its replies then makes the node hold only
// few of them. The rest of the operations remains a group of its own: see
// Group.Skip. The caller sets Most, and Read sets the other fields.
type Front struct {
	// Most limits the encoded replies that Read returns, in bytes,
	// approximately. Read stops after the operation that exceeds it, or before
	// the reply of an operation that exceeds it alone.
	Most int
	// Ops is the number of operations that were executed; it is 0 if all were
	// executed and Read returned all replies. Left reports whether operations
	// are left.
	Ops  int
	Left bool
	// Large is the reply of the last executed operation, if that reply alone
	// exceeds Most. Read then returns only the replies before it. The strings
	// of Large are those of the state, which never change, so nothing is
	// copied.
	Large *Reply
}

// Cut reports whether Read returned only a part of the group's replies.
func (p *Front) Cut() bool { return p != nil && p.Ops > 0 }

// Reset clears what Read has set.
func (p *Front) Reset() {
	if p != nil {
		p.Ops, p.Left, p.Large = 0, false, nil
	}
}

// take keeps the reply of operation op in Large if it exceeds Most, and reports
// whether it did.
func (p *Front) take(op int, reply Reply, proto int) (large bool) {
	if reply.within(p.Most) >= 0 {
		return false
	}
	kept := reply
	if reply.encodedSize(proto) > MaxReplyBytes {
		kept = Error(ReplyTooLarge)
	}
	p.Ops, p.Large = op+1, &kept
	return true
}

// Exceeds reports whether the encoding of the reply takes more than about n
// bytes.
func (r *Reply) Exceeds(n int) bool { return r.within(n) < 0 }

// headBytes is about the number of bytes that frame a value on the wire.
const headBytes = 8

// within returns how many of n bytes are left after the reply was encoded, and
// less than 0 if the reply needs more. It is an estimate; it stops counting
// below 0.
func (r *Reply) within(n int) int {
	n -= len(r.s) + headBytes
	for i := range r.elems {
		if n < 0 {
			break
		}
		n = r.elems[i].within(n)
	}
	return n
}

// encodedSize returns the exact number of bytes that Append adds. If that is
// more than MaxReplyBytes, it returns some number above MaxReplyBytes.
func (r *Reply) encodedSize(proto int) int {
	var scratch [128]byte
	switch {
	case r.kind == kindArray || r.kind == kindMap || r.kind == kindSet:
		size := len(AppendHead(scratch[:0], '*', int64(len(r.elems))))
		if proto >= 3 && r.kind == kindMap {
			size = len(AppendHead(scratch[:0], '%', int64(len(r.elems)/2)))
		}
		for i := 0; i < len(r.elems) && size <= MaxReplyBytes; i++ {
			size += r.elems[i].encodedSize(proto)
		}
		return size
	case len(r.s) > 0:
		switch head := len(AppendHead(scratch[:0], '$', int64(len(r.s)))); r.kind {
		case kindBulk:
			return head + len(r.s) + 2
		case kindVerbatim:
			if proto < 3 {
				return head + len(r.s) + 2
			}
			return len(AppendHead(scratch[:0], '=', int64(len(r.s)+4))) + 4 + len(r.s) + 2
		case kindDouble, kindBigNumber:
			if proto < 3 {
				return head + len(r.s) + 2
			}
		case kindRaw:
			return len(r.s)
		}
		return 1 + len(r.s) + 2 // a line
	}
	return len(r.Append(scratch[:0], proto))
}

// replyMemory is about the memory that a Reply takes, in bytes, without its
// string.
const replyMemory = int64(unsafe.Sizeof(Reply{}))

// Held returns about how many bytes of memory the reply keeps alive if the
// state does not refer to its strings any more.
func (r *Reply) Held() int64 {
	n := replyMemory + int64(len(r.s))
	for i := range r.elems {
		n += r.elems[i].Held()
	}
	return n
}

const (
	encodeSlice = 64 << 10 // bytes that Encode collects before it calls write
	encodeAlone = 16 << 10 // Encode passes longer strings to write without a copy
)

// Encode passes the encoding of the reply to write in pieces, and returns the
// first error of write. A piece may be part of the state, so write must neither
// change it nor keep it.
func (r *Reply) Encode(proto int, write func(b []byte) error) error {
	e := encoder{proto: proto, write: write}
	if err := e.reply(r); err != nil {
		return err
	}
	return e.flush()
}

type encoder struct {
	proto int
	write func(b []byte) error
	buf   []byte
}

func (e *encoder) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	err := e.write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *encoder) reply(r *Reply) error {
	switch {
	case len(r.elems) > 0 && r.kind != kindVerbatim:
		head := Reply{kind: r.kind, elems: r.elems}
		e.buf = head.appendHead(e.buf, e.proto)
		for i := range r.elems {
			if err := e.reply(&r.elems[i]); err != nil {
				return err
			}
		}
		return nil
	case r.kind == kindBulk && len(r.s) > encodeAlone:
		e.buf = AppendHead(e.buf, '$', int64(len(r.s)))
		if err := e.flush(); err != nil {
			return err
		}
		// Strings are immutable, and write does not change its argument.
		if err := e.write(unsafe.Slice(unsafe.StringData(r.s), len(r.s))); err != nil {
			return err
		}
		e.buf = append(e.buf, '\r', '\n')
	default:
		e.buf = r.Append(e.buf, e.proto)
	}
	if len(e.buf) > encodeSlice {
		return e.flush()
	}
	return nil
}

// Skip removes the first n operations from the group.
func (g *Group) Skip(n int) error {
	var r groupReader
	if err := r.open(g.buf); err != nil {
		return err
	}
	head := len(g.buf) - len(r.d.b)
	for range n {
		if err := r.skip(); err != nil {
			return fmt.Errorf("skip operations of a group: %w", err)
		}
	}
	g.buf = append(g.buf[:head], r.d.b...)
	g.ops -= n
	return nil
}

// AppendPosition encodes the position at which a node may run a read itself:
// the node must have applied the log index, and must use now as the lease
// clock. The leader sends it to the node.
func AppendPosition(dst []byte, index uint64, now int64) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, index), now)
}

// CutPosition reads the encoding of AppendPosition.
func CutPosition(b []byte) (index uint64, now int64, err error) {
	d := decoder{b: b}
	index, now = d.uvarint(), d.varint()
	return index, now, d.done("read position")
}
