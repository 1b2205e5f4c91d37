package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"math"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the commands for unions, intersections and differences of sorted
// sets. Their inputs may also be sets.

var zsetOpCommands = []fsm.Command{
	{
		Name: "zunionstore", Run: zunionstore, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work: fsm.WorkHooks{Steps: zsetStoreWork},
		Keys: fsm.KeysAt(1, 1, 1), KeysOf: zstoreKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.Keys{First: 2, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the " +
			"number of elements in the resulting sorted set.",
		Syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]",
		Doc:    "Add multiple sorted sets and store the resulting sorted set in a new key",
	},
	{
		Name: "zinterstore", Run: zinterstore, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work: fsm.WorkHooks{Steps: zsetStoreWork},
		Keys: fsm.KeysAt(1, 1, 1), KeysOf: zstoreKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.Keys{First: 2, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number " +
			"of input sorted sets and M being the number of elements in the resulting sorted set.",
		Syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]",
		Doc:    "Intersect multiple sorted sets and store the resulting sorted set in a new key",
	},
	{
		Name: "zunion", Run: zunion, Arity: -3, Flags: fsm.ReadOnly | fsm.MovableKeys,
		KeysOf: zopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the " +
			"number of elements in the resulting sorted set.",
		Syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
		Doc:    "Add multiple sorted sets",
	},
	{
		Name: "zinter", Run: zinter, Arity: -3, Flags: fsm.ReadOnly | fsm.MovableKeys,
		KeysOf: zopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number " +
			"of input sorted sets and M being the number of elements in the resulting sorted set.",
		Syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
		Doc:    "Intersect multiple sorted sets",
	},
	{
		Name: "zdiff", Run: zdiff, Arity: -3, Flags: fsm.ReadOnly | fsm.MovableKeys,
		KeysOf: zopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is " +
			"the size of the first set, and K is the size of the result set.",
		Syntax: "numkeys key [key ...] [WITHSCORES]",
		Doc:    "Subtract multiple sorted sets",
	},
	{
		Name: "zintercard", Run: zintercard, Arity: -3, Flags: fsm.ReadOnly | fsm.MovableKeys,
		KeysOf: zopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "7.0.0",
		Complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input " +
			"sorted sets.",
		Syntax: "numkeys key [key ...] [LIMIT limit]",
		Doc:    "Intersect multiple sorted sets and return the cardinality of the result",
	},
	{
		Name: "zdiffstore", Run: zdiffstore, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work: fsm.WorkHooks{Steps: zsetStoreWork},
		Keys: fsm.KeysAt(1, 1, 1), KeysOf: zstoreKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.Keys{First: 2, Step: 1}, Access: fsm.Access{Mode: "RO", Flags: "access"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is " +
			"the size of the first set, and K is the size of the result set.",
		Syntax: "destination numkeys key [key ...]",
		Doc:    "Subtract multiple sorted sets and store the resulting sorted set in a new key",
	},
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

// aggregate is the way to combine the scores of a member in several sets.
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
	return zeroIfNaN(x + y)
}

// zeroIfNaN returns 0 if f is NaN, and f otherwise. The sum of both infinities
// and the product of an infinity and 0 are NaN.
func zeroIfNaN(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// weighted is a source of a set operation with its weight. o is a set or a
// sorted set; a nil o is an empty set.
type weighted struct {
	o      *keyspace.Object
	weight float64
}

func (w *weighted) Len() int { return w.o.Members() }

// of returns the product of the weight and a score. The conversion to float64
// rounds the product before other scores are added to it. Without the conversion,
// Go would omit this rounding on some processors, and two nodes could store
// different sums.
func (w *weighted) of(score float64) float64 { return zeroIfNaN(float64(w.weight * score)) }

// eachScore calls f for the members of a set or a sorted set and their scores
// until f returns false. The score of each member of a set is 1.
func eachScore(c *fsm.Ctx, o *keyspace.Object, f func(member string, score float64) bool) {
	switch {
	case o == nil:
	case o.Type == keyspace.TypeSet:
		o.Coll.Set.Ascend(0, func(e *container.Item[struct{}]) bool {
			c.Charge(1)
			return f(e.Name, 1)
		})
	default:
		o.Coll.Order.Ascend(0, func(m *container.Scored) bool {
			c.Charge(1)
			return f(m.Member, m.Score)
		})
	}
}

// scoreOf returns the score of a member of a set or a sorted set. The score of
// each member of a set is 1.
func scoreOf(c *fsm.Ctx, o *keyspace.Object, member string) (float64, bool) {
	c.Charge(fsm.StepsProbe)
	switch {
	case o == nil:
		return 0, false
	case o.Type == keyspace.TypeSet:
		return 1, o.Coll.HasMember(member)
	}
	return o.Coll.Score.Get(member)
}

// zop is a set operation.
type zop byte

const (
	zopUnion zop = iota
	zopInter
	zopDiff
	zopCard // the cardinality of the intersection
)

// zquery has the parsed arguments of a command of this file.
type zquery struct {
	c          *fsm.Ctx
	op         zop
	store      bool
	sources    []weighted
	how        aggregate
	withScores bool
	limit      int64
}

// parseZop parses the arguments of a command and looks up its keys. args begins
// with the number of keys.
func parseZop(c *fsm.Ctx, name string, args [][]byte, op zop, store bool) (q zquery, fail fsm.Reply) {
	q = zquery{c: c, op: op, store: store}
	num, ok := number.ParseInt(args[0])
	switch {
	case !ok:
		return q, fsm.Error(fsm.MsgNotInt)
	case num < 1:
		return q, fsm.Error("ERR at least 1 input key is needed for '" + name + "' command")
	case num > int64(len(args)-1):
		return q, fsm.Error(fsm.MsgSyntax)
	}
	q.sources = make([]weighted, num)
	for i := range q.sources {
		o := c.Lookup(args[1+i])
		if o != nil && o.Type != keyspace.TypeZSet && o.Type != keyspace.TypeSet {
			return q, fsm.Error(fsm.MsgWrongType)
		}
		q.sources[i] = weighted{o, 1}
	}
	return q, q.options(args[1+num:])
}

// options parses the arguments after the keys.
func (q *zquery) options(args [][]byte) (fail fsm.Reply) {
	weighs := q.op == zopUnion || q.op == zopInter
	for len(args) > 0 {
		switch {
		case weighs && len(args) > len(q.sources) && fsm.IsWord(args[0], "WEIGHTS"):
			for i := range q.sources {
				var ok bool
				if q.sources[i].weight, ok = number.ParseFloat(args[1+i]); !ok {
					return fsm.Error(msgWeight)
				}
			}
			args = args[1+len(q.sources):]
		case weighs && len(args) > 1 && fsm.IsWord(args[0], "AGGREGATE"):
			switch {
			case fsm.IsWord(args[1], "SUM"):
				q.how = aggregateSum
			case fsm.IsWord(args[1], "MIN"):
				q.how = aggregateMin
			case fsm.IsWord(args[1], "MAX"):
				q.how = aggregateMax
			default:
				return fsm.Error(fsm.MsgSyntax)
			}
			args = args[2:]
		case !q.store && q.op != zopCard && fsm.IsWord(args[0], "WITHSCORES"):
			q.withScores = true
			args = args[1:]
		case q.op == zopCard && len(args) > 1 && fsm.IsWord(args[0], "LIMIT"):
			if q.limit, fail = positive(args[1], msgLimitNeg); fail.IsError() {
				return fail
			}
			args = args[2:]
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	return fsm.Null
}

// objects returns the distinct objects of all sources but the first n, and for
// each of these sources the position of its object in list.
func (q *zquery) objects(n int) (list []*keyspace.Object, positions []int) {
	q.c.Charge(fsm.StepsPerKey * len(q.sources))
	at := make(map[*keyspace.Object]int)
	for _, w := range q.sources[n:] {
		i, ok := at[w.o]
		if !ok {
			i = len(list)
			at[w.o] = i
			list = append(list, w.o)
		}
		positions = append(positions, i)
	}
	return list, positions
}

// visits returns the maximum number of scores that a union or an intersection
// combines. A client may name the same key many times in a command, and each
// repetition counts.
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

// run stores the result in v, which must be empty. If v has the encoding of
// large values, run preserves scores of -0. If, in addition, q.unchanged
// reports true, v shares its tree nodes with the source afterward. run returns
// false if the result is too large or takes too much work.
func (q *zquery) run(owner *container.Owner, v *keyspace.Collection) bool {
	if q.op != zopDiff {
		// As in Redis, the smallest source comes first. The order decides how
		// sums are rounded.
		slices.SortStableFunc(q.sources, func(a, b weighted) int { return a.Len() - b.Len() })
	}
	if q.visits() > keyspace.MaxElements {
		return false
	}
	if v.Big && q.unchanged() {
		o := q.sources[0].o.Coll
		v.Score, v.Order = o.Score, o.Order
		return true
	}
	var all []container.Scored
	put := func(member string, score float64) {
		q.c.Charge(stepsScore)
		q.c.ChargeMemory(2*keyspace.ElementOverhead + len(member))
		all = append(all, container.Scored{Score: score, Member: member})
	}
	switch q.op {
	case zopUnion:
		q.unite(put)
	case zopDiff:
		q.subtract(put)
	default:
		q.intersect(put)
	}
	if len(all) > keyspace.MaxElements {
		return false
	}
	v.FillScores(owner, all)
	return true
}

// unchanged reports whether there is only one source, and the result equals
// this source and has the encoding of large values.
func (q *zquery) unchanged() bool {
	if len(q.sources) != 1 {
		return false
	}
	w := &q.sources[0]
	return w.weight == 1 && w.Len() > keyspace.CompactMembers && w.o.Type == keyspace.TypeZSet
}

// unite calls put once for each member of any source, when the final score of
// the member is known. If an object is a source several times, unite looks up
// each of its members only once.
func (q *zquery) unite(put func(member string, score float64)) {
	objects, positions := q.objects(0)
	members := make([][]container.Scored, len(objects)) // members of each object with their scores
	index := make([][]int, len(objects))                // for each object, the positions of its members in sums
	most := 0
	for _, o := range objects {
		most = max(most, o.Members())
	}
	at := make(map[string]int, most)
	times := make([]int, len(objects))
	for _, p := range positions {
		times[p]++
	}
	var sums []container.Scored
	for i := range q.sources {
		w, p := &q.sources[i], positions[i]
		if members[p] != nil {
			for j, m := range members[p] {
				q.c.Charge(1)
				sum := &sums[index[p][j]]
				sum.Score = q.how.of(sum.Score, w.of(m.Score))
			}
			continue
		}
		eachScore(q.c, w.o, func(member string, score float64) bool {
			q.c.Charge(fsm.StepsProbe)
			k, ok := at[member]
			if ok {
				sums[k].Score = q.how.of(sums[k].Score, w.of(score))
			} else {
				k = len(sums)
				at[member] = k
				q.c.ChargeMemory(scoreBytes)
				sums = append(sums, container.Scored{Score: w.of(score), Member: member})
			}
			if times[p] > 1 {
				q.c.ChargeMemory(keyspace.ElementOverhead)
				members[p] = append(members[p], container.Scored{Score: score, Member: member})
				index[p] = append(index[p], k)
			}
			return true
		})
	}
	for i := range sums {
		put(sums[i].Member, sums[i].Score)
	}
}

// intersect calls put for each member that is in all sources. It looks up a
// member once in each object, even if the object is a source several times.
func (q *zquery) intersect(put func(member string, score float64)) {
	objects, positions := q.objects(0)
	raw := make([]float64, len(objects))
	eachScore(q.c, objects[0], func(member string, score float64) bool {
		raw[0] = score
		for i, o := range objects[1:] {
			var ok bool
			if raw[1+i], ok = scoreOf(q.c, o, member); !ok {
				return true
			}
		}
		sum := q.sources[0].of(score)
		q.c.Charge(len(positions))
		for i := 1; i < len(positions); i++ {
			// As in Redis, only the first product and the sums are checked for
			// NaN, not the other products.
			sum = q.how.of(sum, float64(q.sources[i].weight*raw[positions[i]]))
		}
		put(member, sum)
		return true
	})
}

// subtract calls put for each member that is in the first source only.
func (q *zquery) subtract(put func(member string, score float64)) {
	first := q.sources[0].o
	others, _ := q.objects(1)
	in := inAny(q.c, others, first.Members())
	eachScore(q.c, first, func(member string, score float64) bool {
		if !in(member) {
			put(member, score)
		}
		return true
	})
}

// inAny returns a function that reports whether any of the sets and sorted sets
// contains a member. n is the number of times that the function will be called.
// inAny chooses the cheaper of two ways: the function searches each set at each
// call, or inAny first collects the members of all sets.
func inAny(c *fsm.Ctx, list []*keyspace.Object, n int) func(member string) bool {
	sum := 0
	for _, o := range list {
		sum += o.Members()
	}
	if sum >= n*len(list) {
		return func(member string) bool {
			return slices.ContainsFunc(list, func(o *keyspace.Object) bool {
				_, ok := scoreOf(c, o, member)
				return ok
			})
		}
	}
	seen := make(map[string]bool)
	for _, o := range list {
		eachScore(c, o, func(member string, _ float64) bool {
			c.Charge(fsm.StepsProbe)
			c.ChargeMemory(keyspace.ElementOverhead)
			seen[member] = true
			return true
		})
	}
	return func(member string) bool {
		c.Charge(fsm.StepsProbe)
		return seen[member]
	}
}

// card counts the members that are in all sources, up to the limit.
func (q *zquery) card() int64 {
	slices.SortStableFunc(q.sources, func(a, b weighted) int { return a.Len() - b.Len() })
	objects, _ := q.objects(0)
	n := int64(0)
	eachScore(q.c, objects[0], func(member string, _ float64) bool {
		for _, o := range objects[1:] {
			if _, ok := scoreOf(q.c, o, member); !ok {
				return true
			}
		}
		n++
		return n != q.limit
	})
	return n
}

func zunionstore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zstore(c, "zunionstore", args, zopUnion)
}
func zinterstore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zstore(c, "zinterstore", args, zopInter)
}
func zdiffstore(c *fsm.Ctx, args [][]byte) fsm.Reply { return zstore(c, "zdiffstore", args, zopDiff) }

func zstore(c *fsm.Ctx, name string, args [][]byte, op zop) fsm.Reply {
	q, fail := parseZop(c, name, args[2:], op, true)
	if fail.IsError() {
		return fail
	}
	n := open(c, nil, args[1], keyspace.TypeZSet)
	// From FeatureMend on, the encoding is chosen when the whole result is
	// known, as in Redis. Only a compact encoding turns -0 into 0.
	whole := c.Features() >= fsm.FeatureMend
	n.Coll.Big = whole
	if !q.run(c.Owner(), n.Coll) {
		return fsm.Error(msgTooMany)
	}
	if whole {
		n.Coll.CompactScores(c.Owner())
		if q.unchanged() {
			c.Disown() // n and the source share tree nodes now
		}
	}
	return storeResult(c, n, "z", name)
}

func zunion(c *fsm.Ctx, args [][]byte) fsm.Reply { return zcombine(c, "zunion", args, zopUnion) }
func zinter(c *fsm.Ctx, args [][]byte) fsm.Reply { return zcombine(c, "zinter", args, zopInter) }
func zdiff(c *fsm.Ctx, args [][]byte) fsm.Reply  { return zcombine(c, "zdiff", args, zopDiff) }

func zcombine(c *fsm.Ctx, name string, args [][]byte, op zop) fsm.Reply {
	q, fail := parseZop(c, name, args[1:], op, false)
	if fail.IsError() {
		return fail
	}
	v := keyspace.NewCollection(keyspace.TypeZSet)
	v.Big = true // the result is not stored, and -0 is preserved
	if !q.run(&container.Owner{}, v) {
		return fsm.Error(msgTooMany)
	}
	l := collector{c: c}
	v.Order.Ascend(0, func(m *container.Scored) bool { return addScored(c, &l, m, q.withScores, true) })
	return l.reply(fsm.Array)
}

func zintercard(c *fsm.Ctx, args [][]byte) fsm.Reply {
	q, fail := parseZop(c, "zintercard", args[1:], zopCard, false)
	if fail.IsError() {
		return fail
	}
	return fsm.Int(q.card())
}
