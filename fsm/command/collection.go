package command

import (
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// stepsFind returns the cost of finding a name in d, in steps.
func stepsFind[V any](d *container.Dict[V]) int {
	if d.Order == container.ByArrival {
		return 1 + d.Len()/4
	}
	return fsm.StepsProbe
}

// open returns a copy of o, or a new object of type t for key if o is nil. The
// caller may change the collection of the copy, passing c.Owner() to the
// methods that change it, and must then store the copy, for example with
// storeOrRemove. The copy shares tree nodes with o, and a change of the copy
// may change these nodes in place. So o must not be used after a change.
func open(c *fsm.Ctx, o *keyspace.Object, key []byte, t keyspace.Type) *keyspace.Object {
	c.Change()
	if o == nil {
		n := keyspace.NewObject(key, nil)
		n.Type, n.Coll = t, keyspace.NewCollection(t)
		return n
	}
	n := *o
	v := *o.Coll
	n.Coll = &v
	return &n
}

// storeOrRemove stores an object whose collection was changed, and publishes the
// event. If the collection is empty, storeOrRemove removes the key instead, and
// publishes the event and then del.
func storeOrRemove(c *fsm.Ctx, o *keyspace.Object, class, event string) {
	if o.Coll.Len(o.Type) > 0 {
		c.Assign(o)
		c.Notify(class, event, o.Key)
		return
	}
	c.Remove(o)
	c.Notify(class, event, o.Key)
	c.Notify("g", "del", o.Key)
}

// removeElements executes HDEL, SREM or ZREM. args are the command, the key and
// the names of the elements. remove removes one element from the collection of
// type t, charges for it, and reports whether the collection contained it.
func removeElements(c *fsm.Ctx,
	args [][]byte, t keyspace.Type, class, event string, remove func(v *keyspace.Collection, name string) bool,
) fsm.Reply {
	o, wrong := c.LookupType(args[1], t)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	n := open(c, o, args[1], t)
	gone := int64(0)
	for _, arg := range args[2:] {
		if remove(n.Coll, codec.View(arg)) {
			gone++
		}
	}
	if gone > 0 {
		storeOrRemove(c, n, class, event)
	}
	return fsm.Int(gone)
}

// randomElements executes HRANDFIELD or ZRANDMEMBER. option is the option that
// adds the value or the score to each element. add adds the element at position
// i to a reply, and reports whether the reply may still grow.
func randomElements(c *fsm.Ctx,
	args [][]byte, t keyspace.Type, option string,
	add func(l *collector, v *keyspace.Collection, i int, with bool) bool,
) fsm.Reply {
	var count int64
	var with bool
	if len(args) > 2 {
		var fail fsm.Reply
		if count, with, fail = randomCount(args, option); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.LookupType(args[1], t)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && len(args) > 2:
		return fsm.Array(nil)
	case o == nil:
		return fsm.Null
	}
	l := collector{c: c}
	if len(args) == 2 {
		l.c = nil // a single element is not charged
		add(&l, o.Coll, below(c, o.Coll.Len(t)), false)
		return l.elems[0]
	}
	drawn := randomOffsets(c, count, o.Coll.Len(t), func(i int) bool { return add(&l, o.Coll, i, with) })
	if !drawn {
		return fsm.Error(msgRepeats)
	}
	return l.reply(fsm.Array)
}

const msgTooMany = "ERR collection exceeds maximum allowed size"

// room reports whether n more elements fit into o, which may be nil.
func room(o *keyspace.Object, n int) bool {
	return o == nil || o.Coll.Len(o.Type) <= keyspace.MaxElements-n
}

// collector collects the elements of a reply, and compares their size with the
// maximum size of a reply. It charges the elements to c, unless c is nil.
type collector struct {
	c     *fsm.Ctx
	elems []fsm.Reply
	size  int
}

// add adds an element and reports whether the reply may still grow.
func (l *collector) add(r fsm.Reply) bool {
	if l.c != nil {
		l.c.Charge(1 + len(r.Elems()))
		l.c.ChargeMemory(replyBytes * (1 + len(r.Elems())))
	}
	l.elems = append(l.elems, r)
	l.size += r.Charged()
	return !l.over()
}

func (l *collector) over() bool { return l.size > fsm.MaxReplyBytes }

func (l *collector) reply(form func([]fsm.Reply) fsm.Reply) fsm.Reply {
	if l.over() {
		return fsm.Error(fsm.ReplyTooLarge)
	}
	return form(l.elems)
}

// sample draws k distinct numbers below n and calls f with each until f returns
// false. k must be at most n. The numbers come in no particular order. sample
// uses Floyd's algorithm.
func sample(c *fsm.Ctx, k, n int, f func(i int) bool) {
	taken := make(map[int]bool, min(k, 1024))
	for j := n - k; j < n; j++ {
		c.Charge(stepsDraw)
		i := below(c, j+1)
		if taken[i] {
			i = j
		}
		taken[i] = true
		if !f(i) {
			return
		}
	}
}

// below returns a random number that is at least 0 and less than n.
func below(c *fsm.Ctx, n int) int { return int(c.Random() % uint64(n)) }

// maxRepeats is the maximum number of elements that one call may draw with
// repetitions. Without the limit, a call could ask for any number of elements
// of a collection that has only one.
const (
	maxRepeats = 1 << 18
	msgRepeats = "ERR more than 262144 elements with repetitions, ask for less at a time"
)

// randomOffsets draws count distinct positions below n, or all n if count is
// higher, and calls f with each until f returns false. If count is negative, it
// draws -count positions, which may repeat. It reports false if -count exceeds
// maxRepeats.
func randomOffsets(c *fsm.Ctx, count int64, n int, f func(i int) bool) bool {
	switch {
	case count < -maxRepeats:
		return false
	case count < 0:
		for ; count < 0 && f(below(c, n)); count++ {
			c.Charge(stepsDraw)
		}
	case count >= int64(n):
		for i := 0; i < n && f(i); i++ {
			c.Charge(stepsDraw)
		}
	default:
		sample(c, int(count), n, f)
	}
	return true
}
