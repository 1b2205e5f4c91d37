package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// starts drives one machine with entries that contain groups from several
// nodes, and from several starts of the same node.
type starts struct {
	*feed
	seqs map[fsm.SessionID]uint64
}

func newStarts(t *testing.T, features int) *starts {
	s := &starts{&feed{t: t, m: fsm.New(command.NewTable()), stamp: 1}, make(map[fsm.SessionID]uint64)}
	s.raise(features)
	return s
}

// said is a command that a client sends on a connection to one start of a node.
type said struct {
	node   string
	boot   uint64
	origin uint64
	line   string
}

// entry applies one entry with a group for each command. It returns the replies
// to the commands, and "stale" for a command that was not executed because its
// node has started again.
func (s *starts) entry(groups ...said) (replies []string) {
	s.t.Helper()
	var b fsm.BatchBuilder
	for _, g := range groups {
		id := fsm.SessionID{NodeID: g.node, Boot: g.boot}
		s.group.Reset(2, g.origin)
		s.add(respwire.Words(g.line)...)
		s.seqs[id]++
		b.Add(id, 0, s.seqs[id], s.group.Bytes())
	}
	s.stamp++
	for _, g := range s.apply(b.Encode(fsm.Header{Term: 1, Stamp: s.stamp})).Groups {
		reply := string(g.Reply)
		if g.Status == fsm.StatusStale {
			reply = "stale"
		}
		replies = append(replies, reply)
	}
	return replies
}

// whole checks that a snapshot of the machine is restored and written again
// unchanged, and that the restored machine continues the same hash chain.
func (s *starts) whole(more ...said) {
	s.t.Helper()
	snap := snapshotOf(s.t, s.m)
	other := &starts{&feed{t: s.t, m: restore(s.t, snap), stamp: s.stamp}, s.seqs}
	if !bytes.Equal(snapshotOf(s.t, other.m), snap) {
		s.t.Fatal("a restored machine differs from the original")
	}
	for _, g := range more {
		saved := s.seqs[fsm.SessionID{NodeID: g.node, Boot: g.boot}]
		other.entry(g)
		s.seqs[fsm.SessionID{NodeID: g.node, Boot: g.boot}] = saved
		s.entry(g)
		_, a := s.m.Hash()
		if _, b := other.m.Hash(); a != b {
			s.t.Fatalf("the restored machine differs after %q", g.line)
		}
	}
	if a, b := snapshotOf(s.t, s.m), snapshotOf(s.t, other.m); !bytes.Equal(a, b) {
		s.t.Fatal("the state of the restored machine differs from the original")
	}
}

// twoStarts applies entries with groups of two starts of a node. The numbers of
// the connections decide the order of the waiters in a snapshot.
func twoStarts(s *starts, old, young uint64) []string {
	replies := s.entry(said{"a", 1, 1, "GET x"}, said{"b", 1, 1, "GET x"})
	replies = append(replies, s.entry(said{"a", 1, old, "BLPOP q 0"}, said{"a", 2, 1, "GET x"}, said{"a", 1, old + 20, "BLPOP p 0"}, said{"a", 2, young, "BLPOP r 0"})...)
	return replies
}

// TestStarts_Superseded: if an entry contains a later start of a node, the
// groups of the earlier start are not executed, whether they are before or after
// those of the later start.
func TestStarts_Superseded(t *testing.T) {
	for _, origins := range [][2]uint64{{7, 9}, {57, 3}, {5, 5}} {
		t.Run(fmt.Sprint(origins), func(t *testing.T) {
			s := newStarts(t, fsm.FeatureMend)
			got := twoStarts(s, origins[0], origins[1])
			if want := []string{"$-1\r\n", "$-1\r\n", "stale", "$-1\r\n", "stale"}; !slices.Equal(got[:5], want) {
				t.Errorf("replies %q, want %q", got[:5], want)
			}
			young := fsm.SessionID{NodeID: "a", Boot: 2}
			if got := s.m.WaitSessions(); len(got) != 1 || got[0].ID != young {
				t.Errorf("sessions with waiters: %v, want %s alone", got, young)
			}
			if n := s.m.Waiting(); n != 1 {
				t.Errorf("%d waiters, want 1", n)
			}
			s.whole(said{"b", 1, 1, "RPUSH q x"}, said{"b", 1, 1, "RPUSH r y"}, said{"a", 2, 1, "GET x"})
		})
	}
}

// TestStarts_Before: before FeatureMend, the groups of both starts are
// executed, as in the first programs, and both have waiters. A snapshot of that
// state can be read, and raising the feature version ends the waiters of the
// earlier start.
func TestStarts_Before(t *testing.T) {
	for _, c := range []struct {
		origins  [2]uint64
		features int
		hash     uint64 // hash that the first programs computed
	}{
		{[2]uint64{7, 9}, 0, 0xe44b864e60f9d2ca},
		{[2]uint64{57, 3}, 0, 0xaed8d2afc21821a2},
		{[2]uint64{7, 9}, fsm.FeatureAbsent, 0xe44b864e60f9d2ca},
		{[2]uint64{57, 3}, fsm.FeatureAbsent, 0xaed8d2afc21821a2},
	} {
		t.Run(fmt.Sprint(c.origins, c.features), func(t *testing.T) {
			for at, raise := range []func(*starts){
				func(s *starts) { s.entry(said{"b", 1, 1, "_features 1 2"}) },
				func(s *starts) { s.raise(fsm.FeatureMend) },
			} {
				s := newStarts(t, c.features)
				twoStarts(s, c.origins[0], c.origins[1])
				s.whole()
				raise(s)
				young := fsm.SessionID{NodeID: "a", Boot: 2}
				if got := s.m.WaitSessions(); len(got) != 1 || got[0].ID != young || s.m.Waiting() != 1 {
					t.Errorf("feature version raised in way %d: waiters of %v, want one waiter of the latest start",
						at, got)
				}
				s.whole(said{"b", 1, 1, "RPUSH q x"}, said{"b", 1, 1, "_hold 1 a 2 off"}, said{"b", 1, 1, "RPUSH r y"}, said{"a", 3, 1, "GET x"})
			}
			s := newStarts(t, c.features)
			twoStarts(s, c.origins[0], c.origins[1])
			s.whole([]said{{"b", 1, 1, "RPUSH q x"}, {"a", 2, 1, "GET x"}, {"b", 1, 1, "_hold 1 a 1 on"}, {"b", 1, 1, "RPUSH r y z"}, {"b", 1, 1, "_hold 1 a 1 off"}, {"b", 1, 1, "_hold 1 a 2 off"}, {"a", 2, 2, "BLPOP p 0"}, {"a", 3, 1, "GET x"}, {"b", 1, 1, "RPUSH p x y"}}...)
			if _, hash := s.m.Hash(); hash != c.hash {
				t.Errorf("hash %#x, want %#x", hash, c.hash)
			}
		})
	}
}

// TestStarts_RaisedBetween: if an entry raises the feature version before,
// between or after groups of two starts of a node, only the later start has
// waiters afterward.
func TestStarts_RaisedBetween(t *testing.T) {
	for at := range 4 {
		s := newStarts(t, fsm.FeatureAbsent)
		s.entry(said{"a", 1, 1, "GET x"}, said{"b", 1, 1, "GET x"})
		groups := []said{{"a", 1, 7, "BLPOP q 0"}, {"a", 2, 9, "BLPOP r 0"}, {"a", 1, 8, "BLPOP p 0"}}
		groups = slices.Insert(groups, at, said{"b", 1, 1, "_features 1 2"})
		s.entry(groups...)
		if got := s.m.WaitSessions(); len(got) != 1 || got[0].ID.Boot != 2 {
			t.Errorf("feature version raised before group %d: waiters of %v, want waiters of the latest start only",
				at, got)
		}
		s.whole(said{"b", 1, 1, "RPUSH q x"}, said{"b", 1, 1, "RPUSH r y"}, said{"a", 2, 1, "GET x"})
	}
}

// TestStarts_Speculated: the groups that a speculative execution leaves for the
// next entry may belong to a later or to an earlier start of a node. Each entry
// has the same effects as its speculative execution.
func TestStarts_Speculated(t *testing.T) {
	for features := range fsm.MaxFeatures + 1 {
		s := newStarts(t, features)
		s.entry(said{"a", 1, 7, "BLPOP q 0"}, said{"b", 1, 1, "GET x"})
		var batch, out, rest fsm.BatchBuilder
		add := func(node string, boot, seq uint64, args ...string) {
			s.group.Reset(2, 1)
			s.add(args...)
			batch.Add(fsm.SessionID{NodeID: node, Boot: boot}, 0, seq, s.group.Bytes())
		}
		add("a", 1, 2, "EVAL", "RPUSH q old", "0")
		add("b", 1, 2, "EVAL", "RPUSH q x", "0")
		add("b", 1, 3, "EVAL", "LPOP q", "0")
		add("a", 1, 3, "EVAL", "RPUSH q old", "0")
		add("a", 2, 1, "EVAL", "RPUSH q y\nLLEN q", "0")
		s.stamp++
		h := fsm.Header{Term: 1, Stamp: s.stamp}
		for groups := 1; groups > 0; groups, _ = batch.Len() {
			out.Reset(0)
			rest.Reset(0)
			sp := s.m.Speculate(h, &batch, &lines{})
			if err := sp.Run(&out, &rest, func() bool { return true }); err != nil {
				t.Fatal(err)
			}
			s.apply(out.Encode(h))
			var speculated, applied bytes.Buffer
			if err := errors.Join(fsm.StateOf(fsm.Speculated(sp), &speculated), fsm.StateOf(s.m, &applied)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(speculated.Bytes(), applied.Bytes()) {
				t.Errorf("features %d: the entry gives another state than its speculative execution:\n%q\n%q", features, applied.Bytes(), speculated.Bytes())
			}
			batch = rest
			rest = fsm.BatchBuilder{}
		}
	}
}
