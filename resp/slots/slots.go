// Package slots presents the cluster as a Redis Cluster with one shard. The shard
// has all hash slots, and its master is the leader.
package slots

import (
	"bytes"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// Count is the number of hash slots of a Redis Cluster. The only shard has all
// of them.
const Count = 16384

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

// SelectRefusal is the error for a SELECT of a database other than 0.
const SelectRefusal = "ERR SELECT is not allowed in cluster mode"

// Of returns the hash slot of a key. If there is text between the first { and
// the next }, only that text is hashed.
func Of(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if n := bytes.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^b]
	}
	return int(crc % Count)
}

// Same returns the slot that the keys of a command share with the keys of the
// commands before it. The argument slot is the slot of those earlier keys. ok is
// false if the slots differ. Slot -1 means that there are no keys.
func Same(slot int, cmd *fsm.Command, args [][]byte) (_ int, ok bool) {
	if len(cmd.Sub) > 0 && len(args) > 1 {
		if sub := cmd.FindSub(args[1]); sub != nil {
			cmd = sub
		}
	}
	for _, i := range cmd.KeyPositions(args) {
		s := Of(args[i])
		if slot >= 0 && s != slot {
			return slot, false
		}
		slot = s
	}
	return slot, true
}

// ForeignDatabase is like ForeignDB, for a command that a script calls. cmd is nil
// for a SELECT, whose argument has been checked.
func ForeignDatabase(cmd *fsm.Command, args [][]byte) string {
	if cmd != nil {
		return ForeignDB(cmd, args)
	}
	if n, ok := number.ParseInt(args[1]); ok && n != 0 {
		return SelectRefusal
	}
	return ""
}

// ForeignDB returns the error for a command that would use a database other
// than 0, or "". A Redis Cluster has only database 0.
func ForeignDB(cmd *fsm.Command, args [][]byte) string {
	switch cmd.Name {
	case "move", "swapdb":
		return "ERR " + strings.ToUpper(cmd.Name) + " is not allowed in cluster mode"
	case "copy":
		for i := 3; i+1 < len(args); i++ {
			if strings.EqualFold(string(args[i]), "db") && string(args[i+1]) != "0" {
				if _, ok := Same(-1, cmd, args); ok {
					return "ERR Copying to another database is not allowed in cluster mode"
				}
			}
		}
	}
	return ""
}
