package rpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
)

// Once the handshake is over, everything on a connection travels in records:
//
//	length u16  bytes of payload, at most 16 KiB
//	check  u16  of the length
//	sum    u32  CRC32C of all before it on the connection, in this direction, and of the payload
//	payload
//
// TCP's own sum is 16 bits wide and is made anew by every box on the way, so it
// lets some changed bytes through, and raft's requests have no sum at all: one
// bit in a commit index, a term or the key of a lock would be believed. The first
// sum covers the handshake of both sides, so a changed name does not get through
// either. What is found changed ends the connection; what it carried is sent again
// on the next, as after any broken connection.
const (
	recordHeader = 8
	maxRecord    = 16 << 10
	recordsAWay  = 64 // written at once, at most
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealedConn is a connection that carries raw bytes until seal, and records from
// then on. Read and Write are for one goroutine each.
type sealedConn struct {
	net.Conn

	sealed bool

	br   *bufio.Reader
	sumR uint32
	rest []byte // of the present record, in br's buffer
	skip int    // bytes of br that the present record takes

	sumW  uint32
	out   []byte // scratch
	left  []byte // of a record that is only partly written
	ahead int    // bytes of its header in left
	wire  uint64 // bytes that went out, for who waits for progress
}

// seal begins the records. The handshake is over; said is all that both sides
// said in it, the dialler first.
func (c *sealedConn) seal(said ...[]byte) {
	sum := uint32(0)
	for _, b := range said {
		sum = crc32.Update(sum, castagnoli, b)
	}
	c.sealed, c.sumR, c.sumW = true, sum, sum
	c.br = bufio.NewReaderSize(c.Conn, recordHeader+maxRecord)
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
	head, err := c.br.Peek(recordHeader)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(head)
	if n == 0 || n > maxRecord || lengthCheck(n) != binary.BigEndian.Uint16(head[2:]) {
		return fmt.Errorf("%w: length of a record", ErrDamaged)
	}
	want := binary.BigEndian.Uint32(head[4:])
	record, err := c.br.Peek(recordHeader + int(n))
	if err != nil {
		return err
	}
	sum := crc32.Update(c.sumR, castagnoli, record[recordHeader:])
	if sum != want {
		return fmt.Errorf("%w: sum of a record", ErrDamaged)
	}
	c.sumR, c.rest, c.skip = sum, record[recordHeader:], len(record)
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
	var sums [recordsAWay]uint32
	out, sum, count, taken := c.out[:0], c.sumW, 0, 0
	for ; count < recordsAWay && taken < len(p); count++ {
		part := p[taken:min(taken+maxRecord, len(p))]
		taken += len(part)
		sum = crc32.Update(sum, castagnoli, part)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = binary.BigEndian.AppendUint16(out, lengthCheck(uint16(len(part))))
		out = binary.BigEndian.AppendUint32(out, sum)
		out = append(out, part...)
		ends[count], sums[count] = len(out), sum
	}
	c.out = out
	k, err := c.Conn.Write(out)
	c.wire += uint64(k)
	if err == nil {
		c.sumW = sum
		if cap(c.out) > 2*keepBuffer {
			c.out = nil
		}
		return taken, nil
	}
	begin := 0
	for i := range count {
		if k == begin { // nothing of this record is out
			break
		}
		c.sumW = sums[i] // it will be sent to its end
		if k < ends[i] {
			written := k - begin
			c.left, c.ahead = append([]byte{}, out[k:ends[i]]...), max(recordHeader-written, 0)
			return n + max(written-recordHeader, 0), err
		}
		n += ends[i] - begin - recordHeader
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
