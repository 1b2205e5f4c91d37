package fsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

func appendStreamID(b []byte, id stream.ID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.Ms), id.Seq)
}

func readStreamID(d *codec.Decoder) stream.ID { return stream.ID{Ms: d.Uvarint(), Seq: d.Uvarint()} }

func appendStreamInfo(b []byte, s *stream.Info) []byte {
	b = appendStreamID(appendStreamID(b, s.Last), s.MaxDeleted)
	return binary.AppendUvarint(b, s.Added)
}

func readStreamInfo(d *codec.Decoder) stream.Info {
	return stream.Info{Last: readStreamID(d), MaxDeleted: readStreamID(d), Added: d.Uvarint()}
}

func appendEntry(b []byte, e *stream.Entry) []byte {
	b = binary.AppendUvarint(appendStreamID(b, e.ID), uint64(len(e.Fields)))
	for _, f := range e.Fields {
		b = codec.AppendString(b, f)
	}
	return b
}

// readEntry reads an entry and appends it to the stream of v.
func readEntry(d *codec.Decoder, v *collection, owner *container.Owner) error {
	e := stream.Entry{ID: readStreamID(d)}
	n := d.Uvarint()
	if d.Err == nil && (n == 0 || n%2 != 0 || n > uint64(len(d.Rest))) {
		return fmt.Errorf("%d fields and values: %w", n, ErrFormat)
	}
	for ; n > 0 && d.Err == nil; n-- {
		e.Fields = append(e.Fields, string(d.Bytes()))
	}
	size := v.stream.Entries.Len()
	if size > 0 && d.Err == nil && v.stream.Entries.At(size-1).ID.Compare(e.ID) >= 0 ||
		e.ID.Compare(v.stream.Last) > 0 {
		return fmt.Errorf("entry %v out of order: %w", e.ID, ErrFormat)
	}
	v.stream.Entries.Insert(owner, v.stream.Entries.Len(), e)
	return d.Err
}

func appendMoment(b []byte, m stream.Moment) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, m.Lease), m.Wall)
}

func readMoment(d *codec.Decoder) stream.Moment {
	return stream.Moment{Lease: d.Varint(), Wall: d.Varint()}
}

// groups writes the consumer groups of a stream.
func (w *snapshotWriter) groups(v *collection) {
	v.stream.Groups.Ascend(0, func(g *stream.Group) bool {
		b := codec.AppendString(append(w.b, recordGroup), g.Name)
		b = binary.AppendVarint(appendStreamID(b, g.Last), g.Read)
		b = binary.AppendUvarint(b, uint64(g.Consumers.Len()))
		w.b = binary.AppendUvarint(b, uint64(g.Pending.Len()))
		w.cut()
		number := make(map[string]uint64, g.Consumers.Len())
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			number[k.Name] = uint64(len(number))
			w.b = appendMoment(codec.AppendString(append(w.b, recordReader), k.Name), k.Seen)
			w.cut()
			return w.err == nil
		})
		g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
			b := appendStreamID(append(w.b, recordPending), p.ID)
			b = binary.AppendUvarint(b, number[p.Consumer])
			w.b = binary.AppendVarint(appendMoment(b, p.At), p.Deliveries)
			w.cut()
			return w.err == nil
		})
		return w.err == nil
	})
}

// group reads a consumer group and appends it to those of the open stream.
func (l *snapshotLoader) group(d *codec.Decoder) error {
	g := stream.Group{Name: string(d.Bytes()), Last: readStreamID(d), Read: d.Varint()}
	l.groups--
	l.readers, l.pending = d.Uvarint(), d.Uvarint()
	v := l.open.coll
	n := v.stream.Groups.Len()
	switch {
	case d.Err != nil:
		return fmt.Errorf("group: %w", d.Err)
	case l.readers > MaxElements || l.pending > MaxElements || l.pending > 0 && l.readers == 0,
		n > 0 && v.stream.Groups.At(n-1).Name >= g.Name:
		return fmt.Errorf("group %.40q of key %q: %w", g.Name, l.open.key, ErrFormat)
	}
	v.stream.Groups.Insert(l.m.owner, n, g)
	return nil
}

// reader reads a consumer of the last group.
func (l *snapshotLoader) reader(d *codec.Decoder) error {
	k := stream.Consumer{Name: string(d.Bytes()), Seen: readMoment(d)}
	l.readers--
	at, g := l.lastGroup()
	n := g.Consumers.Len()
	if d.Err == nil && n > 0 && g.Consumers.At(n-1).Name >= k.Name {
		return fmt.Errorf("consumer %.40q of key %q: %w", k.Name, l.open.key, ErrFormat)
	}
	g.Consumers.Insert(l.m.owner, n, k)
	l.open.coll.stream.Groups.Set(l.m.owner, at, g)
	return d.Err
}

// pendings reads a pending entry of the last group.
func (l *snapshotLoader) pendings(d *codec.Decoder) error {
	p := stream.PendingEntry{ID: readStreamID(d)}
	reader := d.Uvarint()
	p.At, p.Deliveries = readMoment(d), d.Varint()
	l.pending--
	at, g := l.lastGroup()
	n := g.Pending.Len()
	if d.Err == nil && (reader >= uint64(g.Consumers.Len()) || n > 0 && g.Pending.At(n-1).ID.Compare(p.ID) >= 0) {
		return fmt.Errorf("pending entry %v of key %q: %w", p.ID, l.open.key, ErrFormat)
	}
	if d.Err != nil {
		return d.Err
	}
	k := g.Consumers.At(int(reader))
	p.Consumer = k.Name
	k.Pending.Insert(l.m.owner, k.Pending.Len(), p.ID)
	g.Consumers.Set(l.m.owner, int(reader), k)
	g.Pending.Insert(l.m.owner, n, p)
	l.open.coll.stream.Groups.Set(l.m.owner, at, g)
	return nil
}

func (l *snapshotLoader) lastGroup() (at int, g stream.Group) {
	at = l.open.coll.stream.Groups.Len() - 1
	return at, l.open.coll.stream.Groups.At(at)
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
	b = codec.AppendString(b, o.key)
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
	return codec.AppendString(b, o.str)
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
			b = codec.AppendString(codec.AppendString(b, e.Name), e.Value)
			return added()
		})
	case typeList:
		v.list.Ascend(0, func(s *string) bool {
			b = codec.AppendString(b, *s)
			return added()
		})
	case typeSet:
		v.set.Ascend(0, func(e *container.Item[struct{}]) bool {
			b = codec.AppendString(b, e.Name)
			return added()
		})
	case typeStream:
		v.stream.Entries.Ascend(0, func(e *stream.Entry) bool {
			b = appendEntry(b, e)
			return added()
		})
	case typeZSet:
		v.order.Ascend(0, func(m *container.Scored) bool {
			b = codec.AppendString(binary.LittleEndian.AppendUint64(b, math.Float64bits(m.Score)), m.Member)
			return added()
		})
	}
	if n > 0 {
		emit()
	}
}

// readElement reads one element into the collection of o.
func readElement(d *codec.Decoder, o *object, owner *container.Owner) error {
	v, size := o.coll, o.coll.Len(o.typ)
	switch o.typ {
	case typeHash:
		field := string(d.Bytes())
		v.putField(owner, field, string(d.Bytes()))
	case typeList:
		v.list.Insert(owner, size, string(d.Bytes()))
	case typeSet:
		v.putMember(owner, string(d.Bytes()))
	case typeStream:
		if err := readEntry(d, v, owner); err != nil {
			return fmt.Errorf("entry of key %q: %w", o.key, err)
		}
	case typeZSet:
		if len(d.Rest) < 8 {
			d.Fail()
			break
		}
		score := math.Float64frombits(binary.LittleEndian.Uint64(d.Rest))
		d.Rest = d.Rest[8:]
		if math.IsNaN(score) {
			return fmt.Errorf("score of key %q: %w", o.key, ErrFormat)
		}
		v.putScore(owner, string(d.Bytes()), score)
	}
	if d.Err == nil && o.coll.Len(o.typ) == size {
		return fmt.Errorf("duplicate element of key %q: %w", o.key, ErrFormat)
	}
	return d.Err
}

// readObject reads an object and the numbers of elements and of groups that follow
// it.
func readObject(d *codec.Decoder, check *snapshotCheck) (db int, o *object, elements, groups uint64, err error) {
	o = check.object()
	db = int(d.Byte())
	o.typ = typ(d.Byte())
	flags := d.Byte()
	o.raw = flags&flagRaw != 0
	o.key = check.text(d.Bytes())
	o.token = Pos(d.Uvarint())
	o.version = Pos(d.Uvarint())
	o.touched = d.Varint()
	o.deadline = d.Varint()
	o.expireAt = d.Varint()
	allowed := byte(flagRaw)
	switch o.typ {
	case typeString:
	case typeStream:
		allowed = flagBig | flagGroups
	default:
		allowed = flagBig
	}
	if d.Err == nil && (db >= Databases || o.typ > typeStream || flags&^allowed != 0) {
		return 0, nil, 0, 0, fmt.Errorf("object in db %d of type %d, flags %#x: %w", db, o.typ, flags, ErrVersion)
	}
	o.hash = container.Hash([]byte(o.key))
	if o.typ == typeString {
		o.str = check.text(d.Bytes())
		return db, o, 0, 0, d.Err
	}
	if elements = d.Uvarint(); d.Err == nil && (elements == 0 && o.typ != typeStream || elements > MaxElements) {
		return 0, nil, 0, 0, fmt.Errorf("key %q with %d elements: %w", o.key, elements, ErrFormat)
	}
	o.coll = newCollection(o.typ)
	if flags&flagBig != 0 {
		o.coll.grow(nil, o.typ)
	}
	if o.typ == typeStream {
		o.coll.stream.Info = readStreamInfo(d)
	}
	if flags&flagGroups != 0 {
		if groups = d.Uvarint(); d.Err == nil && (groups == 0 || groups > MaxElements) {
			return 0, nil, 0, 0, fmt.Errorf("key %q with %d groups: %w", o.key, groups, ErrFormat)
		}
	}
	return db, o, elements, groups, d.Err
}

// elements reads some of the elements of the open collection.
func (l *snapshotLoader) elements(d *codec.Decoder) error {
	n := d.Uvarint()
	if d.Err != nil {
		return fmt.Errorf("elements: %w", d.Err)
	}
	if n == 0 || n > l.missing {
		return fmt.Errorf("%d elements of key %q: %w", n, l.open.key, ErrFormat)
	}
	l.missing -= n
	for ; n > 0; n-- {
		if err := readElement(d, l.open, l.m.owner); err != nil {
			return err
		}
	}
	if l.missing == 0 && l.open.coll.big != l.big {
		return fmt.Errorf("encoding of key %q: %w", l.open.key, ErrFormat)
	}
	return nil
}

// These are the flags of a waiter in a snapshot.
const (
	flagServed    = 1
	flagRESP3     = 2
	flagSuspended = 4 // the session of the waiter is suspended
	// flagMixed: the node has waiters of several starts, and the waiter is not
	// of the start that is recorded for the node. The boot count of the
	// recorded start follows. See FeatureMend.
	flagMixed = 8
	// flagUser: the user of the waiting client follows the arguments. It is set
	// from FeatureBudget on.
	flagUser = 16
)

// waiters writes the waiters and returns their number.
func (w *snapshotWriter) waiters(waits *waits) (written uint64) {
	waits.conns.Scan(func(n *waiter) bool {
		at, _ := waits.node(n.session.NodeID)
		w.waiter(n, &waits.nodes[at])
		written++
		return w.err == nil
	})
	return written
}

func (w *snapshotWriter) waiter(n *waiter, node *waitNode) {
	var flags byte
	if n.served {
		flags |= flagServed
	}
	if n.proto >= 3 {
		flags |= flagRESP3
	}
	if node.suspended {
		flags |= flagSuspended
	}
	if node.id != n.session {
		flags |= flagMixed
	}
	if n.user != "" {
		flags |= flagUser
	}
	b := append(w.b, recordWaiter, flags)
	b = codec.AppendString(b, n.session.NodeID)
	b = binary.AppendUvarint(b, n.session.Boot)
	if node.id != n.session {
		b = binary.AppendUvarint(b, node.id.Boot)
	}
	b = binary.AppendUvarint(b, n.origin)
	b = binary.AppendUvarint(b, uint64(n.pos))
	if n.served {
		w.b = binary.AppendUvarint(b, uint64(len(n.reply)))
		for reply := n.reply; len(reply) > 0; {
			part := reply[:min(len(reply), snapshotBlock)]
			reply = reply[len(part):]
			w.b = codec.AppendString(append(w.b, recordServed), part)
			w.cut()
		}
		return
	}
	b = binary.AppendUvarint(b, uint64(n.db))
	b = binary.AppendUvarint(b, uint64(len(n.args)))
	for _, a := range n.args {
		b = codec.AppendString(b, a)
	}
	if n.user != "" {
		b = codec.AppendString(b, n.user)
	}
	w.b = b
	w.cut()
}

// waits reads a waiter.
func (l *snapshotLoader) waits(d *codec.Decoder) error {
	w := &l.m.waits
	flags := d.Byte()
	suspended := flags&flagSuspended != 0
	n := &waiter{session: SessionID{NodeID: string(d.Bytes()), Boot: d.Uvarint()}}
	node := n.session
	if flags&flagMixed != 0 {
		if node.Boot = d.Uvarint(); d.Err == nil && node == n.session {
			return fmt.Errorf("waiter of %s: %w", n.session, ErrFormat)
		}
	}
	n.origin, n.pos, n.served = d.Uvarint(), Pos(d.Uvarint()), flags&flagServed != 0
	if flags > flagServed|flagRESP3|flagSuspended|flagMixed|flagUser ||
		flags&flagUser != 0 && (l.m.features < FeatureBudget || n.served) {
		return fmt.Errorf("waiter with flags %#x: %w", flags, ErrVersion)
	}
	if n.served {
		l.waiter, l.owed = n, d.Uvarint()
		if l.owed == 0 || l.owed > 2*MaxReplyBytes {
			return fmt.Errorf("reply of %d bytes to a waiter: %w", l.owed, ErrFormat)
		}
	} else {
		var err error
		if n, err = readWaiter(d, n, l.m.table, flags); err != nil {
			return err
		}
	}
	if d.Err != nil {
		return fmt.Errorf("waiter: %w", d.Err)
	}
	at, found := w.node(n.session.NodeID)
	if found && (w.nodes[at].id != node || w.nodes[at].suspended != suspended) ||
		w.find(n.session.NodeID, n.origin) != nil {
		return fmt.Errorf("waiter %d of %s: %w", n.origin, n.session, ErrFormat)
	}
	w.add(n)
	w.nodes[at].id, w.nodes[at].suspended = node, suspended
	return nil
}

// readWaiter reads the command of a waiter that has not been served.
func readWaiter(d *codec.Decoder, n *waiter, table *Table, flags byte) (*waiter, error) {
	db, argc := d.Uvarint(), d.Uvarint()
	if d.Err != nil || db >= Databases || argc == 0 || argc > uint64(len(d.Rest)) {
		return nil, fmt.Errorf("waiter in db %d: %w", db, ErrFormat)
	}
	args := make([][]byte, argc)
	for i := range args {
		args[i] = d.Bytes()
	}
	var user string
	if flags&flagUser != 0 {
		if user = string(d.Bytes()); d.Err == nil && user == "" {
			return nil, fmt.Errorf("waiter of a user without a name: %w", ErrFormat)
		}
	}
	if d.Err != nil {
		return nil, d.Err
	}
	cmd := table.Find(args[0])
	if cmd == nil || cmd.block == nil || !cmd.ArityOK(len(args)) {
		return nil, fmt.Errorf("waiter in command %.40q: %w", args[0], ErrVersion)
	}
	b, fail := cmd.block(args)
	if fail.IsError() {
		return nil, fmt.Errorf("waiter in command %q: %s: %w", args[0], fail.Text(), ErrFormat)
	}
	proto := 2
	if flags&flagRESP3 != 0 {
		proto = 3
	}
	w := newWaiter(n.session, n.origin, n.pos, int(db), proto, args, b)
	w.user = user
	return w, nil
}
