package fsm

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var setCommands = []Command{
	{
		Name: "sadd", Run: sadd, Arity: -3, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key member [member ...]",
		Doc:     "Add one or more members to a set",
		History: []Change{{"2.4.0", "Accepts multiple `member` arguments."}},
	},
	{
		Name: "srem", Run: srem, Arity: -3, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the number of members to be removed.",
		Syntax:     "key member [member ...]",
		Doc:        "Remove one or more members from a set",
		History:    []Change{{"2.4.0", "Accepts multiple `member` arguments."}},
	},
	{
		Name: "scard", Run: scard, Arity: 2, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the number of members in a set",
	},
	{
		Name: "sismember", Run: sismember, Arity: 3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key member",
		Doc:        "Determine if a given value is a member of a set",
	},
	{
		Name: "smismember", Run: smismember, Arity: -3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "6.2.0",
		Complexity: "O(N) where N is the number of elements being checked for membership",
		Syntax:     "key member [member ...]",
		Doc:        "Returns the membership associated with the given elements for a set",
	},
	{
		Name: "smembers", Run: smembers, Arity: 2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the set cardinality.",
		Syntax:     "key",
		Doc:        "Get all the members in a set",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "spop", Run: spop, Arity: -2, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"},
		Group: "set", Since: "1.0.0",
		Complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
		Syntax:     "key [count]",
		Doc:        "Remove and return one or multiple random members from a set",
		Tips:       []string{"nondeterministic_output"},
		History:    []Change{{"3.2.0", "Added the `count` argument."}},
	},
	{
		Name: "srandmember", Run: srandmember, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed " +
			"count.",
		Syntax:  "key [count]",
		Doc:     "Get one or multiple random members from a set",
		Tips:    []string{"nondeterministic_output"},
		History: []Change{{"2.6.0", "Added the optional `count` argument."}},
	},
	{
		Name: "smove", Run: smove, Arity: 4, Flags: Write | Fast,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "source destination member",
		Doc:        "Move a member from one set to another",
	},
	{
		Name: "sinter", Run: sinter, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "key [key ...]",
		Doc:        "Intersect multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sintercard", Run: sintercard, Arity: -3, Flags: ReadOnly | MovableKeys,
		KeysOf: sintercardKeys,
		Specs: []KeySpec{
			{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "set", Since: "7.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "numkeys key [key ...] [LIMIT limit]",
		Doc:        "Intersect multiple sets and return the cardinality of the result",
	},
	{
		Name: "sunion", Run: sunion, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "key [key ...]",
		Doc:        "Add multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sdiff", Run: sdiff, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "key [key ...]",
		Doc:        "Subtract multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sinterstore", Run: sinterstore, Arity: -3, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"}},
			{Keys: Keys{2, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Intersect multiple sets and store the resulting set in a key",
	},
	{
		Name: "sunionstore", Run: sunionstore, Arity: -3, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}},
			{Keys: Keys{2, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Add multiple sets and store the resulting set in a key",
	},
	{
		Name: "sdiffstore", Run: sdiffstore, Arity: -3, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}},
			{Keys: Keys{2, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Subtract multiple sets and store the resulting set in a key",
	},
	{
		Name: "sscan", Run: sscan, Arity: -3, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "2.8.0",
		Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the " +
			"cursor to return back to 0. N is the number of elements inside the collection..",
		Syntax: "key cursor [MATCH pattern] [COUNT count]",
		Doc:    "Incrementally iterate Set elements",
		Tips:   []string{"nondeterministic_output"},
	},
}

const (
	msgNumKeysLow  = "ERR numkeys should be greater than 0"
	msgNumKeysHigh = "ERR Number of keys can't be greater than number of args"
	msgLimitNeg    = "ERR LIMIT can't be negative"
)

func sadd(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case !room(o, len(args)-2):
		return Error(msgTooMany)
	}
	n := c.open(o, args[1], keyspace.TypeSet)
	added := int64(0)
	for _, arg := range args[2:] {
		c.charge(stepsPut)
		if n.Coll.PutMember(c.m.owner, string(arg)) {
			added++
		}
	}
	if added > 0 {
		c.close(n, "s", "sadd")
	}
	return Int(added)
}

func srem(c *Ctx, args [][]byte) Reply {
	return c.removeElements(args, keyspace.TypeSet, "s", "srem", func(v *keyspace.Collection, member string) bool {
		c.charge(stepsPut)
		return v.DeleteMember(c.m.owner, member)
	})
}

func scard(c *Ctx, args [][]byte) Reply { return c.size(args[1], keyspace.TypeSet) }

func sismember(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeSet)
	if wrong {
		return Error(msgWrongType)
	}
	return Bool(o.HasMember(codec.View(args[2])))
}

func smismember(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeSet)
	if wrong {
		return Error(msgWrongType)
	}
	var found []Reply
	for _, arg := range args[2:] {
		c.charge(stepsProbe)
		found = append(found, Bool(o.HasMember(codec.View(arg))))
	}
	return Array(found)
}

func smembers(c *Ctx, args [][]byte) Reply { return sinter(c, args) }

func spop(c *Ctx, args [][]byte) Reply {
	count, fail := popCount(args)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && len(args) == 3, count == 0:
		return Set(nil)
	case o == nil:
		return Null
	}
	l := collector{c: c}
	s := &o.Coll.Set
	c.randomOffsets(count, s.Len(), func(i int) bool { return l.add(Bulk(s.At(i).Name)) })
	if l.over() { // remove nothing that the client does not receive
		return Error(ReplyTooLarge)
	}
	n := c.open(o, args[1], keyspace.TypeSet)
	if len(l.elems) == s.Len() {
		n.Coll.Set = container.Dict[struct{}]{}
	}
	for _, r := range l.elems {
		c.charge(stepsPut)
		if n.Coll.Set.Len() > 0 {
			n.Coll.Set.Remove(c.m.owner, r.s)
		}
	}
	c.close(n, "s", "spop")
	if len(args) == 2 {
		return l.elems[0]
	}
	return Set(l.elems)
}

func srandmember(c *Ctx, args [][]byte) Reply {
	if len(args) > 3 {
		return Error(msgSyntax)
	}
	count := int64(0)
	if len(args) == 3 {
		var fail Reply
		if count, fail = signed(args[2]); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && len(args) == 3:
		return Array(nil)
	case o == nil:
		return Null
	}
	s := &o.Coll.Set
	if len(args) == 2 {
		return Bulk(s.At(c.below(s.Len())).Name)
	}
	l := collector{c: c}
	if !c.randomOffsets(count, s.Len(), func(i int) bool { return l.add(Bulk(s.At(i).Name)) }) {
		return Error(msgRepeats)
	}
	return l.reply(Array)
}

func smove(c *Ctx, args [][]byte) Reply {
	src := c.lookup(args[1])
	if src == nil {
		return Zero
	}
	dst, wrong := c.lookupType(args[2], keyspace.TypeSet)
	member := string(args[3])
	switch {
	case wrong || src.Type != keyspace.TypeSet:
		return Error(msgWrongType)
	case src == dst:
		return Bool(src.HasMember(member))
	case !src.HasMember(member):
		return Zero
	case !room(dst, 1):
		return Error(msgTooMany)
	}
	s := c.open(src, args[1], keyspace.TypeSet)
	s.Coll.DeleteMember(c.m.owner, member)
	c.close(s, "s", "srem")
	d := c.open(dst, args[2], keyspace.TypeSet)
	if d.Coll.PutMember(c.m.owner, member) {
		c.close(d, "s", "sadd")
	}
	return One
}

// sets returns the sets of the keys, with nil for a key that does not exist.
func (c *Ctx) sets(keys [][]byte) (list []*keyspace.Object, wrong bool) {
	for _, key := range keys {
		o, wrong := c.lookupType(key, keyspace.TypeSet)
		if wrong {
			return nil, true
		}
		list = append(list, o)
	}
	return list, false
}

// setOperation calls f for the members of a union, an intersection or a
// difference until f returns false.
type setOperation func(c *Ctx, list []*keyspace.Object, f func(member string) bool)

// distinct returns the sets without repetitions. A command may name more than a
// million sets.
func (c *Ctx) distinct(list []*keyspace.Object) []*keyspace.Object {
	c.charge(stepsPerKey * len(list))
	seen := make(map[*keyspace.Object]bool, len(list))
	var once []*keyspace.Object
	for _, o := range list {
		if !seen[o] {
			seen[o] = true
			once = append(once, o)
		}
	}
	return once
}

// intersect walks the smallest set and looks up each member in the others.
func intersect(c *Ctx, list []*keyspace.Object, f func(member string) bool) {
	if slices.Contains(list, nil) {
		return
	}
	list = c.distinct(list)
	c.chargeSort(len(list))
	slices.SortStableFunc(list, func(a, b *keyspace.Object) int { return a.Coll.Set.Len() - b.Coll.Set.Len() })
	list[0].Coll.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
		c.charge(1)
		for _, o := range list[1:] {
			c.charge(stepsProbe)
			if !o.HasMember(e.Name) {
				return true
			}
		}
		return f(e.Name)
	})
}

// unite adds the members of all sets to a new set and calls f for each member
// of that set. If all are sets of integers, the members come in numeric order,
// as in Redis.
func unite(c *Ctx, list []*keyspace.Object, f func(member string) bool) {
	var sum *keyspace.Collection
	owner := &container.Owner{}
	for _, o := range c.distinct(list) {
		if o == nil {
			continue
		}
		if sum == nil {
			v := *o.Coll
			sum = &v // unite uses its own owner, so the set in the database is not changed
			continue
		}
		o.Coll.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
			c.charge(stepsPut)
			c.hold(keyspace.ElementOverhead + len(e.Name))
			sum.PutMember(owner, e.Name)
			return true
		})
	}
	if sum != nil {
		sum.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
			c.charge(1)
			return f(e.Name)
		})
	}
}

func subtract(c *Ctx, list []*keyspace.Object, f func(member string) bool) {
	if list[0] == nil {
		return
	}
	in := inAny(c, c.distinct(list[1:]), list[0].Members())
	list[0].Coll.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
		c.charge(1)
		return in(e.Name) || f(e.Name)
	})
}

func sinter(c *Ctx, args [][]byte) Reply { return c.setReply(args[1:], intersect) }
func sunion(c *Ctx, args [][]byte) Reply { return c.setReply(args[1:], unite) }
func sdiff(c *Ctx, args [][]byte) Reply  { return c.setReply(args[1:], subtract) }

func (c *Ctx) setReply(keys [][]byte, operation setOperation) Reply {
	list, wrong := c.sets(keys)
	if wrong {
		return Error(msgWrongType)
	}
	l := collector{c: c}
	operation(c, list, func(member string) bool { return l.add(Bulk(member)) })
	return l.reply(Set)
}

func sinterstore(c *Ctx, args [][]byte) Reply { return c.setStore(args, "sinterstore", intersect) }
func sunionstore(c *Ctx, args [][]byte) Reply { return c.setStore(args, "sunionstore", unite) }
func sdiffstore(c *Ctx, args [][]byte) Reply  { return c.setStore(args, "sdiffstore", subtract) }

func (c *Ctx) setStore(args [][]byte, event string, operation setOperation) Reply {
	list, wrong := c.sets(args[2:])
	if wrong {
		return Error(msgWrongType)
	}
	n := c.open(nil, args[1], keyspace.TypeSet)
	full := false
	operation(c, list, func(member string) bool {
		c.charge(stepsPut)
		n.Coll.PutMember(c.m.owner, member)
		full = n.Coll.Set.Len() > keyspace.MaxElements
		return !full
	})
	if full {
		return Error(msgTooMany)
	}
	return c.storeResult(n, "s", event)
}

// storeResult stores a computed collection and replaces any old value of its
// key. It returns the number of elements.
func (c *Ctx) storeResult(n *keyspace.Object, class, event string) Reply {
	size := n.Coll.Len(n.Type)
	if size > 0 {
		c.assign(n)
		c.notify(class, event, n.Key)
	} else if old := c.lookup([]byte(n.Key)); old != nil {
		c.delete(old)
	}
	return Int(int64(size))
}

// numberedKeys returns the positions of the keys whose number is the argument
// at position at, or nil if the arguments are not valid.
func numberedKeys(args [][]byte, at int) []int {
	if len(args) <= at {
		return nil
	}
	n, ok := number.ParseInt(args[at])
	if !ok || n < 1 || n > int64(len(args)-at-1) {
		return nil
	}
	pos := make([]int, n)
	for i := range pos {
		pos[i] = at + 1 + i
	}
	return pos
}

func sintercardKeys(args [][]byte) []int { return numberedKeys(args, 1) }

func sintercard(c *Ctx, args [][]byte) Reply {
	n, ok := number.ParseInt(args[1])
	switch {
	case !ok || n < 1:
		return Error(msgNumKeysLow)
	case n > int64(len(args)-2):
		return Error(msgNumKeysHigh)
	}
	limit := int64(0)
	for i := 2 + int(n); i < len(args); i += 2 {
		if !fold(args[i], "LIMIT") || i+1 == len(args) {
			return Error(msgSyntax)
		}
		var fail Reply
		if limit, fail = positive(args[i+1], msgLimitNeg); fail.IsError() {
			return fail
		}
	}
	list, wrong := c.sets(args[2 : 2+n])
	if wrong {
		return Error(msgWrongType)
	}
	found := int64(0)
	intersect(c, list, func(string) bool {
		found++
		return found != limit
	})
	return Int(found)
}

func sscan(c *Ctx, args [][]byte) Reply {
	return c.scanCollection(args, keyspace.TypeSet, func(o *keyspace.Object, s *elementScan) {
		scanDict(&o.Coll.Set, s, o.Coll.Big, func(*container.Item[struct{}]) Reply { return None })
	})
}
