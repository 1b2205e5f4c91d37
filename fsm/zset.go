package fsm

import (
	"math"
	"strconv"
	"strings"
)

var zsetCommands = []Command{
	{Name: "zadd", Arity: -4, Flags: Write | DenyOOM | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.", Syntax: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]", Doc: "Add one or more members to a sorted set, or update its score if it already exists", History: []Change{{"2.4.0", "Accepts multiple elements."}, {"3.0.2", "Added the `XX`, `NX`, `CH` and `INCR` options."}, {"6.2.0", "Added the `GT` and `LT` options."}}, Run: zadd},
	{Name: "zrem", Arity: -3, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.", Syntax: "key member [member ...]", Doc: "Remove one or more members from a sorted set", History: []Change{{"2.4.0", "Accepts multiple elements."}}, Run: zrem},
	{Name: "zscore", Arity: 3, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(1)", Syntax: "key member", Doc: "Get the score associated with the given member in a sorted set", Run: zscore},
	{Name: "zmscore", Arity: -3, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "6.2.0", Complexity: "O(N) where N is the number of members being requested.", Syntax: "key member [member ...]", Doc: "Get the score associated with the given members in a sorted set", Run: zmscore},
	{Name: "zcard", Arity: 2, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(1)", Syntax: "key", Doc: "Get the number of members in a sorted set", Run: zcard},
	{Name: "zcount", Arity: 4, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.0.0", Complexity: "O(log(N)) with N being the number of elements in the sorted set.", Syntax: "key min max", Doc: "Count the members in a sorted set with scores within the given values", Run: zcount},
	{Name: "zrank", Arity: 3, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.0.0", Complexity: "O(log(N))", Syntax: "key member", Doc: "Determine the index of a member in a sorted set", Run: zrank},
	{Name: "zrevrank", Arity: 3, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.0.0", Complexity: "O(log(N))", Syntax: "key member", Doc: "Determine the index of a member in a sorted set, with scores ordered from high to low", Run: zrevrank},
	{Name: "zincrby", Arity: 4, Flags: Write | DenyOOM | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(log(N)) where N is the number of elements in the sorted set.", Syntax: "key increment member", Doc: "Increment the score of a member in a sorted set", Run: zincrby},
	{Name: "zrange", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.", Syntax: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]", Doc: "Return a range of members in a sorted set", History: []Change{{"6.2.0", "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options."}}, Run: zrange},
	{Name: "zrangestore", Arity: -5, Flags: Write | DenyOOM, Keys: Keys{1, 2, 1}, Specs: []KeySpec{{Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}}, {Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}}}, Group: "sorted-set", Since: "6.2.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.", Syntax: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]", Doc: "Store a range of members from sorted set into another key", Run: zrangestore},
	{Name: "zrangebyscore", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "1.0.5", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).", Syntax: "key min max [WITHSCORES] [LIMIT offset count]", Doc: "Return a range of members in a sorted set, by score", History: []Change{{"2.0.0", "Added the `WITHSCORES` modifier."}}, DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYSCORE` argument", Run: zrangebyscore},
	{Name: "zrevrangebyscore", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.2.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).", Syntax: "key max min [WITHSCORES] [LIMIT offset count]", Doc: "Return a range of members in a sorted set, by score, with scores ordered from high to low", History: []Change{{"2.1.6", "`min` and `max` can be exclusive."}}, DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYSCORE` arguments", Run: zrevrangebyscore},
	{Name: "zrangebylex", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.8.9", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).", Syntax: "key min max [LIMIT offset count]", Doc: "Return a range of members in a sorted set, by lexicographical range", DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYLEX` argument", Run: zrangebylex},
	{Name: "zrevrangebylex", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.8.9", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).", Syntax: "key max min [LIMIT offset count]", Doc: "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.", DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYLEX` arguments", Run: zrevrangebylex},
	{Name: "zrevrange", Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.", Syntax: "key start stop [WITHSCORES]", Doc: "Return a range of members in a sorted set, by index, with scores ordered from high to low", DeprecatedSince: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` argument", Run: zrevrange},
	{Name: "zlexcount", Arity: 4, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.8.9", Complexity: "O(log(N)) with N being the number of elements in the sorted set.", Syntax: "key min max", Doc: "Count the number of members in a sorted set between a given lexicographical range", Run: zlexcount},
	{Name: "zremrangebyscore", Arity: 4, Flags: Write, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"}, Group: "sorted-set", Since: "1.2.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.", Syntax: "key min max", Doc: "Remove all members in a sorted set within the given scores", Run: zremrangebyscore},
	{Name: "zremrangebyrank", Arity: 4, Flags: Write, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"}, Group: "sorted-set", Since: "2.0.0", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.", Syntax: "key start stop", Doc: "Remove all members in a sorted set within the given indexes", Run: zremrangebyrank},
	{Name: "zremrangebylex", Arity: 4, Flags: Write, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"}, Group: "sorted-set", Since: "2.8.9", Complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.", Syntax: "key min max", Doc: "Remove all members in a sorted set between the given lexicographical range", Run: zremrangebylex},
	{Name: "zpopmin", Arity: -2, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, Group: "sorted-set", Since: "5.0.0", Complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.", Syntax: "key [count]", Doc: "Remove and return members with the lowest scores in a sorted set", Run: zpopmin},
	{Name: "zpopmax", Arity: -2, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, Group: "sorted-set", Since: "5.0.0", Complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.", Syntax: "key [count]", Doc: "Remove and return members with the highest scores in a sorted set", Run: zpopmax},
	{Name: "zrandmember", Arity: -2, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "6.2.0", Complexity: "O(N) where N is the number of elements returned", Syntax: "key [count [WITHSCORES]]", Doc: "Get one or multiple random elements from a sorted set", Tips: []string{"nondeterministic_output"}, Run: zrandmember},
	{Name: "zscan", Arity: -3, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "sorted-set", Since: "2.8.0", Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..", Syntax: "key cursor [MATCH pattern] [COUNT count]", Doc: "Incrementally iterate sorted sets elements and associated scores", Tips: []string{"nondeterministic_output"}, Run: zscan},
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

// parseScore reads what C's strtod reads to the end, hexadecimal and infinities
// included, no NaN, and what is neither too large nor vanishes.
func parseScore(b []byte) (float64, bool) {
	if len(b) == 0 || isSpace(b[0]) {
		return 0, false
	}
	f, inRange, ok := scanDouble(string(b))
	return f, ok && inRange && !math.IsNaN(f)
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// scanDouble reads s as strtod does, and wants all of it. Out of range is what
// is rounded to infinity or to zero.
func scanDouble(s string) (f float64, inRange, ok bool) {
	digits := strings.ToLower(strings.TrimLeft(s[:min(1, len(s))], "+-") + s[min(1, len(s)):])
	if strings.ContainsAny(s, "_ ") {
		return 0, false, false
	}
	if strings.HasPrefix(digits, "0x") && !strings.Contains(digits, "p") {
		s += "p0" // Go wants the exponent
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false, false
	}
	if f == 0 {
		mantissa, _, _ := strings.Cut(digits, "e")
		if strings.HasPrefix(digits, "0x") {
			mantissa, _, _ = strings.Cut(digits[2:], "p")
			return f, !strings.ContainsAny(mantissa, "123456789abcdef"), true
		}
		return f, !strings.ContainsAny(mantissa, "123456789"), true
	}
	return f, err == nil, true
}

// scoreBound is an end of a range of scores.
type scoreBound struct {
	score float64
	open  bool // the score itself is not in the range
}

// parseBound reads an end of a range as Redis does, with strtod and no look at
// its errors: blanks before it, nothing at all and what is out of range are fine.
func parseBound(arg []byte) (b scoreBound, ok bool) {
	s := string(arg)
	if strings.HasPrefix(s, "(") {
		b.open, s = true, s[1:]
	}
	s, _, _ = strings.Cut(s, "\x00")
	if s == "" {
		return b, true
	}
	b.score, _, ok = scanDouble(strings.TrimLeft(s, " \t\n\v\f\r"))
	return b, ok && !math.IsNaN(b.score)
}

// rangeOf is a part of a sorted set: after tells whether a member lies after the
// lower end or on it, before whether it lies before the upper end or on it.
type rangeOf struct {
	empty         bool
	after, before func(m *scored) bool
}

func scoreRange(lo, hi []byte) (r rangeOf, fail Reply) {
	a, ok1 := parseBound(lo)
	b, ok2 := parseBound(hi)
	if !ok1 || !ok2 {
		return r, Error(msgScoreRange)
	}
	r.empty = a.score > b.score || a.score == b.score && (a.open || b.open)
	r.after = func(m *scored) bool { return m.score > a.score || m.score == a.score && !a.open }
	r.before = func(m *scored) bool { return m.score < b.score || m.score == b.score && !b.open }
	return r, Null
}

// lexBound is an end of a range of members; far is -1 and 1 for "-" and "+".
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

// compare compares a member with the end.
func (b *lexBound) compare(member string) int {
	if b.far != 0 {
		return -b.far
	}
	return strings.Compare(member, b.member)
}

func lexRange(lo, hi []byte) (r rangeOf, fail Reply) {
	a, ok1 := parseLex(lo)
	b, ok2 := parseLex(hi)
	if !ok1 || !ok2 {
		return r, Error(msgLexRange)
	}
	if order := a.far - b.far; order == 0 && a.far == 0 {
		d := strings.Compare(a.member, b.member)
		r.empty = d > 0 || d == 0 && (a.open || b.open)
	} else {
		r.empty = order > 0
	}
	r.after = func(m *scored) bool { d := a.compare(m.member); return d > 0 || d == 0 && !a.open }
	r.before = func(m *scored) bool { d := b.compare(m.member); return d < 0 || d == 0 && !b.open }
	return r, Null
}

// in returns the positions of a range among the members of a sorted set.
func (r *rangeOf) in(v *collection) (from, to int) {
	if r.empty {
		return 0, 0
	}
	from = v.order.Search(func(m *scored) bool { return !r.after(m) })
	to = v.order.Search(r.before)
	return from, max(from, to)
}

func zadd(c *Ctx, args [][]byte) Reply {
	var p zaddOptions
	i := 2
	for i < len(args) && (p.condition(args[i]) || p.comparison(args[i])) {
		i++
	}
	return c.zadd(args[1], args[i:], p)
}

func zincrby(c *Ctx, args [][]byte) Reply { return c.zadd(args[1], args[2:], zaddOptions{incr: true}) }

type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// condition reads an option that GEOADD has too, comparison one that it has not.
// They report whether the word is one.
func (p *zaddOptions) condition(word []byte) bool {
	switch {
	case fold(word, "NX"):
		p.nx = true
	case fold(word, "XX"):
		p.xx = true
	case fold(word, "CH"):
		p.ch = true
	default:
		return false
	}
	return true
}

func (p *zaddOptions) comparison(word []byte) bool {
	switch {
	case fold(word, "GT"):
		p.gt = true
	case fold(word, "LT"):
		p.lt = true
	case fold(word, "INCR"):
		p.incr = true
	default:
		return false
	}
	return true
}

// allows says whether a score may take the place of an old one.
func (p *zaddOptions) allows(old, score float64) bool {
	return !p.nx && (!p.gt || score > old) && (!p.lt || score < old)
}

func (c *Ctx) zadd(key []byte, pairs [][]byte, p zaddOptions) Reply {
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		return Error(msgSyntax)
	case p.nx && p.xx:
		return Error(msgXXNX)
	case p.gt && p.nx || p.lt && p.nx || p.gt && p.lt:
		return Error(msgGTLTNX)
	case p.incr && len(pairs) > 2:
		return Error(msgOneIncr)
	}
	scores, members := make([]float64, 0, len(pairs)/2), make([][]byte, 0, len(pairs)/2)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		score, ok := parseScore(pairs[0])
		if !ok {
			return Error(msgNotFloat)
		}
		scores, members = append(scores, score), append(members, pairs[1])
	}
	return c.putScores(key, scores, members, p)
}

// putScores is what ZADD does once its arguments are read.
func (c *Ctx) putScores(key []byte, scores []float64, members [][]byte, p zaddOptions) Reply {
	o, wrong := c.lookupType(key, typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && p.xx && p.incr:
		return Null
	case o == nil && p.xx:
		return Zero
	case !room(o, len(scores)):
		return Error(msgTooMany)
	}
	n := c.open(o, key, typeZSet)
	added, updated, result := int64(0), int64(0), Null
	for i, score := range scores {
		member := string(members[i])
		old, there := n.coll.score.get(member)
		if !there {
			if p.xx {
				continue
			}
			n.coll.putScore(c.m.owner, member, score)
			added++
			result = Double(score)
			continue
		}
		if p.incr {
			if score += old; math.IsNaN(score) && !p.nx {
				return Error(msgScoreNaN)
			}
		}
		if !p.allows(old, score) {
			continue
		}
		if score != old {
			n.coll.putScore(c.m.owner, member, score)
			updated++
		}
		result = Double(score)
	}
	if added+updated > 0 {
		event := "zadd"
		if p.incr {
			event = "zincr"
		}
		c.close(n, "z", event)
	}
	switch {
	case p.incr:
		return result
	case p.ch:
		return Int(added + updated)
	}
	return Int(added)
}

func zrem(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	n := c.open(o, args[1], typeZSet)
	gone := int64(0)
	for _, arg := range args[2:] {
		if n.coll.delScore(c.m.owner, viewString(arg)) {
			gone++
		}
	}
	if gone > 0 {
		c.close(n, "z", "zrem")
	}
	return Int(gone)
}

func zcard(c *Ctx, args [][]byte) Reply { return c.size(args[1], typeZSet) }

func scoreReply(o *object, member []byte) Reply {
	if o == nil {
		return Null
	}
	score, ok := o.coll.score.get(viewString(member))
	if !ok {
		return Null
	}
	return Double(score)
}

func zscore(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	return scoreReply(o, args[2])
}

func zmscore(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	var scores []Reply
	for _, arg := range args[2:] {
		scores = append(scores, scoreReply(o, arg))
	}
	return Array(scores)
}

func zcount(c *Ctx, args [][]byte) Reply    { return c.countRange(args, scoreRange) }
func zlexcount(c *Ctx, args [][]byte) Reply { return c.countRange(args, lexRange) }

func (c *Ctx) countRange(args [][]byte, parse func(lo, hi []byte) (rangeOf, Reply)) Reply {
	r, fail := parse(args[2], args[3])
	if fail.IsError() {
		return fail
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	from, to := r.in(o.coll)
	return Int(int64(to - from))
}

func zrank(c *Ctx, args [][]byte) Reply    { return c.rank(args, false) }
func zrevrank(c *Ctx, args [][]byte) Reply { return c.rank(args, true) }

func (c *Ctx) rank(args [][]byte, reverse bool) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Null
	}
	member := string(args[2])
	score, ok := o.coll.score.get(member)
	if !ok {
		return Null
	}
	at := o.coll.rank(scored{score, member})
	if reverse {
		at = o.coll.order.Len() - 1 - at
	}
	return Int(int64(at))
}

// rangeBy is what the ends of a range are.
type rangeBy byte

const (
	byAny rangeBy = iota // as the options say
	byRank
	byScore
	byLex
)

// rangeQuery is what ZRANGE and its kin ask for.
type rangeQuery struct {
	by         rangeBy
	reverse    bool
	withScores bool
	offset     int64
	limit      int64
	start, end int64
	part       rangeOf
}

// parseRange reads a range whose ends stand first in args. store is for
// ZRANGESTORE; reversible where REV may be said.
func parseRange(args [][]byte, by rangeBy, reverse, reversible, store bool) (q rangeQuery, fail Reply) {
	q = rangeQuery{by: by, reverse: reverse, limit: -1}
	for i := 2; i < len(args); i++ {
		switch {
		case !store && fold(args[i], "WITHSCORES"):
			q.withScores = true
		case fold(args[i], "LIMIT") && i+2 < len(args):
			var ok1, ok2 bool
			q.offset, ok1 = parseInt(args[i+1])
			q.limit, ok2 = parseInt(args[i+2])
			if !ok1 || !ok2 {
				return q, Error(msgNotInt)
			}
			i += 2
		case reversible && fold(args[i], "REV"):
			q.reverse, reversible = true, false
		case q.by == byAny && fold(args[i], "BYSCORE"):
			q.by = byScore
		case q.by == byAny && fold(args[i], "BYLEX"):
			q.by = byLex
		default:
			return q, Error(msgSyntax)
		}
	}
	if q.by == byAny {
		q.by = byRank
	}
	switch {
	case q.limit != -1 && q.by == byRank:
		return q, Error(msgLimitOnly)
	case q.withScores && q.by == byLex:
		return q, Error(msgNoLexScores)
	}
	lo, hi := args[0], args[1]
	if q.reverse && q.by != byRank {
		lo, hi = hi, lo
	}
	switch q.by {
	case byScore:
		q.part, fail = scoreRange(lo, hi)
	case byLex:
		q.part, fail = lexRange(lo, hi)
	default:
		var ok1, ok2 bool
		q.start, ok1 = parseInt(lo)
		q.end, ok2 = parseInt(hi)
		if !ok1 || !ok2 {
			fail = Error(msgNotInt)
		}
	}
	return q, fail
}

// walk calls f for what the query asks for until it returns false.
func (q *rangeQuery) walk(v *collection, f func(m *scored) bool) {
	n := v.order.Len()
	var from, to int
	if q.by == byRank {
		from, to = span(q.start, q.end, n)
		if q.reverse {
			from, to = n-to, n-from
			if from == n { // nothing
				to = from
			}
		}
	} else {
		from, to = q.part.in(v)
		if q.offset < 0 || q.offset > int64(to-from) {
			return
		}
		left := int64(to-from) - q.offset
		if q.limit >= 0 {
			left = min(left, q.limit)
		}
		if q.reverse {
			to -= int(q.offset)
			from = to - int(left)
		} else {
			from += int(q.offset)
			to = from + int(left)
		}
	}
	left := to - from
	if left <= 0 {
		return
	}
	step := func(m *scored) bool {
		left--
		return f(m) && left > 0
	}
	if q.reverse {
		v.order.Descend(to-1, step)
	} else {
		v.order.Ascend(from, step)
	}
}

func zrange(c *Ctx, args [][]byte) Reply {
	return c.zrangeReply(args, byAny, false, true)
}
func zrevrange(c *Ctx, args [][]byte) Reply     { return c.zrangeReply(args, byRank, true, false) }
func zrangebyscore(c *Ctx, args [][]byte) Reply { return c.zrangeReply(args, byScore, false, false) }
func zrevrangebyscore(c *Ctx, args [][]byte) Reply {
	return c.zrangeReply(args, byScore, true, false)
}
func zrangebylex(c *Ctx, args [][]byte) Reply    { return c.zrangeReply(args, byLex, false, false) }
func zrevrangebylex(c *Ctx, args [][]byte) Reply { return c.zrangeReply(args, byLex, true, false) }

func (c *Ctx) zrangeReply(args [][]byte, by rangeBy, reverse, reversible bool) Reply {
	q, fail := parseRange(args[2:], by, reverse, reversible, false)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Array(nil)
	}
	var l collector
	q.walk(o.coll, func(m *scored) bool { return c.addScored(&l, m, q.withScores, true) })
	return l.reply(Array)
}

// addScored adds a member and, if asked for, its score: in RESP3 both as an array
// of their own where pairs are asked for.
func (c *Ctx) addScored(l *collector, m *scored, withScores, pairs bool) bool {
	switch {
	case !withScores:
		return l.add(Bulk(m.member))
	case pairs && c.proto >= 3:
		return l.add(Array([]Reply{Bulk(m.member), Double(m.score)}))
	}
	l.add(Bulk(m.member))
	return l.add(Double(m.score))
}

func zrangestore(c *Ctx, args [][]byte) Reply {
	q, fail := parseRange(args[3:], byAny, false, true, true)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.lookupType(args[2], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	n := c.open(nil, args[1], typeZSet)
	if o != nil {
		q.walk(o.coll, func(m *scored) bool {
			n.coll.putScore(c.m.owner, m.member, m.score)
			return true
		})
	}
	return c.storeResult(n, "z", "zrangestore")
}

func zremrangebyscore(c *Ctx, args [][]byte) Reply {
	r, fail := scoreRange(args[2], args[3])
	return c.removeRange(args[1], "zremrangebyscore", fail, r.in)
}

func zremrangebylex(c *Ctx, args [][]byte) Reply {
	r, fail := lexRange(args[2], args[3])
	return c.removeRange(args[1], "zremrangebylex", fail, r.in)
}

func zremrangebyrank(c *Ctx, args [][]byte) Reply {
	start, ok1 := parseInt(args[2])
	end, ok2 := parseInt(args[3])
	fail := Null
	if !ok1 || !ok2 {
		fail = Error(msgNotInt)
	}
	return c.removeRange(args[1], "zremrangebyrank", fail, func(v *collection) (int, int) { return span(start, end, v.order.Len()) })
}

func (c *Ctx) removeRange(key []byte, event string, fail Reply, in func(v *collection) (from, to int)) Reply {
	if fail.IsError() {
		return fail
	}
	o, wrong := c.lookupType(key, typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	from, to := in(o.coll)
	if from == to {
		return Zero
	}
	n := c.open(o, key, typeZSet)
	n.coll.delRange(c.m.owner, from, to)
	c.close(n, "z", event)
	return Int(int64(to - from))
}

// delRange takes the members at some positions out.
func (v *collection) delRange(o *seqOwner, from, to int) {
	if to-from == v.order.Len() {
		v.score, v.order = dict[float64]{}, seq[scored]{}
		return
	}
	for range to - from {
		v.score.del(o, v.order.Delete(o, from).member)
	}
}

func zpopmin(c *Ctx, args [][]byte) Reply { return c.zpop(args, false) }
func zpopmax(c *Ctx, args [][]byte) Reply { return c.zpop(args, true) }

func (c *Ctx) zpop(args [][]byte, fromMax bool) Reply {
	if len(args) > 3 {
		return Error(msgSyntax)
	}
	count := int64(1)
	if len(args) == 3 {
		var fail Reply
		if count, fail = positive(args[2], msgNotPositive); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil, count == 0:
		return Array(nil)
	}
	elems, fail := c.takeScored(o, count, fromMax, len(args) == 3)
	if fail.IsError() {
		return fail
	}
	return Array(elems)
}

// takeScored takes members with the lowest or the highest scores out of a sorted
// set. pairs is for RESP3, see addScored.
func (c *Ctx) takeScored(o *object, count int64, fromMax, pairs bool) (elems []Reply, fail Reply) {
	size := o.coll.order.Len()
	left := int(min(count, int64(size)))
	from, to, event := 0, left, "zpopmin"
	if fromMax {
		from, to, event = size-left, size, "zpopmax"
	}
	q := rangeQuery{by: byRank, reverse: fromMax, start: 0, end: int64(left) - 1}
	var l collector
	q.walk(o.coll, func(m *scored) bool { return c.addScored(&l, m, true, pairs) })
	if l.over() { // nothing is taken that is not given
		return nil, Error(replyTooLarge)
	}
	n := c.open(o, []byte(o.key), typeZSet)
	n.coll.delRange(c.m.owner, from, to)
	c.close(n, "z", event)
	return l.elems, Null
}

func zrandmember(c *Ctx, args [][]byte) Reply {
	var count int64
	var with bool
	if len(args) > 2 {
		var fail Reply
		if count, with, fail = randomCount(args, "WITHSCORES"); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil && len(args) > 2:
		return Array(nil)
	case o == nil:
		return Null
	}
	v := &o.coll.order
	if len(args) == 2 {
		return Bulk(v.At(c.below(v.Len())).member)
	}
	var l collector
	drawn := c.randomPlaces(count, v.Len(), func(i int) bool {
		m := v.At(i)
		return c.addScored(&l, &m, with, true)
	})
	if !drawn {
		return Error(msgRepeats)
	}
	return l.reply(Array)
}

func zscan(c *Ctx, args [][]byte) Reply {
	return c.scanCollection(args, typeZSet, func(o *object, s *elementScan) {
		if o.coll.big {
			scanDict(&o.coll.score, s, true, func(e *item[float64]) Reply { return Bulk(FormatDouble(e.value)) })
			return
		}
		o.coll.order.Ascend(0, func(m *scored) bool {
			s.offer(m.member, Bulk(compactScore(m.score)))
			return !s.found.over()
		})
	})
}

// compactScore prints a score as Redis' compact encoding has it: as an integer
// wherever it is one.
func compactScore(f float64) string {
	if math.Abs(f) < 1<<62 && f == math.Trunc(f) {
		return strconv.FormatInt(int64(f), 10)
	}
	return FormatDouble(f)
}
