package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var setCommands = []fsm.Command{
	{
		Name: "sadd", Run: sadd, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 80, PerArgument: stepsMember},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with " +
			"multiple arguments.",
		Syntax:  "key member [member ...]",
		Doc:     "Add one or more members to a set",
		History: []fsm.Change{{Since: "2.4.0", What: "Accepts multiple `member` arguments."}},
	},
	{
		Name: "srem", Run: srem, Arity: -3, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 80, PerArgument: stepsMember},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the number of members to be removed.",
		Syntax:     "key member [member ...]",
		Doc:        "Remove one or more members from a set",
		History:    []fsm.Change{{Since: "2.4.0", What: "Accepts multiple `member` arguments."}},
	},
	{
		Name: "scard", Run: scard, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the number of members in a set",
	},
	{
		Name: "sismember", Run: sismember, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key member",
		Doc:        "Determine if a given value is a member of a set",
	},
	{
		Name: "smismember", Run: smismember, Arity: -3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "6.2.0",
		Complexity: "O(N) where N is the number of elements being checked for membership",
		Syntax:     "key member [member ...]",
		Doc:        "Returns the membership associated with the given elements for a set",
	},
	{
		Name: "smembers", Run: smembers, Arity: 2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the set cardinality.",
		Syntax:     "key",
		Doc:        "Get all the members in a set",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "spop", Run: spop, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: popWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "set", Since: "1.0.0",
		Complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
		Syntax:     "key [count]",
		Doc:        "Remove and return one or multiple random members from a set",
		Tips:       []string{"nondeterministic_output"},
		History:    []fsm.Change{{Since: "3.2.0", What: "Added the `count` argument."}},
	},
	{
		Name: "srandmember", Run: srandmember, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed " +
			"count.",
		Syntax:  "key [count]",
		Doc:     "Get one or multiple random members from a set",
		Tips:    []string{"nondeterministic_output"},
		History: []fsm.Change{{Since: "2.6.0", What: "Added the optional `count` argument."}},
	},
	{
		Name: "smove", Run: smove, Arity: 4, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 368},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "source destination member",
		Doc:        "Move a member from one set to another",
	},
	{
		Name: "sinter", Run: sinter, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "key [key ...]",
		Doc:        "Intersect multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sintercard", Run: sintercard, Arity: -3, Flags: fsm.ReadOnly | fsm.MovableKeys,
		KeysOf: sintercardKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "set", Since: "7.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "numkeys key [key ...] [LIMIT limit]",
		Doc:        "Intersect multiple sets and return the cardinality of the result",
	},
	{
		Name: "sunion", Run: sunion, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "key [key ...]",
		Doc:        "Add multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sdiff", Run: sdiff, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "key [key ...]",
		Doc:        "Subtract multiple sets",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "sinterstore", Run: sinterstore, Arity: -3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: setStoreWork},
		Keys: fsm.KeysAt(1, -1, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"}},
			{Keys: fsm.KeysAt(2, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Intersect multiple sets and store the resulting set in a key",
	},
	{
		Name: "sunionstore", Run: sunionstore, Arity: -3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: setStoreWork},
		Keys: fsm.KeysAt(1, -1, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.KeysAt(2, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Add multiple sets and store the resulting set in a key",
	},
	{
		Name: "sdiffstore", Run: sdiffstore, Arity: -3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: setStoreWork},
		Keys: fsm.KeysAt(1, -1, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.KeysAt(2, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "set", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of elements in all given sets.",
		Syntax:     "destination key [key ...]",
		Doc:        "Subtract multiple sets and store the resulting set in a key",
	},
	{
		Name: "sscan", Run: sscan, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
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

func sadd(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case !room(o, len(args)-2):
		return fsm.Error(msgTooMany)
	}
	n := open(c, o, args[1], keyspace.TypeSet)
	added := int64(0)
	for _, arg := range args[2:] {
		c.Charge(fsm.StepsPut)
		if n.Coll.PutMember(c.Owner(), string(arg)) {
			added++
		}
	}
	if added > 0 {
		storeOrRemove(c, n, "s", "sadd")
	}
	return fsm.Int(added)
}

func srem(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return removeElements(c, args, keyspace.TypeSet, "s", "srem", func(v *keyspace.Collection, member string) bool {
		c.Charge(fsm.StepsPut)
		return v.DeleteMember(c.Owner(), member)
	})
}

func scard(c *fsm.Ctx, args [][]byte) fsm.Reply { return size(c, args[1], keyspace.TypeSet) }

func sismember(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return fsm.Bool(o.HasMember(codec.View(args[2])))
}

func smismember(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var found []fsm.Reply
	for _, arg := range args[2:] {
		c.Charge(fsm.StepsProbe)
		found = append(found, fsm.Bool(o.HasMember(codec.View(arg))))
	}
	return fsm.Array(found)
}

func smembers(c *fsm.Ctx, args [][]byte) fsm.Reply { return sinter(c, args) }

func spop(c *fsm.Ctx, args [][]byte) fsm.Reply {
	count, fail := popCount(args)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && len(args) == 3, count == 0:
		return fsm.Set(nil)
	case o == nil:
		return fsm.Null
	}
	l := collector{c: c}
	s := &o.Coll.Set
	randomOffsets(c, count, s.Len(), func(i int) bool { return l.add(fsm.Bulk(s.At(i).Name)) })
	if l.over() { // the reply is too large, so the set is not changed
		return fsm.Error(fsm.ReplyTooLarge)
	}
	n := open(c, o, args[1], keyspace.TypeSet)
	switch {
	case len(l.elems) == s.Len():
		n.Coll.Set = container.Dict[struct{}]{}
	case n.Coll.Big && keyspace.Rebuild(len(l.elems), s.Len()):
		c.Charge(stepsBuild * s.Len())
		popped := make(map[string]bool, len(l.elems))
		for i := range l.elems {
			popped[l.elems[i].Text()] = true
		}
		kept := slices.DeleteFunc(s.Slice(0, s.Len()), func(m member) bool { return popped[m.Name] })
		n.Coll.Set.Seq = container.SeqOf(c.Owner(), kept)
	default:
		for _, r := range l.elems {
			c.Charge(fsm.StepsPut)
			n.Coll.Set.Remove(c.Owner(), r.Text())
		}
	}
	storeOrRemove(c, n, "s", "spop")
	if len(args) == 2 {
		return l.elems[0]
	}
	return fsm.Set(l.elems)
}

func srandmember(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args) > 3 {
		return fsm.Error(fsm.MsgSyntax)
	}
	count := int64(0)
	if len(args) == 3 {
		var fail fsm.Reply
		if count, fail = signed(args[2]); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && len(args) == 3:
		return fsm.Array(nil)
	case o == nil:
		return fsm.Null
	}
	s := &o.Coll.Set
	if len(args) == 2 {
		return fsm.Bulk(s.At(below(c, s.Len())).Name)
	}
	l := collector{c: c}
	if !randomOffsets(c, count, s.Len(), func(i int) bool { return l.add(fsm.Bulk(s.At(i).Name)) }) {
		return fsm.Error(msgRepeats)
	}
	return l.reply(fsm.Array)
}

func smove(c *fsm.Ctx, args [][]byte) fsm.Reply {
	src := c.Lookup(args[1])
	if src == nil {
		return fsm.Zero
	}
	dst, wrong := c.LookupType(args[2], keyspace.TypeSet)
	member := string(args[3])
	switch {
	case wrong || src.Type != keyspace.TypeSet:
		return fsm.Error(fsm.MsgWrongType)
	case src == dst:
		return fsm.Bool(src.HasMember(member))
	case !src.HasMember(member):
		return fsm.Zero
	case !room(dst, 1):
		return fsm.Error(msgTooMany)
	}
	s := open(c, src, args[1], keyspace.TypeSet)
	s.Coll.DeleteMember(c.Owner(), member)
	storeOrRemove(c, s, "s", "srem")
	d := open(c, dst, args[2], keyspace.TypeSet)
	if d.Coll.PutMember(c.Owner(), member) {
		storeOrRemove(c, d, "s", "sadd")
	}
	return fsm.One
}

// sets returns the sets of the keys, with nil for a key that does not exist.
func sets(c *fsm.Ctx, keys [][]byte) (list []*keyspace.Object, wrong bool) {
	for _, key := range keys {
		o, wrong := c.LookupType(key, keyspace.TypeSet)
		if wrong {
			return nil, true
		}
		list = append(list, o)
	}
	return list, false
}

// member is a member of a set, with its hash.
type member = container.Item[struct{}]

// setOperation calls f for the members of a union, an intersection or a
// difference until f returns false.
type setOperation func(c *fsm.Ctx, list []*keyspace.Object, f func(m *member) bool)

// distinct returns the sets without repetitions. A command may name more than a
// million sets.
func distinct(c *fsm.Ctx, list []*keyspace.Object) []*keyspace.Object {
	c.Charge(fsm.StepsPerKey * len(list))
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
func intersect(c *fsm.Ctx, list []*keyspace.Object, f func(m *member) bool) {
	if slices.Contains(list, nil) {
		return
	}
	list = distinct(c, list)
	chargeSort(c, len(list))
	slices.SortStableFunc(list, func(a, b *keyspace.Object) int { return a.Coll.Set.Len() - b.Coll.Set.Len() })
	list[0].Coll.Set.Ascend(0, func(e *member) bool {
		c.Charge(1)
		for _, o := range list[1:] {
			c.Charge(fsm.StepsProbe)
			if !o.HasMember(e.Name) {
				return true
			}
		}
		return f(e)
	})
}

// unite calls f for the members of all sets. If all sets have the encoding of
// small sets of integers, and the union is small enough for this encoding too,
// the members come in numeric order, as in Redis.
func unite(c *fsm.Ctx, list []*keyspace.Object, f func(m *member) bool) {
	list = slices.DeleteFunc(distinct(c, list), func(o *keyspace.Object) bool { return o == nil })
	large := slices.ContainsFunc(list, func(o *keyspace.Object) bool { return keyspace.LargeSet(o.Coll.Set.Len()) })
	switch {
	case !large:
		uniteSmall(c, list, f)
	case len(list) == 1:
		list[0].Coll.Set.Ascend(0, func(e *member) bool {
			c.Charge(1)
			return f(e)
		})
	default: // the union is large, so its members are in the order of their hashes
		all := merged(c, list)
		for i := range all {
			c.Charge(1)
			if !f(&all[i]) {
				return
			}
		}
	}
}

// uniteSmall adds the members of all sets to a new set and calls f for each
// member of that set.
func uniteSmall(c *fsm.Ctx, list []*keyspace.Object, f func(m *member) bool) {
	var sum *keyspace.Collection
	owner := &container.Owner{}
	for _, o := range list {
		if sum == nil {
			v := *o.Coll
			sum = &v // changes use a new owner, so they do not affect the set in the database
			continue
		}
		o.Coll.Set.Ascend(0, func(e *member) bool {
			c.Charge(fsm.StepsPut)
			c.ChargeMemory(keyspace.ElementOverhead + len(e.Name))
			sum.PutMember(owner, e.Name)
			return true
		})
	}
	if sum != nil {
		sum.Set.Ascend(0, func(e *member) bool {
			c.Charge(1)
			return f(e)
		})
	}
}

// merged returns the members of all sets in the order of their hashes, without
// repetitions.
func merged(c *fsm.Ctx, list []*keyspace.Object) []member {
	if len(list) == 1 {
		s := &list[0].Coll.Set
		c.Charge(stepsMerge * s.Len())
		c.ChargeMemory(keyspace.ElementOverhead * s.Len())
		all := s.Slice(0, s.Len())
		if s.Order != container.ByHash {
			slices.SortFunc(all, func(a, b member) int { return a.Compare(&b) })
		}
		return all
	}
	a, b := merged(c, list[:len(list)/2]), merged(c, list[len(list)/2:])
	c.Charge(stepsMerge * (len(a) + len(b)))
	c.ChargeMemory(keyspace.ElementOverhead * (len(a) + len(b)))
	all := make([]member, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch a[0].Compare(&b[0]) {
		case -1:
			all, a = append(all, a[0]), a[1:]
		case 1:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}

func subtract(c *fsm.Ctx, list []*keyspace.Object, f func(m *member) bool) {
	if list[0] == nil {
		return
	}
	in := inAny(c, distinct(c, list[1:]), list[0].Members())
	list[0].Coll.Set.Ascend(0, func(e *member) bool {
		c.Charge(1)
		return in(e.Name) || f(e)
	})
}

func sinter(c *fsm.Ctx, args [][]byte) fsm.Reply { return setReply(c, args[1:], intersect) }
func sunion(c *fsm.Ctx, args [][]byte) fsm.Reply { return setReply(c, args[1:], unite) }
func sdiff(c *fsm.Ctx, args [][]byte) fsm.Reply  { return setReply(c, args[1:], subtract) }

func setReply(c *fsm.Ctx, keys [][]byte, operation setOperation) fsm.Reply {
	list, wrong := sets(c, keys)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	l := collector{c: c}
	operation(c, list, func(m *member) bool { return l.add(fsm.Bulk(m.Name)) })
	return l.reply(fsm.Set)
}

func sinterstore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return setStore(c, args, "sinterstore", intersect)
}
func sunionstore(c *fsm.Ctx, args [][]byte) fsm.Reply { return setStore(c, args, "sunionstore", unite) }
func sdiffstore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return setStore(c, args, "sdiffstore", subtract)
}

func setStore(c *fsm.Ctx, args [][]byte, event string, operation setOperation) fsm.Reply {
	list, wrong := sets(c, args[2:])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	n := open(c, nil, args[1], keyspace.TypeSet)
	if o := list[0]; len(list) == 1 && o != nil && keyspace.LargeSet(o.Coll.Set.Len()) {
		// The result is the source itself. It has the encoding of large values,
		// because every set of this size has it.
		n.Coll.Big, n.Coll.Set = true, o.Coll.Set
		c.Disown() // o and n share tree nodes now
		return storeResult(c, n, "s", event)
	}
	var members []member
	operation(c, list, func(m *member) bool {
		c.Charge(stepsBuild)
		members = append(members, *m)
		return len(members) <= keyspace.MaxElements
	})
	if len(members) > keyspace.MaxElements {
		return fsm.Error(msgTooMany)
	}
	n.Coll.FillSet(c.Owner(), members)
	return storeResult(c, n, "s", event)
}

// storeResult stores a computed collection and replaces any old value of its
// key. It returns the number of elements.
func storeResult(c *fsm.Ctx, n *keyspace.Object, class, event string) fsm.Reply {
	size := n.Coll.Len(n.Type)
	if size > 0 {
		c.Assign(n)
		c.Notify(class, event, n.Key)
	} else if old := c.Lookup([]byte(n.Key)); old != nil {
		c.Delete(old)
	}
	return fsm.Int(int64(size))
}

// numberedKeys returns the positions of the keys of a command with the argument
// numkeys. The parameter at is the position of numkeys, and the keys follow it.
// numberedKeys returns nil if the arguments are not valid.
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

func sintercard(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, ok := number.ParseInt(args[1])
	switch {
	case !ok || n < 1:
		return fsm.Error(msgNumKeysLow)
	case n > int64(len(args)-2):
		return fsm.Error(msgNumKeysHigh)
	}
	limit := int64(0)
	for i := 2 + int(n); i < len(args); i += 2 {
		if !fsm.IsWord(args[i], "LIMIT") || i+1 == len(args) {
			return fsm.Error(fsm.MsgSyntax)
		}
		var fail fsm.Reply
		if limit, fail = positive(args[i+1], msgLimitNeg); fail.IsError() {
			return fail
		}
	}
	list, wrong := sets(c, args[2:2+n])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	found := int64(0)
	intersect(c, list, func(*member) bool {
		found++
		return found != limit
	})
	return fsm.Int(found)
}

func sscan(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return scanCollection(c, args, keyspace.TypeSet, func(o *keyspace.Object, s *elementScan) {
		scanDict(&o.Coll.Set, s, o.Coll.Big, func(*container.Item[struct{}]) fsm.Reply { return fsm.None })
	})
}
