package fsm

import "github.com/holdfast-kv/holdfast/fsm/number"

// This file has compare-and-set and compare-and-delete without a script, as in
// Redis 8.4 and Valkey 9 (SET IFEQ and IFNE are in cmd_string.go). The digest
// forms (IFDEQ, IFDNE) are not supported and return a syntax error.

var casCommands = []Command{
	{
		Name: "delex", Run: delex, Arity: -2, Flags: Write | Fast | KeyspaceCat | VariableFlags, Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access delete variable_flags", Mode: "RW", Notes: "RW and ACCESS due to the optional comparison",
		},
		Group: "string", Since: "8.4.0",
		Complexity: "O(1)",
		Syntax:     "key [IFEQ comparison-value | IFNE comparison-value]",
		Doc:        "Delete a key if its value meets a condition",
	},
	{
		Name: "delifeq", Run: delifeq, Arity: 3, Flags: Write | Fast, Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access delete", Mode: "RW",
			Notes: "RW and ACCESS because the answer tells whether the value is the given one",
		},
		Group: "string", Since: "valkey 9.0",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Delete a key if it has the given value",
	},
	{Name: "msetex", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Access: Access{Mode: "OW", Flags: "update"}, KeysOf: msetexKeys, Group: "string", Since: "8.4.0", Complexity: "O(N) where N is the number of keys to set.",
		Syntax: "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", Doc: "Set multiple keys to multiple values with one expiration, all of them or none", Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"}, Run: msetex},
}

// delexAccess returns how a call of DELEX accesses its key: see setAccess.
func delexAccess(args [][]byte) Access {
	if len(args) > 2 {
		return Access{Mode: "RW", Flags: "access delete"}
	}
	return Access{Mode: "RM", Flags: "delete"}
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
		return Zero // with IFNE too: there is nothing to delete
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

// msetexPairs returns the number of key-value pairs that the first argument of
// MSETEX gives.
func msetexPairs(args [][]byte) (n int, fail string) {
	if len(args) < 2 {
		return 0, msgNumKeys
	}
	count, ok := number.ParseInt(args[1])
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
