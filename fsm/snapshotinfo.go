package fsm

import (
	"bufio"
	"fmt"
	"io"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// SnapshotHead describes the state in a snapshot, apart from its keys.
type SnapshotHead struct {
	ClusterID string `json:"cluster"`
	Index     uint64 `json:"index"` // log index of the last entry
	Term      uint64 `json:"term"`  // term of the last TermStart
	Lease     int64  `json:"lease"` // lease clock, nanoseconds
	Wall      int64  `json:"wall"`  // wall clock of the last entry, microseconds since 1970
	Features  int    `json:"features"`
	Token     uint64 `json:"token"` // highest fencing token
	// Quarantine is the lease clock at which the quarantine ends, 0 if there is
	// none.
	Quarantine int64 `json:"quarantine,omitempty"`
	Users      int   `json:"users"`
	Functions  int   `json:"functions"`
	Sessions   int   `json:"sessions"`
}

// Head returns a description of the state of the machine.
func (m *Machine) Head() SnapshotHead {
	_, functions, _ := m.libraries.Len()
	return SnapshotHead{
		ClusterID: m.clusterID, Index: m.applied, Term: m.term, Lease: m.clock.Lease, Wall: m.clock.Wall,
		Features: m.features, Token: m.Token(), Quarantine: m.quarantine,
		Users: len(m.users.List), Functions: functions, Sessions: len(m.sessions),
	}
}

// SnapshotKey describes a key in a snapshot.
type SnapshotKey struct {
	DB    int
	Key   string
	Type  string // type in the form of the reply to TYPE
	Token uint64
	// TTL is the remaining time to live in nanoseconds, 0 for none. It is
	// negative if the key has expired and no entry has removed it yet.
	TTL   int64
	Bytes int // length of a string, 0 for other types
}

// InspectSnapshot is like CheckSnapshot, but also describes the state and calls
// visit for each key.
func InspectSnapshot(r io.Reader, table *Table, visit func(SnapshotKey)) (SnapshotHead, error) {
	check := &snapshotCheck{}
	load := snapshotLoader{m: New(table), check: check}
	check.visit = func(db int, o *keyspace.Object) { visit(load.m.describe(db, o)) }
	if err := load.read(bufio.NewReaderSize(r, 64<<10)); err != nil {
		return SnapshotHead{}, fmt.Errorf("inspect snapshot: %w", err)
	}
	return load.m.Head(), nil
}

// InspectKeys calls visit for each key of the machine.
func (m *Machine) InspectKeys(visit func(SnapshotKey)) {
	for db := range m.dbs {
		m.dbs[db].Scan(func(o *keyspace.Object) bool {
			visit(m.describe(db, o))
			return true
		})
	}
}

func (m *Machine) describe(db int, o *keyspace.Object) SnapshotKey {
	k := SnapshotKey{
		DB: db, Key: string([]byte(o.Key)), Type: keyspace.TypeNames[o.Type], Token: uint64(o.Token), Bytes: len(o.Str),
	}
	if o.Deadline != 0 {
		if k.TTL = o.Deadline - m.clock.Lease; k.TTL == 0 {
			k.TTL = -1
		}
	}
	return k
}
