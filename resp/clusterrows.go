package resp

import "github.com/holdfast-kv/holdfast/fsm"

// To clients of Redis Cluster this is no cluster: there are no slots, and every
// node takes every command. The rows make the subcommands known, so that the
// answer is the one by which clients know a plain server.
var clusterRows = []row{
	{cmd: fsm.Command{Name: "cluster", Arity: -2, Group: "cluster", Since: "3.0.0", Complexity: "Depends on subcommand.", Doc: "Refused: nodes have no slots"}, sub: clusterSubs()},
	{cmd: fsm.Command{Name: "asking", Arity: 1, Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Doc: "Refused: nodes have no slots"}, words: "fast", acl: "connection", run: noCluster},
}

func noCluster(c *conn, args [][]byte) fsm.Reply { return fsm.Error(msgNoCluster) }

func clusterSubs() []row {
	const admin, change = "admin stale", "admin stale no_async_loading"
	var rows []row
	for _, s := range []struct {
		name  string
		arity int
		words string
		tips  string
	}{
		{"addslots", -3, change, ""}, {"addslotsrange", -4, change, ""}, {"bumpepoch", 2, change, "nondeterministic_output"},
		{"count-failure-reports", 3, admin, "nondeterministic_output"}, {"countkeysinslot", 3, "stale", ""},
		{"delslots", -3, change, ""}, {"delslotsrange", -4, change, ""}, {"failover", -2, change, ""}, {"flushslots", 2, change, ""},
		{"forget", 3, change, ""}, {"getkeysinslot", 4, "stale", "nondeterministic_output"}, {"help", 2, "loading stale", ""},
		{"info", 2, "stale", "nondeterministic_output"}, {"keyslot", 3, "stale", ""}, {"links", 2, "stale", "nondeterministic_output"},
		{"meet", -4, change, ""}, {"myid", 2, "stale", ""}, {"nodes", 2, "stale", "nondeterministic_output"},
		{"replicas", 3, admin, "nondeterministic_output"}, {"replicate", 3, change, ""}, {"reset", -2, "admin noscript stale", ""},
		{"saveconfig", 2, change, ""}, {"set-config-epoch", 3, change, ""}, {"setslot", -4, change, ""},
		{"shards", 2, "stale", "nondeterministic_output"}, {"slaves", 3, admin, "nondeterministic_output"},
		{"slots", 2, "stale", "nondeterministic_output"},
	} {
		rows = append(rows, row{
			cmd:   fsm.Command{Name: s.name, Arity: s.arity, Since: "3.0.0", Complexity: "O(1)", Doc: "Refused: nodes have no slots"},
			words: s.words, tips: s.tips, run: noCluster,
		})
	}
	return rows
}
