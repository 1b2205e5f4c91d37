package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// EntryVersion is the version of the entry format that this program writes.
const EntryVersion = 1

// mendVersion is the entry version of a TermStart whose feature version is at
// least FeatureMend. The format is the same as that of EntryVersion. Programs
// from before FeatureMend treat every feature version in a TermStart as
// FeatureAbsent. They do not know mendVersion, so they refuse the entry
// instead.
const mendVersion = 2

// These are the kinds of entries.
const (
	entryBatch     = 1
	entryTermStart = 2
)

// These are the kinds of operations in a group.
const (
	opCommand     = 0
	opTransaction = 1
	// opEffects is an operation that the leader has executed or refused: an
	// encoded reply, and the commands that every node executes, such as the write
	// commands that a script called. Only Speculation and Machine.Divide create
	// it.
	opEffects = 2
)

// These limits are part of the meaning of an entry. All nodes must use the same
// limits, so they are constants and not options.
const (
	// MaxStringBytes bounds one string value. APPEND and SETRANGE fail if the
	// result would be longer, as they do in Redis if it would exceed
	// proto-max-bulk-len.
	MaxStringBytes = 8 << 20
	// MaxReplyBytes bounds the replies of one group, except for a write that
	// exceeds it: see ReplyTooLarge.
	MaxReplyBytes = 48 << 20
	// MaxOps bounds the operations of one entry. The number of an operation
	// must fit into the low bits of a position (see Pos). If a script calls more
	// than MaxOps commands, the operations after it share the last position. A
	// waiter needs a position of its own, but such a script ends its entry (see
	// Speculation.Run), so at most one waiter has the last position.
	MaxOps = 1 << 20
)

// entryHeaderSize is the size of the header of an entry:
//
//	0  'H' 'F' version kind | 4  crc32c of everything from 8 on
//	8  term | 16 stamp | 24 wall | 32 seed | 40 hash index | 48 hash
//	56 number of sessions | 60 number of groups
const entryHeaderSize = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the header of an entry. In a TermStart, the leader sets only Term
// and Wall.
type Header struct {
	Term  uint64 // term of the leadership that built the entry: see the term fence
	Stamp int64  // lease clock, nanoseconds since the cluster was formed
	Wall  int64  // leader's wall clock, microseconds since 1970
	Seed  uint64 // for RANDOMKEY and other random choices
	// Hash is the value of the leader's hash chain at the log index HashIndex.
	// A node whose own chain has another value at this index has diverged and
	// must stop.
	HashIndex uint64
	Hash      uint64
}

// TermStart is the first entry of a leadership.
type TermStart struct {
	NodeID    string
	Instance  string
	Boot      uint64
	ClusterID string // becomes the cluster's id if the machine has none yet
	// Features is the feature version of the cluster: see feature.go. The
	// machine uses it in the first term of a cluster, and while the feature
	// version of the machine is below FeatureMend.
	Features int
}

// SessionID identifies a session: one start of one node's process.
type SessionID struct {
	NodeID string
	Boot   uint64
}

func (id SessionID) String() string { return fmt.Sprintf("%s/%d", id.NodeID, id.Boot) }

// AppendTermStart encodes a TermStart entry. It stores the feature version in
// the field for the number of groups. The oldest programs do not read this
// field in a TermStart.
func AppendTermStart(dst []byte, h Header, t TermStart) []byte {
	base := len(dst)
	dst = appendHeader(dst, entryTermStart, h, 0, t.Features)
	if t.Features >= FeatureMend {
		dst[base+2] = mendVersion
	}
	dst = codec.AppendString(dst, t.NodeID)
	dst = codec.AppendString(dst, t.Instance)
	dst = binary.AppendUvarint(dst, t.Boot)
	dst = codec.AppendString(dst, t.ClusterID)
	return seal(dst, base)
}

func appendHeader(dst []byte, kind byte, h Header, sessions, groups int) []byte {
	dst = append(dst, 'H', 'F', EntryVersion, kind, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, h.Term)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Stamp))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Wall))
	dst = binary.LittleEndian.AppendUint64(dst, h.Seed)
	dst = binary.LittleEndian.AppendUint64(dst, h.HashIndex)
	dst = binary.LittleEndian.AppendUint64(dst, h.Hash)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(sessions))
	return binary.LittleEndian.AppendUint32(dst, uint32(groups))
}

func seal(dst []byte, base int) []byte {
	binary.LittleEndian.PutUint32(dst[base+4:], crc32.Checksum(dst[base+8:], castagnoli))
	return dst
}

// BatchBuilder collects groups for one batch entry. The zero value is empty and
// ready to use. It is not safe for concurrent use.
type BatchBuilder struct {
	sessions []batchSession
	index    map[SessionID]int
	groups   []byte
	n        int
	scripts  bool
	work     int  // work of the groups, in steps, as far as their arguments determine it
	depends  bool // the work of the groups also depends on the values of their keys
}

type batchSession struct {
	id       SessionID
	ackFloor uint64
}

// Len returns the number of groups and the bytes that they take.
func (b *BatchBuilder) Len() (groups, bytes int) { return b.n, len(b.groups) }

// Add appends a group. The node of the session has received all replies up to
// the group number ackFloor, so the machine need not keep them.
func (b *BatchBuilder) Add(id SessionID, ackFloor, seq uint64, body []byte) {
	i := b.session(id, ackFloor)
	b.groups = binary.AppendUvarint(b.groups, uint64(i))
	b.groups = binary.AppendUvarint(b.groups, seq)
	b.groups = binary.AppendUvarint(b.groups, uint64(len(body)))
	b.groups = append(b.groups, body...)
	b.n++
	b.scripts = b.scripts || len(body) > 0 && body[0]&groupScript != 0
}

// session returns the index of a session in the batch. It adds the session if
// necessary.
func (b *BatchBuilder) session(id SessionID, ackFloor uint64) int {
	i, ok := b.index[id]
	if !ok {
		if b.index == nil {
			b.index = make(map[SessionID]int)
		}
		i = len(b.sessions)
		b.index[id] = i
		b.sessions = append(b.sessions, batchSession{id: id})
	}
	b.sessions[i].ackFloor = max(b.sessions[i].ackFloor, ackFloor)
	return i
}

// Scripts reports whether one of the groups needs a Speculation.
func (b *BatchBuilder) Scripts() bool { return b.scripts }

// Encode returns the entry in a newly allocated slice. Raft keeps the slice
// indefinitely, so it must not be reused.
func (b *BatchBuilder) Encode(h Header) []byte {
	size := entryHeaderSize + len(b.groups)
	for i := range b.sessions {
		size += len(b.sessions[i].id.NodeID) + 3*binary.MaxVarintLen64
	}
	dst := appendHeader(make([]byte, 0, size), entryBatch, h, len(b.sessions), b.n)
	for i := range b.sessions {
		s := &b.sessions[i]
		dst = codec.AppendString(dst, s.id.NodeID)
		dst = binary.AppendUvarint(dst, s.id.Boot)
		dst = binary.AppendUvarint(dst, s.ackFloor)
	}
	dst = append(dst, b.groups...)
	return seal(dst, 0)
}

// Reset empties the builder. It keeps the buffer of the groups unless the
// buffer is larger than keep bytes.
func (b *BatchBuilder) Reset(keep int) {
	b.sessions = b.sessions[:0]
	clear(b.index)
	if cap(b.groups) > keep {
		b.groups = nil
	}
	b.groups = b.groups[:0]
	b.n, b.scripts, b.work, b.depends = 0, false, 0, false
}

// entry is a decoded header; rest contains the bytes after the header.
type entry struct {
	kind     byte
	header   Header
	sessions int
	groups   int
	rest     []byte
}

func decodeEntry(data []byte) (entry, error) {
	var e entry
	if len(data) < entryHeaderSize {
		return e, fmt.Errorf("entry of %d bytes: %w", len(data), ErrShort)
	}
	if data[0] != 'H' || data[1] != 'F' {
		return e, fmt.Errorf("entry starts with %#x: %w", data[:2], ErrFormat)
	}
	if data[2] != EntryVersion && (data[2] != mendVersion || data[3] != entryTermStart) {
		return e, fmt.Errorf("entry version %d: %w", data[2], ErrVersion)
	}
	if crc := crc32.Checksum(data[8:], castagnoli); crc != binary.LittleEndian.Uint32(data[4:]) {
		return e, fmt.Errorf("entry: %w", ErrChecksum)
	}
	e.kind = data[3]
	e.header = Header{
		Term:      binary.LittleEndian.Uint64(data[8:]),
		Stamp:     int64(binary.LittleEndian.Uint64(data[16:])),
		Wall:      int64(binary.LittleEndian.Uint64(data[24:])),
		Seed:      binary.LittleEndian.Uint64(data[32:]),
		HashIndex: binary.LittleEndian.Uint64(data[40:]),
		Hash:      binary.LittleEndian.Uint64(data[48:]),
	}
	e.sessions = int(binary.LittleEndian.Uint32(data[56:]))
	e.groups = int(binary.LittleEndian.Uint32(data[60:]))
	e.rest = data[entryHeaderSize:]
	// A session or a group takes at least two bytes. A count that needs more
	// bytes than there are is invalid, and must not determine the size of an
	// allocation. A TermStart has no sessions and no groups. It has its feature
	// version in the field for the number of groups.
	if e.kind == entryBatch && max(e.sessions, e.groups) > len(e.rest)/2 {
		return e, fmt.Errorf("entry counts %d sessions, %d groups in %d bytes: %w",
			e.sessions, e.groups, len(e.rest), ErrFormat)
	}
	if e.kind != entryBatch && e.kind != entryTermStart {
		return e, fmt.Errorf("entry kind %d: %w", e.kind, ErrFormat)
	}
	return e, nil
}

func decodeTermStart(e entry) (TermStart, error) {
	t := TermStart{Features: e.groups}
	d := codec.Decoder{Rest: e.rest}
	t.NodeID = string(d.Bytes())
	t.Instance = string(d.Bytes())
	t.Boot = d.Uvarint()
	t.ClusterID = string(d.Bytes())
	return t, d.Done("term start")
}

// Record is a decoded entry of the log. It is for code that inspects an entry
// without executing it, such as the replay of package verify/replay.
type Record struct {
	Header    Header
	TermStart *TermStart // nil for a batch
	// Sessions are the sessions that the entry names, in its order. A session
	// without groups in the entry is included, because it replaces an earlier
	// session of its node.
	Sessions []SessionID
	Groups   []RecordGroup
}

// RecordGroup is one group of a batch.
type RecordGroup struct {
	Session SessionID
	Seq     uint64
	Ops     []RecordOp
}

// RecordOp is one operation of a group: a single command, a transaction, or an
// operation that the leader has executed or refused. Effects is set for the
// latter. Commands then contains the commands that every node executes, if any.
type RecordOp struct {
	Transaction, Effects bool
	Watches              []Watch
	Commands             []RecordCommand
	Reply                string // encoded reply; only if Effects is set
}

// RecordCommand is a command as it is in the log.
type RecordCommand struct {
	DB   int
	Args []string // the first is the name in lower case
}

// ReadRecord decodes an entry. It returns the same errors as Machine.Apply for
// bytes that are not an entry.
func ReadRecord(data []byte) (Record, error) {
	e, err := decodeEntry(data)
	if err != nil {
		return Record{}, err
	}
	rec := Record{Header: e.header}
	if e.kind == entryTermStart {
		t, err := decodeTermStart(e)
		rec.TermStart = &t
		return rec, err
	}
	d := codec.Decoder{Rest: e.rest}
	sessions := make([]SessionID, e.sessions)
	for i := range sessions {
		sessions[i] = SessionID{NodeID: string(d.Bytes()), Boot: d.Uvarint()}
		d.Uvarint() // ackFloor: see BatchBuilder.Add
	}
	rec.Sessions = sessions
	for range e.groups {
		si, seq, body := d.Uvarint(), d.Uvarint(), d.Bytes()
		if d.Err != nil || si >= uint64(len(sessions)) {
			return rec, fmt.Errorf("groups: %w", ErrFormat)
		}
		ops, err := readOps(body)
		if err != nil {
			return rec, fmt.Errorf("group %d of %s: %w", seq, sessions[si], err)
		}
		rec.Groups = append(rec.Groups, RecordGroup{sessions[si], seq, ops})
	}
	return rec, d.Done("groups")
}

func readOps(body []byte) ([]RecordOp, error) {
	if len(body) == 0 {
		return nil, nil // a group without operations
	}
	var r groupReader
	if err := r.open(body); err != nil {
		return nil, err
	}
	var ops []RecordOp
	for len(r.d.Rest) > 0 {
		var op RecordOp
		n := uint64(1)
		switch kind := r.d.Byte(); kind {
		case opCommand:
		case opTransaction:
			op.Transaction = true
			for w := r.d.Uvarint(); w > 0 && r.d.Err == nil; w-- {
				op.Watches = append(op.Watches, Watch{int(r.d.Uvarint()), string(r.d.Bytes()), r.d.Uvarint()})
			}
			n = r.d.Uvarint()
		case opEffects:
			op.Effects, op.Reply = true, string(r.d.Bytes())
			r.d.Uvarint() // last position
			r.d.Uvarint() // last draw
			n = r.d.Uvarint()
		default:
			return ops, fmt.Errorf("operation kind %d: %w", kind, ErrVersion)
		}
		for ; n > 0 && r.d.Err == nil; n-- {
			if op.Effects {
				r.d.Uvarint() // position
				r.d.Uvarint() // draw
			}
			db, args, err := r.command()
			if err != nil {
				return ops, err
			}
			c := RecordCommand{DB: db}
			for _, arg := range args {
				c.Args = append(c.Args, string(arg))
			}
			op.Commands = append(op.Commands, c)
		}
		if r.d.Err != nil {
			return ops, r.d.Err
		}
		ops = append(ops, op)
	}
	return ops, r.d.Err
}
