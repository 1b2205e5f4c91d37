// Package offline reads the data directory of a stopped node, and makes a new
// cluster from it after the loss of a majority.
package offline

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// State is the state in the data directory of a stopped node.
type State struct {
	Machine *fsm.Machine
	NodeID  string
	LogKind string
	// ClusterID is the id of the cluster to which the directory belongs.
	ClusterID string
	// SnapshotIndex is the log index of the newest snapshot, 0 if there is none.
	SnapshotIndex uint64
	// LastIndex and LastTerm are the log index and the term of the last entry
	// on the disk.
	LastIndex, LastTerm uint64
	// Known is the highest log index that the directory itself proves to be
	// committed. The entries after it are part of the state, but it is unknown
	// whether the cluster ever acknowledged them.
	Known   uint64
	Members []member.Member // members in the latest configuration in the log
}

// Read reads the data directory of a stopped node: the newest snapshot and all
// log entries after it. It checks the files as a node that starts does. It
// works on a copy, which it creates in the directory scratch and removes at the
// end. If scratch is "", it creates the copy in the directory for temporary
// files.
func Read(dir, scratch string) (o State, err error) {
	if scratch == "" {
		scratch = os.TempDir()
	}
	switch inside, err := contains(dir, scratch); {
	case err != nil:
		return o, err
	case inside:
		return o, fmt.Errorf("cannot copy %s to %s, which is part of it: choose a directory outside of the data "+
			"directory with --to, or with TMPDIR", dir, scratch)
	}
	tmp, err := os.MkdirTemp(scratch, "holdfast-offline-")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	data := filepath.Join(tmp, "data")
	if err := storage.Copy(dir, data); err != nil {
		return o, err
	}
	defer func() { err = o.located(err, dir, data) }()
	id, kind, err := storage.Owner(data)
	if err != nil {
		return o, err
	}
	o.NodeID, o.ClusterID, o.LogKind = id.NodeID, id.ClusterID, kind
	var failed error
	s, err := storage.Open(storage.Config{
		Dir: data, NodeID: id.NodeID, LogKind: kind, Logger: hclog.NewNullLogger(),
		Fatal: func(err error) { failed = err },
	})
	if err != nil {
		return o, err
	}
	err = o.read(s)
	return o, errors.Join(err, s.Close(), failed)
}

// located adds dir to err. If err says that a file of the copy is damaged,
// located returns an error that names the same file in dir, and a remedy for a
// stopped node.
func (o *State) located(err error, dir, copied string) error {
	var corrupt *storage.CorruptError
	if !errors.As(err, &corrupt) {
		if err != nil {
			err = fmt.Errorf("%s: %w", dir, err)
		}
		return err
	}
	e := *corrupt
	if rel, err := filepath.Rel(copied, e.File); err == nil && filepath.IsLocal(rel) {
		e.File = filepath.Join(dir, rel)
	}
	node := cmp.Or(o.NodeID, "NODE")
	e.Remedy = fmt.Sprintf("This copy must not be trusted: if a majority of the cluster is up, replace the node with "+
		"`holdfast member remove %s` and `holdfast member add %s PEER-ADDR`, and start it with an empty directory; "+
		"otherwise use the data directory of another node, or restore a backup", node, node)
	return &e
}

// contains reports whether the directory scratch is dir or a part of it. It
// returns false and no error if one of the directories does not exist.
func contains(dir, scratch string) (bool, error) {
	for _, path := range []*string{&dir, &scratch} {
		real, err := filepath.EvalSymlinks(*path)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		*path = real
	}
	rel, err := filepath.Rel(dir, scratch)
	return filepath.IsLocal(rel), err
}

// read restores the newest snapshot and applies the log.
func (o *State) read(s *storage.Stores) error {
	o.Machine = fsm.New(command.NewTable())
	list, err := s.Snapshots().List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) > 0 {
		meta, r, err := s.Snapshots().Open(list[0].ID)
		if err != nil {
			return fmt.Errorf("open snapshot: %w", err)
		}
		o.Machine, err = fsm.ReadSnapshot(r, command.NewTable())
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		o.SnapshotIndex, o.LastIndex, o.LastTerm, o.Known = meta.Index, meta.Index, meta.Term, meta.Index
		o.Members = member.Of(meta.Configuration)
	}
	first, err1 := s.Log().FirstIndex()
	last, err2 := s.Log().LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if last > o.LastIndex && first > o.LastIndex+1 {
		return fmt.Errorf("the log begins at index %d, but the snapshot ends at index %d: "+
			"the entries between them are missing", first, o.LastIndex)
	}
	for i := o.LastIndex + 1; i <= last; i++ {
		var l raft.Log
		if err := s.Log().GetLog(i, &l); err != nil {
			return fmt.Errorf("read log entry %d: %w", i, err)
		}
		if err := o.apply(&l); err != nil {
			return err
		}
	}
	return nil
}

func (o *State) apply(l *raft.Log) error {
	o.LastIndex, o.LastTerm = l.Index, l.Term
	switch l.Type {
	case raft.LogCommand:
		res, err := o.Machine.Apply(l.Index, l.Term, l.Data)
		if err != nil {
			return err
		}
		// The leader had applied the entry at HashIndex when it built this entry.
		o.Known = max(o.Known, res.HashIndex)
		return nil
	case raft.LogConfiguration:
		o.Members = member.Of(raft.DecodeConfiguration(l.Data))
	}
	o.Machine.Advance(l.Index)
	return nil
}
