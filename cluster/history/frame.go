package history

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
)

const (
	frameHeader = 8
	// kindGap is the kind of an event that stands for missing events. The other
	// kinds are those of fsm.LockEvent.
	kindGap = fsm.LockEventKind(100)
	// maxText is the maximum number of bytes that the store writes of each text
	// of a grant, such as the owner.
	maxText = 1024
	// MaxKey is the length of the longest key that has a history, in bytes.
	MaxKey = 16 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame contains the events of one log entry.
type frame struct {
	index  uint64
	clock  fsm.Clock // clock after the entry
	events []event
}

// event is an event of locks, or a gap.
type event struct {
	fsm.LockEvent
	gap gap // valid for kindGap
}

// gap is a range of log entries whose events the store does not have. The range
// begins at from, and ends at the log index of the frame that contains the gap.
type gap struct {
	from uint64
	wall int64 // wall clock at about the beginning of the range in microseconds, 0 if it is not known
}

// beginFrame appends a frame without events. finishFrame must follow, after the
// events.
func beginFrame(b []byte, index uint64, clock fsm.Clock) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, index)
	return binary.AppendVarint(binary.AppendVarint(b, clock.Lease), clock.Wall)
}

// finishFrame sets the length and the checksum of a frame.
func finishFrame(b []byte) {
	payload := b[frameHeader:]
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(payload, castagnoli))
}

func appendText(b []byte, s string) []byte { return codec.AppendString(b, s[:min(len(s), maxText)]) }

// appendEvent appends an event of locks to a frame.
func appendEvent(b []byte, e *fsm.LockEvent) []byte {
	b = append(b, byte(e.Kind), byte(e.DB))
	switch e.Kind {
	case fsm.LockGranted:
		b = binary.AppendUvarint(b, uint64(e.Token))
		b = appendText(codec.AppendString(b, e.Key), e.Owner)
		b = binary.AppendUvarint(appendText(b, e.Node), e.ID)
		b = appendText(appendText(appendText(b, e.Addr), e.Name), e.Meta)
		mode := uint64(e.Limit) << 1
		if e.Shared {
			mode |= 1
		}
		b = binary.AppendUvarint(b, mode)
		b = binary.AppendVarint(binary.AppendVarint(b, e.Waited), e.Before)
	case fsm.LockEnded:
		b = binary.AppendUvarint(b, uint64(e.Token))
		b = appendText(codec.AppendString(b, e.Key), e.Owner)
		b = binary.AppendUvarint(appendText(b, e.Node), e.ID)
		b = binary.AppendUvarint(appendText(b, e.How), e.Renewals)
	case fsm.LocksSwapped:
		b = append(b, byte(e.With))
	}
	return b
}

// appendGap appends a gap to a frame.
func appendGap(b []byte, g gap) []byte {
	return binary.AppendVarint(binary.AppendUvarint(append(b, byte(kindGap), 0), g.from), g.wall)
}

// decodeFrame decodes a payload whose checksum has been checked. The texts of
// its events share the memory of the payload.
func decodeFrame(payload []byte) (f frame, err error) {
	err = f.decode(payload)
	return f, err
}

// decode is like decodeFrame, but it decodes into f and reuses the memory of
// the events in f.
func (f *frame) decode(payload []byte) error {
	d := codec.Decoder{Rest: payload}
	text := func() string { return codec.View(d.Bytes()) }
	*f = frame{
		index: d.Uvarint(), clock: fsm.Clock{Lease: d.Varint(), Wall: d.Varint()}, events: f.events[:0],
	}
	for len(d.Rest) > 0 {
		var e event
		e.Kind, e.DB = fsm.LockEventKind(d.Byte()), int(d.Byte())
		switch e.Kind {
		case fsm.LockGranted:
			e.Token, e.Key, e.Owner = fsm.Pos(d.Uvarint()), text(), text()
			e.Node, e.ID = text(), d.Uvarint()
			e.Addr, e.Name, e.Meta = text(), text(), text()
			mode := d.Uvarint()
			e.Shared, e.Limit = mode&1 != 0, int(mode>>1)
			e.Waited, e.Before = d.Varint(), d.Varint()
		case fsm.LockEnded:
			e.Token, e.Key, e.Owner = fsm.Pos(d.Uvarint()), text(), text()
			e.Node, e.ID = text(), d.Uvarint()
			e.How, e.Renewals = text(), d.Uvarint()
		case fsm.LocksSwapped:
			e.With = int(d.Byte())
		case fsm.LocksFlushed, fsm.LocksReplaced:
		case kindGap:
			e.gap = gap{from: d.Uvarint(), wall: d.Varint()}
		default:
			return fmt.Errorf("event of kind %d: %w", e.Kind, codec.ErrVersion)
		}
		f.events = append(f.events, e)
	}
	return d.Done("frame")
}

// cutFrame returns the payload of the frame with which b begins, and the length of
// the frame.
func cutFrame(b []byte) (payload []byte, length int, err error) {
	if len(b) < frameHeader {
		return nil, 0, codec.ErrShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || uint64(n) > uint64(len(b)-frameHeader) {
		return nil, 0, codec.ErrShort
	}
	payload = b[frameHeader : frameHeader+int(n)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, 0, codec.ErrChecksum
	}
	return payload, frameHeader + int(n), nil
}
