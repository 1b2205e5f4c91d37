package offline

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

// RecoverConfig describes a recovery.
type RecoverConfig struct {
	To       string // new data directory, which must not exist
	PeerAddr string // peer address of the only member; "" to keep the address that it had
	// Quarantine is the length of the quarantine. A negative value stands for
	// fsm.DefaultQuarantine of the data, or for the rest of the quarantine that
	// is in force, if that is longer.
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

// CheckNew returns an error if the path dir, or the temporary name under which
// Recover writes the new data directory, exists.
func CheckNew(dir string) error {
	if err := checkAbsent(dir, "name a directory that does not exist"); err != nil {
		return err
	}
	// Whether an interrupted recovery left the temporary directory is unknown, so
	// only the operator may remove it.
	return checkAbsent(temporary(dir), "if an interrupted recovery left it, remove it; otherwise name another "+
		"directory than "+dir)
}

// checkAbsent returns an error, with a remedy, if path exists.
func checkAbsent(path, remedy string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return fmt.Errorf("%s exists: %s", path, remedy)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return nil
}

// temporary returns the name under which Recover writes the data directory dir.
func temporary(dir string) string { return filepath.Clean(dir) + ".tmp" }

// Recover writes a new data directory with the state of o, for a new cluster
// whose only member is the node of o. The new cluster has another id, so nodes
// of the old cluster cannot connect to it. Recover writes the directory under a
// temporary name and renames it at the end.
func (o *State) Recover(cfg RecoverConfig) (rec Recovery, err error) {
	if err := CheckNew(cfg.To); err != nil {
		return rec, err
	}
	rec.PeerAddr = cfg.PeerAddr
	if rec.PeerAddr == "" {
		i := slices.IndexFunc(o.Members, func(m member.Member) bool { return m.ID == o.NodeID })
		if i < 0 {
			return rec, fmt.Errorf("%s is not a member in its own log: set --peer-addr", o.NodeID)
		}
		rec.PeerAddr = o.Members[i].Addr
	}
	rec.ClusterID = storage.NewClusterID()
	length, err := o.Machine.Recover(rec.ClusterID, fsm.TokenEpochAt(cfg.Wall.Unix()), int64(cfg.Quarantine))
	if err != nil {
		return rec, err
	}
	rec.Quarantine, rec.TokenEpoch = time.Duration(length), fsm.TokenEpoch(o.Machine.Token())
	tmp := temporary(cfg.To)
	// Mkdir fails if the directory exists. So if this recovery fails, it removes
	// only what it has written.
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return rec, err
	}
	if err := o.write(tmp, rec); err != nil {
		return rec, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, cfg.To); err != nil {
		return rec, errors.Join(err, os.RemoveAll(tmp))
	}
	return rec, syncDir(filepath.Dir(filepath.Clean(cfg.To)))
}

// write creates a data directory with a snapshot and an empty log.
func (o *State) write(dir string, rec Recovery) (err error) {
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

// checkWritten reads and checks the snapshot that the method write has made.
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
