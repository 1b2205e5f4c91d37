package resp

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var lifecycleRows = []row{
	{run: shutdown, final: true, cmd: &fsm.Command{
		Name: "shutdown", Arity: -1,
		Flags: fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.NoMulti | fsm.AllowBusy,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
		Doc:        "Stop this node, as SIGTERM does; a leader first transfers leadership",
	}},
}

// shutdown stops the node. If it succeeds, it sends no reply: the connection
// ends with the node. The options about saving and waiting have no effect,
// because the log is already on disk, and every acknowledged write is on the
// disks of a majority.
func shutdown(c *conn, args [][]byte) fsm.Reply {
	save, nosave, other, abort := false, false, false, false
	for _, arg := range args[1:] {
		switch strings.ToLower(string(arg)) {
		case "save":
			save = true
		case "nosave":
			nosave = true
		case "now", "force":
			other = true
		case "abort":
			abort = true
		default:
			return fsm.Error(msgSyntax)
		}
	}
	switch {
	case save && nosave, abort && (save || nosave || other):
		return fsm.Error(msgSyntax)
	case abort: // a shutdown in progress cannot be aborted
		return fsm.Error("ERR No shutdown in progress.")
	case c.srv.cfg.Shutdown == nil:
		return fsm.Error("ERR Errors trying to SHUTDOWN. Check logs.")
	}
	c.srv.log.Info("shutdown requested by client", "client", c.id, "addr", c.net.RemoteAddr(), "user", c.info.user)
	c.srv.cfg.Shutdown()
	c.done = true
	// The connection stays open until the node has released all its resources.
	// So a client that sees the end of the connection knows that the node has
	// stopped. Stop must not wait for this connection, so the call of leave
	// removes it from the busy connections.
	c.srv.leave()
	<-c.srv.port.released
	c.srv.life.busy.Add(1)
	return fsm.None
}

var adminRows = []row{
	{run: admin, cmd: &fsm.Command{
		Name: "holdfast", Arity: -2,
		Flags: fsm.Admin | fsm.Dangerous | fsm.NoScript,
		Group: "server", Since: "holdfast",
		Complexity: "O(N) where N is the number of members",
		Syntax: "STATUS [LOCAL] | ADD node address [LEARNER] | PROMOTE node | REMOVE node [FORCE] | " +
			"TRANSFER [node] | SNAPSHOT | BACKUP … | RESTORE …",
		Doc: "Inspect and change the cluster",
	}},
}

// admin runs an operator's request. The request may take up to 10 seconds. It
// delays only this connection.
func admin(c *conn, args [][]byte) fsm.Reply {
	words := make([]string, 0, len(args)-1)
	for _, a := range args[1:] {
		words = append(words, string(a))
	}
	replacesUsers := len(words) > 1 && strings.EqualFold(words[0], "restore") && strings.EqualFold(words[1], "apply")
	if replacesUsers { // the client gets the reply before its connection is closed
		defer c.delayEnd()()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := c.srv.cluster.Admin(ctx, words)
	if err == nil && replacesUsers {
		err = c.users().afterChange()
	}
	if err != nil {
		return fsm.Error(errorText(err))
	}
	return fsm.Bulk(text)
}
