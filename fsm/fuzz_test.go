package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// documented reports whether an error is one of the exported errors about bytes
// that cannot be decoded.
func documented(err error) bool {
	for _, e := range []error{fsm.ErrShort, fsm.ErrChecksum, fsm.ErrVersion, fsm.ErrFormat} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// goldenEntries returns the entries of two golden files in testdata, as seeds.
func goldenEntries(f *testing.F) [][]byte {
	var entries [][]byte
	for _, file := range []string{"testdata/golden-entries-v1", "testdata/golden-scripts-v1"} {
		log, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for len(log) > 0 {
			n := int(log[0]) | int(log[1])<<8
			entries = append(entries, log[2:2+n])
			log = log[2+n:]
		}
	}
	return entries
}

// reseal returns a copy of an entry with a correct checksum, so that the fuzzer
// also tests the decoder.
func reseal(data []byte) []byte {
	data = bytes.Clone(data)
	if len(data) >= 8 {
		binary.LittleEndian.PutUint32(data[4:], crc32.Checksum(data[8:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return data
}

// FuzzEntry: Apply returns a documented error for bytes that are not an entry,
// and does not panic. Two machines that apply the same bytes are equal.
func FuzzEntry(f *testing.F) {
	for _, e := range goldenEntries(f) {
		f.Add(e)
	}
	table := command.NewTable()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, entry := range [][]byte{data, reseal(data)} {
			var states [2][]byte
			var results [2]*fsm.Result
			for i := range states {
				m := fsm.New(table)
				res, err := m.Apply(1, 3, entry)
				if err != nil && !documented(err) {
					t.Fatalf("Apply returned %v, want no error or a documented one", err)
				}
				results[i] = res
				states[i] = snapshotOf(t, m)
			}
			if !bytes.Equal(states[0], states[1]) || !reflect.DeepEqual(results[0], results[1]) {
				t.Error("two machines differ")
			}
		}
	})
}

// FuzzGroup: a group that Table.Check accepts can be run through the log. If it
// is a read, it can also be run without the log.
func FuzzGroup(f *testing.F) {
	table := command.NewTable()
	rng := rand.New(rand.NewPCG(3, 3))
	var g fsm.Group
	for range 200 {
		g.Reset(2+rng.IntN(2), rng.Uint64())
		for range 1 + rng.IntN(3) {
			cmd, args := randomCommand(table, rng)
			if rng.IntN(4) == 0 {
				g.Transaction([]fsm.Watch{{DB: rng.IntN(3), Key: "a", Version: rng.Uint64N(3)}}, []fsm.Queued{{DB: rng.IntN(3), Cmd: cmd, Args: args}})
			} else {
				g.Command(cmd, rng.IntN(3), args)
			}
		}
		f.Add(bytes.Clone(g.Bytes()))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := table.Check(body, false); err != nil {
			if !documented(err) {
				t.Fatalf("Check returned %v, want a documented error", err)
			}
			if table.Check(body, true) == nil {
				t.Fatal("Check refuses the group for the log, but accepts it as a read")
			}
			return
		}
		m := fsm.New(table)
		if table.Check(body, true) == nil {
			before := snapshotOf(t, m)
			if _, _, err := m.Read(nil, fsm.ReadRequest{Body: body, Now: 1e9, Wall: 1e15}); err != nil {
				t.Fatalf("Check accepts the group as a read, but Read fails: %v", err)
			}
			if !bytes.Equal(snapshotOf(t, m), before) {
				t.Fatal("a read changed the state")
			}
		}
		var b fsm.BatchBuilder
		b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, 0, 1, body)
		if _, err := m.Apply(1, 1, b.Encode(fsm.Header{Term: 1, Stamp: 1e9, Wall: 1e15})); err != nil {
			t.Fatalf("Check accepts the group, but Apply fails: %v", err)
		}
		if snap := snapshotOf(t, m); !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
			t.Fatal("the restored machine differs from the original")
		}
	})
}

// FuzzSnapshot: reading arbitrary bytes returns an error or a machine, and does
// not panic. The snapshot of that machine can be read again, and the result is
// an equal machine.
func FuzzSnapshot(f *testing.F) {
	golden, err := os.ReadFile("testdata/golden-snapshot-v1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	withCollections, err := os.ReadFile("testdata/golden-collections-v1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(withCollections)
	withLibraries := newFeed(f)
	withLibraries.raise(fsm.MaxFeatures)
	withLibraries.do("SET k v", "DEL k")
	withLibraries.do(`_LIBRARY a "#!lua name=a\n" "\x01f\x01\x00" "\x01g\x00\x01\x04text"`)
	f.Add(snapshotOf(f, withLibraries.m))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, snapshot := range [][]byte{data, resealBlocks(data)} {
			m, err := fsm.ReadSnapshot(bytes.NewReader(snapshot), command.NewTable())
			if err != nil {
				continue
			}
			again := snapshotOf(t, m)
			if !bytes.Equal(snapshotOf(t, restore(t, again)), again) {
				t.Fatal("a machine that was read, written and read again differs from the first one")
			}
		}
	})
}

// resealBlocks returns a copy of a snapshot with correct checksums of its blocks.
func resealBlocks(data []byte) []byte {
	data = bytes.Clone(data)
	const head = len("HFSNAP") + 1
	for at := head; at+8 < len(data); {
		n := int(binary.LittleEndian.Uint32(data[at:]))
		if n > len(data)-at-8 {
			break
		}
		binary.LittleEndian.PutUint32(data[at+4:], crc32.Checksum(data[at+8:at+8+n], crc32.MakeTable(crc32.Castagnoli)))
		at += 8 + n
	}
	return data
}

// randomCommand draws a command of the table with arguments that are often
// valid.
func randomCommand(table *fsm.Table, rng *rand.Rand) (*fsm.Command, [][]byte) {
	words := strings.Fields("a b c a b c a b c 0 1 -1 10 100 9223372036854775807 x NX XX GT LT GET EX PX EXAT PXAT KEEPTTL PERSIST IFEQ IFNE DB REPLACE MATCH COUNT TYPE * [a-b] string ENCODING IDLETIME REFCOUNT 1700000050 1.5 ASYNC BEFORE AFTER LEFT RIGHT RANK MAXLEN LIMIT CH INCR BYSCORE BYLEX REV WITHSCORES WITHVALUES WEIGHTS AGGREGATE MAX - + [a (b (1 -inf inf 2 3")
	rows := table.Rows()
	cmd := rows[rng.IntN(len(rows))]
	if strings.HasPrefix(cmd.Name, "flush") && rng.IntN(10) > 0 {
		cmd = table.Find([]byte("set"))
	}
	n := cmd.Arity
	if n < 0 {
		n = -n + rng.IntN(4)
	}
	args := [][]byte{[]byte(cmd.Name)}
	for len(args) < n {
		args = append(args, []byte(words[rng.IntN(len(words))]))
	}
	return cmd, args
}
