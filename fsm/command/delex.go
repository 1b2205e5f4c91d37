package command

import (
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// compareCommands are the commands that delete a key if its value meets a
// condition. Clients use them to release locks without a script.
var compareCommands = []fsm.Command{
	{
		Name: "delex", Run: delex, Arity: -2, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat | fsm.VariableFlags,
		AccessOf: delexAccess,
		Keys:     fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{
			Flags: "access delete variable_flags", Mode: "RW", Notes: "RW and ACCESS due to the optional comparison",
		},
		Group: "string", Since: "8.4.0",
		Complexity: "O(1)",
		Syntax:     "key [IFEQ comparison-value | IFNE comparison-value]",
		Doc:        "Delete a key if its value meets a condition",
	},
	{
		Name: "delifeq", Run: delifeq, Arity: 3, Flags: fsm.Write | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{
			Flags: "access delete", Mode: "RW",
			Notes: "RW and ACCESS because the answer tells whether the value is the given one",
		},
		Group: "string", Since: "valkey 9.0",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Delete a key if it has the given value",
	},
}

// delexAccess returns how a call of DELEX accesses its key: see setAccess.
func delexAccess(args [][]byte) fsm.Access {
	if len(args) > 2 {
		return fsm.Access{Mode: "RW", Flags: "access delete"}
	}
	return fsm.Access{Mode: "RM", Flags: "delete"}
}

// delex deletes a key if its value meets a condition, as in Redis 8.4. SET has
// the same conditions. The digest forms (IFDEQ, IFDNE) are not supported and
// return a syntax error.
func delex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args) != 2 && len(args) != 4 {
		return fsm.Error(fsm.WrongArity("delex"))
	}
	var p options
	if len(args) == 4 {
		switch word := args[2]; {
		case fsm.IsWord(word, "IFEQ"):
			p.cond = condIFEQ
		case fsm.IsWord(word, "IFNE"):
			p.cond = condIFNE
		case fsm.IsWord(word, "IFDEQ"), fsm.IsWord(word, "IFDNE"):
			return fsm.Error(fsm.MsgSyntax)
		default:
			return fsm.Error(msgCondition)
		}
		p.value = args[3]
	}
	o := c.Lookup(args[1])
	switch {
	case o == nil:
		return fsm.Zero // even with IFNE, because there is nothing to delete
	case p.cond != condNone && o.Type != keyspace.TypeString:
		return fsm.Error(msgCondType)
	case !p.holds(o):
		return fsm.Zero
	}
	if p.cond == condIFEQ {
		c.EndLock(o, fsm.LockReleased)
	} else {
		c.Delete(o)
	}
	return fsm.One
}

func delifeq(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil || o.Str != string(args[2]):
		return fsm.Zero
	}
	c.EndLock(o, fsm.LockReleased)
	return fsm.One
}
