package rpc

import (
	"bufio"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
)

// Once the handshake is over, everything on a connection travels in records:
//
//	length u16       bytes of payload, at most 16 KiB
//	check  u16       of the length
//	sum    u32       without a secret: CRC32C of all before it on the connection, in this direction, and of the payload
//	tag    16 bytes  with a secret, in place of sum: GMAC of the payload
//	payload
//
// TCP's own sum is 16 bits wide and is made anew by every box on the way, so it
// lets some changed bytes through, and raft's requests have no sum at all: one
// bit in a commit index, a term or the key of a lock would be believed. The first
// sum covers the handshake of both sides, so a changed name does not get through
// either. What is found changed ends the connection; what it carried is sent again
// on the next, as after any broken connection.
//
// The tag is that of AES-256-GCM with nothing to encrypt, the payload as
// additional data and the number of the record as nonce. Each direction of each
// connection has a key of its own, derived from the secret and from all that was
// said in the handshake, so that a record fits in no other place than its own.
const (
	recordHeader = 4 + 4  // without a secret
	keyedHeader  = 4 + 16 // with one
	maxRecord    = 16 << 10
	recordsAWay  = 64 // written at once, at most
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealedConn is a connection that carries raw bytes until seal, and records from
// then on. Read and Write are for one goroutine each.
type sealedConn struct {
	net.Conn

	sealed bool

	header int // bytes before the payload of a record

	br     *bufio.Reader
	guardR guard
	rest   []byte // of the present record, in br's buffer
	skip   int    // bytes of br that the present record takes

	guardW guard
	out    []byte // scratch
	left   []byte // of a record that is only partly written
	ahead  int    // bytes of its header in left
	wire   uint64 // bytes that went out, for who waits for progress
}

// guard is what one direction of a connection is checked with.
type guard struct {
	sum uint32 // CRC32C of all so far, without a secret

	mac   cipher.AEAD // nil without a secret
	count uint64      // records so far
	nonce [12]byte    // scratch: count, as the AEAD wants it
}

// append appends what stands before the payload of the next record.
func (g *guard) append(dst, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	dst = binary.BigEndian.AppendUint16(dst, lengthCheck(uint16(len(payload))))
	if g.mac == nil {
		g.sum = crc32.Update(g.sum, castagnoli, payload)
		return binary.BigEndian.AppendUint32(dst, g.sum)
	}
	return g.mac.Seal(dst, g.next(), nil, payload)
}

// check reports whether the next record is whole. check is its sum or tag.
func (g *guard) check(check, payload []byte) bool {
	if g.mac == nil {
		g.sum = crc32.Update(g.sum, castagnoli, payload)
		return g.sum == binary.BigEndian.Uint32(check)
	}
	_, err := g.mac.Open(nil, g.next(), check, payload)
	return err == nil
}

// next returns the nonce of the next record.
func (g *guard) next() []byte {
	binary.BigEndian.PutUint64(g.nonce[4:], g.count)
	g.count++
	return g.nonce[:]
}

// mark is a place in a guard's sequence of records.
type mark struct {
	sum   uint32
	count uint64
}

func (g *guard) mark() mark   { return mark{g.sum, g.count} }
func (g *guard) reset(m mark) { g.sum, g.count = m.sum, m.count }

// seal begins the records of a connection without a secret. The handshake is over; said is all that both sides
// said in it, the dialler first.
func (c *sealedConn) seal(said ...[]byte) {
	sum := uint32(0)
	for _, b := range said {
		sum = crc32.Update(sum, castagnoli, b)
	}
	c.begin(recordHeader, guard{sum: sum}, guard{sum: sum})
}

// sealKeyed begins the records of a connection with a secret. Its keys have
// been derived from all that was said.
func (c *sealedConn) sealKeyed(write, read cipher.AEAD) {
	c.begin(keyedHeader, guard{mac: write}, guard{mac: read})
}

func (c *sealedConn) begin(header int, write, read guard) {
	c.sealed, c.header, c.guardW, c.guardR = true, header, write, read
	c.br = bufio.NewReaderSize(c.Conn, header+maxRecord)
}

// lengthCheck tells a changed length before it makes the reader wait for bytes
// that nobody has sent.
func lengthCheck(n uint16) uint16 { return n*40503 ^ 0x4846 }

// Read implements net.Conn. After ErrDamaged no call makes sense.
func (c *sealedConn) Read(p []byte) (int, error) {
	if !c.sealed {
		return c.Conn.Read(p)
	}
	if len(c.rest) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads a record. What was read of one before an error, such as a deadline,
// stays buffered.
func (c *sealedConn) next() error {
	if _, err := c.br.Discard(c.skip); err != nil {
		return fmt.Errorf("skip record: %w", err) // cannot be: the bytes are buffered
	}
	c.skip = 0
	head, err := c.br.Peek(c.header)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(head)
	if n == 0 || n > maxRecord || lengthCheck(n) != binary.BigEndian.Uint16(head[2:]) {
		return fmt.Errorf("%w: length of a record", ErrDamaged)
	}
	record, err := c.br.Peek(c.header + int(n))
	if err != nil {
		return err
	}
	if !c.guardR.check(record[4:c.header], record[c.header:]) {
		return fmt.Errorf("%w: sum of a record", ErrDamaged)
	}
	c.rest, c.skip = record[c.header:], len(record)
	return nil
}

// Write implements net.Conn. After a deadline the record that is under way goes
// out as it was begun, so the next Write must go on with the bytes that this one
// has not counted.
func (c *sealedConn) Write(p []byte) (n int, err error) {
	if !c.sealed {
		return c.Conn.Write(p)
	}
	if len(c.left) > 0 {
		if n, err = c.goOn(); err != nil {
			return n, err
		}
		if n > len(p) {
			return len(p), errResume
		}
	}
	for n < len(p) {
		k, err := c.writeRecords(p[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// errResume cannot be seen by callers that keep to Write's rule.
var errResume = errors.New("rpc: write does not go on where the last one stopped")

// goOn writes what is left of a record.
func (c *sealedConn) goOn() (n int, err error) {
	k, err := c.Conn.Write(c.left)
	c.wire += uint64(k)
	head := min(k, c.ahead)
	c.left, c.ahead = c.left[k:], c.ahead-head
	return k - head, err
}

func (c *sealedConn) writeRecords(p []byte) (n int, err error) {
	var ends [recordsAWay]int // in out
	var marks [recordsAWay]mark
	begun := c.guardW.mark()
	out, count, taken := c.out[:0], 0, 0
	for ; count < recordsAWay && taken < len(p); count++ {
		part := p[taken:min(taken+maxRecord, len(p))]
		taken += len(part)
		out = c.guardW.append(out, part)
		out = append(out, part...)
		ends[count], marks[count] = len(out), c.guardW.mark()
	}
	c.out = out
	k, err := c.Conn.Write(out)
	c.wire += uint64(k)
	if err == nil {
		if cap(c.out) > 2*keepBuffer {
			c.out = nil
		}
		return taken, nil
	}
	// A record of which no byte is out is made anew. Its tag was seen by nobody, so
	// that no nonce is used twice.
	c.guardW.reset(begun)
	begin := 0
	for i := range count {
		if k == begin { // nothing of this record is out
			break
		}
		c.guardW.reset(marks[i]) // it will be sent to its end
		if k < ends[i] {
			written := k - begin
			c.left, c.ahead = append([]byte{}, out[k:ends[i]]...), max(c.header-written, 0)
			return n + max(written-c.header, 0), err
		}
		n += ends[i] - begin - c.header
		begin = ends[i]
	}
	return n, err
}

// CloseWrite tells the other side that nothing more comes, where the connection
// below can.
func (c *sealedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
