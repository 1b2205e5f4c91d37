package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestFeatures: a TermStart sets the feature version, and the leader of the
// current term can raise it. From FeatureMend on, the feature version never
// goes down. Snapshots contain it.
func TestFeatures(t *testing.T) {
	f := newFeed(t)
	want := func(n int) {
		t.Helper()
		if got := f.m.Features(); got != n {
			t.Fatalf("feature version %d, want %d", got, n)
		}
	}
	want(0)
	f.raise(fsm.FeatureAbsent)
	want(fsm.FeatureAbsent)
	f.raise(0)
	want(0)
	if got := f.do("_features 7 2"); got != ":0\r\n" {
		t.Errorf("command of a leader of another term: %q, want 0", got)
	}
	want(0)
	if got := f.do("_features 1 2"); got != ":1\r\n" {
		t.Errorf("command of the leader of the term: %q, want 1", got)
	}
	want(fsm.FeatureMend)
	if got := f.do("_features 1 1"); got != ":0\r\n" {
		t.Errorf("command with a lower feature version: %q, want 0", got)
	}
	f.raise(0)
	want(fsm.FeatureMend)
	whole := snapshotOf(t, f.m)
	f.m = restore(t, whole)
	want(fsm.FeatureMend)
	if !bytes.Equal(snapshotOf(t, f.m), whole) {
		t.Error("a restored machine differs from the original")
	}
}

// TestFeatures_TermStart: a TermStart with a feature version from FeatureMend
// on has an entry version that older programs refuse. Otherwise, they would
// apply the TermStart as if it had the version FeatureAbsent.
func TestFeatures_TermStart(t *testing.T) {
	for n := range fsm.MaxFeatures + 1 {
		b := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1", Features: n})
		if old := b[2] == fsm.EntryVersion; old != (n < fsm.FeatureMend) {
			t.Errorf("a TermStart with feature version %d has entry version %d, want 2 from FeatureMend on, else 1",
				n, b[2])
		}
		m := fsm.New(command.NewTable())
		if _, err := m.Apply(1, 1, b); err != nil || m.Features() != n {
			t.Errorf("the feature version is %d after a TermStart with %d, error %v", m.Features(), n, err)
		}
	}
}

// TestFeatures_Unknown: a program that does not know a feature version refuses
// the entry that raises the cluster to this version, and a snapshot with this
// version.
func TestFeatures_Unknown(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.FeatureMend)
	f.group.Reset(2, 1)
	f.add(fsm.FeaturesCommand, "1", "99")
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n9", Boot: 1}, 0, 1, f.group.Bytes())
	_, err := f.m.Apply(f.m.Applied()+1, 1, b.Encode(fsm.Header{Term: 1, Stamp: f.stamp}))
	if !errors.Is(err, fsm.ErrVersion) || !strings.Contains(err.Error(), "feature version 99") {
		t.Errorf("Apply of an unknown feature version: %v, want ErrVersion", err)
	}
	g := newFeed(t)
	g.raise(fsm.FeatureMend)
	whole := snapshotOf(t, g.m)
	at := bytes.Index(whole, []byte{'V', fsm.FeatureMend})
	if at < 0 {
		t.Fatal("no feature version in the snapshot")
	}
	whole[at+1] = 99
	if _, err := fsm.ReadSnapshot(bytes.NewReader(resealBlocks(whole)), command.NewTable()); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("ReadSnapshot with an unknown feature version: %v, want ErrVersion", err)
	}
}

// TestFeatures_Command: Table.CheckAt refuses a group with a command that the
// feature version does not include. A machine returns an error for the command,
// and executes the other commands of the group.
func TestFeatures_Command(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.MaxFeatures)
	table := f.m.Table()
	table.Find([]byte("incr")).Feature = fsm.MaxFeatures + 1
	table.Find([]byte("object")).FindSub([]byte("encoding")).Feature = fsm.MaxFeatures + 1
	if got := f.do("SET k 1", "INCR k", "GET k"); got != fmt.Sprintf("+OK\r\n-ERR 'incr' needs feature version %d and the cluster uses %d: upgrade every node first\r\n$1\r\n1\r\n", fsm.MaxFeatures+1, fsm.MaxFeatures) {
		t.Errorf("group with a command of a later feature version: %q, want an error for INCR only", got)
	}
	for _, c := range []struct {
		line string
		need int
	}{{"GET k", 0}, {"INCR k", fsm.MaxFeatures + 1}, {"OBJECT ENCODING k", fsm.MaxFeatures + 1}, {"OBJECT FREQ k", 0}} {
		words := respwire.Words(c.line)
		cmd := table.Find([]byte(words[0]))
		args := respwire.Args(words...)
		for _, multi := range []bool{false, true} {
			var g fsm.Group
			g.Reset(2, 1)
			if multi {
				g.Transaction(nil, []fsm.Queued{{Cmd: cmd, Args: args}})
			} else {
				g.Command(cmd, 0, args)
			}
			if g.Feature != c.need {
				t.Errorf("%s needs %d, want %d", c.line, g.Feature, c.need)
			}
			if err := table.CheckAt(fsm.MaxFeatures, g.Bytes(), false); (err != nil) != (c.need > 0) || err != nil && !errors.Is(err, fsm.ErrVersion) {
				t.Errorf("%s at feature version %d: %v", c.line, fsm.MaxFeatures, err)
			}
			if err := table.CheckAt(fsm.MaxFeatures+1, g.Bytes(), false); err != nil {
				t.Errorf("%s at feature version %d: %v", c.line, fsm.MaxFeatures+1, err)
			}
		}
	}
}
