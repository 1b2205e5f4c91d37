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

func (w *weighted) Len() int {
	if w.o == nil {
		return 0
	}
	return w.o.coll.Len(w.o.typ)
}

// scores calls f for the members and their weighted scores, 1 in a set.
func (w *weighted) scores(f func(member string, score float64) bool) {
	switch {
	case w.o == nil:
	case w.o.typ == typeSet:
		w.o.coll.set.Ascend(0, func(e *item[struct{}]) bool { return f(e.name, number(w.weight)) })
	default:
		w.o.coll.order.Ascend(0, func(m *scored) bool { return f(m.member, number(w.weight*m.score)) })
	}
}

// score returns the weighted score of a member.
func (w *weighted) score(member string) (float64, bool) {
	if w.o == nil {
		return 0, false
	}
	if w.o.typ == typeSet {
		return number(w.weight), w.o.coll.hasMember(member)
	}
	score, ok := w.o.coll.score.get(member)
	return number(w.weight * score), ok
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

// run puts the result into v. It reports false if that is too large, and for
// zopCard ends at the limit.
func (q *zquery) run(owner *seqOwner, v *collection) bool {
	if q.op != zopDiff {
		// The smallest first, as in Redis: it decides how sums are rounded.
		slices.SortStableFunc(q.sources, func(a, b weighted) int { return a.Len() - b.Len() })
	}
	first, others := &q.sources[0], q.sources[1:]
	put := func(member string, score float64) bool {
		v.putScore(owner, member, score)
		return v.order.Len() <= MaxElements && (q.limit == 0 || int64(v.order.Len()) < q.limit)
	}
	switch q.op {
	case zopUnion:
		for i := range q.sources {
			q.sources[i].scores(func(member string, score float64) bool {
				if old, ok := v.score.get(member); ok {
					score = q.how.of(old, score)
				}
				return put(member, score)
			})
		}
	case zopDiff:
		first.scores(func(member string, score float64) bool {
			for i := range others {
				if _, ok := others[i].score(member); ok {
					return true
				}
			}
			return put(member, score)
		})
	default:
		first.scores(func(member string, score float64) bool {
			for i := range others {
				other, ok := others[i].score(member)
				if !ok {
					return true
				}
				score = q.how.of(score, other)
			}
			return put(member, score)
		})
	}
	return v.order.Len() <= MaxElements
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
	if !q.run(c.m.owner, n.coll) {
		return Error(msgTooMany)
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
	v := newCollection(typeZSet)
	q.run(&seqOwner{}, v)
	return Int(int64(v.order.Len()))
}
