package fsm

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/library"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
)

// Machine is the replicated state machine. The package comment says which
// methods may be called at the same time.
type Machine struct {
	table *Table

	// The fields from here to operating are the state. A snapshot contains all
	// of them.
	applied   uint64 // log index of the last entry, of any kind
	term      uint64 // term of the last TermStart
	clusterID string
	clock     Clock
	chain     uint64 // running hash over (index, clock, replies)
	dbs       [Databases]*keyspace.DB
	scripts   scriptCache
	libraries library.Set
	sessions  map[string]*session // by node id; only the method Sessions ranges over the map, and it sorts the result
	stats     Stats
	notices   notices // notify-keyspace-events
	// settings are the other settings of the cluster. The list is replaced and
	// never changed, because clones share it.
	settings  settings
	waits     waits
	users     *Users // never nil
	clientIDs uint64 // highest reserved number: see ClientIDsCommand
	removed   removed
	exchanged exchanges
	features  int // feature version of the cluster: see feature.go
	operating     // from FeatureOperate on

	expiry keyspace.ExpiryIndex
	owner  *container.Owner // owner of the tree nodes that may be changed in place

	ctx   Ctx // scratch of Apply
	arena []byte

	output
}

// output is the part of a Machine for the effects that Apply reports and that
// are not part of the state.
type output struct {
	want   EventKinds // kinds of events to add to the results: see Want
	events []Event    // events of the entry that is being applied
	woken  []Woken    // waits that ended in the entry that is being applied
	trace  *Trace     // nil for none
	lockRecord
}

// Stats counts the effects of the log. All nodes have the same counts.
type Stats struct {
	Entries uint64 // batches executed, without those that the term fence stopped
	Groups  uint64 // groups executed
	Ops     uint64 // operations executed
	Expired uint64 // keys expired
	// Backwards counts the executed batches that Clock.advance has reported as
	// backwards, except those that were built before a restore: see
	// operating.restored. It is 0 unless there is a bug.
	Backwards uint64
	// Fenced, Gaps and Duplicates count groups that were not executed.
	Fenced, Gaps, Duplicates uint64
}

// New returns an empty machine that knows the commands of table.
func New(table *Table) *Machine {
	m := &Machine{
		table: table, scripts: newScriptCache(), libraries: library.NewSet(), sessions: make(map[string]*session),
		users: &Users{}, waits: newWaits(), expiry: keyspace.NewExpiryIndex(), owner: &container.Owner{},
	}
	for i := range m.dbs {
		m.dbs[i] = keyspace.NewDB()
	}
	return m
}

// Table returns the command table.
func (m *Machine) Table() *Table { return m.table }

// Applied returns the applied index: the log index of the last entry.
func (m *Machine) Applied() uint64 { return m.applied }

// Term returns the term of the last TermStart.
func (m *Machine) Term() uint64 { return m.term }

// ClusterID returns the cluster id that the first TermStart set, "" if there
// was none.
func (m *Machine) ClusterID() string { return m.clusterID }

// Clock returns the clock of the last entry.
func (m *Machine) Clock() Clock { return m.clock }

// Stats returns the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Hash returns the state of the hash chain and its log index. Machines that
// applied the same entries have the same hash at the same index.
func (m *Machine) Hash() (index, hash uint64) { return m.applied, m.chain }

// NextDeadline returns the earliest deadline on the lease clock. It considers keys,
// the leases of holders, the delays of locks, the quarantine, and a staged restore. If
// work is left for later entries (see Deferred), it returns a time that has passed. It
// returns 0 if there is no deadline and no such work.
func (m *Machine) NextDeadline() int64 {
	next := int64(0)
	earlier := func(t int64) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	if _, o := m.expiry.First(); o != nil {
		earlier(o.Due())
	}
	earlier(m.quarantine)
	if _, d, ok := m.locks.delays.First(); ok {
		earlier(d.Until)
	}
	if m.staging != nil {
		earlier(m.staging.deadline)
	}
	if m.Deferred() > 0 {
		earlier(max(m.clock.Lease, 1))
	}
	return next
}

// Len returns the number of keys in all databases. It includes expired keys
// whose expiry is not committed yet.
func (m *Machine) Len() int {
	n := 0
	for i := range m.dbs {
		n += m.dbs[i].Len()
	}
	return n
}

// Bytes returns the approximate memory of the data set: of all keys, their
// values, and the delays of locks, in bytes. All nodes that run the same
// program return the same number. It is not part of the state, and no entry
// depends on it.
func (m *Machine) Bytes() int64 {
	n := int64(0)
	for _, db := range m.dbs {
		n += db.Bytes()
	}
	return n + m.locks.delays.Bytes()
}

// DBSize returns the number of keys in one database.
func (m *Machine) DBSize(db int) int { return m.dbs[db].Len() }

// Volatile returns the number of keys with a time to live.
func (m *Machine) Volatile() int { return m.expiry.Len() }

// VolatileIn returns the number of keys with a time to live in one database.
func (m *Machine) VolatileIn(db int) int { return m.expiry.CountIn(db) }

// Advance records an entry that Raft itself uses and that the machine does not
// execute. It only raises the applied index.
func (m *Machine) Advance(index uint64) { m.applied = max(m.applied, index) }

// Result is the result of applying an entry.
type Result struct {
	Index     uint64
	TermStart *TermStart // set if the entry is a TermStart
	Sessions  []SessionID
	Groups    []GroupResult
	// Events are the events of the entry that Want selects, in order.
	Events []Event
	// Woken are the waits that the entry ended.
	Woken []Woken
	// Deferred reports whether work is left for later entries: see
	// Machine.Deferred.
	Deferred bool
	// Locks are the events of locks, in order, if RecordLocks has turned them on.
	// They are valid until the next call of Apply, which uses their memory again.
	// LocksCut reports that there were more than MaxLockEvents.
	Locks    []LockEvent
	LocksCut bool
	// LocksRefused counts the commands that got no lock.
	LocksRefused LockRefusals
	// Backwards reports that the entry counts in Stats.Backwards.
	Backwards bool
	// Restored reports that the entry replaced the data with that of a backup.
	// QuarantineEnded reports that the entry ended the quarantine.
	Restored, QuarantineEnded bool
	// Steps is the cost of applying the entry: see meter. Nodes with different
	// versions of the program may count differently.
	Steps uint64
	// HashIndex and Hash are copied from the header of the entry: a point of
	// the leader's hash chain.
	HashIndex, Hash uint64
}

// GroupResult is the result of one group.
type GroupResult struct {
	Session int // index into Result.Sessions
	Seq     uint64
	Status  Status
	Reply   []byte // replies of the operations, one after the other
}

// Apply executes a committed entry. term is the term in which Raft appended the
// entry. An error means that the bytes cannot be executed as an entry. The
// caller must then stop the node: it cannot skip the entry, because other nodes
// may have executed it.
func (m *Machine) Apply(index, term uint64, data []byte) (*Result, error) {
	if index <= m.applied {
		panic(fmt.Sprintf("fsm: entry %d after entry %d", index, m.applied))
	}
	e, err := decodeEntry(data)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	m.ctx.meter = meter{}
	res := &Result{Index: index, HashIndex: e.header.HashIndex, Hash: e.header.Hash}
	switch e.kind {
	case entryTermStart:
		err = m.applyTermStart(index, term, e, res)
	case entryBatch:
		err = m.applyBatch(index, term, e, res)
	}
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	m.applied = index
	res.Steps = m.ctx.meter.steps
	m.link(res)
	res.Events, m.events = m.events, nil
	res.Locks, res.LocksCut = m.takeLocks()
	res.LocksRefused, m.lockRecord.refused = m.lockRecord.refused, LockRefusals{}
	return res, nil
}

func (m *Machine) applyTermStart(index, term uint64, e entry, res *Result) error {
	t, err := decodeTermStart(e)
	if err != nil {
		return err
	}
	if e.header.Term != term {
		return nil // the entry was built in another term: see the term fence
	}
	if m.clusterID == "" {
		m.clusterID = t.ClusterID
	}
	m.term = term
	before := m.features
	if before < FeatureMend {
		if err := m.setFeatures(t.Features); err != nil {
			return err
		}
		m.startTokens(keyspace.MakePos(index, 0))
	}
	m.waits.suspendAll()
	if before < FeatureMend && m.features >= FeatureMend {
		c := m.context(index, e.header)
		c.endSuperseded()
		res.Woken, m.woken = m.woken, nil
	}
	m.clock.Wall = e.header.Wall
	res.TermStart = &t
	return nil
}

func (m *Machine) applyBatch(index, term uint64, e entry, res *Result) error {
	d := codec.Decoder{Rest: e.rest}
	res.Sessions = make([]SessionID, e.sessions)
	floors := make([]uint64, e.sessions)
	for i := range res.Sessions {
		res.Sessions[i] = SessionID{NodeID: string(d.Bytes()), Boot: d.Uvarint()}
		floors[i] = d.Uvarint()
	}
	if d.Err != nil {
		return fmt.Errorf("sessions: %w", d.Err)
	}
	// This is the term fence. If an entry was built in another term than the
	// one in which Raft appended it, it has the clock of another leadership. So
	// no part of it is executed.
	fenced := e.header.Term != term
	if !fenced {
		res.Backwards = m.clock.advance(e.header)
		if res.Backwards && e.header.HashIndex < m.restored { // see operating.restored
			res.Backwards = false
		}
		if res.Backwards {
			m.stats.Backwards++
		}
		m.stats.Entries++
		m.dropIdleStaging()
		res.QuarantineEnded = m.endQuarantine()
	}
	c := m.context(index, e.header)
	if !fenced {
		c.expireDue()
	}
	sessions := make([]*session, len(res.Sessions))
	for i, floor := range floors {
		if fenced {
			break
		}
		if s, ok := m.sessionFor(res.Sessions[i]); ok {
			s.ack(floor)
			sessions[i] = s
			c.endEarlierStart(res.Sessions[i])
		}
	}
	c.serveDeferred()
	c.serveWaiters()
	res.Groups = make([]GroupResult, 0, e.groups)
	m.arena = make([]byte, 0, max(64*e.groups, 64))
	for range e.groups {
		si, seq, body := d.Uvarint(), d.Uvarint(), d.Bytes()
		if d.Err != nil || si >= uint64(len(res.Sessions)) {
			return fmt.Errorf("groups: %w", ErrFormat)
		}
		g := GroupResult{Session: int(si), Seq: seq}
		if fenced {
			m.stats.Fenced++
			g.Status = StatusFenced
			res.Groups = append(res.Groups, g)
			continue
		}
		c.session, c.sender = int(si), res.Sessions[si]
		c.group, c.op = len(res.Groups), 0
		if err := m.runGroup(c, sessions[si], body, &g); err != nil {
			return fmt.Errorf("group %d of %s: %w", seq, res.Sessions[si], err)
		}
		res.Groups = append(res.Groups, g)
	}
	res.Woken, m.woken = m.woken, nil
	res.Deferred = m.Deferred() > 0
	res.Restored = c.restores
	m.arena = nil
	return d.Done("groups")
}

// context prepares the context of an entry's commands.
func (m *Machine) context(index uint64, h Header) *Ctx {
	c := &m.ctx
	*c = Ctx{
		m: m, now: m.clock.Lease, wall: m.clock.Wall, index: index,
		running: running{session: -1, group: -1}, r: c.r,
	}
	c.seed = h.Seed
	c.setPosition(0)
	return c
}

// largeReply is the size, in bytes, above which the replies of a group get
// memory of their own.
const largeReply = 64 << 10

// runGroup executes one group of a session and sets the result in g. s is nil
// if a later start of the session's node has a session.
func (m *Machine) runGroup(c *Ctx, s *session, body []byte, g *GroupResult) error {
	switch {
	case !s.runs(m.features):
		g.Status = StatusStale
		return nil
	case g.Seq <= s.lastSeq:
		m.stats.Duplicates++
		k := s.kept(g.Seq)
		g.Status, g.Reply = k.status, k.bytes
		return nil
	case g.Seq != s.lastSeq+1:
		m.stats.Gaps++
		g.Status = StatusGap
		return nil
	}
	start := len(m.arena)
	out, err := c.run(m.arena, body)
	if err != nil {
		return err
	}
	m.arena = out
	g.Reply = out[start:len(out):len(out)]
	if len(g.Reply) > largeReply { // later groups must not copy it or keep it alive
		m.arena = make([]byte, 0, largeReply/16)
	}
	m.stats.Groups++
	s.keep(StatusDone, g.Reply)
	return nil
}

// link adds the results of an entry to the hash chain.
func (m *Machine) link(res *Result) {
	h := m.chain ^ container.Mix(res.Index) ^ uint64(m.clock.Lease)
	for i := range res.Groups {
		g := &res.Groups[i]
		h = container.Mix(h + g.Seq + uint64(g.Status)<<56 + uint64(crc32.Checksum(g.Reply, castagnoli)))
	}
	for _, w := range res.Woken {
		h = container.Mix(h + w.Origin() + uint64(crc32.Checksum(w.Reply(), castagnoli))<<32)
	}
	m.chain = container.Mix(h)
}

// Clone returns a copy-on-write clone: a machine with the same state, but without
// the sessions, that changes independently of m. It takes O(1), because both share
// the parts that neither has changed since. The caller must have exclusive access
// to m during the call.
func (m *Machine) Clone() *Machine {
	f := *m
	f.sessions = nil
	f.arena = nil
	f.ctx = Ctx{}
	f.output = output{}
	for i := range m.dbs {
		f.dbs[i] = m.dbs[i].Clone()
	}
	f.expiry = m.expiry.Clone()
	f.scripts = m.scripts.clone()
	f.libraries = m.libraries.Clone()
	f.waits = m.waits.clone()
	f.locks = m.locks.clone()
	m.disown()
	f.disown()
	return &f
}

// Ctx is the context in which a command is executed.
type Ctx struct {
	m        *Machine
	db       int
	now      int64 // lease clock, the same during a whole entry or read
	wall     int64 // microseconds since 1970
	index    uint64
	position int
	pos      Pos
	proto    int

	running

	atomic        bool // part of a transaction or script: must not wait
	inScript      bool // called by a script
	readOnly      bool
	expiryPending bool
	unlogged      bool // see ErrUnlogged
	ending

	meter   meter
	changes int // number of changes of the state so far

	draw
	scripting
	serving

	reading

	r groupReader
}

// running contains the fields of Ctx that describe the group that is running.
type running struct {
	// During Apply, session is the index of the session whose group is running. It
	// is -1 before the first group, and while waiters are served. sender is the id
	// of the session.
	session int
	sender  SessionID
	// During Apply, group is the index of the running group among the groups of the
	// entry. It is -1 before the first group. op is the number of operations of the
	// group that were executed before the current one.
	group, op int
	// sent is the size, in bytes, of the group's replies so far, without those that
	// are short: see count.
	sent int
}

// reading contains the fields of Ctx that only reads use: see ReadRequest.
type reading struct {
	front *Front
	pages locklist.Keeper
}

// DB returns the number of the current database.
func (c *Ctx) DB() int { return c.db }

// Select makes db the current database.
func (c *Ctx) Select(db int) { c.db = db }

// Now returns the lease clock in nanoseconds. It is the same during a whole
// entry or read.
func (c *Ctx) Now() int64 { return c.now }

// LogTime returns the lease clock of the last entry. In a read on a leader, it may be
// before Now.
func (c *Ctx) LogTime() int64 { return c.m.clock.Lease }

// Wall returns the wall clock in microseconds since 1970.
func (c *Ctx) Wall() int64 { return c.wall }

// Proto returns the RESP version of the connection, 2 or 3.
func (c *Ctx) Proto() int { return c.proto }

// Atomic reports whether the command is a part of a transaction or a script, so
// that it must not wait.
func (c *Ctx) Atomic() bool { return c.atomic }

// InScript reports whether a script has called the command.
func (c *Ctx) InScript() bool { return c.inScript }

// Features returns the feature version of the cluster.
func (c *Ctx) Features() int { return c.m.features }

// Owner returns the owner of the tree nodes that the command may change in place.
func (c *Ctx) Owner() *container.Owner { return c.m.owner }

// ending is the part of a Ctx that the caller of the commands evaluates.
type ending struct {
	fail     error // the node must stop: see setFeatures
	restores bool  // the entry has replaced the data: see Result.Restored
}

// draw is the random sequence of an entry. The seed is in the entry, so all
// nodes draw the same numbers.
type draw struct {
	seed  uint64
	draws uint64 // calls of Ctx.Random
}

// serving is the part of a Ctx for serving waiters.
type serving struct {
	// served is the waiter that is being served, nil for none.
	served *waiter
	// readyList contains the keys whose waiters must be checked after the
	// operation, in order. readyKeys contains the same keys as a set.
	readyList []readyKey
	readyKeys map[readyKey]bool
	// serveWork is the work that the entry has spent on serving waiters.
	serveWork int
	// lockEnd and removedBy are the way in which the grant of a key that is being
	// removed ends. The message on the channel of the lock contains lockEnd, or
	// LockReleased if lockEnd is "". The history of locks contains the first of
	// lockEnd, removedBy and LockDeleted that is not "".
	lockEnd, removedBy string
	// delaySteps counts the steps of delayOf, for expireDue.
	delaySteps int
	// acquires is set during a native script that the map named acquiring contains.
	acquires bool
}

func (c *Ctx) setPosition(n int) {
	c.position = min(n, MaxOps-1) // n is higher only after a script with a million calls: see MaxOps
	if c.m.features >= FeatureDeferred {
		n = c.position
	}
	c.pos = keyspace.MakePos(c.index, n)
}

// Random returns the next number of the entry's random sequence.
func (c *Ctx) Random() uint64 {
	c.draws++
	c.seed += drawStep
	return container.Mix(c.seed)
}

// drawStep is the step of splitmix64: n draws add n times drawStep to the seed.
const drawStep = 0x9e3779b97f4a7c15

// run executes the operations of a group and appends their replies. Table.Check
// has accepted the body before it was proposed. If it still cannot be executed,
// the nodes have different command tables. run then returns an error, which
// must stop this node.
func (c *Ctx) run(dst []byte, body []byte) ([]byte, error) {
	if err := c.r.open(body); err != nil {
		return dst, fmt.Errorf("group: %w", err)
	}
	c.proto, c.sent = c.r.proto, 0
	start := len(dst)
	for c.op = 0; len(c.r.d.Rest) > 0; c.op++ {
		before := c.sent
		reply, err := c.operation()
		if err != nil {
			return dst, err
		}
		if c.front != nil && c.front.take(c.op, reply, c.proto) {
			c.front.Left = len(c.r.d.Rest) > 0
			break
		}
		mark := len(dst)
		c.chargeReply(&reply)
		if len(reply.elems) > 0 { // a large list would be copied each time that dst grows
			dst = slices.Grow(dst, min(reply.encodedSize(c.proto), c.cutsAt()))
		}
		dst = reply.appendUpTo(dst, c.proto, c.cutsAt())
		if len(dst)-start > MaxReplyBytes && !c.fits() {
			dst = Error(ReplyTooLarge).Append(dst[:mark], c.proto)
		}
		c.sent = before
		c.count(len(dst) - mark)
		if c.front != nil && len(dst)-start > c.front.Most && len(c.r.d.Rest) > 0 {
			c.front.Ops, c.front.Left = c.op+1, true
			break
		}
		c.serveWaiters()
		if !c.readOnly { // several reads may run at the same time, so they must not change m
			c.m.stats.Ops++
		}
	}
	return dst, c.r.d.Err
}

// operation executes the next operation of the group.
func (c *Ctx) operation() (Reply, error) {
	switch op := c.r.d.Byte(); op {
	case opCommand:
		return c.next()
	case opTransaction:
		return c.transaction()
	case opEffects:
		return c.effects()
	default:
		return Reply{}, fmt.Errorf("operation kind %d: %w", op, ErrVersion)
	}
}

// next executes the next command of the group.
func (c *Ctx) next() (Reply, error) {
	db, args, err := c.r.command()
	if err != nil {
		return Reply{}, err
	}
	cmd, err := c.m.table.accept(args, c.readOnly)
	if err != nil {
		return Reply{}, err
	}
	c.db = db
	c.setPosition(c.position + 1)
	c.Charge(StepsPerKey * len(args))
	row := cmd.Routed(args)
	if c.r.track && row.Flags&ReadOnly != 0 {
		c.tracked(row, args)
	}
	if need := max(cmd.Feature, row.Feature); need > c.m.features {
		return Error(NeedsFeature(cmd, args, need, c.m.features)), nil
	}
	if c.refuses(row) {
		return Error(ReplyTooLarge), nil
	}
	if c.rec != nil {
		return c.fit(row, c.speculated(cmd, args)), c.fail
	}
	reply := cmd.Run(c, args)
	c.ran(db, args, reply)
	return c.fit(row, reply), c.fail
}

// transaction executes a MULTI block: all its commands, or none if a watched
// key has changed.
func (c *Ctx) transaction() (Reply, error) {
	d := &c.r.d
	intact := true
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		db := d.Uvarint()
		key, version := d.Bytes(), Pos(d.Uvarint())
		if db >= Databases {
			return Reply{}, fmt.Errorf("watch in db %d: %w", db, ErrFormat)
		}
		c.db = int(db)
		if c.versionOf(key) != version {
			intact = false
		}
	}
	n := d.Uvarint()
	if d.Err != nil || n > uint64(len(d.Rest)) {
		return Reply{}, fmt.Errorf("transaction: %w", ErrFormat)
	}
	if !intact {
		for ; n > 0; n-- {
			if _, _, err := c.r.command(); err != nil {
				return Reply{}, err
			}
		}
		return NullArray, nil
	}
	c.atomic = true
	defer func() { c.atomic = false }()
	replies := make([]Reply, n)
	for i := range replies {
		var err error
		if replies[i], err = c.next(); err != nil {
			return Reply{}, err
		}
		if c.cut && c.rec != nil { // no effect of the group is kept
			return Array(replies[:i+1]), nil
		}
		if c.fits() {
			c.count(replies[i].encodedSize(c.proto)) // the caller of operation counts the whole reply
		}
	}
	return Array(replies), nil
}

// versionOf returns the version of a key, which WATCH compares.
func (c *Ctx) versionOf(key []byte) Pos {
	if o := c.Lookup(key); o != nil {
		return max(o.Version, c.m.exchanged[c.db])
	}
	return c.m.removed.version(container.Hash(key), c.m.dbs[c.db].Get(key), c.m.exchanged[c.db])
}

// Clock is the machine's time. All of it comes from the log.
//
// Lease is the lease clock: nanoseconds since the cluster was formed. It is the
// only source of expiry. It never goes back, and it stops while no leader
// appends entries. (Chubby stops its session timers in the same case.) Wall is
// the wall clock of the leader that stamped the last entry, in microseconds
// since 1970. It may jump. It is used for absolute times, for the IDs of XADD, and
// for times that replies show.
type Clock struct {
	Lease int64
	Wall  int64
}

// advance sets the clock to the times of an entry. A stamp before the lease clock
// leaves the lease clock unchanged and is reported as backwards. If only one leader at
// a time stamps entries, such a stamp occurs only after a restore: see
// operating.restored.
func (c *Clock) advance(h Header) (backwards bool) {
	c.Wall = h.Wall
	if h.Stamp < c.Lease {
		return true
	}
	c.Lease = h.Stamp
	return false
}

// Never is the deadline of a key whose real deadline does not fit into an int64 of
// nanoseconds (292 years). The key does not expire, and its TTL is computed from the
// wall clock.
const Never = math.MaxInt64

// DeadlineIn returns the deadline that is ttl milliseconds after now, on the lease
// clock, or Never if that is too late for an int64.
func DeadlineIn(now, ttl int64) int64 {
	if ttl > (Never-now)/1e6 {
		return Never
	}
	return now + ttl*1e6
}
