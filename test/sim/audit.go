package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// audit checks the entries that the nodes write and the states that they
// report, across all nodes and all their starts. These rules must hold:
//
//   - An index and a term identify one entry (log matching).
//   - An entry that one node has committed at an index is the entry that every
//     other node commits there.
//   - A term has at most one leader.
//   - State machines that have applied the same entries have the same hash.
//   - A snapshot of a state machine yields the same state when it is read back.
//   - Every waiter of a state machine belongs to one of its sessions.
type audit struct {
	mu        sync.Mutex
	sums      map[position]uint32
	committed map[uint64]*raft.Log
	leaders   map[uint64]string
	hashes    map[uint64]hashSeen
	snapshots int   // snapshots that were read back
	compared  int64 // number of hashes that were compared with the hash of another node at the same index
	bad       []string
}

type position struct{ index, term uint64 }

type hashSeen struct {
	node string
	hash uint64
}

func newAudit() *audit {
	return &audit{sums: make(map[position]uint32), committed: make(map[uint64]*raft.Log),
		leaders: make(map[uint64]string), hashes: make(map[uint64]hashSeen)}
}

// violate records a violation.
func (a *audit) violate(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.violateLocked(format, args...)
}

// maxViolations is the highest number of violations that the audit lists, and
// that each checker adds to the result of a history. The first ones are enough
// to find the cause.
const maxViolations = 20

func (a *audit) violateLocked(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); len(a.bad) < maxViolations && !slices.Contains(a.bad, line) {
		a.bad = append(a.bad, line)
	}
}

func (a *audit) violations() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.bad)
}

func sumOf(l *raft.Log) uint32 {
	return crc32.Update(uint32(l.Type), castagnoli, l.Data)
}

// appended checks and records the entries that a node writes to its log.
func (a *audit) appended(node string, logs []*raft.Log) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range logs {
		p, sum := position{l.Index, l.Term}, sumOf(l)
		if was, ok := a.sums[p]; ok && was != sum {
			a.violateLocked("log matching: %s wrote an entry at index %d, term %d that differs from an earlier one",
				node, l.Index, l.Term)
		}
		a.sums[p] = sum
	}
}

// commit checks and records the entries that a node knows to be committed.
func (a *audit) commit(node string, logs []*raft.Log) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range logs {
		was := a.committed[l.Index]
		if was == nil {
			kept := *l
			a.committed[l.Index] = &kept
		} else if was.Term != l.Term || !bytes.Equal(was.Data, l.Data) {
			a.violateLocked("state machine safety: %s has committed at index %d an entry of term %d, another node "+
				"one of term %d", node, l.Index, l.Term, was.Term)
		}
	}
}

// led checks and records that a node leads a term.
func (a *audit) led(node string, term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, ok := a.leaders[term]; ok && was != node {
		a.violateLocked("two leaders of term %d: %s and %s", term, was, node)
	}
	a.leaders[term] = node
}

// hash checks and records the hash of a node's state machine at an index.
func (a *audit) hash(node string, index, hash uint64) {
	if index == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was, ok := a.hashes[index]
	if !ok {
		a.hashes[index] = hashSeen{node, hash}
		return
	}
	if was.hash != hash {
		a.violateLocked("replicas differ at index %d: %s has hash %#x, %s has %#x", index, was.node,
			was.hash, node, hash)
	} else if was.node != node {
		a.compared++
	}
}

// readBack checks that a snapshot of a state machine can be read and yields the
// same state.
func (a *audit) readBack(node string, m *fsm.Machine, sessions fsm.Sessions) {
	index, hash := m.Hash()
	var b bytes.Buffer
	err := m.WriteSnapshot(&b, sessions)
	var again *fsm.Machine
	if err == nil {
		again, err = fsm.ReadSnapshot(&b, m.Table())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.violateLocked("snapshot: %s cannot read back its snapshot at index %d: %v", node, index, err)
		return
	}
	a.snapshots++
	if i, other := again.Hash(); i != index || other != hash {
		a.violateLocked("snapshot: %s has hash %#x at index %d, but its snapshot has hash %#x at index %d",
			node, hash, index, other, i)
	}
}

// waiters checks that every waiter of a state machine belongs to one of the
// sessions that the state machine lists. A waiter of an earlier start of a node
// would violate this.
func (a *audit) waiters(node string, m *fsm.Machine) {
	waiting := 0
	for _, s := range m.WaitSessions() {
		for _, w := range m.WaitersOf(s.ID) {
			if !w.Served {
				waiting++
			}
		}
	}
	if waiting != m.Waiting() {
		a.violate("waiters: the state machine of %s has %d, of which %d belong to the sessions %v", node, m.Waiting(),
			waiting, m.WaitSessions())
	}
}

// log returns the committed entries in order. gap is the first index for which
// no node has given an entry to the audit, or 0 if there is none.
func (a *audit) log() (log replay.Log, gap uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	log.Node = "all nodes"
	for _, l := range a.committed {
		log.Entries = append(log.Entries,
			replay.Entry{Index: l.Index, Term: l.Term, Command: l.Type == raft.LogCommand, Data: l.Data})
	}
	slices.SortFunc(log.Entries, func(x, y replay.Entry) int { return cmp.Compare(x.Index, y.Index) })
	for i, l := range log.Entries {
		if l.Index != uint64(i)+1 {
			return log, uint64(i) + 1
		}
	}
	return log, 0
}

// failovers returns the number of terms that had a leader. It does not count
// the first of them.
func (a *audit) failovers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, len(a.leaders)-1)
}
