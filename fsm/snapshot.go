package fsm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/library"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// SnapshotVersion is the version of the snapshot format that this program
// writes.
const SnapshotVersion = 1

const (
	snapshotMagic = "HFSNAP"
	// snapshotBlock is the payload size, in bytes, at which a block is closed.
	// A block is closed only between records, so it can be larger.
	// maxSnapshotBlock is the largest block that a reader accepts. It leaves
	// room for an element of a hash, which consists of two strings.
	snapshotBlock    = 256 << 10
	maxSnapshotBlock = snapshotBlock + 2*MaxStringBytes + 1<<20
)

// These are the records in a block.
const (
	recordHead    = 'H' // fields of the machine; the first record of a snapshot
	recordSession = 'S'
	recordReplies = 'R' // further replies of the session in the previous record
	recordObject  = 'O'
	recordElems   = 'C' // elements of the previous collection, repeated until complete
	recordGroup   = 'g' // a group of the previous stream, after the elements of the stream
	recordReader  = 'c' // a consumer of the previous group
	recordPending = 'p' // a pending entry of that group, after its consumers
	recordScript  = 'L'
	recordLibrary = 'F' // library of functions
	recordSetting = 'G' // the setting notify-keyspace-events
	recordValue   = 'v' // another setting of the cluster, kept as text
	recordWaiter  = 'W' // after the sessions
	recordServed  = 'w' // a part of the reply of the previous waiter, repeated until complete
	recordUsers   = 'U' // ACL users
	// recordDeferred precedes the deferred keys, once, from FeatureDeferred on.
	recordDeferred    = 'B'
	recordDeferredKey = 'b' // a deferred key
	// recordRevoked precedes the users whose waits have to end, once, from
	// FeatureDeferred on.
	recordRevoked     = 'N'
	recordRevokedUser = 'n' // such a user
	recordResumed     = 'M' // a session whose waiters later entries will check
	// recordFeatures is the feature version of the cluster, once, from
	// FeatureMend on.
	recordFeatures = 'V'
	// recordClientIDs is the highest reserved client number, once.
	recordClientIDs = 'I'
	// recordRemoved contains the versions of absent keys. A snapshot has at most one
	// such record.
	recordRemoved = 'D'
	// recordExchanged contains the positions at which databases were last
	// exchanged: see exchanges. A snapshot has at most one such record.
	recordExchanged = 'X'
	recordOperating = 'T' // tokens and quarantine, once, from FeatureOperate on
	recordStaging   = 'Q' // a restore in progress, once, if any
	recordStaged    = 'q' // a part of that restore, repeated until complete
	recordLock      = 'K' // a grant that LOCK ACQUIRE made; these records precede the keys
	recordDelay     = 'Y' // a delay of a lock; these records follow the grants
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
	b = codec.AppendString(b, m.clusterID)
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
		b = codec.AppendString(b, s.node)
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
	sw.operating(m)
	sw.locks(&m.locks)
	sw.cut()
	objects := uint64(0) // keys, scripts, libraries and waiters
	m.scripts.bodies.Scan(func(_ string, e cachedScript) bool {
		sw.b = appendScript(sw.b, e)
		objects++
		sw.cut()
		return sw.err == nil
	})
	m.libraries.Scan(func(lib *library.Library) bool {
		sw.b = library.Append(append(sw.b, recordLibrary), lib)
		objects++
		sw.cut()
		return sw.err == nil
	})
	objects += sw.waiters(&m.waits)
	sw.deferred(&m.waits.deferred)
	sw.revoked(&m.waits.revoked)
	sw.resumed(m.waits.resumed)
	for i := range m.dbs {
		m.dbs[i].Scan(func(o *keyspace.Object) bool {
			sw.b = keyspace.AppendObject(append(sw.b, recordObject), i, o)
			objects++
			sw.cut()
			if o.Coll != nil {
				sw.elements(o)
				sw.groups(o.Coll)
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
		b = codec.AppendString(b, r.bytes)
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
		w.err = fmt.Errorf("block of %d bytes is too large: %w", len(w.b), ErrFormat)
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
	rebase   *rebase        // nil unless the snapshot replaces the data of a running cluster
	begun    bool
	ended    bool
	last     *session // last session that was read
	sessions uint64
	objects  uint64
	volatile keyspace.DueList
	grants   uint64 // grants of locks whose keys are still to come

	due, until int64            // Due and Deadline of the last object, if it is a lock
	open       *keyspace.Object // last object
	openIn     int              // database of the last object
	missing    uint64           // number of elements of the last object that are still to come
	big        bool             // the record of the last object announced the encoding of large collections

	groups  uint64 // groups of a stream that are still to come
	readers uint64 // consumers of the last group that are still to come
	pending uint64 // pending entries of the last group that are still to come

	waiter *waiter // last waiter, if it was served
	owed   uint64  // bytes of the reply of that waiter that are still to come
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
	d := &codec.Decoder{Rest: b}
	for len(d.Rest) > 0 {
		record := d.Byte()
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
		case recordDeferred, recordDeferredKey, recordRevoked, recordRevokedUser, recordResumed:
			if err := l.deferred(record, d); err != nil {
				return err
			}
		case recordServed:
			if err := l.served(d); err != nil {
				return err
			}
		case recordObject:
			if err := l.object(d); err != nil {
				return err
			}
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
		case recordOperating, recordStaging, recordStaged:
			if err := l.operations(record, d); err != nil {
				return err
			}
		case recordLock:
			if err := l.lock(d); err != nil {
				return err
			}
		case recordDelay:
			if err := l.delay(d); err != nil {
				return err
			}
		case recordElems, recordGroup, recordReader, recordPending:
			if err := l.part(record, d); err != nil {
				return err
			}
		case recordEnd:
			if err := l.end(d); err != nil {
				return err
			}
		default:
			return fmt.Errorf("record %q: %w", record, ErrVersion)
		}
		if d.Err != nil {
			return fmt.Errorf("record %q: %w", record, d.Err)
		}
	}
	return nil
}

// end reads the last record.
func (l *snapshotLoader) end(d *codec.Decoder) error {
	l.ended = true
	l.m.expiry.Load(&l.volatile)
	if l.grants > 0 {
		return fmt.Errorf("%d grants of locks without a key: %w", l.grants, ErrFormat)
	}
	if s, o := d.Uvarint(), d.Uvarint(); d.Err == nil && (s != l.sessions || o != l.objects) {
		return fmt.Errorf("%d sessions and %d objects, expected %d and %d: %w",
			l.sessions, l.objects, s, o, ErrFormat)
	}
	return nil
}

// served reads a part of the reply of the last waiter.
func (l *snapshotLoader) served(d *codec.Decoder) error {
	part := d.Bytes()
	if len(part) == 0 || uint64(len(part)) > l.owed {
		return fmt.Errorf("reply of a waiter: %w", ErrFormat)
	}
	l.waiter.reply = append(l.waiter.reply, part...)
	l.owed -= uint64(len(part))
	return nil
}

// object reads a key, and the value if it is a string.
func (l *snapshotLoader) object(d *codec.Decoder) error {
	o := l.check.object()
	db, elements, groups, err := keyspace.ReadObject(d, o, l.check != nil)
	if err != nil {
		return err
	}
	l.groups = groups
	if o.Type == keyspace.TypeLock {
		if l.due, l.until = o.Due(), o.Deadline; l.m.features < FeatureShared {
			return fmt.Errorf("key %q has type lock, unknown to feature version %d: %w", o.Key, l.m.features, ErrFormat)
		}
	}
	if o.Mark != keyspace.NoLock && l.m.features < FeatureHistory {
		return fmt.Errorf("key %q has a lock mark, unknown to feature version %d: %w", o.Key, l.m.features, ErrFormat)
	}
	l.open, l.openIn, l.missing, l.big = o, db, elements, o.Coll != nil && o.Coll.Big
	l.objects++
	l.granted(db, o)
	return l.keep(db, o)
}

// part reads a part of the value of the last key, which is a collection.
func (l *snapshotLoader) part(record byte, d *codec.Decoder) error {
	before := l.open.Bytes()
	var err error
	switch record {
	case recordElems:
		err = l.elements(d)
	case recordGroup:
		err = l.group(d)
	case recordReader:
		err = l.reader(d)
	case recordPending:
		err = l.pendings(d)
	}
	if l.check == nil {
		l.m.dbs[l.openIn].Grown(l.open.Bytes() - before)
	}
	return err
}

// keep adds a key to the machine. If the snapshot is only checked, it counts
// the key instead.
func (l *snapshotLoader) keep(db int, o *keyspace.Object) error {
	if l.check != nil {
		return l.check.key(db, o)
	}
	l.rebase.object(o, l.m.clock)
	if l.m.dbs[db].Set(o) != nil {
		return fmt.Errorf("duplicate key %q: %w", o.Key, ErrFormat)
	}
	if o.Deadline != 0 {
		l.volatile.Add(db, o)
	}
	if unindexed(o) {
		l.m.locks.unindexed[db]++
	}
	return nil
}

func (l *snapshotLoader) head(d *codec.Decoder) {
	m := l.m
	l.begun = true
	m.applied = d.Uvarint()
	m.term = d.Uvarint()
	m.clusterID = string(d.Bytes())
	m.clock.Lease = d.Varint()
	m.clock.Wall = d.Varint()
	l.rebase.begin(m.clock)
	if len(d.Rest) < 8 {
		d.Fail()
		return
	}
	m.chain = binary.LittleEndian.Uint64(d.Rest)
	d.Rest = d.Rest[8:]
	st := &m.stats
	for _, n := range []*uint64{
		&st.Entries, &st.Groups, &st.Ops, &st.Expired, &st.Backwards, &st.Fenced, &st.Gaps, &st.Duplicates,
	} {
		*n = d.Uvarint()
	}
}

func (l *snapshotLoader) session(d *codec.Decoder) {
	node := string(d.Bytes())
	l.last = &session{boot: d.Uvarint(), floor: d.Uvarint()}
	l.m.sessions[node] = l.last
	l.sessions++
	l.replies(d)
}

// replies adds replies to the session that was read last.
func (l *snapshotLoader) replies(d *codec.Decoder) {
	s := l.last
	if s == nil {
		d.Fail()
		return
	}
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		r := keptReply{Status(d.Byte()), slices.Clone(d.Bytes())}
		s.replies = append(s.replies, r)
		s.bytes += len(r.bytes)
	}
	s.lastSeq = s.floor + uint64(len(s.replies))
}

// SnapshotInfo describes the state in a snapshot.
type SnapshotInfo struct {
	Applied  uint64 // log index of the last entry
	Hash     uint64 // state of the hash chain at that index
	Sessions int
	Waiters  int
	Keys     int // in all databases
	Volatile int // keys with a time to live
}

// SnapshotInfo describes the snapshot that WriteSnapshot writes with these
// sessions.
func (m *Machine) SnapshotInfo(sessions Sessions) SnapshotInfo {
	return SnapshotInfo{
		Applied: m.applied, Hash: m.chain, Sessions: len(sessions.list), Waiters: m.waits.conns.Len(),
		Keys: m.Len(), Volatile: m.Volatile(),
	}
}

// CheckSnapshot reads a snapshot with the code of ReadSnapshot, but drops every
// key once it is decoded. It fails for every snapshot that ReadSnapshot
// refuses. It needs memory for the largest key, and for the parts of the state that
// are not keys, such as sessions, waiters, grants of locks and scripts. It does not
// keep the parts of a staged restore.
//
// ReadSnapshot detects a duplicate key in the tree that it builds.
// CheckSnapshot has no such tree, so it requires the order in which
// WriteSnapshot writes the keys.
func CheckSnapshot(r io.Reader, table *Table) (SnapshotInfo, error) {
	check := &snapshotCheck{}
	load := snapshotLoader{m: New(table), check: check}
	if err := load.read(bufio.NewReaderSize(r, 64<<10)); err != nil {
		return SnapshotInfo{}, fmt.Errorf("check snapshot: %w", err)
	}
	return SnapshotInfo{
		Applied: load.m.applied, Hash: load.m.chain,
		Sessions: int(load.sessions), Waiters: load.m.waits.conns.Len(),
		Keys: check.keys, Volatile: check.volatile,
	}, nil
}

// snapshotCheck counts the keys of a snapshot. It reads them into memory that
// it reuses, so that a check does not double the memory of the process. For a nil
// snapshotCheck, buffer and object return new memory.
type snapshotCheck struct {
	keys, volatile int
	db             int
	last           *keyspace.Object                 // last key that was read
	visit          func(db int, o *keyspace.Object) // nil for none

	block   []byte
	objects [2]keyspace.Object // used alternately: one of them is last
}

// buffer returns memory for a block. It overwrites the texts of the previous
// block. The elements of the last object may continue in the new block, so its
// key is copied.
func (c *snapshotCheck) buffer(n int) []byte {
	if c == nil {
		return make([]byte, n)
	}
	if o := c.last; o != nil {
		o.Key, o.Str = strings.Clone(o.Key), ""
	}
	if cap(c.block) < n {
		c.block = make([]byte, n)
	}
	return c.block[:n]
}

// object returns an object for the next key.
func (c *snapshotCheck) object() *keyspace.Object {
	if c == nil {
		return &keyspace.Object{}
	}
	o := &c.objects[c.keys%2]
	*o = keyspace.Object{}
	return o
}

// key counts a key, which must come after the previous one in the order of the
// databases and of their keys.
func (c *snapshotCheck) key(db int, o *keyspace.Object) error {
	if c.last != nil && (db < c.db || db == c.db && !c.last.Before(o)) {
		return fmt.Errorf("key %q is out of order or a duplicate: %w", o.Key, ErrFormat)
	}
	c.db, c.last = db, o
	c.keys++
	if c.visit != nil {
		c.visit(db, o)
	}
	if o.Deadline != 0 {
		c.volatile++
	}
	return nil
}

// groups writes the consumer groups of a stream.
func (w *snapshotWriter) groups(v *keyspace.Collection) {
	v.Stream.Groups.Ascend(0, func(g *stream.Group) bool {
		b := codec.AppendString(append(w.b, recordGroup), g.Name)
		b = binary.AppendVarint(stream.AppendID(b, g.Last), g.Read)
		b = binary.AppendUvarint(b, uint64(g.Consumers.Len()))
		w.b = binary.AppendUvarint(b, uint64(g.Pending.Len()))
		w.cut()
		number := make(map[string]uint64, g.Consumers.Len())
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			number[k.Name] = uint64(len(number))
			w.b = stream.AppendMoment(codec.AppendString(append(w.b, recordReader), k.Name), k.Seen)
			w.cut()
			return w.err == nil
		})
		g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
			b := stream.AppendID(append(w.b, recordPending), p.ID)
			b = binary.AppendUvarint(b, number[p.Consumer])
			w.b = binary.AppendVarint(stream.AppendMoment(b, p.At), p.Deliveries)
			w.cut()
			return w.err == nil
		})
		return w.err == nil
	})
}

// group reads a consumer group and appends it to the groups of the open stream.
func (l *snapshotLoader) group(d *codec.Decoder) error {
	g := stream.Group{Name: string(d.Bytes()), Last: stream.ReadID(d), Read: d.Varint()}
	l.groups--
	l.readers, l.pending = d.Uvarint(), d.Uvarint()
	v := l.open.Coll
	n := v.Stream.Groups.Len()
	switch {
	case d.Err != nil:
		return fmt.Errorf("group: %w", d.Err)
	case l.readers > keyspace.MaxElements || l.pending > keyspace.MaxElements || l.pending > 0 && l.readers == 0,
		n > 0 && v.Stream.Groups.At(n-1).Name >= g.Name:
		return fmt.Errorf("group %.40q of key %q: %w", g.Name, l.open.Key, ErrFormat)
	}
	v.Stream.Groups.Insert(l.m.owner, n, g)
	return nil
}

// reader reads a consumer of the last group.
func (l *snapshotLoader) reader(d *codec.Decoder) error {
	k := stream.Consumer{Name: string(d.Bytes()), Seen: stream.ReadMoment(d)}
	l.rebase.moment(&k.Seen)
	l.readers--
	at, g := l.lastGroup()
	n := g.Consumers.Len()
	if d.Err == nil && n > 0 && g.Consumers.At(n-1).Name >= k.Name {
		return fmt.Errorf("consumer %.40q of key %q: %w", k.Name, l.open.Key, ErrFormat)
	}
	g.Consumers.Insert(l.m.owner, n, k)
	l.open.Coll.Stream.Groups.Set(l.m.owner, at, g)
	return d.Err
}

// pendings reads a pending entry of the last group.
func (l *snapshotLoader) pendings(d *codec.Decoder) error {
	p := stream.PendingEntry{ID: stream.ReadID(d)}
	reader := d.Uvarint()
	p.At, p.Deliveries = stream.ReadMoment(d), d.Varint()
	l.rebase.moment(&p.At)
	l.pending--
	at, g := l.lastGroup()
	n := g.Pending.Len()
	if d.Err == nil && (reader >= uint64(g.Consumers.Len()) || n > 0 && g.Pending.At(n-1).ID.Compare(p.ID) >= 0) {
		return fmt.Errorf("pending entry %v of key %q: %w", p.ID, l.open.Key, ErrFormat)
	}
	if d.Err != nil {
		return d.Err
	}
	k := g.Consumers.At(int(reader))
	p.Consumer = k.Name
	k.Pending.Insert(l.m.owner, k.Pending.Len(), p.ID)
	g.Consumers.Set(l.m.owner, int(reader), k)
	g.Pending.Insert(l.m.owner, n, p)
	l.open.Coll.Stream.Groups.Set(l.m.owner, at, g)
	return nil
}

func (l *snapshotLoader) lastGroup() (at int, g stream.Group) {
	at = l.open.Coll.Stream.Groups.Len() - 1
	return at, l.open.Coll.Stream.Groups.At(at)
}

// elements writes the elements of a collection in records of about
// snapshotBlock bytes. No record exceeds that by more than one element.
func (w *snapshotWriter) elements(o *keyspace.Object) {
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
	o.AppendElements(&b, added)
	if n > 0 {
		emit()
	}
}

// elements reads some of the elements of the open collection.
func (l *snapshotLoader) elements(d *codec.Decoder) error {
	n := d.Uvarint()
	if d.Err != nil {
		return fmt.Errorf("elements: %w", d.Err)
	}
	if n == 0 || n > l.missing {
		return fmt.Errorf("%d elements of key %q: %w", n, l.open.Key, ErrFormat)
	}
	l.missing -= n
	for ; n > 0; n-- {
		if err := keyspace.ReadElement(d, l.open, l.m.owner); err != nil {
			return err
		}
	}
	if l.missing == 0 && l.open.Coll.Big != l.big {
		return fmt.Errorf("encoding of key %q: %w", l.open.Key, ErrFormat)
	}
	if l.missing == 0 && l.open.Type == keyspace.TypeLock {
		return l.holders()
	}
	return nil
}
