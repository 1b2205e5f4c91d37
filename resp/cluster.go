package resp

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/slots"
	"github.com/holdfast-kv/holdfast/resp/topology"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// clusterRows are the commands of Redis Cluster. In Clustered mode, the nodes
// describe themselves as a Redis Cluster with one shard that has all slots; the
// leader is its master. In the other modes there are no slots, and every node
// accepts every command. The server also knows the subcommands in those modes,
// so that clients get the error by which they recognize a server without
// cluster support.
var clusterRows = []row{
	{cmd: &fsm.Command{
		Name: "cluster", Arity: -2,
		Group: "cluster", Since: "3.0.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Describe the cluster to clients of Redis Cluster, with --cluster-mode",
	}, sub: clusterSubs()},
	{run: inCluster(func(*conn, [][]byte) fsm.Reply { return fsm.OK }), cmd: &fsm.Command{
		Name: "asking", Arity: 1,
		Flags: fsm.Fast,
		Group: "cluster", Since: "3.0.0",
		Complexity: "O(1)",
		Doc:        "Accepted with --cluster-mode; slots do not move",
		Categories: []string{"connection"},
	}},
}

func clusterSubs() []row {
	const admin, change = fsm.Admin | fsm.Stale, fsm.Admin | fsm.Stale | fsm.NoAsyncLoading
	varies := []string{"nondeterministic_output"}
	rows := []row{
		clusterSub("count-failure-reports", 3, admin, varies, "node-id",
			"Return 0: Raft detects failures", clusterFailureReports),
		clusterSub("countkeysinslot", 3, fsm.Stale, nil, "slot",
			"Count the keys of a hash slot, on this node", clusterCountkeysinslot),
		clusterSub("failover", -2, change, nil, "[FORCE | TAKEOVER]",
			"Transfer leadership to this node", clusterFailover),
		clusterSub("getkeysinslot", 4, fsm.Stale, varies, "slot count",
			"Return keys of a hash slot, on this node", clusterGetkeysinslot),
		clusterSub("help", 2, fsm.Loading|fsm.Stale, nil, "", "Print the subcommands", help),
		clusterSub("info", 2, fsm.Stale, varies, "", "Describe the state of the cluster", clusterInfo),
		clusterSub("keyslot", 3, fsm.Stale, nil, "key", "Return the hash slot of a key", clusterKeyslot),
		clusterSub("links", 2, fsm.Stale, varies, "", "Return an empty list: nodes do not use Redis' cluster bus",
			func(*conn, [][]byte) fsm.Reply { return fsm.Array(nil) }),
		clusterSub("myid", 2, fsm.Stale, nil, "", "Return the id of this node", clusterMyid),
		clusterSub("nodes", 2, fsm.Stale, varies, "", "List the nodes, one on each line", clusterNodes),
		clusterSub("replicas", 3, admin, varies, "node-id",
			"List the replicas of a node, one on each line", clusterReplicas),
		clusterSub("shards", 2, fsm.Stale, varies, "", "Describe the shard and its nodes", clusterShards),
		clusterSub("slaves", 3, admin, varies, "node-id",
			"List the replicas of a node, one on each line", clusterReplicas),
		clusterSub("slots", 2, fsm.Stale, varies, "",
			"List the hash slots and the nodes that serve them", clusterSlots),
	}
	for _, s := range []struct {
		name  string
		arity int
	}{
		{"addslots", -3}, {"addslotsrange", -4}, {"bumpepoch", 2}, {"delslots", -3},
		{"delslotsrange", -4}, {"flushslots", 2}, {"forget", 3},
		{"meet", -4}, {"replicate", 3}, {"reset", -2}, {"saveconfig", 2}, {"set-config-epoch", 3}, {"setslot", -4},
	} {
		flags, tips := change, []string(nil)
		switch s.name {
		case "reset":
			flags = fsm.Admin | fsm.NoScript | fsm.Stale
		case "bumpepoch":
			tips = varies
		}
		text := "ERR CLUSTER " + upper(s.name) +
			" is not supported: there is one shard, and HOLDFAST ADD and HOLDFAST REMOVE change the members"
		refuse := func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) }
		rows = append(rows, clusterSub(s.name, s.arity, flags, tips, "",
			"Refused: there is one shard, with all slots", refuse))
	}
	return rows
}

func clusterSub(
	name string, arity int, flags fsm.Flags, tips []string, syntax, doc string,
	run func(*conn, [][]byte) fsm.Reply,
) row {
	return row{run: inCluster(run), cmd: &fsm.Command{
		Name: name, Arity: arity,
		Flags:      flags,
		Since:      "3.0.0",
		Complexity: "O(1)",
		Syntax:     syntax,
		Doc:        doc,
		Tips:       tips,
	}}
}

// inCluster refuses a command in all modes except Clustered.
func inCluster(run func(*conn, [][]byte) fsm.Reply) func(*conn, [][]byte) fsm.Reply {
	return func(c *conn, args [][]byte) fsm.Reply {
		if c.srv.cfg.Mode != Clustered {
			return fsm.Error(msgNoCluster)
		}
		return run(c, args)
	}
}

// onShard returns the function of a command whose reply describes the cluster
// as this node currently sees it.
func onShard(reply func(sh *slots.Shard, args [][]byte) fsm.Reply) func(*conn, [][]byte) fsm.Reply {
	return func(c *conn, args [][]byte) fsm.Reply {
		sh := slots.ReadShard(c.srv.cfg.Topology)
		return reply(&sh, args)
	}
}

var (
	clusterSlots    = onShard(func(sh *slots.Shard, _ [][]byte) fsm.Reply { return sh.Slots() })
	clusterShards   = onShard(func(sh *slots.Shard, _ [][]byte) fsm.Reply { return sh.Shards() })
	clusterNodes    = onShard(func(sh *slots.Shard, _ [][]byte) fsm.Reply { return sh.Nodes() })
	clusterInfo     = onShard(func(sh *slots.Shard, _ [][]byte) fsm.Reply { return sh.Info() })
	clusterReplicas = onShard(func(sh *slots.Shard, args [][]byte) fsm.Reply { return sh.Replicas(args[2]) })

	clusterFailureReports = onShard(func(sh *slots.Shard, args [][]byte) fsm.Reply {
		return sh.FailureReports(args[2])
	})
)

func clusterMyid(c *conn, args [][]byte) fsm.Reply {
	return fsm.Bulk(topology.Self(c.srv.cfg.Topology).ID)
}

func clusterKeyslot(c *conn, args [][]byte) fsm.Reply { return fsm.Int(int64(slots.Of(args[2]))) }

// transferTo transfers leadership to a node. If node is "", the most up-to-date
// live voter is to lead.
func (c *conn) transferTo(node string) fsm.Reply {
	return c.transferWithin(node, topology.TransferLimit)
}

func clusterFailover(c *conn, args [][]byte) fsm.Reply {
	option := ""
	if len(args) > 2 {
		option = strings.ToLower(string(args[2]))
	}
	if len(args) > 3 || len(args) == 3 && option != "force" && option != "takeover" {
		return fsm.Error(msgSyntax)
	}
	if c.srv.cfg.Topology.Leads() {
		return fsm.Error("ERR You should send CLUSTER FAILOVER to a replica")
	}
	return c.transferTo(topology.Self(c.srv.cfg.Topology).Node)
}

func clusterCountkeysinslot(c *conn, args [][]byte) fsm.Reply {
	slot, refusal, ok := intArg(args[2])
	if !ok {
		return refusal
	}
	if slot < 0 || slot >= slots.Count {
		return fsm.Error("ERR Invalid slot")
	}
	n := int64(0)
	if refusal, ok := c.eachKeyIn(int(slot), func(string) bool { n++; return true }); !ok {
		return refusal
	}
	return fsm.Int(n)
}

func clusterGetkeysinslot(c *conn, args [][]byte) fsm.Reply {
	slot, refusal, ok := intArg(args[2])
	if !ok {
		return refusal
	}
	count, refusal, ok := intArg(args[3])
	if !ok {
		return refusal
	}
	if slot < 0 || slot >= slots.Count || count < 0 {
		return fsm.Error("ERR Invalid slot or number of keys")
	}
	keys := []string{}
	take := func(key string) bool {
		if int64(len(keys)) < count {
			keys = append(keys, key)
		}
		return int64(len(keys)) < count
	}
	if refusal, ok := c.eachKeyIn(int(slot), take); !ok {
		return refusal
	}
	return fsm.Strings(keys...)
}

// eachKeyIn calls f with each key of a slot that this node stores in database
// 0, until f returns false. It scans all keys. An index by slot would cost
// memory, and only operators use these commands.
func (c *conn) eachKeyIn(slot int, f func(key string) bool) (refusal fsm.Reply, ok bool) {
	scan := c.srv.cmds.internal("scan")
	cursor := "0"
	for {
		c.group.Command(scan, 0, [][]byte{[]byte("scan"), []byte(cursor), []byte("COUNT"), []byte("4096")})
		out, err := c.do(true)
		c.group.Reset(c.proto, c.id)
		if err != nil {
			return fsm.Error(errorText(err)), false
		}
		words, err := wire.Bulks(out)
		if err != nil {
			return fsm.Error(errorText(err)), false
		}
		for _, key := range words[1:] {
			if slots.Of([]byte(key)) == slot && !f(key) {
				return fsm.Reply{}, true
			}
		}
		if cursor = words[0]; cursor == "0" || c.ended() {
			return fsm.Reply{}, true
		}
	}
}

// leaderPause bounds how long a command with keys waits for a leader before it
// fails with CLUSTERDOWN. It is longer than an election after the death of a
// leader, and shorter than the timeouts of clients.
const leaderPause = time.Second

// commandRedirect returns, in Clustered mode, the error for a command that this
// node cannot run: a redirection to the leader, CLUSTERDOWN, or the error for
// keys in several slots or for another database. It returns "" for a command
// that the node can run.
func (c *conn) commandRedirect(cmd *fsm.Command, args [][]byte) string {
	if c.srv.cfg.Mode != Clustered {
		return ""
	}
	if text := slots.ForeignDB(cmd, args); text != "" {
		return text
	}
	slot, ok := slots.Same(-1, cmd, args)
	if !ok {
		return msgCrossSlot
	}
	// Every node serves channels, so sharded pub/sub is not redirected.
	if slot < 0 || cmd.Flags&fsm.PubSub != 0 {
		return ""
	}
	return c.redirect(slot, cmd.IsWrite())
}

// transactionRedirect is like commandRedirect, for a transaction. Each command
// was checked when it was queued. EXEC checks them again, because together they
// must be in one slot, and because the leader may have changed.
func (c *conn) transactionRedirect(m *multi) string {
	if c.srv.cfg.Mode != Clustered {
		return ""
	}
	slot, write, ok := -1, false, true
	for _, q := range m.cmds {
		if !q.row.data {
			continue
		}
		if slot, ok = slots.Same(slot, q.row.cmd, q.args); !ok {
			return msgCrossSlot
		}
		write = write || q.row.cmd.IsWrite()
	}
	if slot < 0 {
		return ""
	}
	return c.redirect(slot, write)
}

// redirect returns the MOVED error that names the leader, or CLUSTERDOWN if
// this node knows no leader or does not know the leader's address. It returns ""
// if this node leads or may answer a read itself.
func (c *conn) redirect(slot int, write bool) string {
	source := c.srv.cfg.Topology
	if source.Leads() || c.local && !write {
		return ""
	}
	leader, ok := source.Leader()
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), leaderPause)
		defer cancel()
		defer context.AfterFunc(c.srv.life.ctx, cancel)()
		leader, ok = source.AwaitLeader(ctx)
	}
	switch {
	case !ok || !leader.Self && !leader.Known():
		return msgClusterDown
	case leader.Self:
		return ""
	}
	return "MOVED " + strconv.Itoa(slot) + " " + leader.Addr()
}
