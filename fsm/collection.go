package fsm

import (
	"cmp"
	"strings"
)

// Limits of collections, beside those of keys and values: hash fields end at
// MaxKeyBytes (a field and its value must fit a block of a snapshot), list
// elements, members and values at MaxStringBytes.
const (
	// MaxElements bounds the elements of one collection. Commands that would
	// make more fail. Redis ends at 2^32-1.
	MaxElements = 1 << 26
	// MaxArguments bounds the words of one command that writes.
	MaxArguments = 1 << 20
)

// Redis' limits of its compact encodings: beyond them a value is encoded
// otherwise, and stays so.
const (
	compactFields  = 512 // of a hash
	compactMembers = 128 // of a sorted set
	compactBytes   = 64  // of each name and value
	intsetEntries  = 512
)

// collection is what a key holds that is no string. Of the fields, those of the
// object's type are used. The nodes below belong to an owner: see Ctx.open.
type collection struct {
	big bool // beyond the compact encoding, which decides the order of elements

	hash  dict[string]
	list  seq[string]
	set   dict[struct{}]
	score dict[float64] // of a sorted set: by member
	order seq[scored]   // and by score

	stream seq[streamEntry] // by ID
	info   streamInfo
	groups seq[streamGroup] // by name
}

// scored is a member of a sorted set.
type scored struct {
	score  float64
	member string
}

func (a *scored) compare(b *scored) int {
	switch {
	case a.score < b.score:
		return -1
	case a.score > b.score:
		return 1
	}
	return cmp.Compare(a.member, b.member)
}

// dict is a map from names to values that are kept in an order.
type dict[V any] struct {
	seq[item[V]]
	sort dictOrder
}

type item[V any] struct {
	hash  uint64
	name  string
	value V
}

type dictOrder byte

const (
	byHash    dictOrder = iota // like the keys of a database
	byArrival                  // as inserted: small hashes
	byNumber                   // small sets of integers
)

// find returns the place of a name, and whether it is there.
func (d *dict[V]) find(name string) (int, bool) {
	var i int
	switch d.sort {
	case byArrival:
		d.Ascend(0, func(e *item[V]) bool {
			if e.name == name {
				return false
			}
			i++
			return true
		})
		return i, i < d.Len()
	case byNumber:
		i = d.Search(func(e *item[V]) bool { return numberLess(e.name, name) })
	default:
		hash := hashKey([]byte(name))
		i = d.Search(func(e *item[V]) bool { return e.hash < hash || e.hash == hash && e.name < name })
	}
	return i, i < d.Len() && d.At(i).name == name
}

// get returns the value of a name.
func (d *dict[V]) get(name string) (value V, ok bool) {
	i, ok := d.find(name)
	if ok {
		value = d.At(i).value
	}
	return value, ok
}

// set gives a name a value and reports whether it is new. The name is copied.
func (d *dict[V]) set(o *seqOwner, name string, value V) bool {
	i, ok := d.find(name)
	if ok {
		e := d.At(i)
		e.value = value
		d.Set(o, i, e)
		return false
	}
	d.Insert(o, i, item[V]{hashKey([]byte(name)), strings.Clone(name), value})
	return true
}

// del takes a name out and reports whether it was there.
func (d *dict[V]) del(o *seqOwner, name string) bool {
	i, ok := d.find(name)
	if ok {
		d.Delete(o, i)
	}
	return ok
}

// rehash puts a small dict into the order of large ones.
func (d *dict[V]) rehash(o *seqOwner) {
	var n dict[V]
	d.Ascend(0, func(e *item[V]) bool {
		n.set(o, e.name, e.value)
		return true
	})
	*d = n
}

// numberLess compares integers as parseInt accepts them.
func numberLess(a, b string) bool {
	negative := a[0] == '-'
	switch {
	case negative != (b[0] == '-'):
		return negative
	case len(a) != len(b):
		return len(a) < len(b) != negative
	}
	return a < b != negative && a != b
}

func newCollection(t typ) *collection {
	v := &collection{}
	switch t {
	case typeHash:
		v.hash.sort = byArrival
	case typeSet:
		v.set.sort = byNumber
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
		return v.stream.Len()
	}
	return v.order.Len()
}

// encoding is the name of the encoding that Redis would have chosen.
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

// grow puts a value into the encoding of large ones.
func (v *collection) grow(o *seqOwner, t typ) {
	if v.big {
		return
	}
	v.big = true
	switch t {
	case typeHash:
		v.hash.rehash(o)
	case typeSet:
		v.set.rehash(o)
	}
}

func (v *collection) putField(o *seqOwner, field, value string) (added bool) {
	if len(field) > compactBytes || len(value) > compactBytes {
		v.grow(o, typeHash)
	}
	added = v.hash.set(o, field, value)
	if v.hash.Len() > compactFields {
		v.grow(o, typeHash)
	}
	return added
}

func (v *collection) putMember(o *seqOwner, member string) (added bool) {
	if _, ok := parseInt([]byte(member)); !ok {
		v.grow(o, typeSet)
	}
	if _, ok := v.set.find(member); ok {
		return false
	}
	v.set.set(o, member, struct{}{})
	if v.set.Len() > intsetEntries {
		v.grow(o, typeSet)
	}
	return true
}

// putScore gives a member a score, in place of the one that it has.
func (v *collection) putScore(o *seqOwner, member string, score float64) {
	i, ok := v.score.find(member)
	if !ok && (v.order.Len() >= compactMembers || len(member) > compactBytes) {
		v.big = true
	}
	if !v.big && score == 0 {
		score = 0 // Redis' compact encoding has no -0
	}
	if ok {
		e := v.score.At(i)
		v.order.Delete(o, v.rank(scored{e.value, e.name}))
		e.value = score
		v.score.Set(o, i, e)
		n := scored{score, e.name}
		v.order.Insert(o, v.rank(n), n)
		return
	}
	member = strings.Clone(member)
	v.score.set(o, member, score)
	n := scored{score, member}
	v.order.Insert(o, v.rank(n), n)
}

// compactScores gives a sorted set the compact encoding if its members allow it.
func (v *collection) compactScores(o *seqOwner) {
	if v.order.Len() > compactMembers {
		return
	}
	small := newCollection(typeZSet)
	v.order.Ascend(0, func(m *scored) bool {
		small.putScore(o, m.member, m.score)
		return !small.big
	})
	if !small.big {
		*v = *small
	}
}

// rank returns the place of a member in the order of scores.
func (v *collection) rank(m scored) int {
	return v.order.Search(func(e *scored) bool { return e.compare(&m) < 0 })
}

func (v *collection) delScore(o *seqOwner, member string) bool {
	score, ok := v.score.get(member)
	if ok {
		v.score.del(o, member)
		v.order.Delete(o, v.rank(scored{score, member}))
	}
	return ok
}

// lookupType is lookup for the commands of a type.
func (c *Ctx) lookupType(key []byte, t typ) (o *object, wrongType bool) {
	o = c.lookup(key)
	return o, o != nil && o.typ != t
}

// open returns a copy of o, or a new object if o is nil, whose collection may be
// changed by the machine's owner and must then be handed to close: the nodes
// below are changed in place, so that o is no good any more.
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

// close stores an object whose collection was changed, or removes its key if
// nothing is left of it.
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

// disown makes the machine copy the nodes of its collections before it changes
// them: two values share some now.
func (m *Machine) disown() { m.owner = &seqOwner{} }

const msgTooMany = "ERR collection exceeds maximum allowed size"

// room reports whether n more elements may be added to o, nil for none.
func room(o *object, n int) bool {
	return o == nil || o.coll.Len(o.typ) <= MaxElements-n
}

// collector gathers the elements of a reply as long as anybody may be sent them.
type collector struct {
	elems []Reply
	size  int
}

// add reports whether there is room for more.
func (l *collector) add(r Reply) bool {
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
		return Error(replyTooLarge)
	}
	return form(l.elems)
}

// sample draws k different numbers below n, k being at most n (Floyd's
// algorithm); they come in no particular order.
func (c *Ctx) sample(k, n int, f func(i int) bool) {
	taken := make(map[int]bool, min(k, 1024))
	for j := n - k; j < n; j++ {
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

// below draws a number from 0 to n-1.
func (c *Ctx) below(n int) int { return int(c.random() % uint64(n)) }

const (
	msgNotPositive = "ERR value is out of range, must be positive"
	msgNotLong     = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	msgOutOfRange  = "ERR value is out of range"
)

// positive reads a count that may not be negative.
func positive(arg []byte, msg string) (n int64, fail Reply) {
	n, ok := parseInt(arg)
	if !ok || n < 0 {
		return 0, Error(msg)
	}
	return n, Null
}

// signed reads a count whose sign means something.
func signed(arg []byte) (n int64, fail Reply) {
	n, ok := parseInt(arg)
	switch {
	case !ok:
		return 0, Error(msgNotInt)
	case n == -1<<63:
		return 0, Error(msgNotLong)
	}
	return n, Null
}

// randomCount reads what follows the key in HRANDFIELD and ZRANDMEMBER.
func randomCount(args [][]byte, word string) (count int64, with bool, fail Reply) {
	count, fail = signed(args[2])
	if fail.IsError() {
		return 0, false, fail
	}
	if len(args) > 4 || len(args) == 4 && !fold(args[3], word) {
		return 0, false, Error(msgSyntax)
	}
	with = len(args) == 4
	if with && (count < -(1<<62-1) || count > 1<<62-1) {
		return 0, false, Error(msgOutOfRange)
	}
	return count, with, Null
}

// maxRepeats bounds how many places are drawn with repetitions: a call could ask
// for any number of them from a collection of one element.
const (
	maxRepeats = 1 << 18
	msgRepeats = "ERR more than 262144 elements with repetitions, ask for less at a time"
)

// randomPlaces draws count of n places, a negative count with repetitions, and
// reports whether so many may be drawn.
func (c *Ctx) randomPlaces(count int64, n int, f func(i int) bool) bool {
	switch {
	case count < -maxRepeats:
		return false
	case count < 0:
		for ; count < 0 && f(c.below(n)); count++ {
		}
	case count >= int64(n):
		for i := 0; i < n && f(i); i++ {
		}
	default:
		c.sample(int(count), n, f)
	}
	return true
}

// span turns two positions that may count from the end into a part of n
// elements.
func span(start, end int64, n int) (from, to int) {
	size := int64(n)
	if start < 0 {
		start = max(start+size, 0)
	}
	if end < 0 {
		end += size
	}
	end = min(end, size-1)
	if start > end {
		return 0, 0
	}
	return int(start), int(end) + 1
}
