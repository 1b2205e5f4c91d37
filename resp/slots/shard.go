package slots

import (
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// Shard is a snapshot of the cluster as its clients should see it.
type Shard struct {
	master topology.Peer // the current leader, or the last known leader; the zero Peer before any leader is known
	up     bool          // master currently leads
	peers  []topology.Peer
	epoch  uint64
}

// ReadShard returns a snapshot of the current state, with the members to which
// clients can connect.
func ReadShard(t topology.Source) Shard {
	sh := Shard{epoch: t.Term()}
	sh.master, sh.up = t.Leader()
	for _, p := range t.Peers() {
		if p.Known() {
			sh.peers = append(sh.peers, p)
		}
	}
	return sh
}

func (sh *Shard) leads(p topology.Peer) bool { return p.ID == sh.master.ID }

// replicas returns the members that do not lead.
func (sh *Shard) replicas() []topology.Peer {
	var out []topology.Peer
	for _, p := range sh.peers {
		if !sh.leads(p) {
			out = append(out, p)
		}
	}
	return out
}

// find returns the member with an id.
func (sh *Shard) find(id []byte) (topology.Peer, bool) {
	for _, p := range sh.peers {
		if p.ID == string(id) {
			return p, true
		}
	}
	return topology.Peer{}, false
}

// Slots returns the reply to CLUSTER SLOTS.
func (sh *Shard) Slots() fsm.Reply {
	if !sh.master.Known() {
		return fsm.Array(nil)
	}
	entry := func(p topology.Peer) fsm.Reply {
		return fsm.Array([]fsm.Reply{
			fsm.Bulk(p.Host), fsm.Int(topology.PortNumber(p.Port)), fsm.Bulk(p.ID), fsm.Map(nil),
		})
	}
	out := []fsm.Reply{fsm.Int(0), fsm.Int(Count - 1), entry(sh.master)}
	for _, p := range sh.replicas() {
		if p.Alive && p.Voter { // a member that is catching up has old data
			out = append(out, entry(p))
		}
	}
	return fsm.Array([]fsm.Reply{fsm.Array(out)})
}

// Shards returns the reply to CLUSTER SHARDS.
func (sh *Shard) Shards() fsm.Reply {
	if !sh.master.Known() {
		return fsm.Array(nil)
	}
	var nodes []fsm.Reply
	add := func(p topology.Peer, role string) {
		health := "online"
		switch {
		case !p.Alive:
			health = "failed"
		case !p.Voter:
			health = "loading"
		}
		nodes = append(nodes, fsm.Map([]fsm.Reply{
			fsm.Bulk("id"), fsm.Bulk(p.ID),
			fsm.Bulk("port"), fsm.Int(topology.PortNumber(p.Port)),
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
		fsm.Bulk("slots"), fsm.Array([]fsm.Reply{fsm.Int(0), fsm.Int(Count - 1)}),
		fsm.Bulk("nodes"), fsm.Array(nodes),
	})})
}

// line returns a member's line of CLUSTER NODES.
func (sh *Shard) line(p topology.Peer) string {
	flags, master, link, heard, slots := "slave", "-", "connected", p.Heard.UnixMilli(), ""
	if sh.master.Known() {
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
		p.ID, p.Addr(), topology.PortNumber(p.BusPort), flags, master, heard, sh.epoch, link, slots)
}

// Nodes returns the reply to CLUSTER NODES.
func (sh *Shard) Nodes() fsm.Reply {
	var b strings.Builder
	for _, p := range sh.peers {
		b.WriteString(sh.line(p) + "\n")
	}
	return fsm.Verbatim(b.String())
}

// Replicas returns the reply to CLUSTER REPLICAS for the node with an id.
func (sh *Shard) Replicas(id []byte) fsm.Reply {
	p, ok := sh.find(id)
	switch {
	case !ok:
		return fsm.Error("ERR Unknown node " + string(id))
	case !sh.leads(p):
		return fsm.Error("ERR The specified node is not a master")
	}
	var lines []string
	for _, p := range sh.replicas() {
		lines = append(lines, sh.line(p))
	}
	return fsm.Strings(lines...)
}

// FailureReports returns the reply to CLUSTER COUNT-FAILURE-REPORTS for the node
// with an id. The count is always 0, because there is no cluster bus on which
// nodes could report the failure of another node.
func (sh *Shard) FailureReports(id []byte) fsm.Reply {
	if _, ok := sh.find(id); !ok {
		return fsm.Error("ERR Unknown node " + string(id))
	}
	return fsm.Zero
}

// Info returns the reply to CLUSTER INFO.
func (sh *Shard) Info() fsm.Reply {
	state := "ok"
	if !sh.up {
		state = "fail"
	}
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	line("cluster_state", state)
	line("cluster_slots_assigned", Count)
	line("cluster_slots_ok", Count)
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
