package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"math"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var listCommands = []fsm.Command{
	{
		Name: "lpush", Run: lpush, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 192, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Prepend one or multiple elements to a list",
		History: []fsm.Change{{Since: "2.4.0", What: "Accepts multiple `element` arguments."}},
	},
	{
		Name: "rpush", Run: rpush, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 192, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Append one or multiple elements to a list",
		History: []fsm.Change{{Since: "2.4.0", What: "Accepts multiple `element` arguments."}},
	},
	{
		Name: "lpushx", Run: lpushx, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 192, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Prepend an element to a list, only if the list exists",
		History: []fsm.Change{{Since: "4.0.0", What: "Accepts multiple `element` arguments."}},
	},
	{
		Name: "rpushx", Run: rpushx, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 192, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Append an element to a list, only if the list exists",
		History: []fsm.Change{{Since: "4.0.0", What: "Accepts multiple `element` arguments."}},
	},
	{
		Name: "lpop", Run: lpop, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: popWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements returned",
		Syntax:     "key [count]",
		Doc:        "Remove and get the first elements in a list",
		History:    []fsm.Change{{Since: "6.2.0", What: "Added the `count` argument."}},
	},
	{
		Name: "rpop", Run: rpop, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: popWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements returned",
		Syntax:     "key [count]",
		Doc:        "Remove and get the last elements in a list",
		History:    []fsm.Change{{Since: "6.2.0", What: "Added the `count` argument."}},
	},
	{
		Name: "llen", Run: llen, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the length of a list",
	},
	{
		Name: "lrange", Run: lrange, Arity: 4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end " +
			"(HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
		Syntax: "key start stop",
		Doc:    "Get a range of elements from a list",
	},
	{
		Name: "lindex", Run: lindex, Arity: 3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes " +
			"asking for the first or the last element of the list O(1).",
		Syntax: "key index",
		Doc:    "Get an element from a list by its index",
	},
	{
		Name: "lset", Run: lset, Arity: 4, Flags: fsm.Write | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the " +
			"list is O(1).",
		Syntax: "key index element",
		Doc:    "Set the value of an element in a list by its index",
	},
	{
		Name: "linsert", Run: linsert, Arity: 5, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: walkWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means " +
			"that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting " +
			"somewhere on the right end (tail) is O(N).",
		Syntax: "key <BEFORE | AFTER> pivot element",
		Doc:    "Insert an element before or after another element in a list",
	},
	{
		Name: "lrem", Run: lrem, Arity: 4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: walkWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
		Syntax:     "key count element",
		Doc:        "Remove elements from a list",
	},
	{
		Name: "ltrim", Run: ltrim, Arity: 4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: ltrimWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements to be removed by the operation.",
		Syntax:     "key start stop",
		Doc:        "Trim a list to the specified range",
	},
	{
		Name: "lpos", Run: lpos, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "6.0.6",
		Complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for " +
			"elements near the head or the tail of the list, or when the MAXLEN option is provided, the command " +
			"may run in constant time.",
		Syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
		Doc:    "Return the index of matching elements on a list",
	},
	{
		Name: "lmove", Run: lmove, Arity: 5, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: lmoveWork},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
		Doc:        "Pop an element from a list, push it to another list and return it",
	},
	{
		Name: "rpoplpush", Run: rpoplpush, Arity: 3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: lmoveWork},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "1.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
		Complexity: "O(1)",
		Syntax:     "source destination",
		Doc:        "Remove the last element in a list, prepend it to another list and return it",
	},
}

const (
	msgIndex    = "ERR index out of range"
	msgRankZero = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use " +
		"negative to start from the end of the list"
	msgCountNeg = "ERR COUNT can't be negative"
	msgMaxlen   = "ERR MAXLEN can't be negative"
)

func lpush(c *fsm.Ctx, args [][]byte) fsm.Reply  { return push(c, args, true, false) }
func rpush(c *fsm.Ctx, args [][]byte) fsm.Reply  { return push(c, args, false, false) }
func lpushx(c *fsm.Ctx, args [][]byte) fsm.Reply { return push(c, args, true, true) }
func rpushx(c *fsm.Ctx, args [][]byte) fsm.Reply { return push(c, args, false, true) }

// endEvent returns the name of an event at one end of a list.
func endEvent(left bool, what string) string {
	if left {
		return "l" + what
	}
	return "r" + what
}

func push(c *fsm.Ctx, args [][]byte, left, exists bool) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && exists:
		return fsm.Zero
	case !room(o, len(args)-2):
		return fsm.Error(msgTooMany)
	}
	n := open(c, o, args[1], keyspace.TypeList)
	for _, arg := range args[2:] {
		n.Coll.Push(c.Owner(), left, string(arg))
	}
	storeOrRemove(c, n, "l", endEvent(left, "push"))
	return fsm.Int(int64(n.Coll.List.Len()))
}

func lpop(c *fsm.Ctx, args [][]byte) fsm.Reply { return pop(c, args, true) }
func rpop(c *fsm.Ctx, args [][]byte) fsm.Reply { return pop(c, args, false) }

func pop(c *fsm.Ctx, args [][]byte, left bool) fsm.Reply {
	if len(args) > 3 {
		return fsm.Error(fsm.WrongArity(string(args[0])))
	}
	count, counted := int64(1), len(args) == 3
	if counted {
		var fail fsm.Reply
		if count, fail = positive(args[2], msgNotPositive); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && counted:
		return fsm.NullArray
	case o == nil:
		return fsm.Null
	case count == 0:
		return fsm.Array(nil)
	}
	elems, fail := takeElements(c, o, count, left)
	switch {
	case fail.IsError():
		return fail
	case !counted:
		return elems[0]
	}
	return fsm.Array(elems)
}

// takeElements removes elements from one end of a list and returns them. The
// list must not be empty.
func takeElements(c *fsm.Ctx, o *keyspace.Object, count int64, left bool) (elems []fsm.Reply, fail fsm.Reply) {
	size := int64(o.Coll.List.Len())
	count = min(count, size)
	l := collector{c: c}
	gather := func(s *string) bool {
		c.Charge(fsm.StepsPut)
		return l.add(fsm.Bulk(*s)) && int64(len(l.elems)) < count
	}
	if left {
		o.Coll.List.Ascend(0, gather)
	} else {
		o.Coll.List.Descend(int(size)-1, gather)
	}
	if l.over() { // the reply is too large, so the list is not changed
		return nil, fsm.Error(fsm.ReplyTooLarge)
	}
	n := open(c, o, []byte(o.Key), keyspace.TypeList)
	if left {
		n.Coll.Keep(c.Owner(), int(count), int(size))
	} else {
		n.Coll.Keep(c.Owner(), 0, int(size-count))
	}
	storeOrRemove(c, n, "l", endEvent(left, "pop"))
	return l.elems, fsm.Null
}

func llen(c *fsm.Ctx, args [][]byte) fsm.Reply { return size(c, args[1], keyspace.TypeList) }

func lrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return fsm.Error(fsm.MsgNotInt)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Array(nil)
	}
	from, to := span(start, end, o.Coll.List.Len())
	l := collector{c: c}
	if from < to {
		o.Coll.List.Ascend(from, func(s *string) bool { return l.add(fsm.Bulk(*s)) && len(l.elems) < to-from })
	}
	return l.reply(fsm.Array)
}

func lindex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Null
	}
	index, ok := number.ParseInt(args[2])
	if !ok {
		return fsm.Error(fsm.MsgNotInt)
	}
	i, ok := o.Coll.Offset(index)
	if !ok {
		return fsm.Null
	}
	return fsm.Bulk(o.Coll.List.At(i))
}

func lset(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Error(msgNoSuchKey)
	}
	index, ok := number.ParseInt(args[2])
	if !ok {
		return fsm.Error(fsm.MsgNotInt)
	}
	i, ok := o.Coll.Offset(index)
	if !ok {
		return fsm.Error(msgIndex)
	}
	n := open(c, o, args[1], keyspace.TypeList)
	n.Coll.List.Set(c.Owner(), i, string(args[3]))
	storeOrRemove(c, n, "l", "lset")
	return fsm.OK
}

func linsert(c *fsm.Ctx, args [][]byte) fsm.Reply {
	after := fsm.IsWord(args[2], "AFTER")
	if !after && !fsm.IsWord(args[2], "BEFORE") {
		return fsm.Error(fsm.MsgSyntax)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	case !room(o, 1):
		return fsm.Error(msgTooMany)
	}
	at := 0
	o.Coll.List.Ascend(0, func(s *string) bool {
		chargeCompared(c, s, args[3])
		if *s == string(args[3]) {
			return false
		}
		at++
		return true
	})
	if at == o.Coll.List.Len() {
		return fsm.Int(-1)
	}
	if after {
		at++
	}
	n := open(c, o, args[1], keyspace.TypeList)
	n.Coll.List.Insert(c.Owner(), at, string(args[4]))
	storeOrRemove(c, n, "l", "linsert")
	return fsm.Int(int64(n.Coll.List.Len()))
}

func lrem(c *fsm.Ctx, args [][]byte) fsm.Reply {
	count, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case count == math.MinInt64: // -count would overflow; 0 means all matches
		count = 0
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	size := o.Coll.List.Len()
	most, at, step := count, 0, 1
	if count < 0 {
		most, at, step = -count, size-1, -1
	}
	var offsets []int // offsets of the matches in the order of the search
	look := func(s *string) bool {
		chargeCompared(c, s, args[3])
		if *s == string(args[3]) {
			offsets = append(offsets, at)
		}
		at += step
		return most == 0 || int64(len(offsets)) < most
	}
	if count < 0 {
		o.Coll.List.Descend(size-1, look)
	} else {
		o.Coll.List.Ascend(0, look)
	}
	if len(offsets) == 0 {
		return fsm.Zero
	}
	n := open(c, o, args[1], keyspace.TypeList)
	c.Charge(min(fsm.StepsPut*len(offsets), stepsBuild*size))
	if count < 0 {
		slices.Reverse(offsets)
	}
	n.Coll.DeleteElements(c.Owner(), offsets)
	storeOrRemove(c, n, "l", "lrem")
	return fsm.Int(int64(len(offsets)))
}

func ltrim(c *fsm.Ctx, args [][]byte) fsm.Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return fsm.Error(fsm.MsgNotInt)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.OK
	}
	size := o.Coll.List.Len()
	from, to := span(start, end, size)
	n := open(c, o, args[1], keyspace.TypeList)
	c.Charge(min(fsm.StepsPut*(size-(to-from)), stepsBuild*(to-from)))
	n.Coll.Keep(c.Owner(), from, to)
	storeOrRemove(c, n, "l", "ltrim")
	return fsm.OK
}

func lpos(c *fsm.Ctx, args [][]byte) fsm.Reply {
	rank, count, maxlen := int64(1), int64(-1), int64(0)
	for i := 3; i < len(args); i += 2 {
		if i+1 == len(args) {
			return fsm.Error(fsm.MsgSyntax)
		}
		var fail fsm.Reply
		switch {
		case fsm.IsWord(args[i], "RANK"):
			var ok bool
			switch rank, ok = number.ParseInt(args[i+1]); {
			case !ok:
				fail = fsm.Error(fsm.MsgNotInt)
			case rank == 0:
				fail = fsm.Error(msgRankZero)
			case rank == math.MinInt64: // -rank would overflow; Redis then begins with the last match
				rank = -1
			}
		case fsm.IsWord(args[i], "COUNT"):
			count, fail = positive(args[i+1], msgCountNeg)
		case fsm.IsWord(args[i], "MAXLEN"):
			maxlen, fail = positive(args[i+1], msgMaxlen)
		default:
			fail = fsm.Error(fsm.MsgSyntax)
		}
		if fail.IsError() {
			return fail
		}
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && count < 0:
		return fsm.Null
	case o == nil:
		return fsm.Array(nil)
	}
	size := o.Coll.List.Len()
	l := collector{c: c}
	looked := int64(0)
	skip := rank - 1
	if rank < 0 {
		skip = -rank - 1
	}
	look := func(s *string) bool {
		chargeCompared(c, s, args[2])
		if *s == string(args[2]) {
			if skip--; skip < 0 {
				at := looked
				if rank < 0 {
					at = int64(size) - 1 - looked
				}
				if !l.add(fsm.Int(at)) || count < 0 || int64(len(l.elems)) == count {
					return false
				}
			}
		}
		looked++
		return looked != maxlen
	}
	if rank < 0 {
		o.Coll.List.Descend(size-1, look)
	} else {
		o.Coll.List.Ascend(0, look)
	}
	switch {
	case count >= 0:
		return l.reply(fsm.Array)
	case len(l.elems) == 0:
		return fsm.Null
	}
	return l.elems[0]
}

func lmove(c *fsm.Ctx, args [][]byte) fsm.Reply {
	var left [2]bool
	for i := range left {
		if left[i] = fsm.IsWord(args[3+i], "LEFT"); !left[i] && !fsm.IsWord(args[3+i], "RIGHT") {
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	return moveElement(c, args[1], args[2], left[0], left[1])
}

func rpoplpush(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return moveElement(c, args[1], args[2], false, true)
}

func moveElement(c *fsm.Ctx, from, to []byte, fromLeft, toLeft bool) fsm.Reply {
	src, wrong := c.LookupType(from, keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case src == nil:
		return fsm.Null
	}
	dst, wrong := c.LookupType(to, keyspace.TypeList)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case !room(dst, 1):
		return fsm.Error(msgTooMany)
	}
	s := open(c, src, from, keyspace.TypeList)
	element := s.Coll.Pop(c.Owner(), fromLeft)
	if dst == src {
		s.Coll.Push(c.Owner(), toLeft, element)
		storeOrRemove(c, s, "l", endEvent(toLeft, "push"))
		c.Notify("l", endEvent(fromLeft, "pop"), s.Key)
		return fsm.Bulk(element)
	}
	d := open(c, dst, to, keyspace.TypeList)
	d.Coll.Push(c.Owner(), toLeft, element)
	storeOrRemove(c, d, "l", endEvent(toLeft, "push"))
	storeOrRemove(c, s, "l", endEvent(fromLeft, "pop"))
	return fsm.Bulk(element)
}
