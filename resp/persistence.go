package resp

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Every acknowledged write is on disk already. What SAVE and its like do here is
// to take a snapshot of this node, which shortens its log.
var persistenceRows = []row{
	{cmd: fsm.Command{Name: "lastsave", Arity: 1, Group: "server", Since: "1.0.0", Complexity: "O(1)", Doc: "When a client last had a snapshot taken, or this node started"}, words: "loading stale fast", acl: "admin dangerous", tips: "nondeterministic_output", run: lastsave},
	{cmd: fsm.Command{Name: "save", Arity: 1, Group: "server", Since: "1.0.0", Complexity: "O(N) where N is the number of keys", Doc: "Take a snapshot of this node"}, words: "admin noscript no_async_loading no_multi", run: save},
	{cmd: fsm.Command{Name: "bgsave", Arity: -1, Group: "server", Since: "1.0.0", Complexity: "O(1)", Syntax: "[SCHEDULE]", Doc: "Take a snapshot of this node, without waiting for it"}, words: "admin noscript no_async_loading", run: bgsave},
	{cmd: fsm.Command{Name: "bgrewriteaof", Arity: 1, Group: "server", Since: "1.0.0", Complexity: "O(1)", Doc: "Take a snapshot of this node, without waiting for it"}, words: "admin noscript no_async_loading", run: bgrewriteaof},
}

// snapshotTimeout bounds how long a client may wait for a snapshot.
const snapshotTimeout = time.Minute

func lastsave(c *conn, args [][]byte) fsm.Reply { return fsm.Int(c.srv.saved.Load()) }

const msgSaving = "ERR Background save already in progress"

// snapshot takes one, unless one that a client asked for is under way: s.saving
// must be this caller's.
func (s *Server) snapshot() error {
	defer s.saving.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	if _, err := s.cluster.Admin(ctx, []string{"snapshot"}); err != nil {
		return err
	}
	s.saved.Store(time.Now().Unix())
	return nil
}

func save(c *conn, args [][]byte) fsm.Reply {
	if !c.srv.saving.CompareAndSwap(false, true) {
		return fsm.Error(msgSaving)
	}
	if err := c.srv.snapshot(); err != nil {
		return fsm.Error("ERR " + err.Error())
	}
	return fsm.OK
}

// snapshotBehind starts a snapshot that Close waits for.
func (s *Server) snapshotBehind() bool {
	if !s.saving.CompareAndSwap(false, true) {
		return false
	}
	s.behind.Go(func() {
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
	if !c.srv.snapshotBehind() {
		return fsm.Error(msgSaving)
	}
	return fsm.Simple("Background saving started")
}

func bgrewriteaof(c *conn, args [][]byte) fsm.Reply {
	if !c.srv.snapshotBehind() {
		return fsm.Error(msgSaving)
	}
	return fsm.Simple("Background append only file rewriting started")
}
