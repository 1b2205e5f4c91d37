package fsm

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// Limits of collections. They apply in addition to the limits of keys and
// values: a hash field has at most MaxKeyBytes bytes, because a field and its
// value must fit into one block of a snapshot. List elements, members and hash
// values have at most MaxStringBytes bytes.
const (
	// MaxElements is the largest number of elements of one collection. A
	// command that would exceed it fails. The limit of Redis is 2^32-1.
	MaxElements = 1 << 26
	// MaxArguments is the largest number of arguments of one write command.
	MaxArguments = 1 << 20
)

// Limits of the compact encodings of Redis. A value that exceeds one of them
// gets the encoding of large values and keeps it, even if the value shrinks
// again.
const (
	compactFields  = 512 // fields of a hash
	compactMembers = 128 // members of a sorted set
	compactBytes   = 64  // bytes of each name and value
	intsetEntries  = 512
)

// collection is the value of a key that is not a string. An object uses only
// the fields of its type. The nodes of the sequences belong to an owner and may
// be shared with other collections: see Ctx.open.
type collection struct {
	// big is set if the value has exceeded the limits of the compact encoding.
	// The encoding decides the order of the elements.
	big bool

	hash  container.Dict[string]
	list  container.Seq[string]
	set   container.Dict[struct{}]
	score container.Dict[float64]         // of a sorted set, by member
	order container.Seq[container.Scored] // of a sorted set, by score

	stream stream.Stream
}

// stepsFind returns the cost of finding a name in d, in steps.
func stepsFind[V any](d *container.Dict[V]) int {
	if d.Order == container.ByArrival {
		return 1 + d.Len()/4
	}
	return stepsProbe
}

func newCollection(t typ) *collection {
	v := &collection{}
	switch t {
	case typeHash:
		v.hash.Order = container.ByArrival
	case typeSet:
		v.set.Order = container.ByNumber
	}
	return v
}

// Len returns the number of elements of a value of type t.
func (v *collection) Len(t typ) int {
	switch t {
	case typeHash:
		return v.hash.Len()
	case typeList:
		return v.list.Len()
	case typeSet:
		return v.set.Len()
	case typeStream:
		return v.stream.Entries.Len()
	}
	return v.order.Len()
}

// encoding returns the name of the encoding that Redis would use for the value.
func (o *object) encoding() string {
	switch {
	case o.typ == typeList:
		return "quicklist"
	case o.typ == typeStream:
		return "stream"
	case o.typ == typeZSet && o.coll.big:
		return "skiplist"
	case o.coll.big:
		return "hashtable"
	case o.typ == typeSet:
		return "intset"
	}
	return "listpack"
}

// grow converts a value to the encoding of large values.
func (v *collection) grow(o *container.Owner, t typ) {
	if v.big {
		return
	}
	v.big = true
	switch t {
	case typeHash:
		v.hash.Rehash(o)
	case typeSet:
		v.set.Rehash(o)
	}
}

func (v *collection) putField(o *container.Owner, field, value string) (added bool) {
	if len(field) > compactBytes || len(value) > compactBytes {
		v.grow(o, typeHash)
	}
	added = v.hash.Put(o, field, value)
	if v.hash.Len() > compactFields {
		v.grow(o, typeHash)
	}
	return added
}

func (v *collection) putMember(o *container.Owner, member string) (added bool) {
	if _, ok := number.ParseInt([]byte(member)); !ok {
		v.grow(o, typeSet)
	}
	if _, ok := v.set.Find(member); ok {
		return false
	}
	v.set.Put(o, member, struct{}{})
	if v.set.Len() > intsetEntries {
		v.grow(o, typeSet)
	}
	return true
}

// putScore sets the score of a member and replaces the old score if there is
// one.
func (v *collection) putScore(o *container.Owner, member string, score float64) {
	i, ok := v.score.Find(member)
	if !ok && (v.order.Len() >= compactMembers || len(member) > compactBytes) {
		v.big = true
	}
	if !v.big && score == 0 {
		score = 0 // the compact encoding of Redis does not preserve -0
	}
	if ok {
		e := v.score.At(i)
		v.order.Delete(o, v.rank(container.Scored{Score: e.Value, Member: e.Name}))
		e.Value = score
		v.score.Set(o, i, e)
		n := container.Scored{Score: score, Member: e.Name}
		v.order.Insert(o, v.rank(n), n)
		return
	}
	member = strings.Clone(member)
	v.score.Put(o, member, score)
	n := container.Scored{Score: score, Member: member}
	v.order.Insert(o, v.rank(n), n)
}

// compactScores converts a sorted set to the compact encoding if its members
// are few and short enough.
func (v *collection) compactScores(o *container.Owner) {
	if v.order.Len() > compactMembers {
		return
	}
	small := newCollection(typeZSet)
	v.order.Ascend(0, func(m *container.Scored) bool {
		small.putScore(o, m.Member, m.Score)
		return !small.big
	})
	if !small.big {
		*v = *small
	}
}

// rank returns the position of a member in the order of scores.
func (v *collection) rank(m container.Scored) int {
	return v.order.Search(func(e *container.Scored) bool { return e.Compare(&m) < 0 })
}

func (v *collection) delScore(o *container.Owner, member string) bool {
	score, ok := v.score.Get(member)
	if ok {
		v.score.Remove(o, member)
		v.order.Delete(o, v.rank(container.Scored{Score: score, Member: member}))
	}
	return ok
}

// lookupType looks up a key as lookup does and also reports whether the value
// has another type than t.
func (c *Ctx) lookupType(key []byte, t typ) (o *object, wrongType bool) {
	o = c.lookup(key)
	return o, o != nil && o.typ != t
}

// open returns a copy of o, or a new object of type t for key if o is nil. The
// caller may change the collection of the copy, with the machine's owner, and
// must then pass the copy to close. The changes are made in place in the nodes
// that o has too, so o must not be used afterward.
func (c *Ctx) open(o *object, key []byte, t typ) *object {
	c.change()
	if o == nil {
		n := newObject(key, nil)
		n.typ, n.coll = t, newCollection(t)
		return n
	}
	n := *o
	v := *o.coll
	n.coll = &v
	return &n
}

// close stores an object whose collection was changed and publishes the event.
// If the collection is empty, close removes the key instead.
func (c *Ctx) close(o *object, class, event string) {
	if o.coll.Len(o.typ) > 0 {
		c.assign(o)
		c.notify(class, event, o.key)
		return
	}
	c.remove(o)
	c.notify(class, event, o.key)
	c.notify("g", "del", o.key)
}

// removeElements executes HDEL, SREM or ZREM. args are the command, the key and
// the names of the elements. remove removes one element from the collection of
// type t, charges for it, and reports whether the collection contained it.
func (c *Ctx) removeElements(
	args [][]byte, t typ, class, event string, remove func(v *collection, name string) bool,
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
		if remove(n.coll, codec.View(arg)) {
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
	args [][]byte, t typ, option string, add func(l *collector, v *collection, i int, with bool) bool,
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
		add(&l, o.coll, c.below(o.coll.Len(t)), false)
		return l.elems[0]
	}
	drawn := c.randomOffsets(count, o.coll.Len(t), func(i int) bool { return add(&l, o.coll, i, with) })
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
func room(o *object, n int) bool {
	return o == nil || o.coll.Len(o.typ) <= MaxElements-n
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
