package fsm

// Placeholder rows while the skeleton is measured; the family follows.
var stringCommands = []Command{
	{Name: "get", Arity: 2, Flags: Fast, Keys: Keys{1, 1, 1}, Run: get},
	{Name: "setnx", Arity: 3, Flags: Write | Fast | DenyOOM, Keys: Keys{1, 1, 1}, Run: setnx},
}

func get(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	if o == nil {
		return Null
	}
	return Bulk(o.str)
}

func setnx(c *Ctx, args [][]byte) Reply {
	if c.lookup(args[1]) != nil {
		return Zero
	}
	c.assign(newObject(args[1], args[2]))
	return One
}

var genericCommands, keyspaceCommands []Command
