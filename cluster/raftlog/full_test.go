package raftlog

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// nullSink accepts all writes and stores nothing.
type nullSink struct{ readBack }

func (nullSink) Write(b []byte) (int, error) { return len(b), nil }

// A node without room refuses a snapshot from the leader, but still writes a
// snapshot of its own state.
func TestSnapshot_Full(t *testing.T) {
	full := errors.New("no room")
	var refused error
	sink := &checkedSink{readBack: nullSink{}, store: checkedSnapshots{
		full: func() error { return full }, refused: func(err error) { refused = err },
	}}
	if _, err := sink.Write([]byte("x")); !errors.Is(err, full) || !errors.Is(refused, full) {
		t.Errorf("a leader's snapshot: error %v, reported %v, want the error of full twice", err, refused)
	}
	Expect(sink, fsm.SnapshotInfo{})
	if _, err := sink.Write([]byte("x")); err != nil {
		t.Errorf("the node's own snapshot: %v, want success", err)
	}
}

// A follower without room accepts an append that replaces deleted entries. It
// does not accept the append that follows a snapshot in place of the whole log.
func TestAsyncWriter_FullAfterDeletion(t *testing.T) {
	full := errors.New("no room")
	for next, want := range map[uint64]error{1: nil, 21: full} {
		disk := raft.NewInmemStore()
		b := newAsyncWriter(disk, func() bool { return false })
		store(t, b, entries(raft.LogCommand, 1, 10))
		b.full = func() error { return full }
		if err := b.DeleteRange(1, 10); err != nil {
			t.Fatal(err)
		}
		if err := b.StoreLogs(entries(raft.LogCommand, next, next)); !errors.Is(err, want) {
			t.Errorf("append at %d: %v, want %v", next, err, want)
		}
		b.close()
	}
}
