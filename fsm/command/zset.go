package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var zsetCommands = []fsm.Command{
	{
		Name: "zadd", Run: zadd, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 160, PerArgument: stepsScored},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
		Syntax:     "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
		Doc:        "Add one or more members to a sorted set, or update its score if it already exists",
		History: []fsm.Change{
			{Since: "2.4.0", What: "Accepts multiple elements."},
			{Since: "3.0.2", What: "Added the `XX`, `NX`, `CH` and `INCR` options."},
			{Since: "6.2.0", What: "Added the `GT` and `LT` options."},
		},
	},
	{
		Name: "zrem", Run: zrem, Arity: -3, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 160, PerArgument: stepsUnscored},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of " +
			"elements to be removed.",
		Syntax:  "key member [member ...]",
		Doc:     "Remove one or more members from a sorted set",
		History: []fsm.Change{{Since: "2.4.0", What: "Accepts multiple elements."}},
	},
	{
		Name: "zscore", Run: zscore, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(1)",
		Syntax:     "key member",
		Doc:        "Get the score associated with the given member in a sorted set",
	},
	{
		Name: "zmscore", Run: zmscore, Arity: -3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(N) where N is the number of members being requested.",
		Syntax:     "key member [member ...]",
		Doc:        "Get the score associated with the given members in a sorted set",
	},
	{
		Name: "zcard", Run: zcard, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the number of members in a sorted set",
	},
	{
		Name: "zcount", Run: zcount, Arity: 4, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key min max",
		Doc:        "Count the members in a sorted set with scores within the given values",
	},
	{
		Name: "zrank", Run: zrank, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(log(N))",
		Syntax:     "key member",
		Doc:        "Determine the index of a member in a sorted set",
	},
	{
		Name: "zrevrank", Run: zrevrank, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(log(N))",
		Syntax:     "key member",
		Doc:        "Determine the index of a member in a sorted set, with scores ordered from high to low",
	},
	{
		Name: "zincrby", Run: zincrby, Arity: 4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 512},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(log(N)) where N is the number of elements in the sorted set.",
		Syntax:     "key increment member",
		Doc:        "Increment the score of a member in a sorted set",
	},
	{
		Name: "zrange", Run: zrange, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements returned.",
		Syntax:  "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
		Doc:     "Return a range of members in a sorted set",
		History: []fsm.Change{{Since: "6.2.0", What: "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options."}},
	},
	{
		Name: "zrangestore", Run: zrangestore, Arity: -5, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: zrangestoreWork},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements stored into the destination key.",
		Syntax: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
		Doc:    "Store a range of members from sorted set into another key",
	},
	{
		Name: "zrangebyscore", Run: zrangebyscore, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "1.0.5", DeprecatedSince: "6.2.0",
		ReplacedBy: "`ZRANGE` with the `BYSCORE` argument",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), " +
			"you can consider it O(log(N)).",
		Syntax:  "key min max [WITHSCORES] [LIMIT offset count]",
		Doc:     "Return a range of members in a sorted set, by score",
		History: []fsm.Change{{Since: "2.0.0", What: "Added the `WITHSCORES` modifier."}},
	},
	{
		Name: "zrevrangebyscore", Run: zrevrangebyscore, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`ZRANGE` with the `REV` and `BYSCORE` arguments",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), " +
			"you can consider it O(log(N)).",
		Syntax:  "key max min [WITHSCORES] [LIMIT offset count]",
		Doc:     "Return a range of members in a sorted set, by score, with scores ordered from high to low",
		History: []fsm.Change{{Since: "2.1.6", What: "`min` and `max` can be exclusive."}},
	},
	{
		Name: "zrangebylex", Run: zrangebylex, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.8.9", DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYLEX` argument",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), " +
			"you can consider it O(log(N)).",
		Syntax: "key min max [LIMIT offset count]",
		Doc:    "Return a range of members in a sorted set, by lexicographical range",
	},
	{
		Name: "zrevrangebylex", Run: zrevrangebylex, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.8.9", DeprecatedSince: "6.2.0",
		ReplacedBy: "`ZRANGE` with the `REV` and `BYLEX` arguments",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), " +
			"you can consider it O(log(N)).",
		Syntax: "key max min [LIMIT offset count]",
		Doc: "Return a range of members in a sorted set, by lexicographical range, ordered from higher to " +
			"lower strings.",
	},
	{
		Name: "zrevrange", Run: zrevrange, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "1.2.0", DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` argument",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements returned.",
		Syntax: "key start stop [WITHSCORES]",
		Doc:    "Return a range of members in a sorted set, by index, with scores ordered from high to low",
	},
	{
		Name: "zlexcount", Run: zlexcount, Arity: 4, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.8.9",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key min max",
		Doc:        "Count the number of members in a sorted set between a given lexicographical range",
	},
	{
		Name: "zremrangebyscore", Run: zremrangebyscore, Arity: 4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: zremWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "sorted-set", Since: "1.2.0",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements removed by the operation.",
		Syntax: "key min max",
		Doc:    "Remove all members in a sorted set within the given scores",
	},
	{
		Name: "zremrangebyrank", Run: zremrangebyrank, Arity: 4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: zremWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "sorted-set", Since: "2.0.0",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements removed by the operation.",
		Syntax: "key start stop",
		Doc:    "Remove all members in a sorted set within the given indexes",
	},
	{
		Name: "zremrangebylex", Run: zremrangebylex, Arity: 4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: zremWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "sorted-set", Since: "2.8.9",
		Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of " +
			"elements removed by the operation.",
		Syntax: "key min max",
		Doc:    "Remove all members in a sorted set between the given lexicographical range",
	},
	{
		Name: "zpopmin", Run: zpopmin, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: popWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of " +
			"elements popped.",
		Syntax: "key [count]",
		Doc:    "Remove and return members with the lowest scores in a sorted set",
	},
	{
		Name: "zpopmax", Run: zpopmax, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: popWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of " +
			"elements popped.",
		Syntax: "key [count]",
		Doc:    "Remove and return members with the highest scores in a sorted set",
	},
	{
		Name: "zrandmember", Run: zrandmember, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "6.2.0",
		Complexity: "O(N) where N is the number of elements returned",
		Syntax:     "key [count [WITHSCORES]]",
		Doc:        "Get one or multiple random elements from a sorted set",
		Tips:       []string{"nondeterministic_output"},
	},
	{
		Name: "zscan", Run: zscan, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "sorted-set", Since: "2.8.0",
		Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the " +
			"cursor to return back to 0. N is the number of elements inside the collection..",
		Syntax: "key cursor [MATCH pattern] [COUNT count]",
		Doc:    "Incrementally iterate sorted sets elements and associated scores",
		Tips:   []string{"nondeterministic_output"},
	},
}

const (
	msgXXNX        = "ERR XX and NX options at the same time are not compatible"
	msgGTLTNX      = "ERR GT, LT, and/or NX options at the same time are not compatible"
	msgOneIncr     = "ERR INCR option supports a single increment-element pair"
	msgScoreNaN    = "ERR resulting score is not a number (NaN)"
	msgScoreRange  = "ERR min or max is not a float"
	msgLexRange    = "ERR min or max not valid string range item"
	msgLimitOnly   = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	msgNoLexScores = "ERR syntax error, WITHSCORES not supported in combination with BYLEX"
	msgWeight      = "ERR weight value is not a float"
)

// scoreBound is one end of a range of scores.
type scoreBound struct {
	score float64
	open  bool // the range excludes the score itself
}

// parseBound parses one end of a range of scores. Like Redis, it uses strtod
// without checking for errors, so leading blanks, an empty text and a number
// out of range are accepted.
func parseBound(arg []byte) (b scoreBound, ok bool) {
	s := string(arg)
	if strings.HasPrefix(s, "(") {
		b.open, s = true, s[1:]
	}
	s, _, _ = strings.Cut(s, "\x00")
	if s == "" {
		return b, true
	}
	b.score, _, ok = number.Strtod(strings.TrimLeft(s, " \t\n\v\f\r"))
	return b, ok && !math.IsNaN(b.score)
}

// rangeOf is a range of the members of a sorted set. after reports whether a
// member is at or after the lower end. before reports whether a member is at or
// before the upper end. An open end excludes the member at that end.
type rangeOf struct {
	empty         bool
	after, before func(m *container.Scored) bool
}

func scoreRange(lo, hi []byte) (r rangeOf, fail fsm.Reply) {
	a, ok1 := parseBound(lo)
	b, ok2 := parseBound(hi)
	if !ok1 || !ok2 {
		return r, fsm.Error(msgScoreRange)
	}
	r.empty = a.score > b.score || a.score == b.score && (a.open || b.open)
	r.after = func(m *container.Scored) bool { return m.Score > a.score || m.Score == a.score && !a.open }
	r.before = func(m *container.Scored) bool { return m.Score < b.score || m.Score == b.score && !b.open }
	return r, fsm.Null
}

// lexBound is one end of a range of members. far is -1 for "-", which is before
// all members, and 1 for "+", which is after all members. For all other ends,
// far is 0.
type lexBound struct {
	member string
	far    int
	open   bool
}

func parseLex(arg []byte) (b lexBound, ok bool) {
	switch s := string(arg); {
	case s == "-":
		b.far = -1
	case s == "+":
		b.far = 1
	case strings.HasPrefix(s, "["):
		b.member = s[1:]
	case strings.HasPrefix(s, "("):
		b.member, b.open = s[1:], true
	default:
		return b, false
	}
	return b, true
}

// compare compares a member with the end of the range.
func (b *lexBound) compare(member string) int {
	if b.far != 0 {
		return -b.far
	}
	return strings.Compare(member, b.member)
}

func lexRange(lo, hi []byte) (r rangeOf, fail fsm.Reply) {
	a, ok1 := parseLex(lo)
	b, ok2 := parseLex(hi)
	if !ok1 || !ok2 {
		return r, fsm.Error(msgLexRange)
	}
	if order := a.far - b.far; order == 0 && a.far == 0 {
		d := strings.Compare(a.member, b.member)
		r.empty = d > 0 || d == 0 && (a.open || b.open)
	} else {
		r.empty = order > 0
	}
	r.after = func(m *container.Scored) bool { d := a.compare(m.Member); return d > 0 || d == 0 && !a.open }
	r.before = func(m *container.Scored) bool { d := b.compare(m.Member); return d < 0 || d == 0 && !b.open }
	return r, fsm.Null
}

// in returns the half-open range [from, to) of the positions of the members in
// the range.
func (r *rangeOf) in(v *keyspace.Collection) (from, to int) {
	if r.empty {
		return 0, 0
	}
	from = v.Order.Search(func(m *container.Scored) bool { return !r.after(m) })
	to = v.Order.Search(r.before)
	return from, max(from, to)
}

func zadd(c *fsm.Ctx, args [][]byte) fsm.Reply {
	var p zaddOptions
	i := 2
	for i < len(args) && (p.condition(args[i]) || p.comparison(args[i])) {
		i++
	}
	return zaddMembers(c, args[1], args[i:], p)
}

func zincrby(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zaddMembers(c, args[1], args[2:], zaddOptions{incr: true})
}

type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// condition parses an option that both ZADD and GEOADD accept. comparison
// parses an option that only ZADD accepts. Both report whether the argument is
// such an option.
func (p *zaddOptions) condition(word []byte) bool {
	switch {
	case fsm.IsWord(word, "NX"):
		p.nx = true
	case fsm.IsWord(word, "XX"):
		p.xx = true
	case fsm.IsWord(word, "CH"):
		p.ch = true
	default:
		return false
	}
	return true
}

func (p *zaddOptions) comparison(word []byte) bool {
	switch {
	case fsm.IsWord(word, "GT"):
		p.gt = true
	case fsm.IsWord(word, "LT"):
		p.lt = true
	case fsm.IsWord(word, "INCR"):
		p.incr = true
	default:
		return false
	}
	return true
}

// allows reports whether the options allow a member to get the new score in
// place of the old one.
func (p *zaddOptions) allows(old, score float64) bool {
	return !p.nx && (!p.gt || score > old) && (!p.lt || score < old)
}

func zaddMembers(c *fsm.Ctx, key []byte, pairs [][]byte, p zaddOptions) fsm.Reply {
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		return fsm.Error(fsm.MsgSyntax)
	case p.nx && p.xx:
		return fsm.Error(msgXXNX)
	case p.gt && p.nx || p.lt && p.nx || p.gt && p.lt:
		return fsm.Error(msgGTLTNX)
	case p.incr && len(pairs) > 2:
		return fsm.Error(msgOneIncr)
	}
	scores, members := make([]float64, 0, len(pairs)/2), make([][]byte, 0, len(pairs)/2)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		score, ok := number.ParseFloat(pairs[0])
		if !ok {
			return fsm.Error(msgNotFloat)
		}
		scores, members = append(scores, score), append(members, pairs[1])
	}
	return putScores(c, key, scores, members, p)
}

// putScores executes ZADD, ZINCRBY or GEOADD after its arguments are parsed.
func putScores(c *fsm.Ctx, key []byte, scores []float64, members [][]byte, p zaddOptions) fsm.Reply {
	o, wrong := c.LookupType(key, keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && p.xx && p.incr:
		return fsm.Null
	case o == nil && p.xx:
		return fsm.Zero
	case !room(o, len(scores)):
		return fsm.Error(msgTooMany)
	}
	n := open(c, o, key, keyspace.TypeZSet)
	added, updated, result := int64(0), int64(0), fsm.Null
	for i, score := range scores {
		c.Charge(2 * fsm.StepsPut)
		member := string(members[i])
		old, there := n.Coll.Score.Get(member)
		if !there {
			if p.xx {
				continue
			}
			n.Coll.PutScore(c.Owner(), member, score)
			added++
			result = fsm.Double(score)
			continue
		}
		if p.incr {
			if score += old; math.IsNaN(score) && !p.nx {
				return fsm.Error(msgScoreNaN)
			}
		}
		if !p.allows(old, score) {
			continue
		}
		if score != old {
			n.Coll.PutScore(c.Owner(), member, score)
			updated++
		}
		result = fsm.Double(score)
	}
	if added+updated > 0 {
		event := "zadd"
		if p.incr {
			event = "zincr"
		}
		storeOrRemove(c, n, "z", event)
	}
	switch {
	case p.incr:
		return result
	case p.ch:
		return fsm.Int(added + updated)
	}
	return fsm.Int(added)
}

func zrem(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return removeElements(c, args, keyspace.TypeZSet, "z", "zrem", func(v *keyspace.Collection, member string) bool {
		c.Charge(2 * fsm.StepsPut)
		return v.DeleteScore(c.Owner(), member)
	})
}

func zcard(c *fsm.Ctx, args [][]byte) fsm.Reply { return size(c, args[1], keyspace.TypeZSet) }

func scoreReply(o *keyspace.Object, member []byte) fsm.Reply {
	if o == nil {
		return fsm.Null
	}
	score, ok := o.Coll.Score.Get(codec.View(member))
	if !ok {
		return fsm.Null
	}
	return fsm.Double(score)
}

func zscore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return scoreReply(o, args[2])
}

func zmscore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var scores []fsm.Reply
	for _, arg := range args[2:] {
		c.Charge(fsm.StepsProbe)
		scores = append(scores, scoreReply(o, arg))
	}
	return fsm.Array(scores)
}

func zcount(c *fsm.Ctx, args [][]byte) fsm.Reply    { return countRange(c, args, scoreRange) }
func zlexcount(c *fsm.Ctx, args [][]byte) fsm.Reply { return countRange(c, args, lexRange) }

func countRange(c *fsm.Ctx, args [][]byte, parse func(lo, hi []byte) (rangeOf, fsm.Reply)) fsm.Reply {
	r, fail := parse(args[2], args[3])
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	from, to := r.in(o.Coll)
	return fsm.Int(int64(to - from))
}

func zrank(c *fsm.Ctx, args [][]byte) fsm.Reply    { return rank(c, args, false) }
func zrevrank(c *fsm.Ctx, args [][]byte) fsm.Reply { return rank(c, args, true) }

func rank(c *fsm.Ctx, args [][]byte, reverse bool) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Null
	}
	member := string(args[2])
	score, ok := o.Coll.Score.Get(member)
	if !ok {
		return fsm.Null
	}
	at := o.Coll.Rank(container.Scored{Score: score, Member: member})
	if reverse {
		at = o.Coll.Order.Len() - 1 - at
	}
	return fsm.Int(int64(at))
}

func zpopmin(c *fsm.Ctx, args [][]byte) fsm.Reply { return zpop(c, args, false) }
func zpopmax(c *fsm.Ctx, args [][]byte) fsm.Reply { return zpop(c, args, true) }

func zpop(c *fsm.Ctx, args [][]byte, fromMax bool) fsm.Reply {
	count, fail := popCount(args)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil, count == 0:
		return fsm.Array(nil)
	}
	elems, fail := takeScored(c, o, count, fromMax, len(args) == 3)
	if fail.IsError() {
		return fail
	}
	return fsm.Array(elems)
}

// takeScored removes the members with the lowest or the highest scores from a
// sorted set and returns them. For pairs, see addScored.
func takeScored(c *fsm.Ctx, o *keyspace.Object, count int64, fromMax, pairs bool) (elems []fsm.Reply, fail fsm.Reply) {
	size := o.Coll.Order.Len()
	left := int(min(count, int64(size)))
	from, to, event := 0, left, "zpopmin"
	if fromMax {
		from, to, event = size-left, size, "zpopmax"
	}
	q := rangeQuery{by: byRank, reverse: fromMax, start: 0, end: int64(left) - 1}
	l := collector{c: c}
	exact := c.Features() >= fsm.FeatureReplies
	q.walk(o.Coll, func(m *container.Scored) bool {
		if exact {
			l.size += len(number.FormatDouble(m.Score)) // which collector.add does not count
		}
		return addScored(c, &l, m, true, pairs)
	})
	if l.over() { // the reply is too large, so the sorted set is not changed
		return nil, fsm.Error(fsm.ReplyTooLarge)
	}
	n := open(c, o, []byte(o.Key), keyspace.TypeZSet)
	c.Charge(stepsDeleteRange(to-from, size))
	n.Coll.DeleteRange(c.Owner(), from, to)
	storeOrRemove(c, n, "z", event)
	return l.elems, fsm.Null
}

func zrandmember(c *fsm.Ctx, args [][]byte) fsm.Reply {
	add := func(l *collector, v *keyspace.Collection, i int, with bool) bool {
		m := v.Order.At(i)
		return addScored(c, l, &m, with, true)
	}
	return randomElements(c, args, keyspace.TypeZSet, "WITHSCORES", add)
}

func zscan(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return scanCollection(c, args, keyspace.TypeZSet, func(o *keyspace.Object, s *elementScan) {
		if o.Coll.Big {
			scanDict(&o.Coll.Score, s, true, func(e *container.Item[float64]) fsm.Reply {
				return fsm.Bulk(number.FormatDouble(e.Value))
			})
			return
		}
		o.Coll.Order.Ascend(0, func(m *container.Scored) bool {
			s.offer(m.Member, fsm.Bulk(compactScore(m.Score)))
			return !s.found.over()
		})
	})
}

// compactScore formats a score as in the compact encoding of Redis: as an
// integer if the score is integral.
func compactScore(f float64) string {
	if math.Abs(f) < 1<<62 && f == math.Trunc(f) {
		return strconv.FormatInt(int64(f), 10)
	}
	return number.FormatDouble(f)
}
