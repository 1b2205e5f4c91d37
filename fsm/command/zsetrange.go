package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// rangeBy is the kind of the two ends of a range: ranks, scores or members.
type rangeBy byte

const (
	byAny rangeBy = iota // the options say whether the range is by rank, score or member
	byRank
	byScore
	byLex
)

// rangeQuery has the parsed arguments of ZRANGE and similar commands.
type rangeQuery struct {
	by         rangeBy
	reverse    bool
	withScores bool
	offset     int64
	limit      int64
	start, end int64
	part       rangeOf
}

// parseRange parses a range whose ends are the first two elements of args.
// store is set for ZRANGESTORE. reversible is set for commands that accept REV.
func parseRange(args [][]byte, by rangeBy, reverse, reversible, store bool) (q rangeQuery, fail fsm.Reply) {
	q = rangeQuery{by: by, reverse: reverse, limit: -1}
	for i := 2; i < len(args); i++ {
		switch {
		case !store && fsm.IsWord(args[i], "WITHSCORES"):
			q.withScores = true
		case fsm.IsWord(args[i], "LIMIT") && i+2 < len(args):
			var ok1, ok2 bool
			q.offset, ok1 = number.ParseInt(args[i+1])
			q.limit, ok2 = number.ParseInt(args[i+2])
			if !ok1 || !ok2 {
				return q, fsm.Error(fsm.MsgNotInt)
			}
			i += 2
		case reversible && fsm.IsWord(args[i], "REV"):
			q.reverse, reversible = true, false
		case q.by == byAny && fsm.IsWord(args[i], "BYSCORE"):
			q.by = byScore
		case q.by == byAny && fsm.IsWord(args[i], "BYLEX"):
			q.by = byLex
		default:
			return q, fsm.Error(fsm.MsgSyntax)
		}
	}
	if q.by == byAny {
		q.by = byRank
	}
	switch {
	case q.limit != -1 && q.by == byRank:
		return q, fsm.Error(msgLimitOnly)
	case q.withScores && q.by == byLex:
		return q, fsm.Error(msgNoLexScores)
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
		q.start, ok1 = number.ParseInt(lo)
		q.end, ok2 = number.ParseInt(hi)
		if !ok1 || !ok2 {
			fail = fsm.Error(fsm.MsgNotInt)
		}
	}
	return q, fail
}

// walk calls f for the members that the query selects until f returns false.
func (q *rangeQuery) walk(v *keyspace.Collection, f func(m *container.Scored) bool) {
	n := v.Order.Len()
	var from, to int
	if q.by == byRank {
		from, to = span(q.start, q.end, n)
		if q.reverse {
			from, to = n-to, n-from
			if from == n { // the range is empty
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
	step := func(m *container.Scored) bool {
		left--
		return f(m) && left > 0
	}
	if q.reverse {
		v.Order.Descend(to-1, step)
	} else {
		v.Order.Ascend(from, step)
	}
}

func zrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zrangeReply(c, args, byAny, false, true)
}
func zrevrange(c *fsm.Ctx, args [][]byte) fsm.Reply { return zrangeReply(c, args, byRank, true, false) }
func zrangebyscore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zrangeReply(c, args, byScore, false, false)
}
func zrevrangebyscore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zrangeReply(c, args, byScore, true, false)
}
func zrangebylex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zrangeReply(c, args, byLex, false, false)
}
func zrevrangebylex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return zrangeReply(c, args, byLex, true, false)
}

func zrangeReply(c *fsm.Ctx, args [][]byte, by rangeBy, reverse, reversible bool) fsm.Reply {
	q, fail := parseRange(args[2:], by, reverse, reversible, false)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Array(nil)
	}
	l := collector{c: c}
	q.walk(o.Coll, func(m *container.Scored) bool { return addScored(c, &l, m, q.withScores, true) })
	return l.reply(fsm.Array)
}

// addScored adds a member and, if withScores is set, its score. In RESP3, each
// member and its score become an array of their own if pairs is set.
func addScored(c *fsm.Ctx, l *collector, m *container.Scored, withScores, pairs bool) bool {
	switch {
	case !withScores:
		return l.add(fsm.Bulk(m.Member))
	case pairs && c.Proto() >= 3:
		return l.add(fsm.Array([]fsm.Reply{fsm.Bulk(m.Member), fsm.Double(m.Score)}))
	}
	l.add(fsm.Bulk(m.Member))
	return l.add(fsm.Double(m.Score))
}

func zrangestore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	q, fail := parseRange(args[3:], byAny, false, true, true)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[2], keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	n := open(c, nil, args[1], keyspace.TypeZSet)
	if o != nil {
		var found []container.Scored
		q.walk(o.Coll, func(m *container.Scored) bool {
			c.Charge(stepsScore)
			found = append(found, *m)
			return true
		})
		n.Coll.FillScores(c.Owner(), found)
	}
	return storeResult(c, n, "z", "zrangestore")
}

func zremrangebyscore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	r, fail := scoreRange(args[2], args[3])
	return removeRange(c, args[1], "zremrangebyscore", fail, r.in)
}

func zremrangebylex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	r, fail := lexRange(args[2], args[3])
	return removeRange(c, args[1], "zremrangebylex", fail, r.in)
}

func zremrangebyrank(c *fsm.Ctx, args [][]byte) fsm.Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	fail := fsm.Null
	if !ok1 || !ok2 {
		fail = fsm.Error(fsm.MsgNotInt)
	}
	return removeRange(c, args[1], "zremrangebyrank", fail, func(v *keyspace.Collection) (int, int) {
		return span(start, end, v.Order.Len())
	})
}

func removeRange(
	c *fsm.Ctx, key []byte, event string, fail fsm.Reply, in func(v *keyspace.Collection) (from, to int),
) fsm.Reply {
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(key, keyspace.TypeZSet)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	from, to := in(o.Coll)
	if from == to {
		return fsm.Zero
	}
	n := open(c, o, key, keyspace.TypeZSet)
	c.Charge(stepsDeleteRange(to-from, o.Coll.Order.Len()))
	n.Coll.DeleteRange(c.Owner(), from, to)
	storeOrRemove(c, n, "z", event)
	return fsm.Int(int64(to - from))
}

// stepsDeleteRange returns the cost of removing k of the n members of a sorted
// set: see keyspace.Collection.DeleteRange.
func stepsDeleteRange(k, n int) int {
	if keyspace.Rebuild(k, n) {
		return 2 * stepsBuild * n
	}
	return 2 * fsm.StepsPut * k
}
