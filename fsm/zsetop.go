package fsm

import (
	"math"
	"slices"
)

// Unions, intersections and differences of sorted sets and sets.

var zsetOpCommands = []Command{
	{Name: "zunionstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Keys: Keys{1, 1, 1}, Specs: []KeySpec{{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}}, {Keys: Keys{First: 2, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zstoreKeys, Group: "sorted-set", Since: "2.0.0", Complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.", Syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]", Doc: "Add multiple sorted sets and store the resulting sorted set in a new key", Run: zunionstore},
	{Name: "zinterstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Keys: Keys{1, 1, 1}, Specs: []KeySpec{{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}}, {Keys: Keys{First: 2, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zstoreKeys, Group: "sorted-set", Since: "2.0.0", Complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.", Syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]", Doc: "Intersect multiple sorted sets and store the resulting sorted set in a new key", Run: zinterstore},
	{Name: "zunion", Arity: -3, Flags: ReadOnly | MovableKeys, Specs: []KeySpec{{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zopKeys, Group: "sorted-set", Since: "6.2.0", Complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.", Syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]", Doc: "Add multiple sorted sets", Run: zunion},
	{Name: "zinter", Arity: -3, Flags: ReadOnly | MovableKeys, Specs: []KeySpec{{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zopKeys, Group: "sorted-set", Since: "6.2.0", Complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.", Syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]", Doc: "Intersect multiple sorted sets", Run: zinter},
	{Name: "zdiff", Arity: -3, Flags: ReadOnly | MovableKeys, Specs: []KeySpec{{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zopKeys, Group: "sorted-set", Since: "6.2.0", Complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.", Syntax: "numkeys key [key ...] [WITHSCORES]", Doc: "Subtract multiple sorted sets", Run: zdiff},
	{Name: "zintercard", Arity: -3, Flags: ReadOnly | MovableKeys, Specs: []KeySpec{{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zopKeys, Group: "sorted-set", Since: "7.0.0", Complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.", Syntax: "numkeys key [key ...] [LIMIT limit]", Doc: "Intersect multiple sorted sets and return the cardinality of the result", Run: zintercard},
	{Name: "zdiffstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Keys: Keys{1, 1, 1}, Specs: []KeySpec{{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}}, {Keys: Keys{First: 2, Step: 1}, Access: Access{Mode: "RO", Flags: "access"}, NumKeys: true}}, KeysOf: zstoreKeys, Group: "sorted-set", Since: "6.2.0", Complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.", Syntax: "destination numkeys key [key ...]", Doc: "Subtract multiple sorted sets and store the resulting sorted set in a new key", Run: zdiffstore},
}

func zopKeys(args [][]byte) []int { return numberedKeys(args, 1) }

// zstoreKeys returns the positions of the destination and of the sources.
func zstoreKeys(args [][]byte) []int {
	pos := numberedKeys(args, 2)
	if pos == nil {
		return nil
	}
	return append([]int{1}, pos...)
}

// aggregate is how the scores of a member in several sets become one.
type aggregate byte

const (
	aggregateSum aggregate = iota
	aggregateMin
	aggregateMax
)

func (a aggregate) of(x, y float64) float64 {
	switch a {
	case aggregateMin:
		if y < x {
			return y
		}
		return x
	case aggregateMax:
		if y > x {
			return y
		}
		return x
	}
	return number(x + y)
}

// number is 0 for the sum of both infinities, and for the product of one and 0.
func number(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// weighted is a set or sorted set in ZUNIONSTORE or ZINTERSTORE; nil is empty.
type weighted struct {
	o      *object
	weight float64
}

func (w *weighted) Len() int { return w.o.members() }

// of weighs a score. It is rounded before others are added to it, which Go otherwise
// leaves to the machine: two nodes could store different sums.
func (w *weighted) of(score float64) float64 { return number(float64(w.weight * score)) }

// scores calls f for the members of a set or sorted set and their scores, 1 in a set,
// until f returns false.
func (o *object) scores(f func(member string, score float64) bool) {
	switch {
	case o == nil:
	case o.typ == typeSet:
		o.coll.set.Ascend(0, func(e *item[struct{}]) bool { return f(e.name, 1) })
	default:
		o.coll.order.Ascend(0, func(m *scored) bool { return f(m.member, m.score) })
	}
}

// scoreOf returns the score of a member of a set or sorted set, 1 in a set.
func (o *object) scoreOf(member string) (float64, bool) {
	switch {
	case o == nil:
		return 0, false
	case o.typ == typeSet:
		return 1, o.coll.hasMember(member)
	}
	return o.coll.score.get(member)
}

// zop is one of the operations.
type zop byte

const (
	zopUnion zop = iota
	zopInter
	zopDiff
	zopCard // of the intersection
)

// zquery is what a command of this file asks for.
type zquery struct {
	op         zop
	store      bool
	sources    []weighted
	how        aggregate
	withScores bool
	limit      int64
}

// parseZop reads what stands from the number of keys on.
func (c *Ctx) parseZop(name string, args [][]byte, op zop, store bool) (q zquery, fail Reply) {
	q = zquery{op: op, store: store}
	num, ok := parseInt(args[0])
	switch {
	case !ok:
		return q, Error(msgNotInt)
	case num < 1:
		return q, Error("ERR at least 1 input key is needed for '" + name + "' command")
	case num > int64(len(args)-1):
		return q, Error(msgSyntax)
	}
	q.sources = make([]weighted, num)
	for i := range q.sources {
		o := c.lookup(args[1+i])
		if o != nil && o.typ != typeZSet && o.typ != typeSet {
			return q, Error(msgWrongType)
		}
		q.sources[i] = weighted{o, 1}
	}
	return q, q.options(args[1+num:])
}

// options reads what follows the keys.
func (q *zquery) options(args [][]byte) (fail Reply) {
	weighs := q.op == zopUnion || q.op == zopInter
	for len(args) > 0 {
		switch {
		case weighs && len(args) > len(q.sources) && fold(args[0], "WEIGHTS"):
			for i := range q.sources {
				var ok bool
				if q.sources[i].weight, ok = parseScore(args[1+i]); !ok {
					return Error(msgWeight)
				}
			}
			args = args[1+len(q.sources):]
		case weighs && len(args) > 1 && fold(args[0], "AGGREGATE"):
			switch {
			case fold(args[1], "SUM"):
				q.how = aggregateSum
			case fold(args[1], "MIN"):
				q.how = aggregateMin
			case fold(args[1], "MAX"):
				q.how = aggregateMax
			default:
				return Error(msgSyntax)
			}
			args = args[2:]
		case !q.store && q.op != zopCard && fold(args[0], "WITHSCORES"):
			q.withScores = true
			args = args[1:]
		case q.op == zopCard && len(args) > 1 && fold(args[0], "LIMIT"):
			if q.limit, fail = positive(args[1], msgLimitNeg); fail.IsError() {
				return fail
			}
			args = args[2:]
		default:
			return Error(msgSyntax)
		}
	}
	return Null
}

// objects returns the distinct objects of the sources but the first n, and for each
// of those sources the place of its object.
func (q *zquery) objects(n int) (list []*object, place []int) {
	at := make(map[*object]int)
	for _, w := range q.sources[n:] {
		i, ok := at[w.o]
		if !ok {
			i = len(list)
			at[w.o] = i
			list = append(list, w.o)
		}
		place = append(place, i)
	}
	return list, place
}

// visits returns how many scores are added up. A key may be named as often as an
// array of a client has room for, and each time counts.
func (q *zquery) visits() int {
	sum := 0
	switch q.op {
	case zopUnion:
		for i := range q.sources {
			sum += q.sources[i].Len()
		}
	case zopInter:
		sum = q.sources[0].Len() * len(q.sources)
	}
	return sum
}

// run puts the result into v. It reports false if that is too large or too much
// work.
func (q *zquery) run(owner *seqOwner, v *collection) bool {
	if q.op != zopDiff {
		// The smallest first, as in Redis: it decides how sums are rounded.
		slices.SortStableFunc(q.sources, func(a, b weighted) int { return a.Len() - b.Len() })
	}
	if q.visits() > MaxElements {
		return false
	}
	put := func(member string, score float64) { v.putScore(owner, member, score) }
	switch q.op {
	case zopUnion:
		q.unite(put)
	case zopDiff:
		q.subtract(put)
	default:
		q.intersect(put)
	}
	return v.order.Len() <= MaxElements
}

// unite calls put for what is in any source. A member that is in many is put once,
// when its score is known, and one that is often in the same object is looked for
// once.
func (q *zquery) unite(put func(member string, score float64)) {
	objects, place := q.objects(0)
	members := make([][]scored, len(objects)) // with their scores in the object
	index := make([][]int, len(objects))      // and their places in sums
	at := make(map[string]int)
	times := make([]int, len(objects))
	for _, p := range place {
		times[p]++
	}
	var sums []scored
	for i := range q.sources {
		w, p := &q.sources[i], place[i]
		if members[p] != nil {
			for j, m := range members[p] {
				sum := &sums[index[p][j]]
				sum.score = q.how.of(sum.score, w.of(m.score))
			}
			continue
		}
		w.o.scores(func(member string, score float64) bool {
			k, ok := at[member]
			if ok {
				sums[k].score = q.how.of(sums[k].score, w.of(score))
			} else {
				k = len(sums)
				at[member] = k
				sums = append(sums, scored{score: w.of(score), member: member})
			}
			if times[p] > 1 {
				members[p], index[p] = append(members[p], scored{score, member}), append(index[p], k)
			}
			return true
		})
	}
	for i := range sums {
		put(sums[i].member, sums[i].score)
	}
}

// intersect calls put for what is in all sources. Each object is asked once for a
// member, however often it is a source.
func (q *zquery) intersect(put func(member string, score float64)) {
	objects, place := q.objects(0)
	raw := make([]float64, len(objects))
	objects[0].scores(func(member string, score float64) bool {
		raw[0] = score
		for i, o := range objects[1:] {
			var ok bool
			if raw[1+i], ok = o.scoreOf(member); !ok {
				return true
			}
		}
		sum := q.sources[0].of(score)
		for i := 1; i < len(place); i++ {
			// Only the first score's product is made a number by itself, as in Redis.
			sum = q.how.of(sum, float64(q.sources[i].weight*raw[place[i]]))
		}
		put(member, sum)
		return true
	})
}

// subtract calls put for what is in the first source only.
func (q *zquery) subtract(put func(member string, score float64)) {
	first := q.sources[0].o
	others, _ := q.objects(1)
	in := inAny(others, first.members())
	first.scores(func(member string, score float64) bool {
		if !in(member) {
			put(member, score)
		}
		return true
	})
}

// inAny returns a function that reports whether a member is in any of sets and
// sorted sets, and is going to be asked n times. Either each set is searched, or what
// is in all of them is noted first, whichever is less.
func inAny(list []*object, n int) func(member string) bool {
	sum := 0
	for _, o := range list {
		sum += o.members()
	}
	if sum >= n*len(list) {
		return func(member string) bool {
			return slices.ContainsFunc(list, func(o *object) bool { _, ok := o.scoreOf(member); return ok })
		}
	}
	seen := make(map[string]bool)
	for _, o := range list {
		o.scores(func(member string, _ float64) bool { seen[member] = true; return true })
	}
	return func(member string) bool { return seen[member] }
}

// members returns how many members a set or sorted set has; nil is empty.
func (o *object) members() int {
	if o == nil {
		return 0
	}
	return o.coll.Len(o.typ)
}

// card counts what is in all sources, up to the limit.
func (q *zquery) card() int64 {
	slices.SortStableFunc(q.sources, func(a, b weighted) int { return a.Len() - b.Len() })
	objects, _ := q.objects(0)
	n := int64(0)
	objects[0].scores(func(member string, _ float64) bool {
		for _, o := range objects[1:] {
			if _, ok := o.scoreOf(member); !ok {
				return true
			}
		}
		n++
		return n != q.limit
	})
	return n
}

func zunionstore(c *Ctx, args [][]byte) Reply { return c.zstore("zunionstore", args, zopUnion) }
func zinterstore(c *Ctx, args [][]byte) Reply { return c.zstore("zinterstore", args, zopInter) }
func zdiffstore(c *Ctx, args [][]byte) Reply  { return c.zstore("zdiffstore", args, zopDiff) }

func (c *Ctx) zstore(name string, args [][]byte, op zop) Reply {
	q, fail := c.parseZop(name, args[2:], op, true)
	if fail.IsError() {
		return fail
	}
	n := c.open(nil, args[1], typeZSet)
	// As in Redis, the encoding is chosen when the whole result is there: only a
	// compact one turns -0 into 0.
	whole := c.m.features >= FeatureMend
	n.coll.big = whole
	if !q.run(c.m.owner, n.coll) {
		return Error(msgTooMany)
	}
	if whole {
		n.coll.compactScores(c.m.owner)
	}
	return c.storeResult(n, "z", name)
}

func zunion(c *Ctx, args [][]byte) Reply { return c.zcombine("zunion", args, zopUnion) }
func zinter(c *Ctx, args [][]byte) Reply { return c.zcombine("zinter", args, zopInter) }
func zdiff(c *Ctx, args [][]byte) Reply  { return c.zcombine("zdiff", args, zopDiff) }

func (c *Ctx) zcombine(name string, args [][]byte, op zop) Reply {
	q, fail := c.parseZop(name, args[1:], op, false)
	if fail.IsError() {
		return fail
	}
	v := newCollection(typeZSet)
	v.big = true // the result is not stored, and -0 stays what it is
	if !q.run(&seqOwner{}, v) {
		return Error(msgTooMany)
	}
	var l collector
	v.order.Ascend(0, func(m *scored) bool { return c.addScored(&l, m, q.withScores, true) })
	return l.reply(Array)
}

func zintercard(c *Ctx, args [][]byte) Reply {
	q, fail := c.parseZop("zintercard", args[1:], zopCard, false)
	if fail.IsError() {
		return fail
	}
	return Int(q.card())
}
