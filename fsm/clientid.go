package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// The numbers of client connections are unique in the cluster. Each start of a
// node reserves blocks of numbers in the log, and assigns them in order.
const (
	// ClientIDsCommand reserves a block of client numbers. Its argument is the
	// size of the block. It answers the first number.
	ClientIDsCommand = "_clientids"
	// MaxClientID is the highest number that can be reserved. A node uses
	// higher numbers for connections that it accepts before it has a block.
	// JavaScript and Lua represent integers up to twice MaxClientID exactly.
	MaxClientID = 1 << 52
	// maxClientBlock is the maximum size of a block.
	maxClientBlock = 1 << 32

	msgClientIDs = "ERR the numbers of clients are used up"
)

var clientIDCommands = []Command{
	{
		Name: ClientIDsCommand, Run: reserveClientIDs, Arity: 2, Flags: Internal | Write | Fast,
		Feature: FeatureBudget,
		Group:   "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "count",
		Doc:        "Reserve numbers for client connections",
	},
}

func reserveClientIDs(c *Ctx, args [][]byte) Reply {
	n, ok := number.ParseInt(args[1])
	switch {
	case !ok || n <= 0 || n > maxClientBlock:
		return Error(msgNotInt)
	case uint64(n) > MaxClientID-c.m.clientIDs:
		return Error(msgClientIDs)
	}
	c.change()
	first := c.m.clientIDs + 1
	c.m.clientIDs += uint64(n)
	return Int(int64(first))
}

// appendClientIDs writes the highest reserved client number into a snapshot. It
// writes nothing if none was reserved.
func (m *Machine) appendClientIDs(b []byte) []byte {
	if m.clientIDs == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, recordClientIDs), m.clientIDs)
}

// clientIDs reads the record that appendClientIDs wrote.
func (l *snapshotLoader) clientIDs(d *decoder) error {
	n := d.uvarint()
	if d.err == nil && (n == 0 || n > MaxClientID || l.m.clientIDs != 0 || l.m.features < FeatureBudget) {
		return fmt.Errorf("client numbers up to %d: %w", n, ErrFormat)
	}
	l.m.clientIDs = n
	return d.err
}
