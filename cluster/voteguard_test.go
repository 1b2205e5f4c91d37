package cluster

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// unreadable is a stable store on a disk that fails.
type unreadable struct{ raft.StableStore }

var errDisk = errors.New("disk fails")

func (unreadable) GetUint64([]byte) (uint64, error) { return 0, errDisk }

// TestVoteGuard checks that a node that joins begins in the term of the leader
// that admitted it, and stores no vote before its log has reached the entry
// that made it a member.
func TestVoteGuard(t *testing.T) {
	s, err := storage.Open(storage.Config{Dir: t.TempDir(), NodeID: "n1", LogKind: "wal", Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(s.SetClusterID("0123456789abcdef", true), s.SetJoined(7, 3)); err != nil {
		t.Fatal(err)
	}
	n := &Node{stores: s}
	stable := voteGuard{s.Stable(), n}
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 3 {
		t.Errorf("first term: %d, %v, want 3", term, err)
	}
	if err := stable.SetUint64([]byte(keyCurrentTerm), 5); err != nil {
		t.Error(err)
	}
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 5 {
		t.Errorf("term after one of 5: %d, %v", term, err)
	}
	if err := stable.SetUint64([]byte(keyLastVoteTerm), 5); !errors.Is(err, errVoteGuarded) {
		t.Errorf("vote of a node without a log: %v, want %v", err, errVoteGuarded)
	}
	if _, err := stable.GetUint64([]byte(keyLastVoteTerm)); err == nil {
		t.Error("the vote is there all the same")
	}
	if _, err := (voteGuard{unreadable{}, n}).GetUint64([]byte(keyCurrentTerm)); !errors.Is(err, errDisk) {
		t.Errorf("a disk that fails was hidden: %v", err)
	}
	// A node that was a member when the cluster was formed votes from the
	// start.
	if err := s.SetJoined(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := stable.SetUint64([]byte(keyLastVoteTerm), 5); err != nil {
		t.Errorf("vote of a founder: %v", err)
	}
}
