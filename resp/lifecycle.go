package resp

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var lifecycleRows = []row{
	{cmd: fsm.Command{Name: "shutdown", Arity: -1, Group: "server", Since: "1.0.0", Complexity: "O(1)", Syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]", Doc: "Stop this node as SIGTERM does: leadership is handed over first"}, words: "admin noscript loading stale no_multi allow_busy", run: shutdown},
	{cmd: fsm.Command{Name: "failover", Arity: -1, Group: "server", Since: "6.2.0", Complexity: "O(1)", Syntax: "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]", Doc: "Hand leadership over, to the node with a client address or to the most suitable one"}, words: "admin noscript stale", run: failover},
}

// shutdown has the node stop, and answers nothing: the connection ends with it. The
// log is on disk whatever the words about saving say, and replicas are not waited
// for, because every acknowledged write is on a majority.
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
	case abort: // one under way answers nobody any more
		return fsm.Error("ERR No shutdown in progress.")
	case c.srv.cfg.Shutdown == nil:
		return fsm.Error("ERR Errors trying to SHUTDOWN. Check logs.")
	}
	c.srv.log.Info("a client asks this node to stop", "client", c.id, "addr", c.net.RemoteAddr(), "user", c.info.user)
	c.srv.cfg.Shutdown()
	c.done = true
	// The connection stays until the node has let go of all: who sees it end knows
	// that. It is not work that Stop would wait for.
	c.srv.leave()
	<-c.srv.released
	c.srv.busy.Add(1)
	return fsm.None
}

// failoverOptions are the words of FAILOVER.
type failoverOptions struct {
	host    string
	port    int64
	timeout int64 // milliseconds, 0 for none
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

// failover hands leadership over before it answers. In Redis it goes on behind the
// reply; so none is ever in progress here.
func failover(c *conn, args [][]byte) fsm.Reply {
	var o failoverOptions
	topology := c.srv.cfg.Topology
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
	if topology == nil {
		return fsm.Error(noReplicas)
	}
	if !topology.Leads() {
		return fsm.Error("ERR FAILOVER is not valid when server is a replica.")
	}
	others, to := 0, ""
	for _, p := range topology.Places() {
		if p.Self || !p.Voter {
			continue
		}
		if p.Host == o.host && number(p.Port) == o.port {
			if to = p.Node; !p.Alive {
				return fsm.Error("ERR FAILOVER target replica is not online.")
			}
		}
		if p.Alive {
			others++
		}
	}
	switch {
	case others == 0:
		return fsm.Error(noReplicas)
	case o.force && (o.timeout == 0 || o.host == ""):
		return fsm.Error("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
	case o.host != "" && to == "":
		return fsm.Error("ERR FAILOVER target HOST and PORT is not a replica.")
	}
	limit := takeOverLimit
	if o.timeout > 0 {
		limit = min(limit, time.Duration(min(o.timeout, int64(limit/time.Millisecond)))*time.Millisecond)
	}
	return c.handOver(to, limit)
}

// handOver is handTo with a limit of its own.
func (c *conn) handOver(node string, limit time.Duration) fsm.Reply {
	ctx, cancel := context.WithTimeout(c.srv.ctx, limit)
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
