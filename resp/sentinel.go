package resp

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/sentinel"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// A Sentinel port reports one master, the leader. Raft elects the leader; the
// Sentinel does not take part in the election. The port names a node only after
// a majority has confirmed it as leader.
var sentinelRows = []row{
	{cmd: &fsm.Command{
		Name: "sentinel", Arity: -2,
		Flags: fsm.Admin,
		Group: "sentinel", Since: "2.8.4",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about the leader and the nodes",
	}, sub: sentinelSubs()},
	{run: sentinelRole, cmd: &fsm.Command{
		Name: "role", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "server", Since: "2.8.12",
		Complexity: "O(1)",
		Doc:        "Return sentinel and the name of the master",
		Categories: []string{"admin", "dangerous"},
	}},
	{run: sentinelPublish, cmd: &fsm.Command{
		Name: "publish", Arity: 3,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "channel message",
		Doc:        "Refused: only the Sentinel itself publishes events",
		Categories: []string{"pubsub"},
	}},
}

func sentinelSubs() []row {
	rows := []row{
		sentinelSub("ckquorum", 3, "master-name",
			"Report whether enough Sentinels are up to replace the master", sentinelCkquorum),
		sentinelSub("failover", 3, "master-name", "Transfer leadership to another node", sentinelFailover),
		sentinelSub("get-master-addr-by-name", 3, "master-name", "Return the address of the leader", sentinelAddr),
		sentinelSub("is-master-down-by-addr", 6, "ip port current-epoch runid",
			"Report whether the master at an address is down", sentinelIsDown),
		sentinelSub("master", 3, "master-name", "Describe the leader", sentinelMaster),
		sentinelSub("masters", 2, "", "Describe the masters, of which there is one", sentinelMasters),
		sentinelSub("myid", 2, "", "Return the id of this Sentinel", sentinelMyid),
		sentinelSub("pending-scripts", 2, "", "Return an empty list: Sentinel runs no scripts here", emptyArray),
		sentinelSub("replicas", 3, "master-name", "Describe the followers", sentinelReplicas),
		sentinelSub("sentinels", 3, "master-name", "Describe the other Sentinels", sentinelSentinels),
		sentinelSub("slaves", 3, "master-name", "Describe the followers", sentinelReplicas),
		helpRow("6.2.0"),
	}
	for _, s := range []struct {
		name  string
		arity int
	}{
		{"config", -3}, {"debug", -2}, {"flushconfig", 2}, {"info-cache", -3}, {"monitor", 6},
		{"remove", 3}, {"reset", 3}, {"set", -5}, {"simulate-failure", -3},
	} {
		text := "ERR SENTINEL " + upper(s.name) +
			" is not supported: the cluster knows its own members, see HOLDFAST STATUS on the client port"
		refuse := func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) }
		rows = append(rows, sentinelSub(s.name, s.arity, "", "Refused: there is nothing to configure", refuse))
	}
	return rows
}

func sentinelSub(name string, arity int, syntax, doc string, run func(*conn, [][]byte) fsm.Reply) row {
	return row{run: run, cmd: &fsm.Command{
		Name: name, Arity: arity,
		Flags:      fsm.Admin,
		Since:      "2.8.4",
		Complexity: "O(1)",
		Syntax:     syntax,
		Doc:        doc,
	}}
}

// sentinelFamilies lists the commands of a Sentinel port. The list contains some
// connection commands that Redis' Sentinel lacks, such as QUIT.
func sentinelFamilies() [][]row {
	pick := func(family []row, names ...string) []row {
		return slices.DeleteFunc(slices.Clone(family), func(r row) bool { return !slices.Contains(names, r.cmd.Name) })
	}
	return [][]row{
		sentinelRows,
		pick(connectionRows, "ping", "auth", "hello", "quit", "reset"),
		clientRows,
		commandRows,
		infoRows,
		aclRows,
		pick(pubsubRows, "subscribe", "unsubscribe", "psubscribe", "punsubscribe"),
	}
}

// sentinelSections are the sections of INFO on a Sentinel port.
var sentinelSections = []infoSection{
	{"server", false, infoServer},
	{"clients", false, infoClients},
	{"cpu", false, infoCPU},
	{"stats", false, infoStats},
	{"sentinel", false, infoSentinel},
}

func infoSentinel(p *infoPage) {
	w, ok := p.srv.monitor.State(p.srv.life.ctx)
	p.line("sentinel_masters", flag(ok))
	p.line("sentinel_tilt", 0)
	p.line("sentinel_tilt_since_seconds", -1)
	p.line("sentinel_running_scripts", 0)
	p.line("sentinel_scripts_queue_length", 0)
	p.line("sentinel_simulate_failure_flags", 0)
	if ok {
		p.line("master0", w.InfoLine())
	}
}

const msgNoMaster = "ERR No such master with that name"

// masterNamed returns the state of the master. ok is false if name is not the
// master's name or no leader has been confirmed yet.
func (c *conn) masterNamed(name []byte) (w sentinel.State, ok bool) {
	if string(name) != c.srv.cfg.MasterName {
		return sentinel.State{}, false
	}
	return c.srv.monitor.State(c.srv.life.ctx)
}

// ofMaster calls f for the master that args name, and returns the reply of f.
func (c *conn) ofMaster(args [][]byte, f func(w *sentinel.State) fsm.Reply) fsm.Reply {
	w, ok := c.masterNamed(args[2])
	if !ok {
		return fsm.Error(msgNoMaster)
	}
	return f(&w)
}

func sentinelMyid(c *conn, args [][]byte) fsm.Reply {
	return fsm.Bulk(topology.Self(c.srv.cfg.Topology).ID)
}

func sentinelAddr(c *conn, args [][]byte) fsm.Reply {
	w, ok := c.masterNamed(args[2])
	if !ok {
		return fsm.NullArray
	}
	return w.Addr()
}

func sentinelMaster(c *conn, args [][]byte) fsm.Reply {
	return c.ofMaster(args, func(w *sentinel.State) fsm.Reply { return w.Master() })
}

func sentinelMasters(c *conn, args [][]byte) fsm.Reply {
	w, ok := c.srv.monitor.State(c.srv.life.ctx)
	if !ok {
		return fsm.Array(nil)
	}
	return w.Masters()
}

func sentinelReplicas(c *conn, args [][]byte) fsm.Reply {
	return c.ofMaster(args, func(w *sentinel.State) fsm.Reply { return w.Replicas() })
}

func sentinelSentinels(c *conn, args [][]byte) fsm.Reply {
	return c.ofMaster(args, func(w *sentinel.State) fsm.Reply { return w.Sentinels() })
}

func sentinelCkquorum(c *conn, args [][]byte) fsm.Reply {
	return c.ofMaster(args, func(w *sentinel.State) fsm.Reply {
		return w.CheckQuorum()
	})
}

// sentinelIsDown replies to another Sentinel that asks whether the master is
// down. It never votes, because Raft elects the leader.
func sentinelIsDown(c *conn, args [][]byte) fsm.Reply {
	for _, a := range [][]byte{args[3], args[4]} {
		if _, refusal, ok := intArg(a); !ok {
			return refusal
		}
	}
	w, ok := c.srv.monitor.State(c.srv.life.ctx)
	down := ok && w.IsDown(string(args[2]), string(args[3]))
	return fsm.Array([]fsm.Reply{fsm.Bool(down), fsm.Bulk("*"), fsm.Int(0)})
}

func sentinelFailover(c *conn, args [][]byte) fsm.Reply {
	return c.ofMaster(args, func(w *sentinel.State) fsm.Reply {
		if !w.CanFailOver() {
			return fsm.Error("NOGOODSLAVE No suitable replica to promote")
		}
		return c.transferTo("")
	})
}

func sentinelRole(c *conn, args [][]byte) fsm.Reply {
	return fsm.Array([]fsm.Reply{fsm.Bulk("sentinel"), fsm.Strings(c.srv.cfg.MasterName)})
}

func sentinelPublish(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR Only HELLO messages are accepted by Sentinel instances.")
}
