package fsm

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var listCommands = []Command{
	{
		Name: "lpush", Run: lpush, Arity: -3, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Prepend one or multiple elements to a list",
		History: []Change{{"2.4.0", "Accepts multiple `element` arguments."}},
	},
	{
		Name: "rpush", Run: rpush, Arity: -3, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Append one or multiple elements to a list",
		History: []Change{{"2.4.0", "Accepts multiple `element` arguments."}},
	},
	{
		Name: "lpushx", Run: lpushx, Arity: -3, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Prepend an element to a list, only if the list exists",
		History: []Change{{"4.0.0", "Accepts multiple `element` arguments."}},
	},
	{
		Name: "rpushx", Run: rpushx, Arity: -3, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key element [element ...]",
		Doc:     "Append an element to a list, only if the list exists",
		History: []Change{{"4.0.0", "Accepts multiple `element` arguments."}},
	},
	{
		Name: "lpop", Run: lpop, Arity: -2, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements returned",
		Syntax:     "key [count]",
		Doc:        "Remove and get the first elements in a list",
		History:    []Change{{"6.2.0", "Added the `count` argument."}},
	},
	{
		Name: "rpop", Run: rpop, Arity: -2, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements returned",
		Syntax:     "key [count]",
		Doc:        "Remove and get the last elements in a list",
		History:    []Change{{"6.2.0", "Added the `count` argument."}},
	},
	{
		Name: "llen", Run: llen, Arity: 2, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the length of a list",
	},
	{
		Name: "lrange", Run: lrange, Arity: 4, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end " +
			"(HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
		Syntax: "key start stop",
		Doc:    "Get a range of elements from a list",
	},
	{
		Name: "lindex", Run: lindex, Arity: 3, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes " +
			"asking for the first or the last element of the list O(1).",
		Syntax: "key index",
		Doc:    "Get an element from a list by its index",
	},
	{
		Name: "lset", Run: lset, Arity: 4, Flags: Write | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the " +
			"list is O(1).",
		Syntax: "key index element",
		Doc:    "Set the value of an element in a list by its index",
	},
	{
		Name: "linsert", Run: linsert, Arity: 5, Flags: Write | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "list", Since: "2.2.0",
		Complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means " +
			"that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting " +
			"somewhere on the right end (tail) is O(N).",
		Syntax: "key <BEFORE | AFTER> pivot element",
		Doc:    "Insert an element before or after another element in a list",
	},
	{
		Name: "lrem", Run: lrem, Arity: 4, Flags: Write,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
		Syntax:     "key count element",
		Doc:        "Remove elements from a list",
	},
	{
		Name: "ltrim", Run: ltrim, Arity: 4, Flags: Write,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"},
		Group: "list", Since: "1.0.0",
		Complexity: "O(N) where N is the number of elements to be removed by the operation.",
		Syntax:     "key start stop",
		Doc:        "Trim a list to the specified range",
	},
	{
		Name: "lpos", Run: lpos, Arity: -3, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "list", Since: "6.0.6",
		Complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for " +
			"elements near the head or the tail of the list, or when the MAXLEN option is provided, the command " +
			"may run in constant time.",
		Syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
		Doc:    "Return the index of matching elements on a list",
	},
	{
		Name: "lmove", Run: lmove, Arity: 5, Flags: Write | DenyOOM,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
		Doc:        "Pop an element from a list, push it to another list and return it",
	},
	{
		Name: "rpoplpush", Run: rpoplpush, Arity: 3, Flags: Write | DenyOOM,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "insert"}},
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

func lpush(c *Ctx, args [][]byte) Reply  { return c.push(args, true, false) }
func rpush(c *Ctx, args [][]byte) Reply  { return c.push(args, false, false) }
func lpushx(c *Ctx, args [][]byte) Reply { return c.push(args, true, true) }
func rpushx(c *Ctx, args [][]byte) Reply { return c.push(args, false, true) }

// endEvent returns the name of an event at one end of a list.
func endEvent(left bool, what string) string {
	if left {
		return "l" + what
	}
	return "r" + what
}

func (c *Ctx) push(args [][]byte, left, exists bool) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && exists:
		return Zero
	case !room(o, len(args)-2):
		return Error(msgTooMany)
	}
	n := c.open(o, args[1], keyspace.TypeList)
	for _, arg := range args[2:] {
		n.Coll.Push(c.m.owner, left, string(arg))
	}
	c.close(n, "l", endEvent(left, "push"))
	return Int(int64(n.Coll.List.Len()))
}

func lpop(c *Ctx, args [][]byte) Reply { return c.pop(args, true) }
func rpop(c *Ctx, args [][]byte) Reply { return c.pop(args, false) }

func (c *Ctx) pop(args [][]byte, left bool) Reply {
	if len(args) > 3 {
		return Error(WrongArity(string(args[0])))
	}
	count, counted := int64(1), len(args) == 3
	if counted {
		var fail Reply
		if count, fail = positive(args[2], msgNotPositive); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && counted:
		return NullArray
	case o == nil:
		return Null
	case count == 0:
		return Array(nil)
	}
	elems, fail := c.takeElements(o, count, left)
	switch {
	case fail.IsError():
		return fail
	case !counted:
		return elems[0]
	}
	return Array(elems)
}

// takeElements removes elements from one end of a list, which must not be
// empty, and returns them.
func (c *Ctx) takeElements(o *keyspace.Object, count int64, left bool) (elems []Reply, fail Reply) {
	size := int64(o.Coll.List.Len())
	count = min(count, size)
	l := collector{c: c}
	gather := func(s *string) bool {
		c.charge(stepsPut)
		return l.add(Bulk(*s)) && int64(len(l.elems)) < count
	}
	if left {
		o.Coll.List.Ascend(0, gather)
	} else {
		o.Coll.List.Descend(int(size)-1, gather)
	}
	if l.over() { // remove nothing that the client does not receive
		return nil, Error(ReplyTooLarge)
	}
	n := c.open(o, []byte(o.Key), keyspace.TypeList)
	if count == size {
		n.Coll.List = container.Seq[string]{}
	} else {
		for range count {
			n.Coll.Pop(c.m.owner, left)
		}
	}
	c.close(n, "l", endEvent(left, "pop"))
	return l.elems, Null
}

func llen(c *Ctx, args [][]byte) Reply { return c.size(args[1], keyspace.TypeList) }

func lrange(c *Ctx, args [][]byte) Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return Error(msgNotInt)
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Array(nil)
	}
	from, to := span(start, end, o.Coll.List.Len())
	l := collector{c: c}
	if from < to {
		o.Coll.List.Ascend(from, func(s *string) bool { return l.add(Bulk(*s)) && len(l.elems) < to-from })
	}
	return l.reply(Array)
}

func lindex(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Null
	}
	index, ok := number.ParseInt(args[2])
	if !ok {
		return Error(msgNotInt)
	}
	i, ok := o.Coll.Offset(index)
	if !ok {
		return Null
	}
	return Bulk(o.Coll.List.At(i))
}

func lset(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Error(msgNoSuchKey)
	}
	index, ok := number.ParseInt(args[2])
	if !ok {
		return Error(msgNotInt)
	}
	i, ok := o.Coll.Offset(index)
	if !ok {
		return Error(msgIndex)
	}
	n := c.open(o, args[1], keyspace.TypeList)
	n.Coll.List.Set(c.m.owner, i, string(args[3]))
	c.close(n, "l", "lset")
	return OK
}

func linsert(c *Ctx, args [][]byte) Reply {
	after := fold(args[2], "AFTER")
	if !after && !fold(args[2], "BEFORE") {
		return Error(msgSyntax)
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	case !room(o, 1):
		return Error(msgTooMany)
	}
	at := 0
	o.Coll.List.Ascend(0, func(s *string) bool {
		c.chargeCompared(s, args[3])
		if *s == string(args[3]) {
			return false
		}
		at++
		return true
	})
	if at == o.Coll.List.Len() {
		return Int(-1)
	}
	if after {
		at++
	}
	n := c.open(o, args[1], keyspace.TypeList)
	n.Coll.List.Insert(c.m.owner, at, string(args[4]))
	c.close(n, "l", "linsert")
	return Int(int64(n.Coll.List.Len()))
}

func lrem(c *Ctx, args [][]byte) Reply {
	count, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return Error(msgNotInt)
	case count == math.MinInt64: // -count would overflow; it means no limit
		count = 0
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	size := o.Coll.List.Len()
	most, at, step := count, 0, 1
	if count < 0 {
		most, at, step = -count, size-1, -1
	}
	var offsets []int // in the order of the search
	look := func(s *string) bool {
		c.chargeCompared(s, args[3])
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
		return Zero
	}
	n := c.open(o, args[1], keyspace.TypeList)
	for i, offset := range offsets {
		c.charge(stepsPut)
		if count >= 0 {
			offset -= i // i elements before it have been removed
		}
		n.Coll.List.Delete(c.m.owner, offset)
	}
	c.close(n, "l", "lrem")
	return Int(int64(len(offsets)))
}

func ltrim(c *Ctx, args [][]byte) Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return Error(msgNotInt)
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return OK
	}
	size := o.Coll.List.Len()
	from, to := span(start, end, size)
	n := c.open(o, args[1], keyspace.TypeList)
	c.charge(stepsPut * min(to-from, size-(to-from)))
	if to-from < size/2 { // fewer elements are kept than removed
		var kept container.Seq[string]
		n.Coll.List.Ascend(from, func(s *string) bool {
			if kept.Len() == to-from {
				return false
			}
			kept.Insert(c.m.owner, kept.Len(), *s)
			return true
		})
		n.Coll.List = kept
	} else {
		for range size - to {
			n.Coll.Pop(c.m.owner, false)
		}
		for range from {
			n.Coll.Pop(c.m.owner, true)
		}
	}
	c.close(n, "l", "ltrim")
	return OK
}

func lpos(c *Ctx, args [][]byte) Reply {
	rank, count, maxlen := int64(1), int64(-1), int64(0)
	for i := 3; i < len(args); i += 2 {
		if i+1 == len(args) {
			return Error(msgSyntax)
		}
		var fail Reply
		switch {
		case fold(args[i], "RANK"):
			var ok bool
			switch rank, ok = number.ParseInt(args[i+1]); {
			case !ok:
				fail = Error(msgNotInt)
			case rank == 0:
				fail = Error(msgRankZero)
			case rank == math.MinInt64: // -rank would overflow; Redis takes the first match
				rank = -1
			}
		case fold(args[i], "COUNT"):
			count, fail = positive(args[i+1], msgCountNeg)
		case fold(args[i], "MAXLEN"):
			maxlen, fail = positive(args[i+1], msgMaxlen)
		default:
			fail = Error(msgSyntax)
		}
		if fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && count < 0:
		return Null
	case o == nil:
		return Array(nil)
	}
	size := o.Coll.List.Len()
	l := collector{c: c}
	looked := int64(0)
	skip := rank - 1
	if rank < 0 {
		skip = -rank - 1
	}
	look := func(s *string) bool {
		c.chargeCompared(s, args[2])
		if *s == string(args[2]) {
			if skip--; skip < 0 {
				at := looked
				if rank < 0 {
					at = int64(size) - 1 - looked
				}
				if !l.add(Int(at)) || count < 0 || int64(len(l.elems)) == count {
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
		return l.reply(Array)
	case len(l.elems) == 0:
		return Null
	}
	return l.elems[0]
}

func lmove(c *Ctx, args [][]byte) Reply {
	var left [2]bool
	for i := range left {
		if left[i] = fold(args[3+i], "LEFT"); !left[i] && !fold(args[3+i], "RIGHT") {
			return Error(msgSyntax)
		}
	}
	return c.moveElement(args[1], args[2], left[0], left[1])
}

func rpoplpush(c *Ctx, args [][]byte) Reply { return c.moveElement(args[1], args[2], false, true) }

func (c *Ctx) moveElement(from, to []byte, fromLeft, toLeft bool) Reply {
	src, wrong := c.lookupType(from, keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case src == nil:
		return Null
	}
	dst, wrong := c.lookupType(to, keyspace.TypeList)
	switch {
	case wrong:
		return Error(msgWrongType)
	case !room(dst, 1):
		return Error(msgTooMany)
	}
	s := c.open(src, from, keyspace.TypeList)
	element := s.Coll.Pop(c.m.owner, fromLeft)
	if dst == src {
		s.Coll.Push(c.m.owner, toLeft, element)
		c.close(s, "l", endEvent(toLeft, "push"))
		c.notify("l", endEvent(fromLeft, "pop"), s.Key)
		return Bulk(element)
	}
	d := c.open(dst, to, keyspace.TypeList)
	d.Coll.Push(c.m.owner, toLeft, element)
	c.close(d, "l", endEvent(toLeft, "push"))
	c.close(s, "l", endEvent(fromLeft, "pop"))
	return Bulk(element)
}
