package storage

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// The keys under which hashicorp/raft 1.7.3 stores its term and its vote.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// stableStore is the raft.StableStore. It stores term and vote in one record.
//
// raft stores a vote in two writes: the term of the vote, and then the
// candidate. A crash between them leaves the term of the new vote together with
// the old candidate. If the old candidate asks in the new term, raft then
// grants it the vote without comparing the logs (hashicorp/raft issue 661). In
// stableStore, the first write only stores the term in memory, and the second
// write makes both durable in one transaction. This loses nothing, because raft
// answers the request only after the second write. Until then, reads return the
// values on disk.
type stableStore struct {
	kv    *kv
	acked *acked

	mu     sync.Mutex
	rec    raftRecord // the record on disk; guarded by mu
	voting *uint64    // term of a vote whose candidate has not been written yet; guarded by mu
}

var _ raft.StableStore = (*stableStore)(nil)

// raftRecord is the value of keyRaftRecord. A field that raft never set is
// reported as missing, as in raft-boltdb.
type raftRecord struct {
	seq   uint64 // number of the write
	has   uint8  // bits hasTerm, hasVoteTerm, hasVoteCand
	term  uint64
	vote  uint64 // term of the last vote
	voted []byte // candidate of the last vote
}

const (
	hasTerm = 1 << iota
	hasVoteTerm
	hasVoteCand
)

func (r raftRecord) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, r.seq)
	b = append(b, r.has)
	b = binary.LittleEndian.AppendUint64(b, r.term)
	b = binary.LittleEndian.AppendUint64(b, r.vote)
	return append(b, r.voted...)
}

func decodeRaftRecord(b []byte) (r raftRecord, ok bool) {
	if len(b) < 25 {
		return r, false
	}
	r.seq = binary.LittleEndian.Uint64(b)
	r.has = b[8]
	r.term = binary.LittleEndian.Uint64(b[9:])
	r.vote = binary.LittleEndian.Uint64(b[17:])
	r.voted = append([]byte(nil), b[25:]...)
	return r, true
}

// openStable loads the record. A new directory has no record, which is
// equivalent to an empty one.
func openStable(s *kv, a *acked) (*stableStore, error) {
	st := &stableStore{kv: s, acked: a}
	b, found, err := s.get(keyRaftRecord)
	if err != nil {
		return nil, err
	}
	if found {
		var ok bool
		if st.rec, ok = decodeRaftRecord(b); !ok {
			return nil, s.bad.file(s.path, "the record of term and vote does not decode")
		}
	}
	r := st.rec
	if r.vote > r.term {
		return nil, s.bad.file(s.path, "it holds a vote in term %d, but the current term is %d", r.vote, r.term)
	}
	if want := a.current().stable; r.seq < want {
		return nil, s.bad.file(s.path,
			"term and vote were written %d times, but it holds the state after %d", want, r.seq)
	}
	return st, nil
}

// currentTerm returns the term on disk, 0 if there is none.
func (s *stableStore) currentTerm() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.term
}

// campaigned reports whether the node has voted, or has been in a term that
// only an election can begin.
func (s *stableStore) campaigned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.term > 1 || s.rec.has&hasVoteTerm != 0
}

// saveLocked makes r durable as the next record. The caller holds s.mu.
func (s *stableStore) saveLocked(r raftRecord) error {
	r.seq = s.rec.seq + 1
	if err := s.kv.put(keyRaftRecord, r.encode()); err != nil {
		return err
	}
	s.rec = r
	s.acked.raiseStable(r.seq)
	return nil
}

// SetUint64 implements raft.StableStore. LastVoteTerm becomes durable only with
// the Set of LastVoteCand that follows. Every other key is durable when
// SetUint64 returns.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(key) {
	case keyCurrentTerm:
		r := s.rec
		r.has, r.term = r.has|hasTerm, val
		if err := s.saveLocked(r); err != nil {
			return err
		}
		failpoint.Hit(failpoint.TermWritten)
		return nil
	case keyLastVoteTerm:
		if err := s.kv.g.err(); err != nil {
			return err
		}
		s.voting = &val
		return nil
	}
	return s.kv.put(userPrefix+string(key), binary.LittleEndian.AppendUint64(nil, val))
}

// Set implements raft.StableStore. The value is durable when Set returns.
func (s *stableStore) Set(key, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyLastVoteCand {
		return s.kv.put(userPrefix+string(key), val)
	}
	r := s.rec
	r.has, r.voted = r.has|hasVoteCand, append([]byte(nil), val...)
	if s.voting != nil {
		r.has, r.vote = r.has|hasVoteTerm, *s.voting
	}
	failpoint.Hit(failpoint.VoteUnwritten)
	if err := s.saveLocked(r); err != nil {
		return err
	}
	failpoint.Hit(failpoint.VoteWritten)
	s.voting = nil
	return nil
}

// Get implements raft.StableStore. For a key that was never set, it returns
// raftboltdb.ErrKeyNotFound. raft compares the text of that error.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) == keyLastVoteCand {
		if s.rec.has&hasVoteCand == 0 {
			return nil, raftboltdb.ErrKeyNotFound
		}
		return append([]byte{}, s.rec.voted...), nil
	}
	val, found, err := s.kv.get(userPrefix + string(key))
	if err == nil && !found {
		err = raftboltdb.ErrKeyNotFound
	}
	return val, err
}

// GetUint64 implements raft.StableStore. It returns the same errors as Get.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	val, bit := s.rec.term, uint8(hasTerm)
	switch string(key) {
	case keyCurrentTerm:
	case keyLastVoteTerm:
		val, bit = s.rec.vote, hasVoteTerm
	default:
		b, found, err := s.kv.get(userPrefix + string(key))
		if err != nil {
			return 0, err
		}
		if !found {
			return 0, raftboltdb.ErrKeyNotFound
		}
		if len(b) != 8 {
			return 0, fmt.Errorf("value of %q has %d bytes, not 8", key, len(b))
		}
		return binary.LittleEndian.Uint64(b), nil
	}
	if s.rec.has&bit == 0 {
		return 0, raftboltdb.ErrKeyNotFound
	}
	return val, nil
}
