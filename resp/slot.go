package resp

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// slots is the number of hash slots of a Redis Cluster. Here one shard has all.
const slots = 16384

// crc16Table is that of CRC-16/XMODEM, polynomial 0x1021.
var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// slotOf returns the hash slot of a key: of what stands between its first { and
// the next }, if that is anything, else of all of it.
func slotOf(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if n := bytes.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^b]
	}
	return int(crc % slots)
}

// sameSlot returns the slot of the keys of a command; ok is false if they differ.
// slot -1 goes in for none so far, and comes out for none.
func sameSlot(slot int, cmd *fsm.Command, args [][]byte) (_ int, ok bool) {
	if len(cmd.Sub) > 0 && len(args) > 1 {
		if sub := cmd.FindSub(args[1]); sub != nil {
			cmd = sub
		}
	}
	for _, i := range cmd.KeyPositions(args) {
		s := slotOf(args[i])
		if slot >= 0 && s != slot {
			return slot, false
		}
		slot = s
	}
	return slot, true
}

// leaderPause is how long a command with keys waits for a leader before the
// cluster is said to be down: longer than it takes to replace a leader that died,
// shorter than clients wait.
const leaderPause = time.Second

// elsewhere says in Clustered mode why a command cannot be run on this node: where
// to go instead, or that its keys are not in one slot. "" means that it can.
func (c *conn) elsewhere(cmd *fsm.Command, args [][]byte) string {
	if c.srv.cfg.Mode != Clustered {
		return ""
	}
	if text := foreignDB(cmd, args); text != "" {
		return text
	}
	slot, ok := sameSlot(-1, cmd, args)
	if !ok {
		return msgCrossSlot
	}
	// Channels are every node's: sharded pub/sub is not sent away.
	if slot < 0 || cmd.Flags&fsm.PubSub != 0 {
		return ""
	}
	return c.redirect(slot, cmd.IsWrite())
}

// blockElsewhere is elsewhere for a transaction about to be run. Its commands were
// looked at as they were queued, but not beside each other, and the leader may be
// another by now.
func (c *conn) blockElsewhere(m *multi) string {
	if c.srv.cfg.Mode != Clustered {
		return ""
	}
	slot, write, ok := -1, false, true
	for _, q := range m.cmds {
		if q.cmd == nil {
			continue
		}
		if slot, ok = sameSlot(slot, q.cmd, q.args); !ok {
			return msgCrossSlot
		}
		write = write || q.cmd.IsWrite()
	}
	if slot < 0 {
		return ""
	}
	return c.redirect(slot, write)
}

// redirect names the leader, unless this node leads or may answer a read itself.
func (c *conn) redirect(slot int, write bool) string {
	topology := c.srv.cfg.Topology
	if topology.Leads() || c.local && !write {
		return ""
	}
	leader, ok := topology.Leader()
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), leaderPause)
		defer cancel()
		defer context.AfterFunc(c.srv.ctx, cancel)()
		leader, ok = topology.AwaitLeader(ctx)
	}
	switch {
	case !ok || !leader.Self && !leader.known():
		return msgClusterDown
	case leader.Self:
		return ""
	}
	return "MOVED " + strconv.Itoa(slot) + " " + leader.addr()
}

// ForeignDatabase is foreignDB for scripts: cmd is nil for SELECT, which is known to
// name a database.
func ForeignDatabase(cmd *fsm.Command, args [][]byte) string {
	if cmd != nil {
		return foreignDB(cmd, args)
	}
	if n, ok := fsm.ParseInt(args[1]); ok && n != 0 {
		return msgSelectClustered
	}
	return ""
}

// foreignDB refuses what would reach a database other than 0: a Redis Cluster has
// no other.
func foreignDB(cmd *fsm.Command, args [][]byte) string {
	switch cmd.Name {
	case "move", "swapdb":
		return "ERR " + upper(cmd.Name) + " is not allowed in cluster mode"
	case "copy":
		for i := 3; i+1 < len(args); i++ {
			if strings.EqualFold(string(args[i]), "db") && string(args[i+1]) != "0" {
				if _, ok := sameSlot(-1, cmd, args); ok {
					return "ERR Copying to another database is not allowed in cluster mode"
				}
			}
		}
	}
	return ""
}
