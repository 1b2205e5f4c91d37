package fsm

import (
	"errors"
	"fmt"
	"hash/crc32"
	"unsafe"
)

// Machine is the replicated state. See the package comment for who may call
// what when.
type Machine struct {
	table *Table

	// What follows is the state: all of it is in a snapshot, save expiry, which
	// is an index over dbs.
	applied   uint64 // raft index of the last entry, of any kind
	term      uint64 // of the last TermStart
	clusterID string
	clock     Clock
	chain     uint64 // running hash over (index, clock, replies)
	dbs       [Databases]db
	scripts   scriptCache
	libraries libraries
	sessions  map[string]*session // by node id; only ever looked up, or walked sorted
	stats     Stats
	notices   notices // notify-keyspace-events
	// settings are the other settings of the cluster. The list is never
	// changed: forks share it.
	settings  settings
	waits     waits
	users     *Users // never nil
	removed   removed
	exchanged exchanges
	features  int // feature version of the cluster: see feature.go

	expiry expiry
	owner  *seqOwner // of the nodes of collections that may be changed in place

	ctx   Ctx // scratch of Apply
	arena []byte

	want   EventKinds // what the results are to tell of: see Want
	events []Event    // of the entry that is being applied
	woken  []Woken    // by that entry
	trace  *Trace     // nil for none
}

// Stats counts what the log did; all nodes count the same.
type Stats struct {
	Entries uint64 // batches applied
	Groups  uint64 // groups run
	Ops     uint64 // operations run
	Expired uint64 // keys expired
	// Backwards counts entries stamped behind the clock: never, in a correct run.
	Backwards uint64
	// Fenced, Gaps and Duplicates count groups that were not run.
	Fenced, Gaps, Duplicates uint64
}

// New returns an empty machine that knows the commands of table.
func New(table *Table) *Machine {
	m := &Machine{table: table, scripts: newScriptCache(), libraries: newLibraries(), sessions: make(map[string]*session), users: &Users{}, waits: newWaits(), expiry: newExpiry(), owner: &seqOwner{}}
	for i := range m.dbs {
		m.dbs[i] = newDB()
	}
	return m
}

// Table returns the command table.
func (m *Machine) Table() *Table { return m.table }

// Applied returns the raft index of the last entry that the machine has seen.
func (m *Machine) Applied() uint64 { return m.applied }

// Term returns the term of the last TermStart.
func (m *Machine) Term() uint64 { return m.term }

// ClusterID returns the id that the first TermStart minted, or "".
func (m *Machine) ClusterID() string { return m.clusterID }

// Clock returns the clock of the last entry.
func (m *Machine) Clock() Clock { return m.clock }

// Stats returns the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Hash returns a point of the state hash chain: machines that applied the same
// entries have the same hash at the same index.
func (m *Machine) Hash() (index, hash uint64) { return m.applied, m.chain }

// NextDeadline returns the earliest deadline on the lease clock, 0 if no key
// has a time to live.
func (m *Machine) NextDeadline() int64 { return m.expiry.next() }

// Len returns the number of keys in all databases, those overdue included.
func (m *Machine) Len() int {
	n := 0
	for i := range m.dbs {
		n += m.dbs[i].tree.Len()
	}
	return n
}

// DBSize returns the number of keys in one database.
func (m *Machine) DBSize(db int) int { return m.dbs[db].tree.Len() }

// Volatile returns the number of keys with a time to live.
func (m *Machine) Volatile() int { return m.expiry.tree.Len() }

// VolatileIn returns the number of keys with a time to live in one database.
func (m *Machine) VolatileIn(db int) int { return m.expiry.count[db] }

// Advance notes an entry that is not the machine's (raft's own): it changes
// nothing but the applied index.
func (m *Machine) Advance(index uint64) { m.applied = max(m.applied, index) }

// Result is what applying an entry gave.
type Result struct {
	Index     uint64
	TermStart *TermStart // the entry was one
	Sessions  []SessionID
	Groups    []GroupResult
	// Events are what the entry did that Want asks for, in order.
	Events []Event
	// Woken are the connections whose waits this entry ended.
	Woken []Woken
	// Backwards: the entry was stamped behind the clock.
	Backwards bool
	// HashIndex and Hash repeat the chain point of the entry's header.
	HashIndex, Hash uint64
}

// GroupResult is what became of one group.
type GroupResult struct {
	Session int // index into Result.Sessions
	Seq     uint64
	Status  Status
	Reply   []byte // the operations' replies, one after the other
}

// Apply runs a committed entry. term is the term of the raft log entry. An
// error means that the entry's bytes are not an entry: the caller must stop,
// for it can neither skip it nor know what it said.
func (m *Machine) Apply(index, term uint64, data []byte) (*Result, error) {
	if index <= m.applied {
		panic(fmt.Sprintf("fsm: entry %d after entry %d", index, m.applied))
	}
	e, err := decodeEntry(data)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
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
	m.link(res)
	res.Events, m.events = m.events, nil
	return res, nil
}

func (m *Machine) applyTermStart(index, term uint64, e entry, res *Result) error {
	t, err := decodeTermStart(e)
	if err != nil {
		return err
	}
	if e.header.Term != term {
		return nil // written for a term that did not get it
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
	}
	m.waits.holdAll()
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
	d := decoder{b: e.rest}
	res.Sessions = make([]SessionID, e.sessions)
	floors := make([]uint64, e.sessions)
	for i := range res.Sessions {
		res.Sessions[i] = SessionID{NodeID: string(d.bytes()), Boot: d.uvarint()}
		floors[i] = d.uvarint()
	}
	if d.err != nil {
		return fmt.Errorf("sessions: %w", d.err)
	}
	// The fence: an entry that was built in another term than the one it was
	// appended in carries another office's clock. Nothing of it runs.
	fenced := e.header.Term != term
	if !fenced {
		res.Backwards = m.clock.advance(e.header)
		if res.Backwards {
			m.stats.Backwards++
		}
		m.stats.Entries++
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
			c.speaks(res.Sessions[i])
		}
	}
	c.serveWaiters()
	res.Groups = make([]GroupResult, 0, e.groups)
	m.arena = make([]byte, 0, max(64*e.groups, 64))
	for range e.groups {
		si, seq, body := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil || si >= uint64(len(res.Sessions)) {
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
	m.arena = nil
	return d.done("groups")
}

// context prepares what an entry's commands see of the machine.
func (m *Machine) context(index uint64, h Header) *Ctx {
	c := &m.ctx
	*c = Ctx{m: m, now: m.clock.Lease, wall: m.clock.Wall, seed: h.Seed, index: index, session: -1, group: -1, r: c.r}
	c.setPlace(0)
	return c
}

// runGroup runs one group of a session, nil if a newer start of its node is
// known, and notes in g what became of it.
func (m *Machine) runGroup(c *Ctx, s *session, body []byte, g *GroupResult) error {
	switch {
	case !s.runs(m.features):
		g.Status = StatusStale
		return nil
	case g.Seq <= s.lastSeq && seeded("double-apply"):
		out, err := c.run(nil, body)
		g.Reply = out
		return err
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
	m.stats.Groups++
	s.keep(StatusDone, g.Reply)
	return nil
}

// link adds an entry to the hash chain.
func (m *Machine) link(res *Result) {
	h := m.chain ^ mix(res.Index) ^ uint64(m.clock.Lease)
	for i := range res.Groups {
		g := &res.Groups[i]
		h = mix(h + g.Seq + uint64(g.Status)<<56 + uint64(crc32.Checksum(g.Reply, castagnoli)))
	}
	for i := range res.Woken {
		w := &res.Woken[i]
		h = mix(h + w.Origin + uint64(crc32.Checksum(w.Reply, castagnoli))<<32)
	}
	m.chain = mix(h)
}

// ReadRequest is a group to be run without the log.
type ReadRequest struct {
	Body []byte
	// Now is the lease clock to judge deadlines by: the office's now on a
	// leader, 0 for the log's clock on a node that reads locally.
	Now  int64
	Wall int64  // microseconds, 0 for the log's
	Seed uint64 // for RANDOMKEY
	// Runner interprets read-only scripts, Scripts knows which scripts run. Both
	// may be nil.
	Runner  ScriptRunner
	Scripts RunningScripts
}

// ErrUnlogged means that a read would have to change the state: EVAL_RO of a
// script that is not in the cache yet. The group has to go through the log.
var ErrUnlogged = errors.New("read has an effect and must go through the log")

// Read runs a group that has no write and appends its replies to dst. overdue
// is true if an answer depends on a key whose deadline lies between the log's
// clock and req.Now: the replies must then be thrown away and the read tried
// again after a tick is committed. A leader may neither hide such a key (no
// entry says that it expired) nor show it (its time is over).
func (m *Machine) Read(dst []byte, req ReadRequest) (reply []byte, overdue bool, err error) {
	c := Ctx{m: m, now: max(req.Now, m.clock.Lease), wall: req.Wall, seed: req.Seed, index: m.applied, readOnly: true, runner: req.Runner, scripts: req.Scripts, patience: Trial}
	if c.wall == 0 {
		c.wall = m.clock.Wall
	}
	c.setPlace(0)
	out, err := c.run(dst, req.Body)
	if err == nil && c.unlogged {
		err = ErrUnlogged
	}
	if err != nil {
		return dst, false, err
	}
	return out, c.overdue, nil
}

// Fork returns a machine with the same state whose further life is its own. It
// costs O(1): both share what neither has changed since. It needs exclusive
// access to m for that moment.
func (m *Machine) Fork() *Machine {
	f := *m
	f.sessions = nil
	f.arena = nil
	f.ctx = Ctx{}
	f.want, f.events, f.woken, f.trace = 0, nil, nil, nil
	for i := range m.dbs {
		f.dbs[i].tree = m.dbs[i].tree.fork()
	}
	f.expiry.tree = m.expiry.tree.IsoCopy()
	f.scripts = m.scripts.fork()
	f.libraries = m.libraries.fork()
	f.waits = m.waits.fork()
	m.disown()
	f.disown()
	return &f
}

// Ctx is what a command sees of the machine while it runs.
type Ctx struct {
	m     *Machine
	db    int
	now   int64 // lease clock, frozen for the whole entry or read
	wall  int64 // microseconds
	seed  uint64
	index uint64
	place int
	pos   Pos
	proto int

	// session is the index of the session whose group runs, -1 for none, and
	// sender its name.
	session int
	sender  SessionID
	// group is the group of the entry that runs, -1 before the first, and op counts
	// its operations so far.
	group, op int
	// serving is the waiter that is being served, nil for none.
	serving *waiter

	atomic   bool // part of a transaction or script: may not wait
	inScript bool // called by one
	readOnly bool
	overdue  bool
	unlogged bool  // see ErrUnlogged
	fail     error // the node must stop: see setFeatures

	changes int    // of the state: calls of change
	draws   uint64 // of random

	rec    *recorder // in a Rehearsal, for groups with scripts
	runner ScriptRunner
	// patience is what scripts are run with; cut is set when one was too slow for it.
	patience Patience
	cut      bool
	begun    int64          // see ScriptCall.Group
	scripts  RunningScripts // nil in a group that goes through the log

	// readyList are the keys that the operation gave a value and that somebody
	// waits for, in order; readyKeys are the same as a set.
	readyList []readyKey
	readyKeys map[readyKey]bool

	r groupReader
}

func (c *Ctx) setPlace(n int) {
	c.place = min(n, MaxOps-1) // the proposer's limits end an entry long before
	c.pos = MakePos(c.index, n)
}

// random draws the next number of the entry's own sequence.
func (c *Ctx) random() uint64 {
	c.draws++
	c.seed += drawStep
	return mix(c.seed)
}

// drawStep is splitmix64's: n draws move the seed by n of it.
const drawStep = 0x9e3779b97f4a7c15

const replyTooLarge = "ERR reply is larger than 50331648 bytes in one pipeline, ask for less at a time"

// run executes the operations of a group and appends their replies. Table.Check
// has accepted the body on its way in; bytes that cannot be run all the same
// mean that the nodes do not agree on what a command is, and are an error that
// must stop this node.
func (c *Ctx) run(dst []byte, body []byte) ([]byte, error) {
	if err := c.r.open(body); err != nil {
		return dst, fmt.Errorf("group: %w", err)
	}
	c.proto = c.r.proto
	start := len(dst)
	for c.op = 0; len(c.r.d.b) > 0; c.op++ {
		reply, err := c.operation()
		if err != nil {
			return dst, err
		}
		mark := len(dst)
		dst = reply.Append(dst, c.proto)
		if len(dst)-start > MaxReplyBytes {
			dst = Error(replyTooLarge).Append(dst[:mark], c.proto)
		}
		c.serveWaiters()
		if !c.readOnly { // reads run beside each other and are counted elsewhere
			c.m.stats.Ops++
		}
	}
	return dst, c.r.d.err
}

// operation runs the operation that stands next in the group.
func (c *Ctx) operation() (Reply, error) {
	switch op := c.r.d.byte(); op {
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

// next runs the command that stands next in the group.
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
	c.setPlace(c.place + 1)
	if row := cmd.Routed(args); c.r.track && row.Flags&ReadOnly != 0 {
		c.tracked(row, args)
	}
	if cmd.Needs(args) > c.m.features {
		return Error(NeedsFeature(cmd, args, c.m.features)), nil
	}
	if c.rec != nil {
		return c.rehearsed(cmd, args), c.fail
	}
	reply := cmd.Run(c, args)
	c.ran(db, args, reply)
	return reply, c.fail
}

// transaction runs a MULTI block: everything at one moment, or nothing if a
// watched key has changed.
func (c *Ctx) transaction() (Reply, error) {
	d := &c.r.d
	intact := true
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		db := d.uvarint()
		key, version := d.bytes(), Pos(d.uvarint())
		if db >= Databases {
			return Reply{}, fmt.Errorf("watch in db %d: %w", db, ErrFormat)
		}
		c.db = int(db)
		if c.versionOf(key) != version {
			intact = false
		}
	}
	n := d.uvarint()
	if d.err != nil || n > uint64(len(d.b)) {
		return Reply{}, fmt.Errorf("transaction: %w", ErrFormat)
	}
	if !intact && !seeded("no-watch") {
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
		if c.cut && c.rec != nil { // nothing of it will stay
			return Array(replies[:i+1]), nil
		}
	}
	return Array(replies), nil
}

// versionOf is what WATCH remembers of a key.
func (c *Ctx) versionOf(key []byte) Pos {
	if o := c.lookup(key); o != nil {
		return max(o.version, c.m.exchanged[c.db])
	}
	return c.m.removed.version(hashKey(key), c.m.dbs[c.db].get(key), c.m.exchanged[c.db])
}

// viewString looks at bytes as a string without copying: only for lookups that
// keep nothing.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
