package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// Offline is the state in the data directory of a stopped node.
type Offline struct {
	Machine *fsm.Machine
	NodeID  string
	LogKind string
	// ClusterID is the cluster that the directory belongs to.
	ClusterID string
	// SnapshotIndex is the log index of the newest snapshot, 0 if there is none.
	SnapshotIndex uint64
	// LastIndex and LastTerm belong to the last entry on the disk.
	LastIndex, LastTerm uint64
	// Known is the highest log index that the directory itself proves to be
	// committed. The entries after it are part of the state, but it is unknown
	// whether the cluster ever acknowledged them.
	Known   uint64
	Members []member.Member // members in the latest configuration in the log
}

// ReadOffline reads the data directory of a stopped node: the newest snapshot and
// all log entries after it. It checks everything that the node checks when it
// starts. It works on a copy in the directory scratch, and removes the copy.
func ReadOffline(dir, scratch string) (o Offline, err error) {
	tmp, err := os.MkdirTemp(scratch, "holdfast-offline-")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	data := filepath.Join(tmp, "data")
	if err := storage.Copy(dir, data); err != nil {
		return o, err
	}
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
		return o, fmt.Errorf("%s: %w", dir, err)
	}
	err = o.read(s)
	return o, errors.Join(err, s.Close(), failed)
}

// read restores the newest snapshot and applies the log.
func (o *Offline) read(s *storage.Stores) error {
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
		return fmt.Errorf("the log begins at index %d and the snapshot ends at %d", first, o.LastIndex)
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

func (o *Offline) apply(l *raft.Log) error {
	o.LastIndex, o.LastTerm = l.Index, l.Term
	switch l.Type {
	case raft.LogCommand:
		res, err := o.Machine.Apply(l.Index, l.Term, l.Data)
		if err != nil {
			return err
		}
		// The leader had applied that index when it built the entry.
		o.Known = max(o.Known, res.HashIndex)
		return nil
	case raft.LogConfiguration:
		o.Members = member.Of(raft.DecodeConfiguration(l.Data))
	}
	o.Machine.Advance(l.Index)
	return nil
}

// RecoverConfig describes a recovery.
type RecoverConfig struct {
	To       string // new data directory, which must not exist
	PeerAddr string // peer address of the only member, "" for the one that it had
	// Quarantine is the length of the quarantine; negative for the default of
	// fsm.DefaultQuarantine.
	Quarantine time.Duration
	Wall       time.Time
}

// Recovery is the result of a recovery.
type Recovery struct {
	ClusterID  string
	PeerAddr   string
	Quarantine time.Duration
	TokenEpoch uint64
}

// Recover writes a new data directory with the state of o, for a new cluster whose
// only member is the node of o. The new cluster has another id, so nodes of the old
// cluster cannot talk to it. Recover writes the directory under a temporary name
// and renames it at the end.
func (o *Offline) Recover(cfg RecoverConfig) (rec Recovery, err error) {
	if _, err := os.Stat(cfg.To); !errors.Is(err, os.ErrNotExist) {
		return rec, fmt.Errorf("%s exists: name a directory that does not exist", cfg.To)
	}
	rec.PeerAddr = cfg.PeerAddr
	if rec.PeerAddr == "" {
		i := slices.IndexFunc(o.Members, func(m member.Member) bool { return m.ID == o.NodeID })
		if i < 0 {
			return rec, fmt.Errorf("%s is not a member in its own log: set --peer-addr", o.NodeID)
		}
		rec.PeerAddr = o.Members[i].Addr
	}
	rec.ClusterID = newClusterID()
	length, err := o.Machine.Recover(rec.ClusterID, fsm.TokenEpochAt(cfg.Wall.Unix()), int64(cfg.Quarantine))
	if err != nil {
		return rec, err
	}
	rec.Quarantine, rec.TokenEpoch = time.Duration(length), fsm.TokenEpoch(o.Machine.Token())
	tmp := filepath.Clean(cfg.To) + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return rec, err
	}
	if err := o.write(tmp, rec); err != nil {
		return rec, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, cfg.To); err != nil {
		return rec, err
	}
	return rec, syncDir(filepath.Dir(filepath.Clean(cfg.To)))
}

// write creates a data directory with a snapshot and an empty log.
func (o *Offline) write(dir string, rec Recovery) (err error) {
	var failed error
	s, err := storage.Open(storage.Config{
		Dir: dir, NodeID: o.NodeID, LogKind: o.LogKind, Logger: hclog.NewNullLogger(),
		Fatal: func(err error) { failed = err },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(), failed) }()
	if err := s.SetClusterID(rec.ClusterID, false); err != nil {
		return err
	}
	// raft continues with the term of the snapshot.
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), o.LastTerm); err != nil {
		return fmt.Errorf("store term: %w", err)
	}
	only := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(o.NodeID), Address: raft.ServerAddress(rec.PeerAddr),
	}}}
	sink, err := s.Snapshots().Create(1, o.LastIndex, o.LastTerm, only, o.LastIndex, nil)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	if err := o.Machine.WriteSnapshot(sink, o.Machine.Sessions()); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	return checkWritten(s)
}

// checkWritten reads and checks the snapshot that write has written.
func checkWritten(s *storage.Stores) error {
	list, err := s.Snapshots().List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) != 1 {
		return fmt.Errorf("the new data directory has %d valid snapshots, not 1", len(list))
	}
	_, r, err := s.Snapshots().Open(list[0].ID)
	if err != nil {
		return err
	}
	_, err = fsm.CheckSnapshot(io.Reader(r), command.NewTable())
	return errors.Join(err, r.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
