package replay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// Entry is one entry of a Raft log.
type Entry struct {
	Index, Term uint64
	Command     bool // true if Data is an entry for the state machine
	Data        []byte
}

// Log is the log of one node, in order and without gaps.
type Log struct {
	Node    string
	Entries []Entry
	// Base is the oldest snapshot after which the entries continue, nil if they
	// begin at index 1. BaseIndex is the log index of the last entry in Base.
	Base      []byte
	BaseIndex uint64
}

// ReadDir reads the log of a stopped node. First it makes the checks that a
// node makes when it starts. The directory remains usable, but its count of
// starts grows by one.
func ReadDir(dir, node, kind string) (log Log, err error) {
	s, err := storage.Open(storage.Config{Dir: dir, NodeID: node, LogKind: kind, Logger: hclog.NewNullLogger(),
		Fatal: func(error) {}}) // Err returns the failure
	if err != nil {
		return Log{}, fmt.Errorf("open the data of %s: %w", node, err)
	}
	defer func() {
		err = errors.Join(err, s.Close())
		if failed := s.Err(); failed != nil && !errors.Is(err, failed) {
			err = errors.Join(err, fmt.Errorf("the storage of %s failed: %w", node, failed))
		}
	}()
	log.Node = node
	store := s.Log()
	first, err := store.FirstIndex()
	if err != nil {
		return log, fmt.Errorf("read the log of %s: %w", node, err)
	}
	last, err := store.LastIndex()
	if err != nil {
		return log, fmt.Errorf("read the log of %s: %w", node, err)
	}
	for i := max(first, 1); first > 0 && i <= last; i++ {
		var l raft.Log
		if err := store.GetLog(i, &l); err != nil {
			return log, fmt.Errorf("read entry %d of %s: %w", i, node, err)
		}
		log.Entries = append(log.Entries, Entry{l.Index, l.Term, l.Type == raft.LogCommand, l.Data})
	}
	if first != 1 {
		if log.BaseIndex, log.Base, err = readBase(s.Snapshots(), first); err != nil {
			return log, fmt.Errorf("read a snapshot of %s: %w", node, err)
		}
	}
	return log, nil
}

// readBase reads the oldest snapshot after which the log continues without a
// gap. first is the index of the first entry of the log. If first is 0, the log
// has no entries, and readBase reads no snapshot.
func readBase(snaps raft.SnapshotStore, first uint64) (index uint64, state []byte, err error) {
	list, err := snaps.List() // newest first
	if err != nil {
		return 0, nil, err
	}
	for _, meta := range slices.Backward(list) {
		if first == 0 || meta.Index+1 < first {
			continue
		}
		_, r, err := snaps.Open(meta.ID)
		if err != nil {
			return 0, nil, err
		}
		state, err = io.ReadAll(r)
		return meta.Index, state, errors.Join(err, r.Close())
	}
	return 0, nil, nil
}

// Compare checks the following:
//
//   - The logs hold the same entry wherever two of them overlap, up to commit.
//   - Entries with the same index and term are equal in all logs.
//   - In the longest log, at most one node began a leadership in a term, and the
//     lease clock never went back.
//
// Compare returns the longest log up to commit, and the number of entries that
// it compared.
func Compare(logs []Log, commit uint64) (longest Log, compared int, bad []checker.Violation) {
	say := func(format string, args ...any) {
		bad = append(bad, checker.Violation{Check: "log equality", Text: fmt.Sprintf(format, args...)})
	}
	type place struct{ index, term uint64 }
	type held struct {
		node string
		sum  [32]byte
		term uint64
	}
	committed := make(map[uint64]held)
	written := make(map[place]held)
	for _, log := range logs {
		for _, e := range log.Entries {
			h := held{log.Node, sha256.Sum256(e.Data), e.Term}
			at := place{e.Index, e.Term}
			if other, ok := written[at]; !ok {
				written[at] = h
			} else if compared++; other.sum != h.sum {
				say("entry %d of term %d in the log of %s differs from the entry of %s", e.Index, e.Term,
					other.node, h.node)
			}
			if e.Index > commit {
				continue
			}
			if other, ok := committed[e.Index]; !ok {
				committed[e.Index] = h
			} else if other.term != e.Term {
				say("committed entry %d is of term %d in the log of %s, of term %d in that of %s", e.Index, other.term,
					other.node, e.Term, h.node)
			}
		}
	}
	for _, log := range logs {
		n := sort.Search(len(log.Entries), func(i int) bool { return log.Entries[i].Index > commit })
		entries := log.Entries[:n]
		switch {
		case n == 0 || entries[n-1].Index != commit: // this node is behind
		case longest.Entries == nil || entries[0].Index < longest.Entries[0].Index:
			longest = Log{Node: log.Node, Entries: entries, Base: log.Base, BaseIndex: log.BaseIndex}
		}
	}
	if longest.Entries == nil && commit > 0 {
		say("no log reaches up to the commit index %d", commit)
	}
	return longest, compared, append(bad, leaderships(longest)...)
}

// leaderships checks the terms and clocks that leaders wrote into the entries
// of a committed log.
func leaderships(log Log) []checker.Violation {
	var bad []checker.Violation
	say := func(format string, args ...any) {
		bad = append(bad, checker.Violation{Check: "one leader a term", Text: fmt.Sprintf(format, args...)})
	}
	leader := make(map[uint64]string)
	clock := int64(0)
	for _, e := range log.Entries {
		if !e.Command {
			continue
		}
		rec, err := fsm.ReadRecord(e.Data)
		if err != nil {
			say("entry %d: %v", e.Index, err)
			return bad
		}
		if rec.Header.Term != e.Term {
			continue // skipped by the term fence
		}
		if t := rec.TermStart; t != nil {
			if other, ok := leader[e.Term]; ok && other != t.NodeID {
				say("%s and %s both led term %d", other, t.NodeID, e.Term)
			}
			leader[e.Term] = t.NodeID
			continue
		}
		if rec.Header.Stamp < clock {
			say("the lease clock goes back from %d to %d at entry %d", clock, rec.Header.Stamp, e.Index)
		}
		clock = max(clock, rec.Header.Stamp)
	}
	return bad
}
