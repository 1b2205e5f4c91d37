package resp

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
)

// A node's replicas are as many others as every write has reached before it is
// acknowledged. That is half of the voters, which one they are does not matter:
// INFO, ROLE and WAIT count the same on every node, whoever leads, and while
// nobody does. Redisson compares them between any two of its commands.
//
// In Standalone mode every node calls itself a master, because every node takes
// writes: see Mode. A node that calls itself a replica answers WAIT all the same,
// since writes through it are acknowledged like all others.
var replicationRows = []row{
	{cmd: fsm.Command{Name: "role", Arity: 1, Group: "server", Since: "2.8.12", Complexity: "O(1)", Doc: "Answer master, the log position and the nodes that acknowledge writes"}, words: "noscript loading stale fast", acl: "admin dangerous", run: role},
	{cmd: fsm.Command{Name: "wait", Arity: 3, Group: "generic", Since: "3.0.0", Complexity: "O(1)", Syntax: "numreplicas timeout", Doc: "Answer at once on how many other nodes every acknowledged write is"}, words: "noscript", acl: "connection", tips: "request_policy:all_shards response_policy:agg_min", run: wait},
	{cmd: fsm.Command{Name: "waitaof", Arity: 4, Group: "generic", Since: "7.2.0", Complexity: "O(1)", Syntax: "numlocal numreplicas timeout", Doc: "Answer at once on how many disks every acknowledged write is: this node's and others'"}, words: "noscript", acl: "connection", tips: "request_policy:all_shards response_policy:agg_min", run: waitaof},
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
		return fsm.Array([]fsm.Reply{fsm.Bulk("slave"), fsm.Bulk(leader.Host), fsm.Int(number(leader.Port)), fsm.Bulk(link), fsm.Int(int64(st.Applied))})
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk("master"), fsm.Int(int64(st.Applied)), fsm.Array(replicas)})
}

// following prints the lines of INFO replication that a replica has. It is not
// read only where it passes writes on.
func (p *infoPage) following(leader Place, up bool) {
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

// intArg reads an integer argument.
func intArg(b []byte) (n int64, refusal fsm.Reply, ok bool) {
	if n, ok = fsm.ParseInt(b); !ok {
		return 0, fsm.Error(msgNotInt), false
	}
	return n, fsm.Reply{}, true
}

// wait needs not wait: the writes of this connection were acknowledged before
// it, hence are on that many other nodes, and no time brings them to more that
// would count.
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
