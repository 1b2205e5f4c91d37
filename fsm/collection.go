package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// Limits of collections. They apply in addition to the limits of keys and
// values: a hash field has at most MaxKeyBytes bytes, because a field and its
// value must fit into one block of a snapshot. List elements, members and hash
// values have at most MaxStringBytes bytes.
const (
	// MaxArguments is the largest number of arguments of one write command.
	MaxArguments = 1 << 20
)

// stepsFind returns the cost of finding a name in d, in steps.
func stepsFind[V any](d *container.Dict[V]) int {
	if d.Order == container.ByArrival {
		return 1 + d.Len()/4
	}
	return stepsProbe
}

// lookupType looks up a key as lookup does and also reports whether the value
// has another type than t.
func (c *Ctx) lookupType(key []byte, t keyspace.Type) (o *keyspace.Object, wrongType bool) {
	o = c.lookup(key)
	return o, o != nil && o.Type != t
}

// open returns a copy of o, or a new object of type t for key if o is nil. The
// caller may change the collection of the copy, with the machine's owner, and
// must then pass the copy to close. The changes are made in place in the nodes
// that o has too, so o must not be used afterward.
func (c *Ctx) open(o *keyspace.Object, key []byte, t keyspace.Type) *keyspace.Object {
	c.change()
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

// close stores an object whose collection was changed and publishes the event.
// If the collection is empty, close removes the key instead.
func (c *Ctx) close(o *keyspace.Object, class, event string) {
	if o.Coll.Len(o.Type) > 0 {
		c.assign(o)
		c.notify(class, event, o.Key)
		return
	}
	c.remove(o)
	c.notify(class, event, o.Key)
	c.notify("g", "del", o.Key)
}

// removeElements executes HDEL, SREM or ZREM. args are the command, the key and
// the names of the elements. remove removes one element from the collection of
// type t, charges for it, and reports whether the collection contained it.
func (c *Ctx) removeElements(
	args [][]byte, t keyspace.Type, class, event string, remove func(v *keyspace.Collection, name string) bool,
) Reply {
	o, wrong := c.lookupType(args[1], t)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	n := c.open(o, args[1], t)
	gone := int64(0)
	for _, arg := range args[2:] {
		if remove(n.Coll, codec.View(arg)) {
			gone++
		}
	}
	if gone > 0 {
		c.close(n, class, event)
	}
	return Int(gone)
}

// randomElements executes HRANDFIELD or ZRANDMEMBER. option is the option that
// adds the value or the score to each element. add adds the element at position
// i to a reply, and reports whether the reply may still grow.
func (c *Ctx) randomElements(
	args [][]byte, t keyspace.Type, option string,
	add func(l *collector, v *keyspace.Collection, i int, with bool) bool,
) Reply {
	var count int64
	var with bool
	if len(args) > 2 {
		var fail Reply
		if count, with, fail = randomCount(args, option); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], t)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && len(args) > 2:
		return Array(nil)
	case o == nil:
		return Null
	}
	l := collector{c: c}
	if len(args) == 2 {
		l.c = nil // a single element is not charged
		add(&l, o.Coll, c.below(o.Coll.Len(t)), false)
		return l.elems[0]
	}
	drawn := c.randomOffsets(count, o.Coll.Len(t), func(i int) bool { return add(&l, o.Coll, i, with) })
	if !drawn {
		return Error(msgRepeats)
	}
	return l.reply(Array)
}

// disown gives the machine a new owner, so that the machine copies the nodes of
// its collections before it changes them. A command must call disown when it
// makes two values share nodes: otherwise a change of one value would also
// change the other.
func (m *Machine) disown() { m.owner = &container.Owner{} }

const msgTooMany = "ERR collection exceeds maximum allowed size"

// room reports whether n more elements fit into o, which may be nil.
func room(o *keyspace.Object, n int) bool {
	return o == nil || o.Coll.Len(o.Type) <= keyspace.MaxElements-n
}

// collector collects the elements of a reply and stops when the reply exceeds
// its maximum size. It charges the elements to c, unless c is nil.
type collector struct {
	c     *Ctx
	elems []Reply
	size  int
}

// add adds an element and reports whether the reply may still grow.
func (l *collector) add(r Reply) bool {
	if l.c != nil {
		l.c.charge(1 + len(r.elems))
		l.c.hold(replyBytes * (1 + len(r.elems)))
	}
	l.elems = append(l.elems, r)
	l.size += len(r.s) + len("$1\r\n\r\n")
	for i := range r.elems {
		l.size += len(r.elems[i].s) + len("$1\r\n\r\n")
	}
	return !l.over()
}

func (l *collector) over() bool { return l.size > MaxReplyBytes }

func (l *collector) reply(form func([]Reply) Reply) Reply {
	if l.over() {
		return Error(ReplyTooLarge)
	}
	return form(l.elems)
}

// sample draws k distinct numbers below n and calls f with each. k must be at
// most n. The numbers come in no particular order. The algorithm is Floyd's.
func (c *Ctx) sample(k, n int, f func(i int) bool) {
	taken := make(map[int]bool, min(k, 1024))
	for j := n - k; j < n; j++ {
		c.charge(stepsDraw)
		i := c.below(j + 1)
		if taken[i] {
			i = j
		}
		taken[i] = true
		if !f(i) {
			return
		}
	}
}

// below returns a random number from 0 to n-1.
func (c *Ctx) below(n int) int { return int(c.random() % uint64(n)) }

// maxRepeats is the largest number of elements that one call draws with
// repetitions. Without the limit, a call could ask for any number of elements
// of a collection that has only one.
const (
	maxRepeats = 1 << 18
	msgRepeats = "ERR more than 262144 elements with repetitions, ask for less at a time"
)

// randomOffsets draws count of n positions and calls f with each. If count is
// negative, it draws -count positions with repetitions. It reports false if
// count exceeds maxRepeats.
func (c *Ctx) randomOffsets(count int64, n int, f func(i int) bool) bool {
	switch {
	case count < -maxRepeats:
		return false
	case count < 0:
		for ; count < 0 && f(c.below(n)); count++ {
			c.charge(stepsDraw)
		}
	case count >= int64(n):
		for i := 0; i < n && f(i); i++ {
			c.charge(stepsDraw)
		}
	default:
		c.sample(int(count), n, f)
	}
	return true
}
