package backup_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/holdfast-kv/holdfast/backup"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// whole returns a complete backup file of a state machine with two keys.
func whole(t *testing.T) []byte {
	t.Helper()
	table := command.NewTable()
	m := fsm.New(table)
	start := fsm.AppendTermStart(nil, fsm.Header{Term: 1, Wall: 1}, fsm.TermStart{NodeID: "n1", ClusterID: "c", Features: fsm.MaxFeatures})
	if _, err := m.Apply(1, 1, start); err != nil {
		t.Fatal(err)
	}
	var g fsm.Group
	g.Reset(2, 1)
	for _, words := range []string{"SET lock owner PX 60000", "RPUSH list a"} {
		args := bytes.Fields([]byte(words))
		g.Command(table.Find(args[0]), 0, args)
	}
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
	if _, err := m.Apply(2, 1, b.Encode(fsm.Header{Term: 1, Stamp: 1, Wall: 1})); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	clone := m.Clone()
	clone.ForBackup()
	w, err := backup.NewWriter(&file, backup.Header{SnapshotHead: clone.Head(), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := clone.WriteSnapshot(w, fsm.Sessions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(backup.Trailer{Keys: 2}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func check(file []byte) (backup.Content, error) {
	r, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		return backup.Content{}, err
	}
	return backup.CheckFile(r, command.NewTable())
}

// TestCheckFile checks that CheckFile describes a whole file. It also checks
// that CheckFile refuses a file that was cut off, extended or changed anywhere,
// and that the error contains the offset.
func TestCheckFile(t *testing.T) {
	file := whole(t)
	c, err := check(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Index != 2 || c.ClusterID != "c" || c.Keys != 2 || c.Types["list"] != 1 || len(c.Locks) != 1 ||
		c.Locks[0].Key != "lock" || c.Locks[0].TTL != 60 {
		t.Errorf("CheckFile describes another content than the file has: %+v", c)
	}
	refused := func(what string, at int, file []byte) {
		t.Helper()
		_, err := check(file)
		if err == nil {
			t.Errorf("%s at byte %d: CheckFile accepted the file, want an error", what, at)
			return
		}
		damaged := (*backup.DamagedError)(nil)
		if !errors.As(err, &damaged) && at != 8 { // byte 8 is the version
			t.Errorf("%s at byte %d: got %v, want a DamagedError", what, at, err)
		} else if damaged != nil && (damaged.Offset > int64(len(file)) || damaged.Reason == "") {
			t.Errorf("%s at byte %d: the error has offset %d and reason %q, want an offset in the file and a reason", what, at, damaged.Offset, damaged.Reason)
		}
	}
	for i := range file {
		refused("a cut", i, file[:i])
		changed := bytes.Clone(file)
		changed[i] ^= 0x10
		refused("a change", i, changed)
	}
	refused("a surplus byte", len(file), append(bytes.Clone(file), 0))
}

// TestReader checks that the reader returns the bytes that were written, across
// blocks.
func TestReader(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	var file bytes.Buffer
	w, err := backup.NewWriter(&file, backup.Header{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 77_777)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.Close(backup.Trailer{Keys: 3}); err != nil {
		t.Fatal(err)
	}
	r, err := backup.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data) || r.Trailer().Keys != 3 || r.Trailer().Bytes != int64(len(data)) {
		t.Errorf("read %d of %d bytes, with trailer %+v and error %v, want all bytes, the written trailer and no error", len(got), len(data), r.Trailer(), err)
	}
}
