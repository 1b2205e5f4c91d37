package fsm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// SnapshotVersion is the version of the snapshot format that this program
// writes.
const SnapshotVersion = 1

const (
	snapshotMagic = "HFSNAP"
	// snapshotBlock is the payload size, in bytes, at which a block is closed.
	// It is closed only between records, so a block can exceed snapshotBlock by
	// one element. maxSnapshotBlock is the largest block that a reader accepts.
	// An element of a hash consists of two strings.
	snapshotBlock    = 256 << 10
	maxSnapshotBlock = snapshotBlock + 2*MaxStringBytes + 1<<20
)

// These are the records in a block.
const (
	recordHead    = 'H' // fields of the machine, once, first
	recordSession = 'S'
	recordReplies = 'R' // more replies of the session before
	recordObject  = 'O'
	recordElems   = 'C' // elements of the collection before, repeated until complete
	recordGroup   = 'g' // a group of the stream before, after its elements
	recordReader  = 'c' // a consumer of the group before
	recordPending = 'p' // a pending entry of that group, after its consumers
	recordScript  = 'L'
	recordLibrary = 'F' // library of functions
	recordSetting = 'G' // the setting notify-keyspace-events
	recordValue   = 'v' // another setting of the cluster, kept as text
	recordWaiter  = 'W' // after the sessions
	recordServed  = 'w' // reply of the waiter before, repeated until complete
	recordUsers   = 'U' // ACL users
	// recordFeatures is the feature version of the cluster, once, from
	// FeatureMend on.
	recordFeatures = 'V'
	// recordClientIDs is the highest reserved client number, once.
	recordClientIDs = 'I'
	recordRemoved   = 'D' // versions of absent keys, once, if any
	// recordExchanged contains the positions at which databases were last
	// exchanged, once, if any.
	recordExchanged = 'X'
	recordEnd       = 'E' // counts, once, last
)

// WriteSnapshot writes the whole state. The machine must not change during the
// call, so the caller uses a Clone. The layout is a magic string, the version,
// and then blocks of (length, crc32c, records). The last block ends with the
// counts.
//
// A clone has no sessions of its own. The caller must take sessions at the same
// time as the clone.
func (m *Machine) WriteSnapshot(w io.Writer, sessions Sessions) error {
	bw := bufio.NewWriterSize(w, 64<<10)
	sw := &snapshotWriter{w: bw}
	if _, err := bw.WriteString(snapshotMagic + string(rune(SnapshotVersion))); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	b := append(sw.b, recordHead)
	b = binary.AppendUvarint(b, m.applied)
	b = binary.AppendUvarint(b, m.term)
	b = appendString(b, m.clusterID)
	b = binary.AppendVarint(b, m.clock.Lease)
	b = binary.AppendVarint(b, m.clock.Wall)
	b = binary.LittleEndian.AppendUint64(b, m.chain)
	st := &m.stats
	for _, n := range []uint64{
		st.Entries, st.Groups, st.Ops, st.Expired, st.Backwards, st.Fenced, st.Gaps, st.Duplicates,
	} {
		b = binary.AppendUvarint(b, n)
	}
	sw.b = m.appendSettings(m.appendFeatures(b))
	for _, s := range sessions.list {
		b := append(sw.b, recordSession)
		b = appendString(b, s.node)
		b = binary.AppendUvarint(b, s.boot)
		b = binary.AppendUvarint(b, s.floor)
		sw.b = b
		for first := true; first || len(s.replies) > 0; first = false {
			if !first {
				sw.b = append(sw.b, recordReplies)
			}
			n, size := 0, 0
			for n < len(s.replies) && size < snapshotBlock {
				size += len(s.replies[n].bytes) + 2
				n++
			}
			sw.b = appendReplies(sw.b, s.replies[:n])
			s.replies = s.replies[n:]
			sw.cut()
		}
	}
	sw.appendUsers(m.users)
	sw.b = m.appendClientIDs(m.exchanged.append(m.removed.append(sw.b)))
	sw.cut()
	objects := uint64(0) // keys, scripts, libraries and waiters
	m.scripts.bodies.Scan(func(_ string, e cachedScript) bool {
		sw.b = appendScript(sw.b, e)
		objects++
		sw.cut()
		return sw.err == nil
	})
	m.libraries.names.Scan(func(_ string, lib *library) bool {
		sw.b = appendLibrary(sw.b, lib)
		objects++
		sw.cut()
		return sw.err == nil
	})
	objects += sw.waiters(&m.waits)
	for i := range m.dbs {
		m.dbs[i].tree.Scan(func(s slot) bool {
			sw.b = appendObject(sw.b, i, s.obj)
			objects++
			sw.cut()
			if s.obj.coll != nil {
				sw.elements(s.obj)
				sw.groups(s.obj.coll)
			}
			return sw.err == nil
		})
	}
	b = append(sw.b, recordEnd)
	b = binary.AppendUvarint(b, uint64(len(sessions.list)))
	sw.b = binary.AppendUvarint(b, objects)
	sw.flush()
	if sw.err == nil {
		sw.err = bw.Flush()
	}
	if sw.err != nil {
		return fmt.Errorf("write snapshot: %w", sw.err)
	}
	return nil
}

func appendReplies(b []byte, replies []keptReply) []byte {
	b = binary.AppendUvarint(b, uint64(len(replies)))
	for _, r := range replies {
		b = append(b, byte(r.status))
		b = appendString(b, r.bytes)
	}
	return b
}

// Sessions is a copy of the session table.
type Sessions struct{ list []namedSession }

type namedSession struct {
	node string
	session
}

// Sessions returns a copy of the session table, sorted by node.
func (m *Machine) Sessions() Sessions {
	var list []namedSession
	for node, s := range m.sessions {
		n := namedSession{node, *s}
		n.replies = slices.Clone(s.replies)
		list = append(list, n)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].node < list[j].node })
	return Sessions{list}
}

type snapshotWriter struct {
	w   io.Writer
	b   []byte
	err error
}

// cut closes the block if it is large enough.
func (w *snapshotWriter) cut() {
	if len(w.b) >= snapshotBlock {
		w.flush()
	}
}

func (w *snapshotWriter) flush() {
	if w.err != nil || len(w.b) == 0 {
		return
	}
	if len(w.b) > maxSnapshotBlock { // fail rather than write a snapshot that no node can read
		w.err = fmt.Errorf("block of %d bytes: %w", len(w.b), ErrFormat)
		return
	}
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(w.b)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(w.b, castagnoli))
	if _, w.err = w.w.Write(head[:]); w.err == nil {
		_, w.err = w.w.Write(w.b)
	}
	w.b = w.b[:0]
}

// These are the flags of an object.
const (
	flagRaw = 1 // strings: see object.raw
	flagBig = 2 // collections: see collection.big
	// flagGroups: a stream with groups. Programs that do not know groups refuse
	// it.
	flagGroups = 4
)

// appendObject writes an object: a string with its value, or a collection with
// the number of its elements, which follow.
func appendObject(b []byte, db int, o *object) []byte {
	b = append(b, recordObject, byte(db), byte(o.typ))
	var flags byte
	if o.raw {
		flags |= flagRaw
	}
	if o.coll != nil && o.coll.big {
		flags |= flagBig
	}
	if o.coll != nil && o.coll.stream.Groups.Len() > 0 {
		flags |= flagGroups
	}
	b = append(b, flags)
	b = appendString(b, o.key)
	b = binary.AppendUvarint(b, uint64(o.token))
	b = binary.AppendUvarint(b, uint64(o.version))
	b = binary.AppendVarint(b, o.touched)
	b = binary.AppendVarint(b, o.deadline)
	b = binary.AppendVarint(b, o.expireAt)
	if o.coll != nil {
		b = binary.AppendUvarint(b, uint64(o.coll.Len(o.typ)))
		if o.typ == typeStream {
			b = appendStreamInfo(b, &o.coll.stream.Info)
		}
		if flags&flagGroups != 0 {
			b = binary.AppendUvarint(b, uint64(o.coll.stream.Groups.Len()))
		}
		return b
	}
	return appendString(b, o.str)
}

// elements writes the elements of a collection in records of about
// snapshotBlock bytes. No record exceeds that by more than one element.
func (w *snapshotWriter) elements(o *object) {
	var b []byte
	n := 0
	emit := func() {
		if len(w.b)+len(b) > snapshotBlock {
			w.flush()
		}
		w.b = binary.AppendUvarint(append(w.b, recordElems), uint64(n))
		w.b = append(w.b, b...)
		w.cut()
		b, n = b[:0], 0
	}
	added := func() bool {
		if n++; len(b) >= snapshotBlock {
			emit()
		}
		return w.err == nil
	}
	switch v := o.coll; o.typ {
	case typeHash:
		v.hash.Ascend(0, func(e *container.Item[string]) bool {
			b = appendString(appendString(b, e.Name), e.Value)
			return added()
		})
	case typeList:
		v.list.Ascend(0, func(s *string) bool {
			b = appendString(b, *s)
			return added()
		})
	case typeSet:
		v.set.Ascend(0, func(e *container.Item[struct{}]) bool {
			b = appendString(b, e.Name)
			return added()
		})
	case typeStream:
		v.stream.Entries.Ascend(0, func(e *stream.Entry) bool {
			b = appendEntry(b, e)
			return added()
		})
	case typeZSet:
		v.order.Ascend(0, func(m *container.Scored) bool {
			b = appendString(binary.LittleEndian.AppendUint64(b, math.Float64bits(m.Score)), m.Member)
			return added()
		})
	}
	if n > 0 {
		emit()
	}
}

// element reads one element into the collection of o.
func (d *decoder) element(o *object, owner *container.Owner) error {
	v, size := o.coll, o.coll.Len(o.typ)
	switch o.typ {
	case typeHash:
		field := string(d.bytes())
		v.putField(owner, field, string(d.bytes()))
	case typeList:
		v.list.Insert(owner, size, string(d.bytes()))
	case typeSet:
		v.putMember(owner, string(d.bytes()))
	case typeStream:
		if err := d.entry(v, owner); err != nil {
			return fmt.Errorf("entry of key %q: %w", o.key, err)
		}
	case typeZSet:
		if len(d.b) < 8 {
			d.fail()
			break
		}
		score := math.Float64frombits(binary.LittleEndian.Uint64(d.b))
		d.b = d.b[8:]
		if math.IsNaN(score) {
			return fmt.Errorf("score of key %q: %w", o.key, ErrFormat)
		}
		v.putScore(owner, string(d.bytes()), score)
	}
	if d.err == nil && o.coll.Len(o.typ) == size {
		return fmt.Errorf("duplicate element of key %q: %w", o.key, ErrFormat)
	}
	return d.err
}

// object reads an object and the numbers of elements and of groups that follow
// it.
func (d *decoder) object(check *snapshotCheck) (db int, o *object, elements, groups uint64, err error) {
	o = check.object()
	db = int(d.byte())
	o.typ = typ(d.byte())
	flags := d.byte()
	o.raw = flags&flagRaw != 0
	o.key = check.text(d.bytes())
	o.token = Pos(d.uvarint())
	o.version = Pos(d.uvarint())
	o.touched = d.varint()
	o.deadline = d.varint()
	o.expireAt = d.varint()
	allowed := byte(flagRaw)
	switch o.typ {
	case typeString:
	case typeStream:
		allowed = flagBig | flagGroups
	default:
		allowed = flagBig
	}
	if d.err == nil && (db >= Databases || o.typ > typeStream || flags&^allowed != 0) {
		return 0, nil, 0, 0, fmt.Errorf("object in db %d of type %d, flags %#x: %w", db, o.typ, flags, ErrVersion)
	}
	o.hash = container.Hash([]byte(o.key))
	if o.typ == typeString {
		o.str = check.text(d.bytes())
		return db, o, 0, 0, d.err
	}
	if elements = d.uvarint(); d.err == nil && (elements == 0 && o.typ != typeStream || elements > MaxElements) {
		return 0, nil, 0, 0, fmt.Errorf("key %q with %d elements: %w", o.key, elements, ErrFormat)
	}
	o.coll = newCollection(o.typ)
	if flags&flagBig != 0 {
		o.coll.grow(nil, o.typ)
	}
	if o.typ == typeStream {
		o.coll.stream.Info = d.streamInfo()
	}
	if flags&flagGroups != 0 {
		if groups = d.uvarint(); d.err == nil && (groups == 0 || groups > MaxElements) {
			return 0, nil, 0, 0, fmt.Errorf("key %q with %d groups: %w", o.key, groups, ErrFormat)
		}
	}
	return db, o, elements, groups, d.err
}

// ReadSnapshot builds a machine from the bytes that WriteSnapshot wrote. It
// returns an error and no machine unless all bytes are valid and it has used
// all of them.
func ReadSnapshot(r io.Reader, table *Table) (*Machine, error) {
	load := snapshotLoader{m: New(table)}
	if err := load.read(bufio.NewReaderSize(r, 64<<10)); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return load.m, nil
}

// read reads a whole snapshot.
func (l *snapshotLoader) read(r *bufio.Reader) error {
	head := make([]byte, len(snapshotMagic)+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("starts with %q: %w", head, ErrFormat)
	}
	if v := head[len(snapshotMagic)]; v != SnapshotVersion {
		return fmt.Errorf("snapshot version %d: %w", v, ErrVersion)
	}
	for !l.ended {
		block, err := readBlock(r, l.check)
		if err != nil {
			return err
		}
		if err := l.block(block); err != nil {
			return err
		}
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return fmt.Errorf("bytes after the end: %w", ErrFormat)
	}
	return nil
}

func readBlock(r *bufio.Reader, check *snapshotCheck) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("block head: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxSnapshotBlock {
		return nil, fmt.Errorf("block of %d bytes: %w", n, ErrFormat)
	}
	block := check.buffer(int(n))
	if _, err := io.ReadFull(r, block); err != nil {
		return nil, fmt.Errorf("block: %w", err)
	}
	if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, fmt.Errorf("block: %w", ErrChecksum)
	}
	return block, nil
}

type snapshotLoader struct {
	m        *Machine
	check    *snapshotCheck // nil if the machine keeps the keys
	begun    bool
	ended    bool
	last     *session // last session that was read
	sessions uint64
	objects  uint64

	open    *object // last object, if it is a collection
	missing uint64  // number of its elements that are still to come
	big     bool    // encoding that its record announced

	groups  uint64 // groups of a stream that are still to come
	readers uint64 // consumers of the last group that are still to come
	pending uint64 // pending entries of the last group that are still to come

	waiter *waiter // last waiter, if it was served
	owed   uint64  // bytes of its reply that are still to come
}

// elements reads some of the elements of the open collection.
func (l *snapshotLoader) elements(d *decoder) error {
	n := d.uvarint()
	if d.err != nil {
		return fmt.Errorf("elements: %w", d.err)
	}
	if n == 0 || n > l.missing {
		return fmt.Errorf("%d elements of key %q: %w", n, l.open.key, ErrFormat)
	}
	l.missing -= n
	for ; n > 0; n-- {
		if err := d.element(l.open, l.m.owner); err != nil {
			return err
		}
	}
	if l.missing == 0 && l.open.coll.big != l.big {
		return fmt.Errorf("encoding of key %q: %w", l.open.key, ErrFormat)
	}
	return nil
}

// owes reports whether record violates the order: another record must come
// first, or no earlier record has announced this one.
func (l *snapshotLoader) owes(record byte) bool {
	for _, next := range []struct {
		record byte
		left   uint64
	}{
		{recordElems, l.missing}, {recordReader, l.readers}, {recordPending, l.pending},
		{recordGroup, l.groups}, {recordServed, l.owed},
	} {
		switch {
		case next.left > 0:
			return record != next.record
		case record == next.record:
			return true
		}
	}
	return false
}

func (l *snapshotLoader) block(b []byte) error {
	d := &decoder{b: b}
	for len(d.b) > 0 {
		record := d.byte()
		if l.begun != (record != recordHead) || l.ended || l.owes(record) {
			return fmt.Errorf("record %q out of order: %w", record, ErrFormat)
		}
		switch record {
		case recordHead:
			l.head(d)
		case recordSession:
			l.session(d)
		case recordReplies:
			l.replies(d)
		case recordSetting:
			l.m.setting(d)
		case recordValue:
			l.m.settingValue(d)
		case recordWaiter:
			if err := l.waits(d); err != nil {
				return err
			}
			l.objects++
		case recordServed:
			part := d.bytes()
			if len(part) == 0 || uint64(len(part)) > l.owed {
				return fmt.Errorf("reply of a waiter: %w", ErrFormat)
			}
			l.waiter.reply = append(l.waiter.reply, part...)
			l.owed -= uint64(len(part))
		case recordObject:
			db, o, elements, groups, err := d.object(l.check)
			if err != nil {
				return err
			}
			l.groups = groups
			l.open, l.missing, l.big = o, elements, o.coll != nil && o.coll.big
			if err := l.keep(db, o); err != nil {
				return err
			}
			l.objects++
		case recordScript:
			if err := l.script(d); err != nil {
				return err
			}
		case recordLibrary:
			if err := l.library(d); err != nil {
				return err
			}
		case recordUsers:
			if err := l.users(d); err != nil {
				return err
			}
		case recordFeatures:
			if err := l.features(d); err != nil {
				return err
			}
		case recordClientIDs:
			if err := l.clientIDs(d); err != nil {
				return err
			}
		case recordRemoved:
			if err := l.removed(d); err != nil {
				return err
			}
		case recordExchanged:
			if err := l.exchanges(d); err != nil {
				return err
			}
		case recordElems:
			if err := l.elements(d); err != nil {
				return err
			}
		case recordGroup:
			if err := l.group(d); err != nil {
				return err
			}
		case recordReader:
			if err := l.reader(d); err != nil {
				return err
			}
		case recordPending:
			if err := l.pendings(d); err != nil {
				return err
			}
		case recordEnd:
			l.ended = true
			if s, o := d.uvarint(), d.uvarint(); d.err == nil && (s != l.sessions || o != l.objects) {
				return fmt.Errorf("%d sessions and %d objects, expected %d and %d: %w",
					l.sessions, l.objects, s, o, ErrFormat)
			}
		default:
			return fmt.Errorf("record %q: %w", record, ErrVersion)
		}
		if d.err != nil {
			return fmt.Errorf("record %q: %w", record, d.err)
		}
	}
	return nil
}

// keep adds a key to the machine. If the snapshot is only checked, it counts
// the key instead.
func (l *snapshotLoader) keep(db int, o *object) error {
	if l.check != nil {
		return l.check.key(db, o)
	}
	if l.m.dbs[db].tree.Set(o) != nil {
		return fmt.Errorf("duplicate key %q: %w", o.key, ErrFormat)
	}
	if o.deadline != 0 {
		l.m.expiry.add(db, o)
	}
	return nil
}

func (l *snapshotLoader) head(d *decoder) {
	m := l.m
	l.begun = true
	m.applied = d.uvarint()
	m.term = d.uvarint()
	m.clusterID = string(d.bytes())
	m.clock.Lease = d.varint()
	m.clock.Wall = d.varint()
	if len(d.b) < 8 {
		d.fail()
		return
	}
	m.chain = binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	st := &m.stats
	for _, n := range []*uint64{
		&st.Entries, &st.Groups, &st.Ops, &st.Expired, &st.Backwards, &st.Fenced, &st.Gaps, &st.Duplicates,
	} {
		*n = d.uvarint()
	}
}

func (l *snapshotLoader) session(d *decoder) {
	node := string(d.bytes())
	l.last = &session{boot: d.uvarint(), floor: d.uvarint()}
	l.m.sessions[node] = l.last
	l.sessions++
	l.replies(d)
}

// replies adds replies to the session that was read last.
func (l *snapshotLoader) replies(d *decoder) {
	s := l.last
	if s == nil {
		d.fail()
		return
	}
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		r := keptReply{Status(d.byte()), slices.Clone(d.bytes())}
		s.replies = append(s.replies, r)
		s.bytes += len(r.bytes)
	}
	s.lastSeq = s.floor + uint64(len(s.replies))
}
