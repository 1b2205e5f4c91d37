package fsm_test

import (
	"bytes"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// raise applies a TermStart with the given feature version.
func (f *feed) raise(n int) {
	f.t.Helper()
	f.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1", Features: n}))
}

// watch returns the version of a key.
func (f *feed) watch(key string) string {
	f.t.Helper()
	return f.do(fsm.VersionCommand + " " + key)
}

// TestRemoved checks that the version of an absent key changes when the key is
// created and then removed, for several commands that remove it. The version of an
// expired key must stay the same when an entry removes the key. A restored machine
// must have the same version. Below FeatureAbsent, the version must be 0.
func TestRemoved(t *testing.T) {
	f := newFeed(t)
	f.do("SET w 1", "DEL w")
	if got := f.watch("w"); got != ":0\r\n" {
		t.Errorf("at feature version 0: version %q, want 0", got)
	}
	f.raise(fsm.FeatureAbsent)
	last := f.watch("w")
	for _, lines := range [][]string{{"SET w 1", "DEL w"}, {"SADD w a", "SPOP w"}, {"SET w 1", "RENAME w x"}, {"SET w 1", "MOVE w 5"}, {"SET w 1", "FLUSHDB"}, {"SET w 1", "FLUSHALL"}, {"SET w 1", "EXPIRE w 0"}} {
		f.do(lines...)
		got := f.watch("w")
		if got == last {
			t.Errorf("%v: the version is still %q, want another one", lines, got)
		}
		if again := f.watch("w"); again != got {
			t.Errorf("%v: version %q, then %q without a change", lines, got, again)
		}
		last = got
	}
	// The version of an expired key is the same before and after its removal.
	f.do("SET w 1 PX 1000")
	deadline := f.stamp + 1_000_000_000
	read := func(at int64) string {
		f.t.Helper()
		f.group.Reset(2, 1)
		f.add(fsm.VersionCommand, "w")
		got, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Now: at})
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	due := read(deadline + 1)
	f.stamp = deadline + 1
	f.do("EXISTS other")
	if got := f.watch("w"); got != due || got == last {
		t.Errorf("version %q of the expired key, %q after its removal, want equal ones that differ from the earlier %q",
			due, got, last)
	}
	now := f.watch("w")
	whole := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("a restored machine differs from the original")
	}
	f.m = restore(t, whole)
	if got := f.watch("w"); got != now {
		t.Errorf("after a snapshot: version %q, want %q", got, now)
	}
	f.raise(0)
	if got := f.watch("w"); got != ":0\r\n" {
		t.Errorf("at feature version 0 again: version %q, want 0", got)
	}
}
