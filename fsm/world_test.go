package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// draws makes the choices of a random history.
type draws interface {
	IntN(n int) int
}

// drawnBytes takes the choices from the bytes of a fuzzer, and chooses 0 when there
// are no bytes left.
type drawnBytes struct{ data []byte }

func (d *drawnBytes) IntN(n int) int {
	v := 0
	for range 1 + (n-1)>>8 {
		if len(d.data) == 0 {
			return 0
		}
		v = v<<8 | int(d.data[0])
		d.data = d.data[1:]
	}
	return v % n
}

// world is a log to which several nodes write, and two machines that apply it.
// The nodes sometimes start again. One machine is never replaced. The other one
// is sometimes cloned, and sometimes replaced by a machine that is restored
// from its snapshot. After every entry, the two machines must be equal.
type world struct {
	t       testing.TB
	draws   draws
	table   *fsm.Table
	machine *fsm.Machine // is never replaced
	replica *fsm.Machine // is replaced by machines that are restored from its snapshots
	runner  lines

	term        uint64
	stamp, wall int64
	nodes       []*worldNode
	watches     []fsm.Watch
	clones      []keptClone
	mended      bool // the feature version was at least FeatureMend from the first entry on
	checkEvery  int  // entries between two comparisons of snapshots

	entries [][]byte // the last entries, for the report of a failure
	// recorded receives all entries and hashes: see TestRecorded. recorded is
	// nil if the history is not recorded.
	recorded *[]byte
	events   worldEvents
	locks    lockBook
}

// worldEvents counts the events of histories, so that a test can check that it has
// tested something.
type worldEvents struct {
	Entries, Done, Stale, Gaps, Duplicates, Fenced int
	Waits, Served, Scripts, Committed, Refused     int
	Granted, Claimed, PassedOn                     int
	// Shared counts the entries after which several owners hold a lock. Together
	// counts the entries that give locks to several waiters.
	Shared, Together int
	// Delayed counts the entries after which a lock has a delay.
	Delayed int
	// Held counts the grants that began, and Ended those that ended.
	Held, Ended                       int
	Restarts, Restores, Raised, Mixed int
}

// worldNode is a node with its starts, the earliest first.
type worldNode struct {
	id     string
	starts []*worldStart
}

// worldStart is one start of a node, with the group numbers of its forwarder.
type worldStart struct {
	id         fsm.SessionID
	seq, floor uint64
	last       []byte // body of the last group
}

// keptClone is a clone that must no longer change.
type keptClone struct {
	m     *fsm.Machine
	state []byte
}

func newWorld(t testing.TB, d draws) *world { return newRecordedWorld(t, d, nil) }

func newRecordedWorld(t testing.TB, d draws, recorded *[]byte) *world {
	table := command.NewTable()
	w := &world{t: t, draws: d, table: table, machine: fsm.New(table), replica: fsm.New(table), stamp: 1, wall: 1_700_000_000_000_000, checkEvery: 2, recorded: recorded}
	w.listen()
	for _, id := range []string{"a", "b", "c"} {
		w.nodes = append(w.nodes, &worldNode{id, []*worldStart{{id: fsm.SessionID{NodeID: id, Boot: 1}}}})
	}
	features := max(d.IntN(fsm.MaxFeatures+8)-2, 0) // if it is low, later TermStarts may raise it
	w.mended = features >= fsm.FeatureMend
	w.termStart(min(features, fsm.MaxFeatures))
	return w
}

// listen makes both machines report all events.
func (w *world) listen() {
	for _, m := range []*fsm.Machine{w.machine, w.replica} {
		m.Want(fsm.Kinds(fsm.EventPublish, fsm.EventKeyspace, fsm.EventChanged, fsm.EventFlushed, fsm.EventTracked))
		m.RecordLocks(true)
	}
}

// one returns true with a probability of 1 in n.
func (w *world) one(n int) bool { return w.draws.IntN(n) == n-1 }

func (w *world) pick(words []string) string { return words[w.draws.IntN(len(words))] }

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, e := range w.entries {
		w.t.Log(describeEntry(e))
	}
	w.t.Fatalf(format, args...)
}

// step adds to the log, sometimes executes reads, sometimes replaces or clones the
// replica, and compares the machines.
func (w *world) step() {
	w.t.Helper()
	w.stamp += int64(w.draws.IntN(4)*w.draws.IntN(100)) * 1e6
	w.wall += int64(w.draws.IntN(200)-20) * 1e3
	switch {
	case w.one(30):
		w.term++
		features := w.machine.Features()
		if w.one(2) {
			features = w.draws.IntN(fsm.MaxFeatures + 1)
		}
		w.termStart(features)
	case w.one(40): // an entry of Raft itself
		for _, m := range []*fsm.Machine{w.machine, w.replica} {
			m.Advance(m.Applied() + 1)
		}
	default:
		w.batch()
	}
	w.watch()
	w.read()
	w.live()
	w.check()
}

func (w *world) termStart(features int) {
	w.t.Helper()
	if w.term == 0 {
		w.term = 1
	}
	before := w.machine.Features()
	w.apply(fsm.AppendTermStart(nil, fsm.Header{Term: w.term, Wall: w.wall}, fsm.TermStart{NodeID: "a", Boot: 1, ClusterID: "c", Features: features}))
	if w.machine.Features() > before {
		w.events.Raised++
	}
}

// batch applies groups of several starts, after a speculative execution if a
// group needs one.
func (w *world) batch() {
	w.t.Helper()
	var batch fsm.BatchBuilder
	fenced := w.one(40) && w.term > 1
	if fenced { // the forwarders will use the numbers of these groups again
		for _, n := range w.nodes {
			for _, s := range n.starts {
				defer func(seq, floor uint64) { s.seq, s.floor = seq, min(floor, seq) }(s.seq, s.floor)
			}
		}
	}
	for range 1 + w.draws.IntN(5) {
		s := w.start()
		w.group(s, &batch)
		// Sometimes, the next groups of this node belong to a new start. Only
		// below FeatureMend can a node then have waiters of two starts.
		if w.one(10) || w.machine.Features() < fsm.FeatureMend && w.one(4) {
			for _, n := range w.nodes {
				if n.id == s.id.NodeID {
					w.restart(n)
				}
			}
		}
	}
	for groups, _ := batch.Len(); groups > 0; groups, _ = batch.Len() {
		h := fsm.Header{Term: w.term, Stamp: w.stamp, Wall: w.wall, Seed: uint64(w.draws.IntN(1 << 16))}
		if w.one(50) {
			h.Stamp -= int64(w.draws.IntN(1000)) * 1e6
		}
		h.HashIndex, h.Hash = w.machine.Hash()
		if fenced {
			h.Term--
			w.apply(batch.Encode(h))
			return
		}
		if !batch.Scripts() {
			w.apply(batch.Encode(h))
			return
		}
		w.events.Scripts++
		var out, rest fsm.BatchBuilder
		sp := w.machine.Speculate(h, &batch, &w.runner)
		if err := sp.Run(&out, &rest, func() bool { return w.one(4) }); err != nil {
			w.fatalf("speculate: %v", err)
		}
		res := w.apply(out.Encode(h))
		w.compare(sp, res)
		batch = rest
	}
}

// compare checks that applying an entry gave the same state as its speculative
// execution.
func (w *world) compare(sp *fsm.Speculation, res *fsm.Result) {
	w.t.Helper()
	for _, g := range res.Groups {
		if fsm.TooLong(g.Reply) {
			return // the speculative execution may contain effects that the entry does not have
		}
	}
	var speculated, applied bytes.Buffer
	if err := errors.Join(fsm.StateOf(fsm.Speculated(sp), &speculated), fsm.StateOf(w.machine, &applied)); err != nil {
		w.fatalf("snapshot: %v", err)
	}
	if !bytes.Equal(speculated.Bytes(), applied.Bytes()) {
		w.fatalf("speculative state:\n%q\napplied:\n%q", speculated.Bytes(), applied.Bytes())
	}
	if err := fsm.Broken(fsm.Speculated(sp)); err != nil {
		w.fatalf("speculative execution: %v", err)
	}
}

// start chooses the start that sends: nearly always the latest one of a node.
func (w *world) start() *worldStart {
	n := w.nodes[w.draws.IntN(len(w.nodes))]
	if len(n.starts) > 1 && w.one(10) {
		return n.starts[w.draws.IntN(len(n.starts))]
	}
	return n.starts[len(n.starts)-1]
}

func (w *world) restart(n *worldNode) {
	latest := n.starts[len(n.starts)-1].id
	latest.Boot += 1 + uint64(w.draws.IntN(2))
	n.starts = append(n.starts, &worldStart{id: latest})
	w.events.Restarts++
}

// group adds a group of a start: a new group, a repeated one, or one that
// leaves a gap in the numbers.
func (w *world) group(s *worldStart, batch *fsm.BatchBuilder) {
	w.t.Helper()
	if s.seq > 0 && w.one(20) {
		batch.Add(s.id, s.floor, s.seq, s.last)
		return
	}
	body := w.body(s.id)
	if err := w.table.Check(body, false); err != nil {
		w.fatalf("group refused: %v", err)
	}
	if w.one(30) {
		batch.Add(s.id, s.floor, s.seq+2, body)
		return
	}
	if w.one(4) && s.seq > s.floor {
		s.floor += uint64(w.draws.IntN(int(s.seq - s.floor + 1)))
	}
	s.seq++
	s.last = body
	batch.Add(s.id, s.floor, s.seq, body)
}

// body makes a group of random commands and returns its encoding.
func (w *world) body(id fsm.SessionID) []byte {
	w.t.Helper()
	var g fsm.Group
	g.Reset(2+w.draws.IntN(2), uint64(1+w.draws.IntN(4)))
	if w.one(5) {
		g.Track()
	}
	if w.one(10) {
		g.As(w.pick([]string{"u", "nobody"}))
	}
	for _, n := range w.machine.WaitersOf(id) {
		if n.Served && w.one(6) {
			cmd, args := w.row([]string{fsm.UnwaitCommand, fmt.Sprint(n.Origin), fmt.Sprint(uint64(n.Pos))})
			g.Command(cmd, 0, args)
			return bytes.Clone(g.Bytes())
		}
	}
	if w.one(3) { // alone in its group, as nodes send it
		cmd, args := w.blocking()
		g.Command(cmd, w.draws.IntN(2), args)
		return bytes.Clone(g.Bytes())
	}
	for range 1 + w.draws.IntN(3) {
		db := w.draws.IntN(2)
		switch {
		case w.one(5):
			var watches []fsm.Watch
			for len(w.watches) > 0 && w.one(2) {
				watches = append(watches, w.watches[w.draws.IntN(len(w.watches))])
			}
			var queue []fsm.Queued
			for range w.draws.IntN(4) {
				cmd, args := w.command(id)
				queue = append(queue, fsm.Queued{DB: w.draws.IntN(2), Cmd: cmd, Args: args})
			}
			g.Transaction(watches, queue)
		default:
			cmd, args := w.command(id)
			g.Command(cmd, db, args)
		}
	}
	body := bytes.Clone(g.Bytes())
	if w.one(8) {
		fsm.SetScriptBudget(body, fsm.ScriptBudget(1+w.draws.IntN(3)))
	}
	return body
}

// apply applies an entry to both machines and compares the results.
func (w *world) apply(entry []byte) *fsm.Result {
	w.t.Helper()
	w.entries = append(w.entries, bytes.Clone(entry))
	if len(w.entries) > 12 {
		w.entries = w.entries[1:]
	}
	rec, err := fsm.ReadRecord(entry)
	if err != nil {
		w.fatalf("read the entry: %v", err)
	}
	index, before := w.machine.Applied()+1, w.machine.Features()
	var results [2]*fsm.Result
	for i, m := range []*fsm.Machine{w.machine, w.replica} {
		copied := bytes.Clone(entry)
		var err error
		if results[i], err = m.Apply(index, w.term, copied); err != nil {
			w.fatalf("apply: %v", err)
		}
		for j := range copied { // the machine has copied what it keeps
			copied[j] = 0xEE
		}
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		w.fatalf("results differ at %d:\n%+v\n%+v", index, results[0], results[1])
	}
	_, a := w.machine.Hash()
	if _, b := w.replica.Hash(); a != b {
		w.fatalf("hashes differ at %d", index)
	}
	if w.recorded != nil {
		*w.recorded = appendRecorded(*w.recorded, recordedEntry{index, w.term, entry, a})
	}
	if w.machine.Features() > before {
		w.events.Raised++
	}
	if err := w.locks.add(results[0].Locks); err != nil {
		w.fatalf("%v", err)
	}
	w.note(results[0], rec)
	return results[0]
}

// claimedGrant matches the reply to the claim of a grant of a lock.
var claimedGrant = regexp.MustCompile(`\$\d+\r\n:\d+\r\n\r\n`)

// note counts the effects of an entry.
func (w *world) note(res *fsm.Result, rec fsm.Record) {
	e := &w.events
	e.Entries++
	for i, g := range res.Groups {
		if ops := rec.Groups[i].Ops; g.Status == fsm.StatusDone && len(ops) == 1 && len(ops[0].Watches) > 0 {
			if string(g.Reply) == "*-1\r\n" {
				e.Refused++
			} else {
				e.Committed++
			}
		}
		switch g.Status {
		case fsm.StatusDone:
			e.Done++
		case fsm.StatusGap:
			e.Gaps++
		case fsm.StatusStale:
			e.Stale++
		case fsm.StatusFenced:
			e.Fenced++
		}
		if _, _, waits := fsm.Waiting(g.Reply); waits {
			e.Waits++
		}
	}
	granted := e.Granted
	for _, n := range res.Woken {
		switch {
		case n.Reply() != nil && n.Reply()[0] == ':': // only the reply of a grant of a lock is an integer
			e.Granted++
		case n.Reply() != nil:
			e.Served++
		}
	}
	if e.Granted > granted+1 {
		e.Together++
	}
	if fsm.SharedLocks(w.machine) > 0 {
		e.Shared++
	}
	if fsm.LockDelays(w.machine) > 0 {
		e.Delayed++
	}
	for _, event := range res.Events {
		if strings.HasPrefix(event.Key, "__lock@") && strings.HasPrefix(string(event.Payload), "undelivered ") {
			e.PassedOn++
		}
	}
	for i, g := range res.Groups {
		for _, op := range rec.Groups[i].Ops {
			if len(op.Commands) == 1 && op.Commands[0].Args[0] == fsm.UnwaitCommand && claimedGrant.Match(g.Reply) {
				e.Claimed++
			}
		}
	}
	e.Held, e.Ended = w.locks.begun, w.locks.ended
	e.Duplicates = int(w.machine.Stats().Duplicates)
	if fsm.Mixed(w.machine) {
		e.Mixed++
	}
}

// watch sometimes records the version of a key, for a later transaction.
func (w *world) watch() {
	w.t.Helper()
	if !w.one(3) {
		return
	}
	k := fsm.Watch{DB: w.draws.IntN(2), Key: w.pick(worldKeys)}
	out := w.readOnly(w.machine, k.DB, w.stamp, []string{fsm.VersionCommand, k.Key})
	if _, err := fmt.Sscanf(out, ":%d", &k.Version); err != nil {
		w.fatalf("the version of a key is %q, want an integer", out)
	}
	if w.watches = append(w.watches, k); len(w.watches) > 6 {
		w.watches = w.watches[1:]
	}
}

// read sometimes executes a read on one machine. The read must not change the
// machine. The time of the read may be ahead of the log's clock.
func (w *world) read() {
	w.t.Helper()
	words := w.anything()
	args := respwire.Args(words...)
	if row := w.table.Find(args[0]); w.one(2) || row.Routed(args).IsWrite() || row.Flags&fsm.Scripted != 0 || !row.ArityOK(len(args)) {
		return
	}
	w.readOnly(w.machine, w.draws.IntN(2), w.stamp+int64(w.draws.IntN(300))*1e6, words)
}

func (w *world) readOnly(m *fsm.Machine, db int, now int64, words []string) string {
	w.t.Helper()
	args := respwire.Args(words...)
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(w.table.Find(args[0]), db, args)
	out, _, err := m.Read(nil, fsm.ReadRequest{Body: g.Bytes(), Now: now, Wall: w.wall})
	if err != nil && !errors.Is(err, fsm.ErrUnlogged) {
		w.fatalf("read %q: %v", words, err)
	}
	return string(out)
}

// live sometimes clones the replica, or replaces it with a machine that is
// restored from its snapshot.
func (w *world) live() {
	w.t.Helper()
	switch w.draws.IntN(8) {
	case 0:
		w.replica = w.restored(w.replica)
		w.listen()
		w.events.Restores++
	case 1: // the clone from which a snapshot is being written
		f := w.replica.Clone()
		w.clones = append(w.clones, keptClone{f, w.state(f)})
		if len(w.clones) > 3 {
			w.clones = w.clones[1:]
		}
	case 2: // a clone on which the leader executes a dry run
		f := w.replica.Clone()
		if _, _, _, err := f.Try(fsm.Header{Term: w.term, Stamp: w.stamp, Wall: w.wall}, w.body(fsm.SessionID{NodeID: "a", Boot: 1}), &w.runner, nil); err != nil {
			w.fatalf("dry run: %v", err)
		}
		if err := fsm.Broken(f); err != nil {
			w.fatalf("dry run: %v", err)
		}
	}
}

func (w *world) snapshot(m *fsm.Machine) []byte {
	w.t.Helper()
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b, m.Sessions()); err != nil {
		w.fatalf("write snapshot: %v", err)
	}
	return b.Bytes()
}

func (w *world) state(m *fsm.Machine) []byte {
	w.t.Helper()
	var b bytes.Buffer
	if err := fsm.StateOf(m, &b); err != nil {
		w.fatalf("write snapshot: %v", err)
	}
	return b.Bytes()
}

// restored takes a snapshot of m and returns a machine that is restored from
// it. This machine must equal m.
func (w *world) restored(m *fsm.Machine) *fsm.Machine {
	w.t.Helper()
	whole := w.snapshot(m)
	r, err := fsm.ReadSnapshot(bytes.NewReader(whole), w.table)
	if err != nil {
		w.fatalf("a snapshot cannot be read: %v", err)
	}
	if again := w.snapshot(r); !bytes.Equal(again, whole) {
		w.fatalf("the snapshot of a restored machine differs from the original:\n%q\n%q", whole, again)
	}
	if err := fsm.Broken(r); err != nil {
		w.fatalf("restored machine: %v", err)
	}
	return r
}

// check compares the machines with each other, and the indexes of each machine
// with its state.
func (w *world) check() {
	w.t.Helper()
	for _, m := range []*fsm.Machine{w.machine, w.replica} {
		if err := errors.Join(fsm.Broken(m), fsm.IdleLock(m), fsm.IdleQueue(m), w.locks.compare(m)); err != nil {
			w.fatalf("%v", err)
		}
	}
	if id := fsm.LateWaiter(w.machine); id != nil && w.mended {
		w.fatalf("waiters of %s, which is not the latest start of its node", id)
	}
	if w.events.Entries%w.checkEvery != 0 {
		return
	}
	if a, b := w.snapshot(w.machine), w.snapshot(w.replica); !bytes.Equal(a, b) {
		w.fatalf("states differ:\n%q\n%q", a, b)
	}
	w.restored(w.machine)
	for _, f := range w.clones {
		if !bytes.Equal(w.state(f.m), f.state) {
			w.fatalf("a clone has changed")
		}
	}
}

// describeEntry formats an entry for the report of a failure.
func describeEntry(entry []byte) string {
	rec, err := fsm.ReadRecord(entry)
	if err != nil {
		return err.Error()
	}
	if rec.TermStart != nil {
		return fmt.Sprintf("term %d starts, feature version %d", rec.Header.Term, rec.TermStart.Features)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "term %d, stamp %d", rec.Header.Term, rec.Header.Stamp)
	for _, g := range rec.Groups {
		fmt.Fprintf(&b, "\n  %s group %d:", g.Session, g.Seq)
		for _, op := range g.Ops {
			fmt.Fprintf(&b, " [")
			if op.Transaction {
				fmt.Fprintf(&b, "transaction watching %v: ", op.Watches)
			}
			if op.Effects {
				fmt.Fprintf(&b, "effects, reply %.60q: ", op.Reply)
			}
			for _, c := range op.Commands {
				fmt.Fprintf(&b, "%d:%.200q ", c.DB, c.Args)
			}
			fmt.Fprintf(&b, "]")
		}
	}
	return b.String()
}

// worldSeeds returns the range of seeds of the histories of TestMachines.
// HOLDFAST_FSM_SEEDS is the number of histories. HOLDFAST_FSM_SEED selects a
// single history by its seed.
func worldSeeds(t *testing.T) (first, last uint64) {
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	if os.Getenv("HOLDFAST_FSM_SEED") != "" {
		seed := number("HOLDFAST_FSM_SEED", 0)
		return seed, seed + 1
	}
	return 0, number("HOLDFAST_FSM_SEEDS", 48)
}

// TestMachines: two machines that apply the same entries of several nodes give the
// same results and stay equal, however often one of them is restored from a
// snapshot. Every snapshot can be read.
func TestMachines(t *testing.T) {
	t.Parallel()
	var sum worldEvents
	first, last := worldSeeds(t)
	for seed := first; seed < last; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("seed %d: HOLDFAST_FSM_SEED=%d runs it alone", seed, seed)
					panic(p)
				}
				if t.Failed() {
					t.Logf("HOLDFAST_FSM_SEED=%d runs this history alone", seed)
				}
			}()
			w := newWorld(t, rand.New(rand.NewPCG(seed, 7)))
			for range 100 {
				w.step()
			}
			sum.add(&w.events)
		})
	}
	t.Logf("%+v", sum)
	if last-first < 48 || t.Failed() {
		return
	}
	v := reflect.ValueOf(sum)
	for i := range v.NumField() {
		least := int64(20)
		if v.Type().Field(i).Name == "Together" {
			least = 5
		}
		if v.Field(i).Int() < least {
			t.Errorf("%s: %d in all histories, which is too few to test anything", v.Type().Field(i).Name, v.Field(i).Int())
		}
	}
}

func (e *worldEvents) add(o *worldEvents) {
	sum, more := reflect.ValueOf(e).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// FuzzMachines is like TestMachines, with a history that the fuzzer chooses.
func FuzzMachines(f *testing.F) {
	for seed := range byte(4) {
		rng := rand.NewChaCha8([32]byte{seed})
		data := make([]byte, 3000)
		if _, err := rng.Read(data); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &drawnBytes{data}
		w := newWorld(t, d)
		for range 60 {
			if len(d.data) == 0 {
				break
			}
			w.step()
		}
	})
}
