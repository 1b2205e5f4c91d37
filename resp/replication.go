package resp

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Every node calls itself a master, because every node takes writes. Its
// replicas are as many nodes as every write has reached before it is
// acknowledged; INFO, ROLE and WAIT count the same.
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
	return fsm.Array([]fsm.Reply{fsm.Bulk("master"), fsm.Int(int64(st.Applied)), fsm.Array(replicas)})
}

// intArg reads an integer argument.
func intArg(b []byte) (n int64, refusal fsm.Reply, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
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
