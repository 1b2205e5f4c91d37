package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"math"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file has the commands for pending entries: see stream.Group.

var pendingCommands = []fsm.Command{
	{
		Name: "xack", Run: xack, Arity: -4, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 112, PerArgument: stepsUnscored},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(1) for each message ID processed.",
		Syntax:     "key group id [id ...]",
		Doc: "Marks a pending message as correctly processed, effectively removing it from the pending " +
			"entries list of the consumer group. Return value of the command is the number of messages " +
			"successfully acknowledged, that is, the IDs we were actually able to resolve in the PEL.",
	},
	{
		Name: "xpending", Run: xpending, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of " +
			"entries per call is O(1). O(M), where M is the total number of entries scanned when used with the " +
			"IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in " +
			"O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
		Syntax: "key group [[IDLE min-idle-time] start end count [consumer]]",
		Doc: "Return information and entries from a stream consumer group pending entries list, that are " +
			"messages fetched but never acknowledged.",
		Tips:    []string{"nondeterministic_output"},
		History: []fsm.Change{{Since: "6.2.0", What: "Added the `IDLE` option and exclusive range intervals."}},
	},
	{
		Name: "xclaim", Run: xclaim, Arity: -6, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 112, PerArgument: stepsClaim},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
		Syntax: "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] " +
			"[RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]",
		Doc: "Changes (or acquires) ownership of a message in a consumer group, as if the message was " +
			"delivered to the specified consumer.",
		Tips: []string{"nondeterministic_output"},
	},
	{
		Name: "xautoclaim", Run: xautoclaim, Arity: -6, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: xautoclaimWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "stream", Since: "6.2.0",
		Complexity: "O(1) if COUNT is small.",
		Syntax:     "key group consumer min-idle-time start [COUNT count] [JUSTID]",
		Doc: "Changes (or acquires) ownership of messages in a consumer group, as if the messages were " +
			"delivered to the specified consumer.",
		Tips: []string{"nondeterministic_output"},
		History: []fsm.Change{
			{Since: "7.0.0",
				What: "Added an element to the reply array, containing deleted entries the command cleared from " +
					"the PEL"},
		},
	},
}

const (
	msgMinIdle      = "ERR Invalid min-idle-time argument for "
	msgClaimIdle    = "ERR Invalid IDLE option argument for XCLAIM"
	msgClaimTime    = "ERR Invalid TIME option argument for XCLAIM"
	msgClaimRetry   = "ERR Invalid RETRYCOUNT option argument for XCLAIM"
	msgCountNotMore = "ERR COUNT must be > 0"
)

func xack(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, at, wrong := groupOf(c, args[1], args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case at < 0:
		return fsm.Zero
	}
	g := o.Coll.Stream.Groups.At(at)
	ids := make([]stream.ID, len(args)-3)
	some := false
	for i, arg := range args[3:] {
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return fsm.Error(msgStreamID)
		}
		_, found := g.PendingPosition(ids[i])
		some = some || found
	}
	if !some {
		return fsm.Zero
	}
	done := int64(0)
	withGroup(c, o, at, func(_ *keyspace.Object, g *stream.Group) {
		for _, id := range ids {
			if g.Ack(c.Owner(), id) {
				done++
			}
		}
	})
	return fsm.Int(done)
}

func xpending(c *fsm.Ctx, args [][]byte) fsm.Reply {
	summary := len(args) == 3
	if !summary && (len(args) < 6 || len(args) > 9) {
		return fsm.Error(fsm.MsgSyntax)
	}
	var from, to stream.ID
	var count, idle int64
	rest := args[3:]
	if !summary {
		var ok bool
		if fsm.IsWord(rest[0], "IDLE") {
			if idle, ok = number.ParseInt(rest[1]); !ok {
				return fsm.Error(fsm.MsgNotInt)
			}
			if len(args) < 8 {
				return fsm.Error(fsm.MsgSyntax)
			}
			rest = rest[2:]
		}
		if count, ok = number.ParseInt(rest[2]); !ok {
			return fsm.Error(fsm.MsgNotInt)
		}
		var fail fsm.Reply
		if from, to, fail = interval(rest[0], rest[1]); fail.IsError() {
			return fail
		}
		rest = rest[3:]
	}
	o, at, wrong := groupOf(c, args[1], args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case at < 0:
		return noGroup(args[1], args[2], "")
	}
	g := o.Coll.Stream.Groups.At(at)
	if summary {
		return pendingSummary(c, &g)
	}
	if count <= 0 {
		return fsm.Array(nil)
	}
	l := collector{c: c}
	add := func(p *stream.PendingEntry) bool {
		c.Charge(1)
		if p.ID.Compare(to) > 0 {
			return false
		}
		since := since(c, p.At)
		if idle != 0 && since < idle {
			return true
		}
		return l.add(fsm.Array([]fsm.Reply{fsm.Bulk(p.ID.String()), fsm.Bulk(p.Consumer), fsm.Int(since),
			fsm.Int(p.Deliveries)})) &&
			int64(len(l.elems)) != count
	}
	if len(rest) == 0 {
		i, _ := g.PendingPosition(from)
		g.Pending.Ascend(i, add)
		return l.reply(fsm.Array)
	}
	if i, found := g.ConsumerPosition(string(rest[0])); found {
		k := g.Consumers.At(i)
		k.Pending.Ascend(k.Position(from), func(id *stream.ID) bool {
			c.Charge(fsm.StepsProbe)
			i, _ := g.PendingPosition(*id)
			p := g.Pending.At(i)
			return add(&p)
		})
	}
	return l.reply(fsm.Array)
}

// pendingSummary returns the short reply of XPENDING, which summarizes the pending
// entries of the whole group.
func pendingSummary(c *fsm.Ctx, g *stream.Group) fsm.Reply {
	n := g.Pending.Len()
	if n == 0 {
		return fsm.Array([]fsm.Reply{fsm.Zero, fsm.Null, fsm.Null, fsm.NullArray})
	}
	l := collector{c: c}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		c.Charge(1)
		return k.Pending.Len() == 0 || l.add(fsm.Strings(k.Name, strconv.Itoa(k.Pending.Len())))
	})
	first, last := g.Pending.At(0).ID, g.Pending.At(n-1).ID
	consumers := l.reply(fsm.Array)
	if consumers.IsError() {
		return consumers
	}
	return fsm.Array([]fsm.Reply{fsm.Int(int64(n)), fsm.Bulk(first.String()), fsm.Bulk(last.String()), consumers})
}

// claim has the parsed arguments of XCLAIM.
type claim struct {
	ids     []stream.ID
	minIdle int64
	age     int64 // age of the delivery time that the command sets, in milliseconds
	retries int64 // -1: increment the number of deliveries
	force   bool
	justID  bool
	last    stream.ID
}

// parseClaim parses the arguments of XCLAIM from the minimum idle time on. now
// is the wall clock in milliseconds.
func parseClaim(args [][]byte, now int64) (q claim, fail fsm.Reply) {
	q.retries = -1
	var ok bool
	if q.minIdle, ok = number.ParseInt(args[4]); !ok {
		return q, fsm.Error(msgMinIdle + "XCLAIM")
	}
	i := 5
	for ; i < len(args); i++ {
		id, ok := stream.ParseID(args[i], 0, true)
		if !ok {
			break
		}
		q.ids = append(q.ids, id)
	}
	at := now
	for ; i < len(args); i++ {
		more := i+1 < len(args)
		switch {
		case fsm.IsWord(args[i], "FORCE"):
			q.force = true
		case fsm.IsWord(args[i], "JUSTID"):
			q.justID = true
		case fsm.IsWord(args[i], "IDLE") && more:
			i++
			idle, ok := number.ParseInt(args[i])
			if !ok {
				return q, fsm.Error(msgClaimIdle)
			}
			at = now - idle
		case fsm.IsWord(args[i], "TIME") && more:
			i++
			if at, ok = number.ParseInt(args[i]); !ok {
				return q, fsm.Error(msgClaimTime)
			}
		case fsm.IsWord(args[i], "RETRYCOUNT") && more:
			i++
			if q.retries, ok = number.ParseInt(args[i]); !ok {
				return q, fsm.Error(msgClaimRetry)
			}
		case fsm.IsWord(args[i], "LASTID") && more:
			i++
			if q.last, ok = stream.ParseID(args[i], 0, true); !ok {
				return q, fsm.Error(msgStreamID)
			}
		default:
			return q, fsm.Error("ERR Unrecognized XCLAIM option '" + cString(args[i]) + "'")
		}
	}
	if at >= 0 && at <= now { // otherwise the delivery time is now, because clocks of clients may be wrong
		q.age = now - at
	}
	return q, fsm.Null
}

// claims collects the effects of a claim: the entries that get another
// consumer, and the pending entries that the stream no longer contains.
type claims struct {
	taken   []stream.PendingEntry
	dropped []stream.ID
	reply   collector
}

// take adds an entry to the claimed entries and to the reply. It reports
// whether the reply may still grow.
func (s *claims) take(v *keyspace.Collection, p stream.PendingEntry, justID bool) bool {
	s.taken = append(s.taken, p)
	if justID {
		return s.reply.add(fsm.Bulk(p.ID.String()))
	}
	return s.reply.addEntry(v.Stream.Entry(p.ID))
}

// carry applies the claim to a group: it removes the dropped entries and makes
// the taken entries pending for the consumer.
func (s *claims) carry(c *fsm.Ctx, n *keyspace.Object, g *stream.Group, name string) {
	for _, id := range s.dropped {
		g.Ack(c.Owner(), id)
	}
	if len(s.taken) == 0 {
		return
	}
	name = consumer(c, n, g, name)
	for _, p := range s.taken {
		p.Consumer = name
		g.Assign(c.Owner(), p)
	}
}

func xclaim(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, at, wrong := groupOf(c, args[1], args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case at < 0:
		return noGroup(args[1], args[2], "")
	}
	q, fail := parseClaim(args, wallMs(c))
	if fail.IsError() {
		return fail
	}
	v, g := o.Coll, o.Coll.Stream.Groups.At(at)
	when := stream.Moment{Lease: c.Now() - q.age*1e6, Wall: wallMs(c) - q.age}
	var s claims
	known := make(map[stream.ID]stream.PendingEntry) // the claimed state of IDs that occurred earlier in the command
	gone := make(map[stream.ID]bool)
	for _, id := range q.ids {
		p, found := known[id]
		if i, pending := g.PendingPosition(id); !found && pending && !gone[id] {
			p, found = g.Pending.At(i), true
		}
		switch {
		case v.Stream.Entry(id) == nil:
			if found {
				s.dropped = append(s.dropped, id)
				gone[id] = true
			}
			continue
		case found && q.minIdle > 0 && since(c, p.At) < q.minIdle:
			continue
		case !found && !q.force:
			continue
		case !found:
			p.Deliveries = 1
		}
		p.ID, p.At = id, when
		if q.retries >= 0 {
			p.Deliveries = q.retries
		} else if !q.justID {
			p.Deliveries++
		}
		known[id] = p
		if !s.take(v, p, q.justID) {
			return fsm.Error(fsm.ReplyTooLarge)
		}
	}
	later := q.last.Compare(g.Last) > 0
	switch {
	case len(s.taken) > 0 && !groupFits(&g, len(s.taken)):
		return fsm.Error(msgTooMany)
	case len(s.taken) > 0 || len(s.dropped) > 0 || later:
		withGroup(c, o, at, func(n *keyspace.Object, g *stream.Group) {
			if later {
				g.Last = q.last
			}
			s.carry(c, n, g, string(args[3]))
		})
	}
	return fsm.Array(s.reply.elems)
}

// maxAutoclaim is the maximum COUNT of XAUTOCLAIM, which looks at up to ten
// times as many entries.
const maxAutoclaim = math.MaxInt64 / 16

func xautoclaim(c *fsm.Ctx, args [][]byte) fsm.Reply {
	minIdle, ok := number.ParseInt(args[4])
	if !ok {
		return fsm.Error(msgMinIdle + "XAUTOCLAIM")
	}
	from, fail := intervalStart(args[5])
	if fail.IsError() {
		return fail
	}
	count, justID := int64(100), false
	for i := 6; i < len(args); i++ {
		switch {
		case fsm.IsWord(args[i], "COUNT") && i+1 < len(args):
			i++
			if count, ok = number.ParseInt(args[i]); !ok || count < 1 || count > maxAutoclaim {
				return fsm.Error(msgCountNotMore)
			}
		case fsm.IsWord(args[i], "JUSTID"):
			justID = true
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	o, at, wrong := groupOf(c, args[1], args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case at < 0:
		return noGroup(args[1], args[2], "")
	}
	v, g := o.Coll, o.Coll.Stream.Groups.At(at)
	var s claims
	var dropped []fsm.Reply
	attempts := count * 10
	i, _ := g.PendingPosition(from)
	g.Pending.Ascend(i, func(p *stream.PendingEntry) bool {
		if attempts == 0 || count == 0 {
			return false
		}
		attempts--
		i++
		c.Charge(fsm.StepsPut)
		switch {
		case v.Stream.Entry(p.ID) == nil:
			s.dropped = append(s.dropped, p.ID)
			id := fsm.Bulk(p.ID.String())
			dropped = append(dropped, id)
			if c.Features() >= fsm.FeatureReplies {
				s.reply.size += id.Charged()
			}
		case since(c, p.At) < minIdle:
			return true
		default:
			n := stream.PendingEntry{ID: p.ID, At: moment(c), Deliveries: p.Deliveries}
			if !justID {
				n.Deliveries++
			}
			s.take(v, n, justID)
		}
		count--
		return !s.reply.over()
	})
	switch {
	case s.reply.over():
		return fsm.Error(fsm.ReplyTooLarge)
	case len(s.taken) > 0 && !groupFits(&g, 0):
		return fsm.Error(msgTooMany)
	}
	cursor := stream.ID{}
	if i < g.Pending.Len() {
		cursor = g.Pending.At(i).ID
	}
	if len(s.taken) > 0 || len(s.dropped) > 0 {
		withGroup(c, o, at, func(n *keyspace.Object, g *stream.Group) { s.carry(c, n, g, string(args[3])) })
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(cursor.String()), fsm.Array(s.reply.elems), fsm.Array(dropped)})
}
