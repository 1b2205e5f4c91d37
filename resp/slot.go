package resp

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// slots is the number of hash slots of a Redis Cluster. The only shard has all
// of them.
const slots = 16384

// crc16Table is the table of CRC-16/XMODEM, polynomial 0x1021.
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

// slotOf returns the hash slot of a key. If there is text between the first {
// and the next }, only that text is hashed.
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

// sameSlot returns the slot of a command's keys, given the slot of the keys
// before them. ok is false if the slots differ. Slot -1 means that there are no
// keys.
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

// leaderPause bounds how long a command with keys waits for a leader before it
// fails with CLUSTERDOWN. It is longer than an election after the death of a
// leader, and shorter than the timeouts of clients.
const leaderPause = time.Second

// elsewhere returns, in Clustered mode, the error for a command that this node
// cannot run: a redirection to the leader, or that the keys are not in one
// slot. It returns "" for a command that the node can run.
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
	// Every node serves channels, so sharded pub/sub is not redirected.
	if slot < 0 || cmd.Flags&fsm.PubSub != 0 {
		return ""
	}
	return c.redirect(slot, cmd.IsWrite())
}

// blockElsewhere is elsewhere for a transaction. Each command was checked when
// it was queued. EXEC checks them again, because together they must be in one
// slot, and because the leader may have changed.
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

// redirect returns the MOVED error that names the leader, or "" if this node
// leads or may answer a read itself.
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

// ForeignDatabase is foreignDB for scripts. cmd is nil for a SELECT, whose
// argument has been checked.
func ForeignDatabase(cmd *fsm.Command, args [][]byte) string {
	if cmd != nil {
		return foreignDB(cmd, args)
	}
	if n, ok := number.ParseInt(args[1]); ok && n != 0 {
		return msgSelectClustered
	}
	return ""
}

// foreignDB returns the error for a command that would use a database other
// than 0, or "". A Redis Cluster has only database 0.
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
