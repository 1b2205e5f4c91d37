package fsm_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// feed applies groups of commands to one machine, each group in an entry of its
// own.
type feed struct {
	t     testing.TB
	m     *fsm.Machine
	stamp int64
	seq   uint64
	group fsm.Group

	origin uint64
}

func newFeed(t testing.TB) *feed {
	f := &feed{t: t, m: fsm.New(command.NewTable()), stamp: 1, origin: 1}
	f.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1"}))
	return f
}

func (f *feed) apply(data []byte) *fsm.Result {
	f.t.Helper()
	res, err := f.m.Apply(f.m.Applied()+1, 1, data)
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

// do applies all lines as one group and returns its replies.
func (f *feed) do(lines ...string) string {
	f.t.Helper()
	f.group.Reset(2, f.origin)
	for _, line := range lines {
		f.add(respwire.Words(line)...)
	}
	return f.send()
}

func (f *feed) add(words ...string) {
	f.t.Helper()
	cmd, args := find(f.t, f.m.Table(), words)
	f.group.Command(cmd, 0, args)
}

func (f *feed) send() string {
	f.t.Helper()
	var b fsm.BatchBuilder
	f.seq++
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, f.seq, f.group.Bytes())
	g := f.apply(b.Encode(fsm.Header{Term: 1, Stamp: f.stamp})).Groups[0]
	if g.Status != fsm.StatusDone {
		f.t.Fatalf("the status of the group is %v, want StatusDone", g.Status)
	}
	return string(g.Reply)
}

// continues restores a snapshot of the machine into another machine. Both must
// have the same state, before and after they execute the lines, and must give
// the same replies.
func (f *feed) continues(lines ...string) {
	f.t.Helper()
	whole := snapshotOf(f.t, f.m)
	again := &feed{t: f.t, m: restore(f.t, whole), stamp: f.stamp, seq: f.seq}
	if !bytes.Equal(snapshotOf(f.t, again.m), whole) {
		f.t.Error("the restored machine differs from the original")
	}
	for _, line := range lines {
		if got, want := again.do(line), f.do(line); got != want {
			f.t.Errorf("%s: %.200q, want %.200q", line, got, want)
		}
	}
	if !bytes.Equal(snapshotOf(f.t, again.m), snapshotOf(f.t, f.m)) {
		f.t.Error("after the lines, the restored machine differs from the original")
	}
}

// golden checks that a file contains a snapshot in the current format, with the
// state of the machine. If the flag -golden is set, it writes the file first.
func (f *feed) golden(file string) {
	f.t.Helper()
	if *golden {
		if err := os.WriteFile(file, snapshotOf(f.t, f.m), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	if got := snapshotOf(f.t, restore(f.t, want)); !bytes.Equal(got, want) {
		f.t.Errorf("%s has another encoding now: a new format needs a new version", file)
	}
	if !bytes.Equal(snapshotOf(f.t, f.m), want) {
		f.t.Errorf("the commands give another state than %s", file)
	}
}

// readDamaged changes each byte of a snapshot in turn. Reading the snapshot
// must fail. If the checksums are corrected, reading the snapshot must return an
// error, or a machine whose own snapshot can be read. The error must be a
// documented one, except for the first 16 bytes. Reading must not panic.
func readDamaged(t *testing.T, whole []byte) {
	t.Helper()
	for i := range whole {
		data := bytes.Clone(whole)
		data[i] ^= 0x41
		if _, err := fsm.ReadSnapshot(bytes.NewReader(data), command.NewTable()); err == nil {
			t.Fatalf("byte %d changed: read without an error", i)
		}
		m, err := fsm.ReadSnapshot(bytes.NewReader(resealBlocks(data)), command.NewTable())
		switch {
		case err == nil:
			again := snapshotOf(t, m)
			if !bytes.Equal(snapshotOf(t, restore(t, again)), again) {
				t.Fatalf("byte %d changed: a machine that was read, written and read again differs from the first one",
					i)
			}
		case !documented(err) && i > 15:
			t.Fatalf("byte %d changed: %v, want a documented error", i, err)
		}
	}
}

// replacement replaces the first occurrence of some bytes of a snapshot.
type replacement struct{ old, with string }

// refuse copies a snapshot for each replacement, makes the replacement in the
// copy, and corrects the checksums. Reading the copy must fail with one of the
// errors in wants.
func refuse(t *testing.T, whole []byte, replacements map[string]replacement, wants ...error) {
	t.Helper()
	for what, r := range replacements {
		data := bytes.Replace(bytes.Clone(whole), []byte(r.old), []byte(r.with), 1)
		if bytes.Equal(data, whole) {
			t.Errorf("%s: the snapshot does not contain the bytes to replace", what)
			continue
		}
		_, err := fsm.ReadSnapshot(bytes.NewReader(resealBlocks(data)), command.NewTable())
		if !slices.ContainsFunc(wants, func(want error) bool { return errors.Is(err, want) }) {
			t.Errorf("%s: error %v is not one of the expected errors", what, err)
		}
	}
}

// read runs one command without the log.
func (f *feed) read(now int64, line string) (reply string, expiryPending bool) {
	f.t.Helper()
	f.group.Reset(2, f.origin)
	f.add(respwire.Words(line)...)
	out, expiryPending, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Now: now})
	if err != nil {
		f.t.Fatal(err)
	}
	return string(out), expiryPending
}

// furnished returns a feed whose machine has strings, deadlines, keys in two
// databases, and open and served waiters.
func furnished(t testing.TB) *feed {
	f := newFeed(t)
	f.do("SET a 1", "SET b 2 EX 100", "APPEND raw x", "APPEND raw y", `SET "\x00\xff" "\r\n"`, "SET future v PXAT 9223372036854775807", `SET "" ""`)
	f.do("COPY a a DB 15", "GET a")
	f.do("INCR n", "INCR a")
	for f.origin = 2; f.origin < 5; f.origin++ {
		f.do("BLPOP nokey nokey2 0")
	}
	f.origin = 1
	f.do("RPUSH nokey2 one")
	return f
}

func TestSnapshot_Corrupt(t *testing.T) {
	whole := snapshotOf(t, furnished(t).m)
	read := func(data []byte) (*fsm.Machine, error) {
		return fsm.ReadSnapshot(bytes.NewReader(data), command.NewTable())
	}
	if _, err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			data := bytes.Clone(whole)
			data[i] ^= flip
			if m, err := read(data); err == nil {
				t.Fatalf("byte %d ^ %#x: read without an error, %d keys", i, flip, m.Len())
			}
		}
	}
	for n := range whole {
		if _, err := read(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were read without an error", n, len(whole))
		}
	}
	if _, err := read(append(bytes.Clone(whole), 0)); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("a byte too many: %v, want ErrFormat", err)
	}
	if _, err := read(append(bytes.Clone(whole), whole...)); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("two snapshots: %v, want ErrFormat", err)
	}
}

// TestSnapshot_Large checks a snapshot of several blocks with a key and a value of
// the maximum size.
func TestSnapshot_Large(t *testing.T) {
	f := newFeed(t)
	for i := range 5000 {
		f.do(fmt.Sprintf("SET key:%d %q", i, strings.Repeat("v", i%300)))
	}
	longKey := strings.Repeat("k", fsm.MaxKeyBytes)
	f.group.Reset(2, f.origin)
	f.add("SET", longKey, strings.Repeat("v", fsm.MaxStringBytes))
	if got := f.send(); got != "+OK\r\n" {
		t.Fatalf("SET of the longest key and value: %q, want OK", got)
	}
	m := restore(t, snapshotOf(t, f.m))
	if !bytes.Equal(snapshotOf(t, m), snapshotOf(t, f.m)) {
		t.Error("the restored machine differs from the original")
	}
	if got, want := m.Len(), 5001; got != want {
		t.Errorf("%d keys, want %d", got, want)
	}
}

// TestSnapshot_Failures: WriteSnapshot and ReadSnapshot return the errors of
// the writer and the reader.
func TestSnapshot_Failures(t *testing.T) {
	f := furnished(t)
	for room := range len(snapshotOf(t, f.m)) {
		if err := f.m.WriteSnapshot(&limitedWriter{room}, f.m.Sessions()); !errors.Is(err, errFull) {
			t.Fatalf("disk with %d bytes: %v, want errFull", room, err)
		}
	}
	broken := io.MultiReader(bytes.NewReader(snapshotOf(t, f.m)[:20]), &brokenReader{})
	if _, err := fsm.ReadSnapshot(broken, command.NewTable()); !errors.Is(err, errFull) {
		t.Errorf("broken disk: %v, want errFull", err)
	}
}

var errFull = errors.New("no space left")

type limitedWriter struct{ room int }

func (w *limitedWriter) Write(b []byte) (int, error) {
	if len(b) > w.room {
		return w.room, errFull
	}
	w.room -= len(b)
	return len(b), nil
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errFull }

// TestSnapshot_Sessions: a snapshot of a clone contains the sessions that the
// original machine had when it was cloned.
func TestSnapshot_Sessions(t *testing.T) {
	f := furnished(t)
	clone, sessions := f.m.Clone(), f.m.Sessions()
	want := snapshotOf(t, f.m)
	f.do("SET later 1")
	var got bytes.Buffer
	if err := clone.WriteSnapshot(&got, sessions); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the snapshot of the clone differs from the machine at the time of the clone")
	}
	m := restore(t, want)
	id := fsm.SessionID{NodeID: "n1", Boot: 1}
	if got, want := m.Session(id).LastSeq, f.seq-1; got != want {
		t.Errorf("the last group number is %d, want %d", got, want)
	}
}

// TestSnapshot_ManyReplies: a snapshot contains all replies that a session keeps,
// even if they do not fit into one block. They are limited to 16 MiB.
func TestSnapshot_ManyReplies(t *testing.T) {
	f := newFeed(t)
	f.do("SET big " + strings.Repeat("x", 60_000))
	for range 400 { // 24 MB, none of it acknowledged
		f.do("GET big", "INCR n")
	}
	id := fsm.SessionID{NodeID: "n1", Boot: 1}
	before := f.m.Session(id)
	after := restore(t, snapshotOf(t, f.m)).Session(id)
	same := func(a, b fsm.GroupResult) bool {
		return a.Seq == b.Seq && a.Status == b.Status && bytes.Equal(a.Reply, b.Reply)
	}
	if before.LastSeq != after.LastSeq || !slices.EqualFunc(before.Replies, after.Replies, same) {
		t.Errorf("%d replies up to group %d before the snapshot, and %d up to group %d after it, want the same",
			len(before.Replies), before.LastSeq, len(after.Replies), after.LastSeq)
	}
	kept, lost := 0, 0
	for _, r := range after.Replies {
		kept += len(r.Reply)
		if r.Status == fsm.StatusReplyLost {
			lost++
		}
	}
	if kept < 15<<20 || kept > 16<<20 || lost == 0 {
		t.Errorf("%d bytes of replies are kept and %d replies lost, want just under 16 MiB and some", kept, lost)
	}
}

var golden = flag.Bool("golden", false, "write new golden files in the current formats")

// TestGolden fixes the formats: entries and snapshots of earlier programs must
// always be readable, and give the same state.
func TestGolden(t *testing.T) {
	const entriesFile, snapshotFile = "testdata/golden-entries-v1", "testdata/golden-snapshot-v1"
	if *golden {
		f := &recorder{feed: feed{t: t, m: fsm.New(command.NewTable()), stamp: 5_000_000_000}}
		f.write()
		if err := os.WriteFile(entriesFile, f.log, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(snapshotFile, snapshotOf(t, f.m), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(entriesFile)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := os.ReadFile(snapshotFile)
	if err != nil {
		t.Fatal(err)
	}
	m := fsm.New(command.NewTable())
	for index := uint64(1); len(log) > 0; index++ {
		n := int(log[0]) | int(log[1])<<8
		if _, err := m.Apply(index, 3, log[2:2+n]); err != nil {
			t.Fatal(err)
		}
		log = log[2+n:]
	}
	if !bytes.Equal(snapshotOf(t, m), snapshot) {
		t.Error("the golden entries give another state than the golden snapshot")
	}
	if got := snapshotOf(t, restore(t, snapshot)); !bytes.Equal(got, snapshot) {
		t.Error("the golden snapshot has another encoding now: a new format needs a new version")
	}
}

// recorder is a feed that keeps the entries that it applies, each after its
// length.
type recorder struct {
	feed
	log []byte
}

func (r *recorder) entry(data []byte) {
	r.t.Helper()
	r.log = append(r.log, byte(len(data)), byte(len(data)>>8))
	r.log = append(r.log, data...)
	if _, err := r.m.Apply(r.m.Applied()+1, 3, data); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorder) write() {
	h := fsm.Header{Term: 3, Stamp: r.stamp, Wall: 1_700_000_000_000_000, Seed: 42}
	r.entry(fsm.AppendTermStart(nil, h, fsm.TermStart{NodeID: "n1", Instance: "abc", Boot: 7, ClusterID: "golden"}))
	h.HashIndex, h.Hash = r.m.Hash()
	lines := [][]string{{"SET a 1", "SET b 2 PX 1500", "GET b", "MSET c 3 d 4"}, {"APPEND a x", "APPEND a y", "COPY b b DB 9", "EXPIREAT c 1800000000"}, {"DEL d", "INCRBYFLOAT f 0.1"}}
	for i, group := range lines {
		r.group.Reset(2+i%2, uint64(i))
		for _, line := range group {
			r.add(respwire.Words(line)...)
		}
		var b fsm.BatchBuilder
		b.Add(fsm.SessionID{NodeID: "n1", Boot: 7}, uint64(i/2), uint64(i+1), r.group.Bytes())
		r.entry(b.Encode(h))
		h.Stamp += 1_000_000_000
	}
	// The next entry has a transaction with a watch, from another node. The
	// last entry was built in an earlier term.
	set, get := r.m.Table().Find([]byte("SET")), r.m.Table().Find([]byte("GET"))
	r.group.Reset(3, 9)
	r.group.Transaction([]fsm.Watch{{DB: 2, Key: "w", Version: 0}}, []fsm.Queued{
		{DB: 2, Cmd: set, Args: [][]byte{[]byte("set"), []byte("w"), []byte("\x00\xff")}},
		{DB: 2, Cmd: get, Args: [][]byte{[]byte("get"), []byte("w")}},
	})
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n2", Boot: 1}, 0, 1, r.group.Bytes())
	r.entry(b.Encode(h))
	h.Term = 2
	r.entry(b.Encode(h))
}

func TestMachine_Accessors(t *testing.T) {
	f := furnished(t)
	if got, want := f.m.ClusterID(), "c1"; got != want {
		t.Errorf("cluster id %q, want %q", got, want)
	}
	if got, want := f.m.Term(), uint64(1); got != want {
		t.Errorf("term %d, want %d", got, want)
	}
	if got, want := [3]int{f.m.Len(), f.m.DBSize(15), f.m.Volatile()}, [3]int{8, 1, 2}; got != want {
		t.Errorf("keys, keys of db 15, volatile: %v, want %v", got, want)
	}
	if got, want := f.m.VolatileIn(15), 0; got != want {
		t.Errorf("%d volatile keys in db 15, want %d", got, want)
	}
	if got, want := f.m.SessionCount(), 1; got != want {
		t.Errorf("%d sessions, want %d", got, want)
	}
	applied := f.m.Applied()
	if f.m.Advance(applied - 1); f.m.Applied() != applied {
		t.Error("Advance moved the applied index back")
	}
	if f.m.Advance(applied + 5); f.m.Applied() != applied+5 {
		t.Error("Advance did not move the applied index")
	}
	defer func() {
		if recover() == nil {
			t.Error("Apply of an entry before the applied index did not panic")
		}
	}()
	_, _ = f.m.Apply(applied+5, 1, nil)
}

// TestMachine_OneHistory: the same entries give the same replies and the same state,
// even if one machine is cloned and restored from a snapshot between the entries.
func TestMachine_OneHistory(t *testing.T) {
	a, b := furnished(t), furnished(t)
	for i := range 50 {
		line := fmt.Sprintf("SET k%d %d EX %d", i%7, i, 1+i)
		if a.do(line) != b.do(line) {
			t.Fatal("the replies of the two machines differ")
		}
		clone := b.m.Clone()
		if _, err := fsm.RunOn(clone, b.group.Bytes()); err != nil {
			t.Fatal(err)
		}
		b.m = restore(t, snapshotOf(t, b.m))
		a.stamp += 3e9
		b.stamp += 3e9
	}
	if !bytes.Equal(snapshotOf(t, a.m), snapshotOf(t, b.m)) {
		t.Error("the states of the two machines differ")
	}
	if !reflect.DeepEqual(a.m.Stats(), b.m.Stats()) {
		t.Errorf("stats differ: %+v, %+v", a.m.Stats(), b.m.Stats())
	}
}
