package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// RestoreCommand is the internal command that replaces the data of the cluster
// with the data of a backup. The backup is a snapshot. It is logged in parts,
// and the machines collect the parts in a staging area, which is part of the
// state. Then one entry replaces the data on all nodes. So a restore needs no
// rules of its own. It is atomic, a node that is down catches up as usual, and
// a failover only delays the restore.
//
// Its first argument is one of these:
//
//	begin id size features         prepare a staging area, in place of an older one
//	data id offset bytes           add a part at the end; repeating it does no harm
//	apply id epoch quarantine replace
//	                               replace the data; see applyStaged
//	drop id                        drop the staging area
//
// The reply is OK or an error. A staging area that gets no part for stagingTime is
// dropped.
const RestoreCommand = "_restore"

// stagingTime is how long a staging area waits for its next part, measured on
// the lease clock.
const stagingTime = 600 * nanosPerSecond

const (
	msgStagingArgs  = "ERR invalid arguments of a restore"
	msgStagingNone  = "ERR this restore is not in progress: another one has begun, or it was idle for ten minutes"
	msgStagingOrder = "ERR a part of the restore is missing"
	msgStagingBad   = "ERR the backup cannot be read, nothing was changed"
	msgNotEmpty     = "ERR the cluster is not empty, nothing was changed: to replace its data, use --replace"
)

var restoreCommands = []Command{
	{
		Name: RestoreCommand, Run: restoreData, Arity: -3, Flags: Internal | Write,
		Group: "internal", Since: "holdfast", Required: Required{Feature: FeatureOperate},
		Complexity: "O(N) where N is the number of keys",
		Syntax:     "<begin | data | apply | drop> id [argument ...]",
		Doc:        "Replace the data of the cluster with that of a backup",
	},
}

// staging is the staging area of a restore. It is replaced and never changed,
// because clones share it.
type staging struct {
	id       string
	size     uint64 // bytes of the backup
	have     uint64 // bytes in parts
	parts    [][]byte
	deadline int64 // lease clock at which the staging area is dropped
}

func restoreData(c *Ctx, args [][]byte) Reply {
	nums := make([]int64, 0, 4)
	numbers := func(list ...[]byte) bool {
		for _, a := range list {
			n, ok := number.ParseInt(a)
			if !ok || n < 0 {
				return false
			}
			nums = append(nums, n)
		}
		return true
	}
	id, s := string(args[2]), c.m.staging
	op := string(args[1])
	if op != "begin" && (s == nil || s.id != id) {
		return Error(msgStagingNone)
	}
	switch {
	case op == "begin" && len(args) == 5 && numbers(args[3], args[4]):
		if need := int(nums[1]); need > c.m.features {
			return Error(fmt.Sprintf("ERR the backup needs feature version %d and the cluster uses %d: "+
				"upgrade every node first", need, c.m.features))
		}
		c.Change()
		c.m.staging = &staging{id: id, size: uint64(nums[0]), deadline: c.now + stagingTime}
	case op == "data" && len(args) == 5 && numbers(args[3]):
		return c.stage(s, uint64(nums[0]), args[4])
	case op == "apply" && len(args) == 6 && numbers(args[3:]...):
		return c.applyStaged(s, uint64(nums[0]), nums[1], nums[2] != 0)
	case op == "drop" && len(args) == 3:
		c.Change()
		c.m.staging = nil
	default:
		return Error(msgStagingArgs)
	}
	return OK
}

// stage adds a part to the staging area.
func (c *Ctx) stage(s *staging, offset uint64, part []byte) Reply {
	switch {
	case offset < s.have && s.have-offset >= uint64(len(part)):
		return OK // the part was sent again
	case offset != s.have:
		return Error(msgStagingOrder)
	case uint64(len(part)) > s.size-s.have:
		return Error(msgStagingArgs)
	}
	c.Change()
	next := *s
	next.have += uint64(len(part))
	next.parts = append(slices.Clip(s.parts), bytes.Clone(part))
	next.deadline = c.now + stagingTime
	c.m.staging = &next
	return OK
}

// dropIdleStaging drops a staging area that has received no new part for stagingTime.
func (m *Machine) dropIdleStaging() {
	if m.staging != nil && m.clock.Lease >= m.staging.deadline {
		m.staging = nil
	}
}

// applyStaged replaces the data with that of the backup in the staging area:
// databases, locks, functions, settings and users. epoch is the token epoch of
// the wall clock. quarantine is the length of the quarantine in nanoseconds.
// Unless replace is set, the cluster must have no keys and no functions.
//
// applyStaged keeps other parts of the state, such as the sessions, the script
// cache and the hash chain. It keeps the sessions so that each group of a running
// node is still executed exactly once. If the backup has no users, applyStaged
// keeps the users too. All open waits end, and their nodes execute the commands
// again. The lease clock never goes back. If the lease clock of the backup is
// later, the cluster adopts it. Otherwise, applyStaged moves the deadlines of the
// backup to the clock of the cluster. WATCH notices a change of every key.
func (c *Ctx) applyStaged(s *staging, epoch uint64, quarantine int64, replace bool) Reply {
	m := c.m
	if libraries, _, _ := m.libraries.Len(); !replace && (m.Len() > 0 || libraries > 0) {
		return Error(msgNotEmpty)
	}
	if s.have != s.size || quarantine > MaxQuarantine {
		return Error(msgStagingOrder)
	}
	readers := make([]io.Reader, len(s.parts))
	for i, part := range s.parts {
		readers[i] = bytes.NewReader(part)
	}
	load := snapshotLoader{m: New(m.table), rebase: &rebase{lease: c.now, wall: c.wall, pos: c.pos}}
	load.m.owner = m.owner
	if err := load.read(bufio.NewReaderSize(io.MultiReader(readers...), 64<<10)); err != nil {
		return Error(msgStagingBad)
	}
	from := load.m
	if from.features > m.features {
		return Error(msgStagingBad)
	}
	before := m.token
	if err := m.raiseEpoch(from.Token(), epoch); err != nil {
		m.token = before
		return Error("ERR " + err.Error())
	}
	c.Change()
	m.clock.Lease = max(m.clock.Lease, from.clock.Lease)
	c.now = m.clock.Lease
	m.quarantine = 0
	if quarantine > 0 {
		m.quarantine = c.now + quarantine
	}
	m.dbs, m.expiry, m.libraries, m.locks = from.dbs, from.expiry, from.libraries, from.locks
	m.notices, m.settings = from.notices, from.settings
	m.clientIDs = max(m.clientIDs, from.clientIDs)
	if len(from.users.List) > 0 {
		m.users = from.users.bornAt(c.pos)
	}
	m.staging, m.restored = nil, c.index
	c.endAllWaits()
	for i := range m.dbs {
		m.exchanged[i] = c.pos
		c.flushed(i)
	}
	c.restores = true
	c.noteLocks(LockEvent{Kind: LocksReplaced})
	return OK
}

// bornAt returns the users as if they were created at pos, so that no connection
// that logged in before remains logged in.
func (u *Users) bornAt(pos Pos) *Users {
	n := &Users{Version: pos, List: slices.Clone(u.List)}
	for i := range n.List {
		n.List[i].Born, n.List[i].Version = pos, pos
	}
	return n
}

// endAllWaits removes all waiters that were not served. Their nodes execute the
// commands again.
func (c *Ctx) endAllWaits() {
	var open []*waiter
	c.m.waits.conns.Scan(func(n *waiter) bool {
		if !n.served {
			open = append(open, n)
		}
		return true
	})
	for _, n := range open {
		c.forget(n)
		c.removed(n)
	}
	c.readyList, c.readyKeys = nil, nil
	c.m.waits.deferred, c.m.waits.revoked, c.m.waits.resumed = newDeferred(), revoked{}, nil
}

// rebase moves the times and positions of a snapshot that is loaded into a
// running cluster.
type rebase struct {
	lease int64 // lease clock of the cluster, nanoseconds
	wall  int64 // wall clock of the cluster, microseconds
	pos   Pos   // version of the keys

	shift int64 // nanoseconds to add to all lease clock times
}

// begin computes shift. The loader calls it as soon as it has read the clock of
// the snapshot.
func (r *rebase) begin(clock Clock) {
	if r != nil {
		r.shift = max(r.lease-clock.Lease, 0)
	}
}

// object sets the version of a key and moves its times. clock is the clock of the
// snapshot.
func (r *rebase) object(o *keyspace.Object, clock Clock) {
	if r == nil {
		return
	}
	o.Version = r.pos
	o.Touched += r.shift
	o.Deadline, o.ExpireAt = r.end(o.Deadline, o.ExpireAt, clock)
	if o.Type == keyspace.TypeLock {
		l := o.Coll.Lock
		l.Due, _ = r.end(l.Due, 0, clock)
	}
}

// end moves a deadline on the lease clock, and expireAt, the same time on the
// wall clock.
func (r *rebase) end(deadline, expireAt int64, clock Clock) (movedDeadline, movedExpireAt int64) {
	if deadline == 0 || deadline == Never {
		return deadline, expireAt
	}
	if left := deadline - clock.Lease; expireAt != 0 {
		expireAt = r.wall/1e3 + left/1e6
	}
	if deadline > Never-1-r.shift {
		return Never, expireAt
	}
	return deadline + r.shift, expireAt
}

// moment moves the lease clock time at which a consumer was last seen, or at which
// a pending entry was last delivered.
func (r *rebase) moment(t *stream.Moment) {
	if r != nil {
		t.Lease += r.shift
	}
}

// ForBackup removes the waiters and a staged restore, which belong only to the
// running nodes. A backup does not contain them.
func (m *Machine) ForBackup() {
	m.waits = newWaits()
	m.staging = nil
}

// Recover turns the state into that of a new cluster of one node, after the loss
// of the old cluster's majority. It drops the sessions and the waiters of the old
// nodes, and a staged restore. epoch is the token epoch of the wall clock. quarantine
// is the length of the quarantine in nanoseconds; a negative value stands for
// DefaultQuarantine of the data, or for the rest of the current quarantine, if that
// is longer. Recover returns the length that was used. The feature version
// becomes the highest that this program knows, because no node of the new cluster
// runs another program.
func (m *Machine) Recover(clusterID string, epoch uint64, quarantine int64) (int64, error) {
	if m.features < MaxFeatures {
		lost := m.Token()
		if err := m.setFeatures(MaxFeatures); err != nil {
			return 0, err
		}
		m.token = max(m.token, lost)
	}
	if err := m.raiseEpoch(m.Token(), epoch); err != nil {
		return 0, err
	}
	m.clusterID = clusterID
	m.sessions = make(map[string]*session)
	m.ForBackup()
	if quarantine < 0 {
		quarantine = max(DefaultQuarantine(m.LongestTTL()), m.quarantine-m.clock.Lease)
	}
	m.quarantine = 0
	if quarantine > 0 {
		m.quarantine = m.clock.Lease + quarantine
	}
	return quarantine, nil
}

// LongestTTL returns the longest remaining time to live of a key, in
// nanoseconds.
func (m *Machine) LongestTTL() int64 {
	longest := int64(0)
	for db := range m.dbs {
		m.expiry.Scan(db, func(o *keyspace.Object) bool {
			longest = max(longest, o.Deadline-m.clock.Lease)
			return true
		})
	}
	return longest
}

// DefaultQuarantine returns the length of the quarantine, in nanoseconds, that is
// used if the operator does not set one. It is the longest remaining time to live
// in the backup, but at most an hour.
func DefaultQuarantine(longest int64) int64 { return min(max(longest, 0), nanosPerHour) }

// operating writes the tokens, the quarantine and a staged restore into a
// snapshot.
func (w *snapshotWriter) operating(m *Machine) {
	if m.features < FeatureOperate {
		return
	}
	b := binary.AppendUvarint(append(w.b, recordOperating), m.token)
	b = binary.AppendVarint(b, m.quarantine)
	w.b = binary.AppendUvarint(b, m.restored)
	s := m.staging
	if s == nil {
		return
	}
	b = codec.AppendString(append(w.b, recordStaging), s.id)
	w.b = binary.AppendVarint(binary.AppendUvarint(b, s.size), s.deadline)
	w.cut()
	for _, part := range s.parts {
		w.b = codec.AppendString(append(w.b, recordStaged), part)
		w.cut()
	}
}

// operations reads a record that snapshotWriter.operating wrote.
func (l *snapshotLoader) operations(record byte, d *codec.Decoder) error {
	switch record {
	case recordOperating:
		return l.operating(d)
	case recordStaging:
		return l.staging(d)
	default:
		return l.staged(d)
	}
}

// operating reads the record of the tokens and the quarantine.
func (l *snapshotLoader) operating(d *codec.Decoder) error {
	m := l.m
	m.token, m.quarantine, m.restored = d.Uvarint(), d.Varint(), d.Uvarint()
	if d.Err == nil && (m.features < FeatureOperate || m.token > MaxToken || m.quarantine < 0) {
		return fmt.Errorf("token %d, quarantine %d: %w", m.token, m.quarantine, ErrFormat)
	}
	return d.Err
}

// staging reads the record that begins a staged restore.
func (l *snapshotLoader) staging(d *codec.Decoder) error {
	if l.m.staging != nil || l.m.features < FeatureOperate {
		return fmt.Errorf("staged restore: %w", ErrFormat)
	}
	l.m.staging = &staging{id: string(d.Bytes()), size: d.Uvarint(), deadline: d.Varint()}
	return d.Err
}

// staged reads a part of the staged restore. A check keeps no parts.
func (l *snapshotLoader) staged(d *codec.Decoder) error {
	part := d.Bytes()
	s := l.m.staging
	if d.Err == nil && (s == nil || len(part) == 0 || uint64(len(part)) > s.size-s.have) {
		return fmt.Errorf("part of a staged restore: %w", ErrFormat)
	}
	if d.Err != nil {
		return d.Err
	}
	s.have += uint64(len(part))
	if l.check == nil {
		s.parts = append(s.parts, append([]byte(nil), part...))
	}
	return nil
}
