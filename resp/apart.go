package resp

import "github.com/holdfast-kv/holdfast/fsm"

// apart counts the groups of a connection in which reads and writes stay in
// separate groups.
//
// A group that contains a write goes through the log with all its reads: the
// leader executes the costly reads while other writes wait, and all nodes
// execute the others. For a pipeline of small reads and writes, that is the
// fastest way. If a group turns out to be slow or its replies large, the next
// apartGroups groups of the connection that write are split, so that such a
// connection delays other clients once and not with each pipeline.
type apart int

const (
	apartGroups = 64
	// apartReplies is the size in bytes of the replies of a group that writes
	// above which the connection's next groups are split.
	apartReplies = 256 << 10
)

// keepApart updates apart after a group that writes. replies is the size of its
// replies in bytes.
func (c *conn) keepApart(replies int) {
	if c.batch.apart > 0 {
		c.batch.apart--
	}
	if c.group.Ops() < 2 {
		return
	}
	// cluster.Session.Do has run the group in pieces, which means that the
	// group was too slow.
	if first, last := c.exec.Sent(); first != last || replies > apartReplies {
		c.batch.apart = apartGroups
	}
}

// keptApart reports whether a command must not join the current group. Costly
// reads on a connection that tracks never join a group that writes: their keys
// must be remembered, and the leader could not take the reads out of the group.
func (c *conn) keptApart(cmd *fsm.Command, args [][]byte) bool {
	if c.batch.apart == 0 && !c.tracking.Reads() {
		return false
	}
	row := cmd.Routed(args)
	writes, reads := row.IsWrite(), row.Flags&fsm.ReadOnly != 0
	if c.batch.apart > 0 {
		return writes && !c.group.Write || reads && c.group.Write
	}
	return writes && c.group.Costly || row.Costly() && c.group.Write
}
