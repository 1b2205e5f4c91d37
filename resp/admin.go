package resp

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

var lifecycleRows = []row{
	{run: shutdown, final: true, cmd: &fsm.Command{
		Name: "shutdown", Arity: -1,
		Flags: fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.NoMulti | fsm.AllowBusy,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
		Doc:        "Stop this node as SIGTERM does: it transfers leadership first",
	}},
	{run: failover, cmd: &fsm.Command{
		Name: "failover", Arity: -1,
		Flags: fsm.Admin | fsm.NoScript | fsm.Stale,
		Group: "server", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
		Doc:        "Transfer leadership to the node with the given client address, or to the most suitable one",
	}},
}

// shutdown stops the node. It sends no reply: the connection ends with the
// node. It ignores the options about saving and waiting, because the log is
// already on disk, and every acknowledged write is on a majority.
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
	// The connection stays open until the node has released all its resources,
	// so that a client that sees it end knows that the node has stopped. Stop
	// must not wait for this connection, so it does not count as busy
	// meanwhile.
	c.srv.leave()
	<-c.srv.port.released
	c.srv.life.busy.Add(1)
	return fsm.None
}

// failoverOptions are the options of FAILOVER.
type failoverOptions struct {
	host    string
	port    int64
	timeout int64 // in milliseconds, 0 for none
	force   bool
}

func (o *failoverOptions) parse(args [][]byte) (refusal fsm.Reply, ok bool) {
	for i := 1; i < len(args); i++ {
		left := len(args) - i - 1
		switch word := strings.ToLower(string(args[i])); {
		case word == "timeout" && left >= 1 && o.timeout == 0:
			i++
			if o.timeout, refusal, ok = intArg(args[i]); !ok {
				return refusal, false
			}
			if o.timeout <= 0 {
				return fsm.Error("ERR FAILOVER timeout must be greater than 0"), false
			}
		case word == "to" && left >= 2 && o.host == "":
			o.host = string(args[i+1])
			if o.port, refusal, ok = intArg(args[i+2]); !ok {
				return refusal, false
			}
			i += 2
		case word == "force" && !o.force:
			o.force = true
		default:
			return fsm.Error(msgSyntax), false
		}
	}
	return fsm.Reply{}, true
}

// failover transfers leadership before it replies. In Redis, the failover
// continues after the reply; here none is ever in progress.
func failover(c *conn, args [][]byte) fsm.Reply {
	var o failoverOptions
	source := c.srv.cfg.Topology
	if c.srv.cfg.Mode == Clustered {
		return fsm.Error("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.")
	}
	if len(args) == 2 && strings.EqualFold(string(args[1]), "abort") {
		return fsm.Error("ERR No failover in progress.")
	}
	if refusal, ok := o.parse(args); !ok {
		return refusal
	}
	const noReplicas = "ERR FAILOVER requires connected replicas."
	if source == nil {
		return fsm.Error(noReplicas)
	}
	if text := c.srv.cannotHandOver(); text != "" {
		return fsm.Error(text)
	}
	others, to, online := 0, "", false
	for _, p := range source.Peers() {
		if p.Self || !p.Voter {
			continue
		}
		if p.Host == o.host && topology.PortNumber(p.Port) == o.port {
			to, online = p.Node, p.Alive
		}
		if p.Alive {
			others++
		}
	}
	switch { // in the order of Redis
	case others == 0:
		return fsm.Error(noReplicas)
	case o.force && (o.timeout == 0 || o.host == ""):
		return fsm.Error("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
	case o.host != "" && to == "":
		return fsm.Error("ERR FAILOVER target HOST and PORT is not a replica.")
	case o.host != "" && !online:
		return fsm.Error("ERR FAILOVER target replica is not online.")
	}
	limit := topology.TransferLimit
	if o.timeout > 0 {
		limit = min(limit, time.Duration(min(o.timeout, int64(limit/time.Millisecond)))*time.Millisecond)
	}
	return c.transferWithin(to, limit)
}

// cannotHandOver returns the error for FAILOVER on a node that does not lead, or
// "". A node that calls itself a replica answers as Redis does. In Standalone
// mode every node calls itself a master, so there the error names the leader.
func (s *Server) cannotHandOver() string {
	if s.cfg.Topology.Leads() {
		return ""
	}
	if s.cfg.Mode != Standalone {
		if _, _, follows := s.follows(); follows {
			return "ERR FAILOVER is not valid when server is a replica."
		}
		return ""
	}
	leader, ok := s.cfg.Topology.Leader()
	switch {
	case ok && leader.Self: // elected after the check above
		return ""
	case ok && leader.Known():
		return "ERR FAILOVER must be sent to the leader, " + leader.Node + " at " + leader.Addr()
	}
	return "ERR FAILOVER must be sent to the leader, which this node does not know at present"
}

// transferWithin is like transferTo, but with a limit on the time.
func (c *conn) transferWithin(node string, limit time.Duration) fsm.Reply {
	ctx, cancel := context.WithTimeout(c.srv.life.ctx, limit)
	defer cancel()
	args := []string{"transfer"}
	if node != "" {
		args = append(args, node)
	}
	if _, err := c.srv.cluster.Admin(ctx, args); err != nil {
		return fsm.Error(errorText(err))
	}
	return fsm.OK
}

var adminRows = []row{
	{run: admin, cmd: &fsm.Command{
		Name: "holdfast", Arity: -2,
		Flags: fsm.Admin | fsm.Dangerous | fsm.NoScript,
		Group: "server", Since: "holdfast",
		Complexity: "O(N) where N is the number of members",
		Syntax: "STATUS [LOCAL] | ADD node address | REMOVE node [FORCE] | TRANSFER [node] | SNAPSHOT | " +
			"BACKUP … | RESTORE …",
		Doc: "Inspect and change the cluster",
	}},
}

// admin runs an operator's request. It may take up to 10 seconds and delays
// only this connection.
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
