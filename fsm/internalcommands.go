package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// VersionCommand is the internal read behind WATCH. It returns the version of a
// key.
const VersionCommand = "_version"

// MemoryCommand is the internal read behind MEMORY USAGE. It returns an
// estimate of the size of a key's value in bytes, or null if the key is absent.
const MemoryCommand = "_memory"

// PositionCommand is an internal read that returns the applied index of the
// machine. The other reads of the same group see the state at that index.
const PositionCommand = "_position"

var internalCommands = []Command{
	{
		Name: PositionCommand, Run: position, Arity: 1, Flags: Internal | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Doc:        "Return the log index of the state that is read",
	},
	{
		Name: cacheCommand, Run: cacheEvaluated, Arity: 2, Flags: Internal | MayWrite,
		Group: "internal", Since: "holdfast",
		Complexity: "O(log(N)) where N is the number of scripts",
		Syntax:     "script",
		Doc:        "Put a script into the cache, as EVAL does",
	},
	{
		Name: MemoryCommand, Run: memoryOf, Arity: 2, Flags: Internal | Fast,
		Keys:  Keys{1, 1, 1},
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Estimate the size of a value, for MEMORY USAGE",
	},
	{
		Name: VersionCommand, Run: keyVersion, Arity: 2, Flags: Internal | Fast,
		Keys:  Keys{1, 1, 1},
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Return the version of a key, for WATCH",
	},
	{
		Name: ClientIDsCommand, Run: reserveClientIDs, Arity: 2, Flags: Internal | Write | Fast,
		Group: "internal", Since: "holdfast", Required: Required{Feature: FeatureBudget},
		Complexity: "O(1)",
		Syntax:     "count",
		Doc:        "Reserve numbers for client connections",
	},
}

// position returns the log index of the state that the other reads of the group
// see. If the group goes through the log, it returns the index before the
// current entry, because the state does not include the whole entry yet.
func position(c *Ctx, args [][]byte) Reply {
	if c.readOnly {
		return Int(int64(c.index))
	}
	return Int(int64(c.index) - 1)
}

func keyVersion(c *Ctx, args [][]byte) Reply { return Int(int64(c.versionOf(args[1]))) }

func memoryOf(c *Ctx, args [][]byte) Reply {
	o := c.Lookup(args[1])
	switch {
	case o == nil:
		return Null
	case o.Coll == nil:
		return Int(int64(len(o.Str)))
	}
	return Int(o.Coll.Memory(o.Type))
}

// The numbers of client connections, up to MaxClientID, are unique in the
// cluster. Each start of a node reserves blocks of numbers in the log, and
// assigns them in order.
const (
	// ClientIDsCommand reserves a block of client numbers. Its argument is the
	// size of the block. It returns the first number.
	ClientIDsCommand = "_clientids"
	// MaxClientID is the highest number that can be reserved. A node uses
	// higher numbers for connections that it accepts before it has a block.
	// JavaScript and Lua represent integers up to twice MaxClientID exactly.
	MaxClientID = 1 << 52
	// maxClientBlock is the maximum size of a block.
	maxClientBlock = 1 << 32

	msgClientIDs = "ERR the numbers of clients are used up"
)

func reserveClientIDs(c *Ctx, args [][]byte) Reply {
	n, ok := number.ParseInt(args[1])
	switch {
	case !ok || n <= 0 || n > maxClientBlock:
		return Error(MsgNotInt)
	case uint64(n) > MaxClientID-c.m.clientIDs:
		return Error(msgClientIDs)
	}
	c.Change()
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
func (l *snapshotLoader) clientIDs(d *codec.Decoder) error {
	n := d.Uvarint()
	if d.Err == nil && (n == 0 || n > MaxClientID || l.m.clientIDs != 0 || l.m.features < FeatureBudget) {
		return fmt.Errorf("client numbers up to %d: %w", n, ErrFormat)
	}
	l.m.clientIDs = n
	return d.Err
}
