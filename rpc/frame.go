package rpc

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	frameHeader = 5 // u32 length, u8 type
	// readBuffer is the size of a stream's read buffer in bytes. Frames that
	// fit into it are returned without a copy.
	readBuffer = 64 << 10
	// keepBuffer is the largest buffer, in bytes, that is kept after use.
	// Otherwise each stream would keep the largest buffer that it ever needed.
	keepBuffer = 1 << 20
)

// appendFrameHeader appends the header of a frame whose payload has size bytes.
func appendFrameHeader(dst []byte, typ byte, size int) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(size)), typ)
}

// frameReader reads frames from a connection. Only one goroutine may use it.
type frameReader struct {
	br        *bufio.Reader
	limit     int    // maximum payload in bytes
	toDiscard int    // bytes of br that the last frame occupies; the next call discards them
	big       []byte // buffer for the payloads of frames that do not fit into br
}

func newFrameReader(r io.Reader, limit int) *frameReader {
	return &frameReader{br: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// next returns the next frame. The payload is valid until the following call.
// io.EOF means that the connection ended between two frames.
// io.ErrUnexpectedEOF means that it ended inside a frame. next must not be
// called after an error.
func (f *frameReader) next() (typ byte, payload []byte, err error) {
	if f.toDiscard > 0 {
		if _, err := f.br.Discard(f.toDiscard); err != nil {
			return 0, nil, fmt.Errorf("skip frame: %w", err) // does not happen: the bytes are buffered
		}
		f.toDiscard = 0
	}
	if cap(f.big) > keepBuffer {
		f.big = nil
	}
	head, err := f.br.Peek(frameHeader)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			return 0, nil, fmt.Errorf("%w after %d of %d bytes of a frame header", io.ErrUnexpectedEOF,
				len(head), frameHeader)
		}
		return 0, nil, err
	}
	claimed := binary.BigEndian.Uint32(head)
	typ = head[4]
	if uint64(claimed) > uint64(f.limit) {
		return 0, nil, &FrameSizeError{Size: int64(claimed), Limit: int64(f.limit)}
	}
	size := int(claimed)
	if frameHeader+size <= f.br.Size() {
		frame, err := f.br.Peek(frameHeader + size)
		if err != nil {
			return 0, nil, cutShort(err, len(frame)-frameHeader, size)
		}
		f.toDiscard = len(frame)
		return typ, frame[frameHeader:len(frame):len(frame)], nil
	}
	if _, err := f.br.Discard(frameHeader); err != nil {
		return 0, nil, fmt.Errorf("skip frame header: %w", err)
	}
	if payload, err = f.readBig(size); err != nil {
		return 0, nil, err
	}
	return typ, payload, nil
}

// readBig reads the payload of a frame that does not fit into the read buffer.
// The buffer grows as bytes arrive. It is not allocated with the size that the
// header claims, because a header alone must not allocate MaxFrame bytes.
func (f *frameReader) readBig(size int) ([]byte, error) {
	buf := f.big[:0]
	for len(buf) < size {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(size, max(2*len(buf), readBuffer)))
			copy(grown, buf)
			buf = grown
		}
		have := len(buf)
		n, err := io.ReadFull(f.br, buf[have:min(cap(buf), size)])
		buf = buf[:have+n]
		if err != nil {
			return nil, cutShort(err, len(buf), size)
		}
	}
	f.big = buf
	return buf, nil
}

// cutShort converts the end of the connection into the error for a truncated
// frame. It returns other errors unchanged.
func cutShort(err error, have, size int) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w after %d of %d bytes of a frame", io.ErrUnexpectedEOF, have, size)
	}
	return err
}
