package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// features applies a TermStart with the given feature version.
func (s *stage) features(n int) {
	s.t.Helper()
	s.index++
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1, Stamp: s.stamp}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1", Features: n})
	if _, err := s.m.Apply(uint64(s.index), 1, entry); err != nil {
		s.t.Fatal(err)
	}
}

// exists reports for each script whether the cache contains it.
func (s *stage) exists(bodies ...string) string {
	s.t.Helper()
	c := "SCRIPT|EXISTS"
	for _, b := range bodies {
		c += "|" + fsm.SHA1([]byte(b))
	}
	s.group(c)
	return s.commit()
}

// TestScriptCache_ByUse: a client that loads scripts without end evicts the
// least recently used scripts, including its own. It can neither prevent an
// EVAL nor evict scripts that are in use.
func TestScriptCache_ByUse(t *testing.T) {
	s := newStage(t)
	s.features(fsm.MaxFeatures)
	s.quick = true
	pad := strings.Repeat("-", 250_000)
	s.group("SCRIPT|LOAD|PING loaded", "EVAL|PING evaluated|0", "SCRIPT|LOAD|PING idle")
	s.want("others", "$40 "+fsm.SHA1([]byte("PING loaded"))+" $9 evaluated $40 "+fsm.SHA1([]byte("PING idle"))+" ")
	for i := range 300 { // each entry takes a second on the lease clock; all scripts take 75 MB
		s.group(fmt.Sprintf("SCRIPT|LOAD|--%s%d", pad, i))
		if got := s.commit(); got[0] != '$' {
			t.Fatalf("SCRIPT LOAD %d: %q, want a SHA1", i, got)
		}
		s.group(fmt.Sprintf("EVAL|PING new%d|0", i))
		s.want("an EVAL that is not in the cache", fmt.Sprintf("$%d new%d ", len(fmt.Sprint("new", i)), i))
		if i%50 == 0 {
			s.group("EVALSHA|"+fsm.SHA1([]byte("PING loaded"))+"|0", "EVALSHA|"+fsm.SHA1([]byte("PING evaluated"))+"|0")
			s.want("scripts that others use", "$6 loaded $9 evaluated ")
		}
		if i == 150 {
			s.m = restore(t, snapshotOf(t, s.m))
		}
	}
	if got, want := s.exists("PING loaded", "PING evaluated", "PING idle", fmt.Sprintf("--%s%d", pad, 0), fmt.Sprintf("--%s%d", pad, 299)), "*5 :1 :1 :0 :0 :1 "; got != want {
		t.Errorf("the cache holds %q, want %q", got, want)
	}
	if _, bytes := s.m.Scripts(); bytes > 32<<20 {
		t.Errorf("the cache takes %d bytes, want at most 32 MiB", bytes)
	}
	whole := snapshotOf(t, s.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("a restored machine differs from the original")
	}
}

// TestScriptCache_Native: executing a native script counts as a use.
func TestScriptCache_Native(t *testing.T) {
	const unlock = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	s := newStage(t)
	s.features(fsm.MaxFeatures)
	s.quick = true
	pad := strings.Repeat("-", 1_000_000)
	s.group("SCRIPT|LOAD|" + unlock)
	s.commit()
	for i := range 60 {
		s.group(fmt.Sprintf("SCRIPT|LOAD|--%s%d", pad, i))
		s.commit()
		s.stamp += 61e9
		s.group("EVALSHA|" + fsm.SHA1([]byte(unlock)) + "|1|k|v")
		s.want("unlock", ":0 ")
	}
}

// TestScriptCache_ReadOnlyUse: a read-only script that is in the cache goes
// through the log only if its last recorded use is old.
func TestScriptCache_ReadOnlyUse(t *testing.T) {
	s := newStage(t)
	s.features(fsm.MaxFeatures)
	s.group("SCRIPT|LOAD|GET k")
	s.commit()
	read := func() error {
		var g fsm.Group
		g.Reset(2, 1)
		cmd, args := s.words("EVALSHA_RO|" + fsm.SHA1([]byte("GET k")) + "|0")
		g.Command(cmd, 0, args)
		_, _, err := s.m.Clone().Read(nil, fsm.ReadRequest{Runner: s.runner, Body: g.Bytes(), Now: s.stamp})
		return err
	}
	if err := read(); err != nil {
		t.Errorf("first read: %v, want no error", err)
	}
	s.stamp += 601e9
	if err := read(); !errors.Is(err, fsm.ErrUnlogged) {
		t.Errorf("read after ten minutes: %v, want ErrUnlogged", err)
	}
	s.group("EVALSHA_RO|" + fsm.SHA1([]byte("GET k")) + "|0")
	s.want("through the log", "$-1 ")
	if err := read(); err != nil {
		t.Errorf("read after the log has recorded the use: %v, want no error", err)
	}
}
