package fsm

// VersionCommand is the internal read behind WATCH: it answers the version of a
// key, 0 if the key is absent.
const VersionCommand = "_version"

// MemoryCommand is the internal read behind MEMORY USAGE: it answers an estimate
// of the bytes that a key's value takes, null if the key is absent.
const MemoryCommand = "_memory"

// PositionCommand is an internal read that answers the log index of the last entry
// that the machine has applied: what a group reads beside it is as of that entry.
const PositionCommand = "_position"

var internalCommands = []Command{
	{Name: PositionCommand, Arity: 1, Flags: Internal | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Doc: "Answer the place in the log that is read at", Run: position},
	{Name: cacheCommand, Arity: 2, Flags: Internal | MayWrite, Group: "internal", Since: "holdfast", Complexity: "O(log(N)) where N is the number of scripts", Syntax: "script", Doc: "Put a script into the cache, as EVAL does", Run: cacheEvaluated},
	{Name: MemoryCommand, Arity: 2, Flags: Internal | Fast, Keys: Keys{1, 1, 1}, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "key", Doc: "Estimate the size of a value, for MEMORY USAGE", Run: memoryOf},
	{Name: VersionCommand, Arity: 2, Flags: Internal | Fast, Keys: Keys{1, 1, 1}, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "key", Doc: "Answer the version of a key, for WATCH", Run: keyVersion},
}

// position is careful in a group that goes through the log after all: its entry is
// not over, so only what came before it has been seen whole.
func position(c *Ctx, args [][]byte) Reply {
	if c.readOnly {
		return Int(int64(c.index))
	}
	return Int(int64(c.index) - 1)
}

func keyVersion(c *Ctx, args [][]byte) Reply { return Int(int64(c.versionOf(args[1]))) }

func memoryOf(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[1])
	switch {
	case o == nil:
		return Null
	case o.coll == nil:
		return Int(int64(len(o.str)))
	}
	return Int(o.coll.memory(o.typ))
}

// Samples of a collection, as Redis takes them, and what an element takes beside
// its bytes.
const (
	memorySamples   = 5
	elementOverhead = 48
)

// memory estimates a collection's size from its first elements.
func (v *collection) memory(t typ) int64 {
	bytes, seen := 0, 0
	look := func(n int) bool {
		bytes += n
		seen++
		return seen < memorySamples
	}
	switch t {
	case typeHash:
		v.hash.Ascend(0, func(e *item[string]) bool { return look(len(e.name) + len(e.value)) })
	case typeList:
		v.list.Ascend(0, func(s *string) bool { return look(len(*s)) })
	case typeSet:
		v.set.Ascend(0, func(e *item[struct{}]) bool { return look(len(e.name)) })
	case typeStream:
		v.stream.Ascend(0, func(e *streamEntry) bool {
			n := 16
			for _, f := range e.fields {
				n += len(f)
			}
			return look(n)
		})
	case typeZSet:
		v.order.Ascend(0, func(m *scored) bool { return look(len(m.member) + elementOverhead) })
	}
	n := int64(v.Len(t))
	return n*elementOverhead + n*int64(bytes)/int64(max(seen, 1)) + v.groupsMemory()
}

// pendingOverhead is what a pending entry takes, with its place among those of its
// consumer.
const pendingOverhead = 96

// groupsMemory estimates the size of the groups of a stream.
func (v *collection) groupsMemory() int64 {
	n := int64(0)
	v.groups.Ascend(0, func(g *streamGroup) bool {
		n += int64(len(g.name)) + elementOverhead + int64(g.pending.Len())*pendingOverhead
		g.consumers.Ascend(0, func(k *consumer) bool {
			n += int64(len(k.name)) + elementOverhead
			return true
		})
		return true
	})
	return n
}
