package resp

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// A write is acknowledged when a majority of the n voters stores it: one voter and
// n/2 (rounded down) others. A voter reports n/2 other nodes as its replicas; it
// does not matter which nodes these are. INFO and WAIT report the same number on
// every voter, whether or not there is a leader, and so does ROLE on a node that
// calls itself a master. The numbers must agree because Redisson compares them.
//
// In Standalone mode every node calls itself a master, because every node takes
// writes: see Mode. A node that calls itself a replica answers WAIT too, because
// the writes through that node are acknowledged like all others.
var replicationRows = []row{
	{run: role, cmd: &fsm.Command{
		Name: "role", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "server", Since: "2.8.12",
		Complexity: "O(1)",
		Doc:        "Return this node's role and log position, and the leader or the nodes that acknowledge writes",
		Categories: []string{"admin", "dangerous"},
	}},
	{run: wait, cmd: &fsm.Command{
		Name: "wait", Arity: 3,
		Flags: fsm.NoScript,
		Group: "generic", Since: "3.0.0",
		Complexity: "O(1)",
		Syntax:     "numreplicas timeout",
		Doc:        "Return at once the number of other nodes that store every acknowledged write",
		Categories: []string{"connection"},
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_min"},
	}},
	{run: waitaof, cmd: &fsm.Command{
		Name: "waitaof", Arity: 4,
		Flags: fsm.NoScript,
		Group: "generic", Since: "7.2.0",
		Complexity: "O(1)",
		Syntax:     "numlocal numreplicas timeout",
		Doc:        "Return at once on how many disks every acknowledged write is stored: on this node and on others",
		Categories: []string{"connection"},
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_min"},
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

func role(c *conn, args [][]byte) fsm.Reply {
	st := c.srv.cluster.State()
	offset := strconv.FormatUint(st.Applied, 10)
	replicas := make([]fsm.Reply, len(st.Replicas))
	for i, r := range st.Replicas {
		replicas[i] = fsm.Strings(r.Host, r.Port, offset)
	}
	if leader, up, follows := c.srv.follows(); follows {
		link := "connected"
		if !up {
			link = "connect"
		}
		return fsm.Array([]fsm.Reply{
			fsm.Bulk("slave"), fsm.Bulk(leader.Host), fsm.Int(topology.PortNumber(leader.Port)),
			fsm.Bulk(link), fsm.Int(int64(st.Applied)),
		})
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk("master"), fsm.Int(int64(st.Applied)), fsm.Array(replicas)})
}

// following prints the lines of INFO replication that only a replica has.
// slave_read_only is 1 only in Clustered mode: in Monitored mode a follower
// forwards writes.
func (p *infoPage) following(leader topology.Peer, up bool) {
	p.line("role", "slave")
	p.line("master_host", leader.Host)
	p.line("master_port", leader.Port)
	status, heard := "up", 0
	if !up {
		status, heard = "down", -1
	}
	p.line("master_link_status", status)
	p.line("master_last_io_seconds_ago", heard)
	p.line("master_sync_in_progress", 0)
	p.line("slave_read_repl_offset", p.state.Applied)
	p.line("slave_repl_offset", p.state.Applied)
	p.line("slave_priority", 100)
	p.line("slave_read_only", flag(p.srv.cfg.Mode == Clustered))
	p.line("replica_announced", 1)
}

// intArg parses an integer argument.
func intArg(b []byte) (n int64, refusal fsm.Reply, ok bool) {
	if n, ok = number.ParseInt(b); !ok {
		return 0, fsm.Error(msgNotInt), false
	}
	return n, fsm.Reply{}, true
}

// wait returns at once. The connection's earlier writes were acknowledged, so
// at least as many other nodes as the reply says already store these writes.
// Waiting would not change the reply.
func wait(c *conn, args [][]byte) fsm.Reply {
	if _, refusal, ok := intArg(args[1]); !ok {
		return refusal
	}
	if _, refusal, ok := timeoutArg(args[2]); !ok {
		return refusal
	}
	return fsm.Int(int64(len(c.srv.cluster.State().Replicas)))
}

func waitaof(c *conn, args [][]byte) fsm.Reply {
	local, refusal, ok := intArg(args[1])
	if !ok {
		return refusal
	}
	if local < 0 || local > 1 {
		return fsm.Error("ERR value is out of range, must be between 0 and 1")
	}
	if n, refusal, ok := intArg(args[2]); !ok {
		return refusal
	} else if n < 0 {
		return fsm.Error("ERR value is out of range, must be positive")
	}
	if _, refusal, ok := timeoutArg(args[3]); !ok {
		return refusal
	}
	return fsm.Array([]fsm.Reply{fsm.One, fsm.Int(int64(len(c.srv.cluster.State().Replicas)))})
}

// follows reports whether this node calls itself a replica. If it does, leader
// is the last known leader, and up reports whether that leader leads now. The port
// of leader is "0" if this node does not know the leader's address, or was itself
// the last leader. If follows returns false, leader and up have no meaning.
func (s *Server) follows() (leader topology.Peer, up, yes bool) {
	if s.cfg.Mode != Monitored && s.cfg.Mode != Clustered || s.cfg.Topology.Leads() {
		return topology.Peer{}, true, false
	}
	leader, up = s.cfg.Topology.Leader()
	switch {
	case up && leader.Self: // this node was elected after the check above
		return leader, true, false
	case leader.Self: // this node led until now, and cannot be its own replica
		return topology.Peer{Port: "0"}, false, true
	case !leader.Known():
		leader.Port = "0"
	}
	return leader, up, true
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

// failover transfers leadership before it replies. In Redis, the failover continues
// after the reply, and FAILOVER ABORT can end it. Here, FAILOVER ABORT always fails.
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
	switch { // Redis checks in this order
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
// mode every node calls itself a master, so there the error names the leader, if
// this node knows the leader.
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
	case ok && leader.Self: // this node was elected after the check above
		return ""
	case ok && leader.Known():
		return "ERR FAILOVER must be sent to the leader, " + leader.Node + " at " + leader.Addr()
	}
	return "ERR FAILOVER must be sent to the leader, which this node does not know at present"
}

// transferWithin is like transferTo, with the given limit on the time.
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

// absentRows are the commands of a Redis server that an operator may try here,
// although they have no function. The reply says how nodes replicate instead.
// COMMAND does not list these commands.
//
// Commands that a client library may probe for are not in this list. They get
// the reply for an unknown command, because client libraries detect missing
// features by that reply. SENTINEL is the main example: StackExchange.Redis
// treats a node that answers SENTINEL as a sentinel.
var absentRows = []row{
	absent("replicaof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("slaveof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("psync", "nodes replicate through another port"),
	absent("sync", "nodes replicate through another port"),
}

func absent(name, instead string) row {
	text := "ERR " + upper(name) + " is not supported: " + instead
	refuse := func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) }
	return row{run: refuse, cmd: &fsm.Command{
		Name: name, Arity: -1,
		Flags: fsm.Admin | fsm.NoScript | fsm.NoMulti | fsm.Hidden,
		Group: "server", Since: "holdfast",
		Complexity: "O(1)",
		Doc:        "Refused",
	}}
}
