package resp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// clusterRows are the commands of Redis Cluster. In Clustered mode, the nodes
// describe themselves as a Redis Cluster with one shard that has all slots; the
// leader is its master. In the other modes there are no slots, and every node
// accepts every command. The subcommands are known in those modes too, so that
// clients get the error by which they recognize a server without cluster
// support.
var clusterRows = []row{
	{
		cmd: fsm.Command{
			Name: "cluster", Arity: -2,
			Group: "cluster", Since: "3.0.0",
			Complexity: "Depends on subcommand.",
			Doc:        "Describe the cluster to clients of Redis Cluster, with --cluster-mode",
		},
		sub: clusterSubs(),
	},
	{
		cmd: fsm.Command{
			Name: "asking", Arity: 1,
			Group: "cluster", Since: "3.0.0",
			Complexity: "O(1)",
			Doc:        "Accepted with --cluster-mode; slots do not move",
		},
		run: inCluster(func(*conn, [][]byte) fsm.Reply { return fsm.OK }), words: "fast", acl: "connection",
	},
}

func clusterSubs() []row {
	const admin, change, varies = "admin stale", "admin stale no_async_loading", "nondeterministic_output"
	rows := []row{
		clusterSub("count-failure-reports", 3, admin, varies, "node-id", "Return 0: Raft detects failures", clusterFailureReports),
		clusterSub("countkeysinslot", 3, "stale", "", "slot", "Count the keys of a hash slot, on this node", clusterCountkeysinslot),
		clusterSub("failover", -2, change, "", "[FORCE | TAKEOVER]", "Transfer leadership to this node", clusterFailover),
		clusterSub("getkeysinslot", 4, "stale", varies, "slot count", "Return keys of a hash slot, on this node", clusterGetkeysinslot),
		clusterSub("help", 2, "loading stale", "", "", "Print the subcommands", help),
		clusterSub("info", 2, "stale", varies, "", "Describe the state of the cluster", clusterInfo),
		clusterSub("keyslot", 3, "stale", "", "key", "Return the hash slot of a key", clusterKeyslot),
		clusterSub("links", 2, "stale", varies, "", "Return an empty list: nodes do not use Redis' cluster bus",
			func(*conn, [][]byte) fsm.Reply { return fsm.Array(nil) }),
		clusterSub("myid", 2, "stale", "", "", "Return the id of this node", clusterMyid),
		clusterSub("nodes", 2, "stale", varies, "", "List the nodes, one on each line", clusterNodes),
		clusterSub("replicas", 3, admin, varies, "node-id", "List the replicas of a node, one on each line", clusterReplicas),
		clusterSub("shards", 2, "stale", varies, "", "Describe the shard and its nodes", clusterShards),
		clusterSub("slaves", 3, admin, varies, "node-id", "List the replicas of a node, one on each line", clusterReplicas),
		clusterSub("slots", 2, "stale", varies, "", "List the hash slots and the nodes that serve them", clusterSlots),
	}
	for _, s := range []struct {
		name  string
		arity int
	}{
		{"addslots", -3}, {"addslotsrange", -4}, {"bumpepoch", 2}, {"delslots", -3},
		{"delslotsrange", -4}, {"flushslots", 2}, {"forget", 3},
		{"meet", -4}, {"replicate", 3}, {"reset", -2}, {"saveconfig", 2}, {"set-config-epoch", 3}, {"setslot", -4},
	} {
		words, tips := change, ""
		switch s.name {
		case "reset":
			words = "admin noscript stale"
		case "bumpepoch":
			tips = varies
		}
		text := "ERR CLUSTER " + upper(s.name) +
			" is not supported: there is one shard, and HOLDFAST ADD and HOLDFAST REMOVE change the members"
		refuse := func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) }
		rows = append(rows, clusterSub(s.name, s.arity, words, tips, "", "Refused: there is one shard, with all slots", refuse))
	}
	return rows
}

func clusterSub(name string, arity int, words, tips, syntax, doc string, run func(*conn, [][]byte) fsm.Reply) row {
	return row{
		cmd:   fsm.Command{Name: name, Arity: arity, Since: "3.0.0", Complexity: "O(1)", Syntax: syntax, Doc: doc},
		words: words, tips: tips, run: inCluster(run),
	}
}

// inCluster refuses a command in the other modes.
func inCluster(run func(*conn, [][]byte) fsm.Reply) func(*conn, [][]byte) fsm.Reply {
	return func(c *conn, args [][]byte) fsm.Reply {
		if c.srv.cfg.Mode != Clustered {
			return fsm.Error(msgNoCluster)
		}
		return run(c, args)
	}
}

// shard is a snapshot of the cluster as its clients should see it.
type shard struct {
	master Peer // the current leader, or the last known one; the zero Peer before the first
	up     bool // master currently leads
	peers  []Peer
	epoch  uint64
}

// shard returns the current view, with the members that clients can connect to.
func (s *Server) shard() shard {
	t := s.cfg.Topology
	sh := shard{epoch: t.Term()}
	sh.master, sh.up = t.Leader()
	for _, p := range t.Peers() {
		if p.known() {
			sh.peers = append(sh.peers, p)
		}
	}
	return sh
}

func (sh *shard) leads(p Peer) bool { return p.ID == sh.master.ID }

// replicas returns the members that do not lead.
func (sh *shard) replicas() []Peer {
	var out []Peer
	for _, p := range sh.peers {
		if !sh.leads(p) {
			out = append(out, p)
		}
	}
	return out
}

// find returns the member with an id.
func (sh *shard) find(id []byte) (Peer, bool) {
	for _, p := range sh.peers {
		if p.ID == string(id) {
			return p, true
		}
	}
	return Peer{}, false
}

func clusterSlots(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	if !sh.master.known() {
		return fsm.Array(nil)
	}
	entry := func(p Peer) fsm.Reply {
		return fsm.Array([]fsm.Reply{fsm.Bulk(p.Host), fsm.Int(portNumber(p.Port)), fsm.Bulk(p.ID), fsm.Map(nil)})
	}
	out := []fsm.Reply{fsm.Int(0), fsm.Int(slots - 1), entry(sh.master)}
	for _, p := range sh.replicas() {
		if p.Alive && p.Voter { // a member that is catching up has old data
			out = append(out, entry(p))
		}
	}
	return fsm.Array([]fsm.Reply{fsm.Array(out)})
}

func clusterShards(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	if !sh.master.known() {
		return fsm.Array(nil)
	}
	var nodes []fsm.Reply
	add := func(p Peer, role string) {
		health := "online"
		switch {
		case !p.Alive:
			health = "failed"
		case !p.Voter:
			health = "loading"
		}
		nodes = append(nodes, fsm.Map([]fsm.Reply{
			fsm.Bulk("id"), fsm.Bulk(p.ID),
			fsm.Bulk("port"), fsm.Int(portNumber(p.Port)),
			fsm.Bulk("ip"), fsm.Bulk(p.Host),
			fsm.Bulk("endpoint"), fsm.Bulk(p.Host),
			fsm.Bulk("role"), fsm.Bulk(role),
			fsm.Bulk("replication-offset"), fsm.Int(int64(p.Offset)),
			fsm.Bulk("health"), fsm.Bulk(health),
		}))
	}
	add(sh.master, "master")
	for _, p := range sh.replicas() {
		add(p, "replica")
	}
	return fsm.Array([]fsm.Reply{fsm.Map([]fsm.Reply{
		fsm.Bulk("slots"), fsm.Array([]fsm.Reply{fsm.Int(0), fsm.Int(slots - 1)}),
		fsm.Bulk("nodes"), fsm.Array(nodes),
	})})
}

// line returns a member's line of CLUSTER NODES.
func (sh *shard) line(p Peer) string {
	flags, master, link, heard, slots := "slave", "-", "connected", p.Heard.UnixMilli(), ""
	if sh.master.known() {
		master = sh.master.ID
	}
	if sh.leads(p) {
		flags, master, slots = "master", "-", " 0-16383"
	}
	switch {
	case p.Self:
		flags, heard = "myself,"+flags, 0
	case !p.Alive:
		flags, link = flags+",fail", "disconnected"
	}
	return fmt.Sprintf("%s %s@%d %s %s 0 %d %d %s%s",
		p.ID, p.addr(), portNumber(p.BusPort), flags, master, heard, sh.epoch, link, slots)
}

func clusterNodes(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	var b strings.Builder
	for _, p := range sh.peers {
		b.WriteString(sh.line(p) + "\n")
	}
	return fsm.Verbatim(b.String())
}

func clusterReplicas(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	p, ok := sh.find(args[2])
	switch {
	case !ok:
		return fsm.Error("ERR Unknown node " + string(args[2]))
	case !sh.leads(p):
		return fsm.Error("ERR The specified node is not a master")
	}
	var lines []string
	for _, p := range sh.replicas() {
		lines = append(lines, sh.line(p))
	}
	return fsm.Strings(lines...)
}

func clusterFailureReports(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	if _, ok := sh.find(args[2]); !ok {
		return fsm.Error("ERR Unknown node " + string(args[2]))
	}
	return fsm.Zero
}

func clusterInfo(c *conn, args [][]byte) fsm.Reply {
	sh := c.srv.shard()
	state := "ok"
	if !sh.up {
		state = "fail"
	}
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	line("cluster_state", state)
	line("cluster_slots_assigned", slots)
	line("cluster_slots_ok", slots)
	line("cluster_slots_pfail", 0)
	line("cluster_slots_fail", 0)
	line("cluster_known_nodes", len(sh.peers))
	line("cluster_size", 1)
	line("cluster_current_epoch", sh.epoch)
	line("cluster_my_epoch", sh.epoch)
	line("cluster_stats_messages_sent", 0) // there is no cluster bus
	line("cluster_stats_messages_received", 0)
	line("total_cluster_links_buffer_limit_exceeded", 0)
	return fsm.Verbatim(b.String())
}

// self returns this node, or the zero Peer before Raft runs.
func (s *Server) self() Peer {
	for _, p := range s.cfg.Topology.Peers() {
		if p.Self {
			return p
		}
	}
	return Peer{}
}

func clusterMyid(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk(c.srv.self().ID) }

func clusterKeyslot(c *conn, args [][]byte) fsm.Reply { return fsm.Int(int64(slotOf(args[2]))) }

// takeOverLimit bounds how long a transfer of leadership at a client's request
// may take.
const takeOverLimit = 5 * time.Second

// handTo transfers leadership to a node. If node is "", the leader chooses the
// most suitable one.
func (c *conn) handTo(node string) fsm.Reply {
	return c.handOver(node, takeOverLimit)
}

func clusterFailover(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 3 ||
		len(args) == 3 && !strings.EqualFold(string(args[2]), "force") && !strings.EqualFold(string(args[2]), "takeover") {
		return fsm.Error(msgSyntax)
	}
	if c.srv.cfg.Topology.Leads() {
		return fsm.Error("ERR You should send CLUSTER FAILOVER to a replica")
	}
	return c.handTo(c.srv.self().Node)
}

func clusterCountkeysinslot(c *conn, args [][]byte) fsm.Reply {
	slot, refusal, ok := intArg(args[2])
	if !ok {
		return refusal
	}
	if slot < 0 || slot >= slots {
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
	if slot < 0 || slot >= slots || count < 0 {
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

// eachKeyIn calls f with each key of a slot in database 0, as this node stores
// it, until f returns false. It scans all keys. An index by slot would cost
// memory, and only operators use these commands.
func (c *conn) eachKeyIn(slot int, f func(key string) bool) (refusal fsm.Reply, ok bool) {
	scan := c.srv.table.Find([]byte("scan"))
	cursor := "0"
	for {
		c.group.Command(scan, 0, [][]byte{[]byte("scan"), []byte(cursor), []byte("COUNT"), []byte("4096")})
		out, err := c.do(true)
		c.group.Reset(c.proto, c.id)
		if err != nil {
			return fsm.Error(errorText(err)), false
		}
		words, err := bulks(out)
		if err != nil {
			return fsm.Error(errorText(err)), false
		}
		for _, key := range words[1:] {
			if slotOf([]byte(key)) == slot && !f(key) {
				return fsm.Reply{}, true
			}
		}
		if cursor = words[0]; cursor == "0" || c.ended() {
			return fsm.Reply{}, true
		}
	}
}

// bulks returns all bulk strings in a reply, at any depth. It returns an error
// if there is none.
func bulks(reply []byte) ([]string, error) {
	var out []string
	for rest := reply; len(rest) > 0; {
		head, payload, _ := replyHead(rest)
		if head == 0 {
			break
		}
		if rest[0] == '$' && payload > 0 {
			out = append(out, string(rest[head:head+payload-2]))
		}
		rest = rest[head+payload:]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("unexpected reply %s", strconv.Quote(string(reply[:min(len(reply), 64)])))
	}
	return out, nil
}
