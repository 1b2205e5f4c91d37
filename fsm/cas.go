package fsm

// Compare-and-set and compare-and-delete without a script, as Redis 8.4 and
// Valkey 9 have them (SET IFEQ and IFNE stand in string.go). The digest forms
// (IFDEQ, IFDNE) are not known and are answered as syntax errors.

var casCommands = []Command{
	{Name: "delex", Arity: -2, Flags: Write | Fast | KeyspaceCat, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RM", Flags: "delete"}, Group: "string", Since: "8.4.0", Complexity: "O(1)", Syntax: "key [IFEQ comparison-value | IFNE comparison-value]", Doc: "Delete a key if its value meets a condition", Run: delex},
	{Name: "delifeq", Arity: 3, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RM", Flags: "delete"}, Group: "string", Since: "valkey 9.0", Complexity: "O(1)", Syntax: "key value", Doc: "Delete a key if it has the given value", Run: delifeq},
	{Name: "msetex", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Access: Access{Mode: "OW", Flags: "update"}, KeysOf: msetexKeys, Group: "string", Since: "8.4.0", Complexity: "O(N) where N is the number of keys to set.",
		Syntax: "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", Doc: "Set multiple keys to multiple values with one expiration, all of them or none", Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"}, Run: msetex},
}

func delex(c *Ctx, args [][]byte) Reply {
	if len(args) != 2 && len(args) != 4 {
		return Error(WrongArity("delex"))
	}
	var p options
	if len(args) == 4 {
		switch word := args[2]; {
		case fold(word, "IFEQ"):
			p.cond = condIFEQ
		case fold(word, "IFNE"):
			p.cond = condIFNE
		case fold(word, "IFDEQ"), fold(word, "IFDNE"):
			return Error(msgSyntax)
		default:
			return Error(msgCondition)
		}
		p.value = args[3]
	}
	o := c.lookup(args[1])
	switch {
	case o == nil:
		return Zero // IFNE too: there is nothing to delete
	case p.cond != condNone && o.typ != typeString:
		return Error(msgCondType)
	case !p.holds(o):
		return Zero
	}
	c.delete(o)
	return One
}

func delifeq(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil || o.str != string(args[2]):
		return Zero
	}
	c.delete(o)
	return One
}

// msetexPairs returns the number of key-value pairs that MSETEX announces.
func msetexPairs(args [][]byte) (n int, fail string) {
	if len(args) < 2 {
		return 0, msgNumKeys
	}
	count, ok := parseInt(args[1])
	switch {
	case !ok || count < 1 || count > 1<<31-1:
		return 0, msgNumKeys
	case count > int64(len(args)-2)/2:
		return 0, msgPairs
	}
	return int(count), ""
}

func msetexKeys(args [][]byte) []int {
	n, fail := msetexPairs(args)
	if fail != "" {
		return nil
	}
	pos := make([]int, n)
	for i := range pos {
		pos[i] = 2 + 2*i
	}
	return pos
}

func msetex(c *Ctx, args [][]byte) Reply {
	n, fail := msetexPairs(args)
	if fail != "" {
		return Error(fail)
	}
	pairs, rest := args[2:2+2*n], args[2+2*n:]
	p, ok := parseOptions(rest, allowNXXX|allowKeepTTL)
	if !ok {
		return Error(msgSyntax)
	}
	var l lifetime
	if p.unit != unitNone {
		var fail Reply
		if l, fail = c.lifetimeIn(p.unit, p.expire, "msetex"); fail.IsError() {
			return fail
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !p.holds(c.lookup(pairs[i])) {
			return Zero
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		old := c.lookup(pairs[i])
		if p.keepTTL && old != nil {
			l = old.life()
		} else if p.keepTTL {
			l = lifetime{}
		}
		c.put(pairs[i], pairs[i+1], old, l)
	}
	return One
}
