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

// After the handshake, everything on a connection is sent in records:
//
//	length u16       bytes of payload, at most 16 KiB
//	check  u16       check value of the length
//	sum    u32       without a secret: CRC32C of the handshake of both sides, and of all payloads in this
//	                 direction up to and including the payload of this record
//	tag    16 bytes  with a secret, instead of sum: GMAC of the payload
//	payload
//
// TCP's own checksum has 16 bits, and middleboxes may compute it again, so it
// misses some changed bytes. Raft's requests have no checksum: a changed bit in
// a commit index, a term or the key of a lock would be accepted. The first sum
// covers the handshake of both sides, so a changed name is detected too. A
// detected change ends the connection. The data is sent again on the next
// connection, as after any broken connection.
//
// The tag is that of AES-256-GCM with an empty plaintext, the payload as
// additional data, and the number of the record as nonce. Each direction of
// each connection has its own key, derived from the secret and from all
// messages of the handshake. So a record is valid only at its own position in
// its own connection.
const (
	recordHeader       = 4 + 4  // without a secret
	keyedHeader        = 4 + 16 // with a secret
	maxRecord          = 16 << 10
	maxRecordsPerWrite = 64 // maximum number of records in one write
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealedConn is a connection that carries raw bytes until seal or sealKeyed is
// called, and records afterward. At any time, only one goroutine may call Read,
// and only one may call Write.
type sealedConn struct {
	net.Conn

	sealed bool

	header int // bytes before the payload of a record

	br        *bufio.Reader
	readCheck recordCheck
	rest      []byte // unread payload of the current record, in br's buffer
	skip      int    // bytes of br that the current record occupies

	writeCheck recordCheck
	out        []byte // scratch
	left       []byte // unwritten rest of a partly written record
	headerLeft int    // bytes of that record's header in the field left
	wire       uint64 // bytes written to the network, to detect progress
}

// recordCheck is the checksum or authentication state of one direction of a
// connection.
type recordCheck struct {
	sum uint32 // without a secret: CRC32C of the handshake and of all payloads so far

	mac   cipher.AEAD // nil without a secret
	count uint64      // number of records so far
	nonce [12]byte    // scratch: count in the AEAD's format
}

// append appends the header of the next record.
func (r *recordCheck) append(dst, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	dst = binary.BigEndian.AppendUint16(dst, lengthCheck(uint16(len(payload))))
	if r.mac == nil {
		r.sum = crc32.Update(r.sum, castagnoli, payload)
		return binary.BigEndian.AppendUint32(dst, r.sum)
	}
	return r.mac.Seal(dst, r.next(), nil, payload)
}

// verify reports whether the next record is intact. check is its sum or tag.
func (r *recordCheck) verify(check, payload []byte) bool {
	if r.mac == nil {
		r.sum = crc32.Update(r.sum, castagnoli, payload)
		return r.sum == binary.BigEndian.Uint32(check)
	}
	_, err := r.mac.Open(nil, r.next(), check, payload)
	return err == nil
}

// next returns the nonce of the next record.
func (r *recordCheck) next() []byte {
	binary.BigEndian.PutUint64(r.nonce[4:], r.count)
	r.count++
	return r.nonce[:]
}

// mark is a position in the sequence of records of a recordCheck.
type mark struct {
	sum   uint32
	count uint64
}

func (r *recordCheck) mark() mark   { return mark{r.sum, r.count} }
func (r *recordCheck) reset(m mark) { r.sum, r.count = m.sum, m.count }

// seal makes a connection without a secret use records from now on. transcript
// is everything that both sides have sent in the handshake, in the order in which
// it was sent.
func (c *sealedConn) seal(transcript ...[]byte) {
	sum := uint32(0)
	for _, b := range transcript {
		sum = crc32.Update(sum, castagnoli, b)
	}
	c.begin(recordHeader, recordCheck{sum: sum}, recordCheck{sum: sum})
}

// sealKeyed makes a connection with a secret use records from now on. The keys
// were derived from all messages of the handshake.
func (c *sealedConn) sealKeyed(write, read cipher.AEAD) {
	c.begin(keyedHeader, recordCheck{mac: write}, recordCheck{mac: read})
}

func (c *sealedConn) begin(header int, write, read recordCheck) {
	c.sealed, c.header, c.writeCheck, c.readCheck = true, header, write, read
	c.br = bufio.NewReaderSize(c.Conn, header+maxRecord)
}

// lengthCheck returns the check value of a length. It detects a changed length
// before the reader waits for bytes that the other side has not sent.
func lengthCheck(n uint16) uint16 { return n*40503 ^ 0x4846 }

// Read implements net.Conn. It must not be called after ErrDamaged.
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

// next reads a record. After an error such as a deadline, the bytes of an
// incomplete record stay buffered.
func (c *sealedConn) next() error {
	if _, err := c.br.Discard(c.skip); err != nil {
		return fmt.Errorf("skip record: %w", err) // does not happen: the bytes are buffered
	}
	c.skip = 0
	head, err := c.br.Peek(c.header)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(head)
	if n == 0 || n > maxRecord || lengthCheck(n) != binary.BigEndian.Uint16(head[2:]) {
		return fmt.Errorf("%w: a record has an invalid length", ErrDamaged)
	}
	record, err := c.br.Peek(c.header + int(n))
	if err != nil {
		return err
	}
	if !c.readCheck.verify(record[4:c.header], record[c.header:]) {
		return fmt.Errorf("%w: a record does not match its checksum or tag", ErrDamaged)
	}
	c.rest, c.skip = record[c.header:], len(record)
	return nil
}

// Write implements net.Conn. If a Write fails at a deadline, the caller's next
// Write must begin with the first byte that the failed Write did not count.
// This is because Write sends the rest of a partly written record unchanged.
func (c *sealedConn) Write(p []byte) (n int, err error) {
	if !c.sealed {
		return c.Conn.Write(p)
	}
	if len(c.left) > 0 {
		if n, err = c.resume(); err != nil {
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

// errResume means that the caller has broken the rule of Write.
var errResume = errors.New("rpc: Write must begin with the bytes that the previous Write could not write")

// resume writes the rest of a partly written record.
func (c *sealedConn) resume() (n int, err error) {
	k, err := c.Conn.Write(c.left)
	c.wire += uint64(k)
	head := min(k, c.headerLeft)
	c.left, c.headerLeft = c.left[k:], c.headerLeft-head
	return k - head, err
}

func (c *sealedConn) writeRecords(p []byte) (n int, err error) {
	var ends [maxRecordsPerWrite]int // offsets in out
	var marks [maxRecordsPerWrite]mark
	begun := c.writeCheck.mark()
	out, count, taken := c.out[:0], 0, 0
	for ; count < maxRecordsPerWrite && taken < len(p); count++ {
		part := p[taken:min(taken+maxRecord, len(p))]
		taken += len(part)
		out = c.writeCheck.append(out, part)
		out = append(out, part...)
		ends[count], marks[count] = len(out), c.writeCheck.mark()
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
	// A record of which no byte has been written is built again. No other host
	// has seen its tag, so its nonce may be used again.
	c.writeCheck.reset(begun)
	begin := 0
	for i := range count {
		if k == begin { // no byte of this record has been written
			break
		}
		c.writeCheck.reset(marks[i]) // a record that was begun is completed
		if k < ends[i] {
			written := k - begin
			c.left, c.headerLeft = append([]byte{}, out[k:ends[i]]...), max(c.header-written, 0)
			return n + max(written-c.header, 0), err
		}
		n += ends[i] - begin - c.header
		begin = ends[i]
	}
	return n, err
}

// CloseWrite signals to the other side that no more bytes follow, if the
// underlying connection supports that.
func (c *sealedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
