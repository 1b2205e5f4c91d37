package storage_test

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// vote stores a vote as persistVote of raft 1.7.3 does.
func vote(t testing.TB, s *storage.Stores, term uint64, candidate string) {
	t.Helper()
	if err := s.Stable().SetUint64([]byte("LastVoteTerm"), term); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable().Set([]byte("LastVoteCand"), []byte(candidate)); err != nil {
		t.Fatal(err)
	}
}

func wantVote(t testing.TB, s raft.StableStore, term uint64, candidate string) {
	t.Helper()
	gotTerm, err := s.GetUint64([]byte("LastVoteTerm"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Get([]byte("LastVoteCand"))
	if err != nil {
		t.Fatal(err)
	}
	if gotTerm != term || string(got) != candidate {
		t.Fatalf("vote for %q in term %d, want %q in %d", got, gotTerm, candidate, term)
	}
}

// TestVote_CrashBetween simulates the crash of hashicorp/raft issue 661,
// between the two writes of a vote. The earlier vote must remain.
func TestVote_CrashBetween(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		vote(t, s, 8, "n2")
		wantVote(t, s.Stable(), 8, "n2")

		if err := s.Stable().SetUint64([]byte("LastVoteTerm"), 9); err != nil {
			t.Fatal(err)
		}
		wantVote(t, s.Stable(), 8, "n2")
		crashed := cfg
		crashed.Dir = image(t, cfg.Dir)
		wantVote(t, open(t, crashed).Stable(), 8, "n2")

		if err := s.Stable().Set([]byte("LastVoteCand"), []byte("n3")); err != nil {
			t.Fatal(err)
		}
		crashed.Dir = image(t, cfg.Dir)
		wantVote(t, open(t, crashed).Stable(), 9, "n3")
		closeStores(t, s)
		wantVote(t, open(t, cfg).Stable(), 9, "n3")
	})
}

// TestStable_NotFound checks the text of the error for a missing key, because
// raft compares this text.
func TestStable_NotFound(t *testing.T) {
	cfg := config(t, t.TempDir(), "")
	s := open(t, cfg)
	for _, key := range []string{"LastVoteCand", "other"} {
		if _, err := s.Stable().Get([]byte(key)); err == nil || err.Error() != "not found" {
			t.Errorf("Get(%s): %v, want the error not found", key, err)
		}
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "other"} {
		if _, err := s.Stable().GetUint64([]byte(key)); err == nil || err.Error() != "not found" {
			t.Errorf("GetUint64(%s): %v, want the error not found", key, err)
		}
	}
	setTerm(t, s, 3)
	if _, err := s.Stable().GetUint64([]byte("LastVoteTerm")); err == nil || err.Error() != "not found" {
		t.Errorf("LastVoteTerm after a term was stored: %v, want the error not found", err)
	}
}

func TestStable_OtherKeys(t *testing.T) {
	cfg := config(t, t.TempDir(), "")
	s := open(t, cfg)
	if err := s.Stable().Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable().SetUint64([]byte("n"), 1<<40); err != nil {
		t.Fatal(err)
	}
	closeStores(t, s)
	s = open(t, cfg)
	if got, err := s.Stable().Get([]byte("k")); err != nil || string(got) != "v" {
		t.Errorf("Get: %q, %v, want v", got, err)
	}
	if got, err := s.Stable().GetUint64([]byte("n")); err != nil || got != 1<<40 {
		t.Errorf("GetUint64: %d, %v, want 1<<40", got, err)
	}
}
