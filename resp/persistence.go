package resp

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Every acknowledged write is already on the disks of a majority. SAVE and the
// related commands take a snapshot of this node, which shortens its log.
var persistenceRows = []row{
	{run: lastsave, cmd: &fsm.Command{
		Name: "lastsave", Arity: 1,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Return when a client last had a snapshot taken, or when this node started",
		Categories: []string{"admin", "dangerous"},
		Tips:       []string{"nondeterministic_output"},
	}},
	{run: save, cmd: &fsm.Command{
		Name: "save", Arity: 1,
		Flags: fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading | fsm.NoMulti,
		Group: "server", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys",
		Doc:        "Take a snapshot of this node",
	}},
	{run: bgsave, cmd: &fsm.Command{
		Name: "bgsave", Arity: -1,
		Flags: fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[SCHEDULE]",
		Doc:        "Take a snapshot of this node, without waiting for it",
	}},
	{run: bgrewriteaof, cmd: &fsm.Command{
		Name: "bgrewriteaof", Arity: 1,
		Flags: fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Take a snapshot of this node, without waiting for it",
	}},
}

// snapshotTimeout is the time limit of a snapshot that a client asks for.
const snapshotTimeout = time.Minute

func lastsave(c *conn, args [][]byte) fsm.Reply { return fsm.Int(c.srv.saves.last.Load()) }

const msgSaving = "ERR Background save already in progress"

// snapshot takes a snapshot. The caller has set the flag s.saves.running, so that
// at most one snapshot for a client runs at a time. snapshot resets the flag.
func (s *Server) snapshot() error {
	defer s.saves.running.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	if _, err := s.cluster.Admin(ctx, []string{"snapshot"}); err != nil {
		return err
	}
	s.saves.last.Store(time.Now().Unix())
	return nil
}

func save(c *conn, args [][]byte) fsm.Reply {
	if !c.srv.saves.running.CompareAndSwap(false, true) {
		return fsm.Error(msgSaving)
	}
	if err := c.srv.snapshot(); err != nil {
		return fsm.Error("ERR " + err.Error())
	}
	return fsm.OK
}

// snapshotInBackground starts a snapshot in the background. Close waits for it.
func (s *Server) snapshotInBackground() bool {
	if !s.saves.running.CompareAndSwap(false, true) {
		return false
	}
	s.life.background.Go(func() {
		if err := s.snapshot(); err != nil {
			s.log.Error("snapshot failed", "error", err)
		}
	})
	return true
}

func bgsave(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 2 || len(args) == 2 && !strings.EqualFold(string(args[1]), "schedule") {
		return fsm.Error(msgSyntax)
	}
	if !c.srv.snapshotInBackground() {
		return fsm.Error(msgSaving)
	}
	return fsm.Simple("Background saving started")
}

func bgrewriteaof(c *conn, args [][]byte) fsm.Reply {
	if !c.srv.snapshotInBackground() {
		return fsm.Error(msgSaving)
	}
	return fsm.Simple("Background append only file rewriting started")
}
