package fsm

import (
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// xreadLogged is XREAD with BLOCK in the form in which it goes through the log.
// It goes through the log because it may wait.
const xreadLogged = "_xread"

var xreadCommands = []Command{
	{
		Name: "xread", Run: xread, Arity: -4, Flags: ReadOnly | Blocking | MovableKeys,
		KeysOf: xreadKeys,
		Specs: []KeySpec{
			{Keyword: "STREAMS", Part: 2, Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "stream", Since: "5.0.0",
		Complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means " +
			"that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay " +
			"O(M) time in order to serve the M clients blocked on the stream getting new data.",
		Syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
		Doc: "Return never seen elements in multiple streams, with IDs greater than the ones reported by " +
			"the caller for each stream. Can block.",
	},
	{
		Name: xreadLogged, Run: xreadWaiting, Arity: -4, Flags: Internal | Write | Blocking | MovableKeys,
		KeysOf: xreadKeys, block: parseXreadWaiter,
		Group: "internal", Since: "holdfast",
		Complexity: "As XREAD",
		Syntax:     "[COUNT count] BLOCK milliseconds STREAMS key [key ...] id [id ...]",
		Doc:        "XREAD that may wait",
	},
	{
		Name: xreadgroupName, Run: xreadgroup, Arity: -7, Flags: Write | Blocking | MovableKeys,
		KeysOf: xreadKeys, block: parseXreadgroup,
		Specs: []KeySpec{
			{Keyword: "STREAMS", Part: 2, Keys: Keys{4, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "stream", Since: "5.0.0",
		Complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is " +
			"constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the " +
			"other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients " +
			"blocked on the stream getting new data.",
		Syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
		Doc: "Return new entries from a stream using a consumer group, or access the history of the pending " +
			"entries for a given consumer. Can block.",
	},
}

const (
	msgUnbalanced = "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
	msgGroupID    = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> " +
		"<consumer> option."
	msgTimeoutInt  = "ERR timeout is not an integer or out of range"
	msgGroupOption = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."
	msgNoackOption = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead."
	msgNoGroupWord = "ERR Missing GROUP option for XREADGROUP"
	msgBlockScript = " command is not allowed with BLOCK option from scripts"
)

// xreadQuery has the parsed arguments of XREAD or XREADGROUP.
type xreadQuery struct {
	count   int64 // 0: all
	block   bool
	timeout int64
	keys    [][]byte
	ids     [][]byte

	group, consumer []byte // nil for XREAD
	noack           bool
}

func parseXread(args [][]byte) (q xreadQuery, fail Reply) {
	return parseStreams(args, false)
}

// parseStreams parses the arguments of XREAD, or of XREADGROUP if group is set.
func parseStreams(args [][]byte, group bool) (q xreadQuery, fail Reply) {
	for i := 1; i < len(args); i++ {
		more := len(args) - i - 1
		switch {
		case fold(args[i], "BLOCK") && more > 0:
			i++
			ms, ok := number.ParseInt(args[i])
			switch {
			case !ok:
				return q, Error(msgTimeoutInt)
			case ms < 0:
				return q, Error(msgTimeoutNegative)
			}
			q.block, q.timeout = true, ms
		case fold(args[i], "COUNT") && more > 0:
			i++
			n, ok := number.ParseInt(args[i])
			if !ok {
				return q, Error(msgNotInt)
			}
			q.count = max(n, 0)
		case fold(args[i], "STREAMS") && more > 0:
			if more%2 != 0 {
				return q, Error(msgUnbalanced)
			}
			if group && q.group == nil {
				return q, Error(msgNoGroupWord)
			}
			q.keys, q.ids = args[i+1:i+1+more/2], args[i+1+more/2:]
			return q, Null
		case fold(args[i], "GROUP") && more > 1:
			if !group {
				return q, Error(msgGroupOption)
			}
			q.group, q.consumer = args[i+1], args[i+2]
			i += 2
		case fold(args[i], "NOACK"):
			if !group {
				return q, Error(msgNoackOption)
			}
			q.noack = true
		default:
			return q, Error(msgSyntax)
		}
	}
	return q, Error(msgSyntax)
}

// xreadKeys returns the positions of the keys. It skips the names of the group
// and the consumer, which may be "STREAMS" too.
func xreadKeys(args [][]byte) []int {
	for i := 1; i < len(args); i++ {
		rest := len(args) - i - 1
		switch {
		case fold(args[i], "GROUP"):
			i += 2
		case fold(args[i], "STREAMS") && rest > 0 && rest%2 == 0:
			pos := make([]int, rest/2)
			for j := range pos {
				pos[j] = i + 1 + j
			}
			return pos
		}
	}
	return nil
}

// Waits returns the command table row with which to run a call of a blocking
// command. It returns nil if the call never waits: XREAD and XREADGROUP without
// BLOCK.
func (t *Table) Waits(cmd *Command, args [][]byte) *Command {
	waits := cmd
	switch {
	case cmd.Flags&Blocking == 0:
		return nil
	case cmd.Name == xreadgroupName:
	case cmd.Flags&Write != 0:
		return cmd
	default:
		waits = t.index[xreadLogged]
	}
	if q, fail := parseStreams(args, waits == cmd); fail.IsError() || !q.block {
		return nil
	}
	return waits
}

// after resolves the IDs of XREAD. The command returns only entries after these
// IDs.
func (c *Ctx) after(q xreadQuery) (ids []stream.ID, fail Reply) {
	ids = make([]stream.ID, len(q.ids))
	for i, arg := range q.ids {
		o, wrong := c.lookupType(q.keys[i], keyspace.TypeStream)
		if wrong {
			return nil, Error(msgWrongType)
		}
		switch {
		case string(arg) == "$":
			if o != nil {
				ids[i] = o.Coll.Stream.Last
			}
			continue
		case string(arg) == ">":
			return nil, Error(msgGroupID)
		}
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return nil, Error(msgStreamID)
		}
	}
	return ids, Null
}

// entriesAfter adds the entries after an ID to l and calls f for each. It adds
// at most count entries, or all if count is 0.
func entriesAfter(v *keyspace.Collection, l *collector, id stream.ID, count int64, f func(id stream.ID)) {
	if v.Stream.Last.Compare(id) <= 0 {
		return
	}
	v.Stream.Entries.Ascend(v.Stream.EntryPosition(id.Next()), func(e *stream.Entry) bool {
		f(e.ID)
		return l.addEntry(e) && int64(len(l.elems)) != count
	})
}

// xreadReply returns a map from streams to entries, or in RESP2 a list of
// pairs. It omits streams whose list is nil.
func (c *Ctx) xreadReply(keys [][]byte, entries [][]Reply) Reply {
	var elems []Reply
	for i, list := range entries {
		if list == nil {
			continue
		}
		key, value := Bulk(string(keys[i])), Array(list)
		if c.proto >= 3 {
			elems = append(elems, key, value)
		} else {
			elems = append(elems, Array([]Reply{key, value}))
		}
	}
	switch {
	case elems == nil:
		return NullArray
	case c.proto >= 3:
		return Map(elems)
	}
	return Array(elems)
}

// readStreams returns the reply of XREAD, or NullArray if there are no entries.
func (c *Ctx) readStreams(q xreadQuery, ids []stream.ID) Reply {
	entries := make([][]Reply, len(ids))
	size := 0
	for i := range ids {
		o := c.lookup(q.keys[i])
		if o == nil {
			continue
		}
		l := collector{c: c, size: size}
		entriesAfter(o.Coll, &l, ids[i], q.count, func(stream.ID) {})
		if size = l.size; l.over() {
			return Error(ReplyTooLarge)
		}
		entries[i] = l.elems
	}
	return c.xreadReply(q.keys, entries)
}

// mayBlock returns an error for BLOCK in a script.
func (c *Ctx) mayBlock(q *xreadQuery, name []byte) Reply {
	if q.block && c.inScript {
		return Error("ERR " + string(name) + msgBlockScript)
	}
	return Null
}

func xread(c *Ctx, args [][]byte) Reply {
	q, fail := parseXread(args)
	if fail.IsError() {
		return fail
	}
	if fail = c.mayBlock(&q, args[0]); fail.IsError() {
		return fail
	}
	ids, fail := c.after(q)
	if fail.IsError() {
		return fail
	}
	return c.readStreams(q, ids)
}

func xreadWaiting(c *Ctx, args [][]byte) Reply {
	q, fail := parseXread(args)
	if fail.IsError() {
		return fail
	}
	ids, fail := c.after(q)
	if fail.IsError() {
		return fail
	}
	if reply := c.readStreams(q, ids); reply.kind != kindNullArray || c.atomic {
		return reply
	}
	// The IDs are resolved now, because $ would mean another ID later.
	words := [][]byte{
		args[0],
		[]byte("COUNT"), strconv.AppendInt(nil, q.count, 10),
		[]byte("BLOCK"), strconv.AppendInt(nil, q.timeout, 10),
		[]byte("STREAMS"),
	}
	words = append(words, q.keys...)
	for _, id := range ids {
		words = append(words, []byte(id.String()))
	}
	b, fail := parseXreadWaiter(words)
	if fail.IsError() {
		return fail
	}
	if slices.ContainsFunc(q.ids, func(id []byte) bool { return string(id) == "$" }) {
		for _, id := range ids {
			b.resume = append(b.resume, id.String())
		}
	}
	return c.wait(words, b)
}

// parseXreadWaiter parses the arguments that xreadWaiting stored with a waiter.
func parseXreadWaiter(args [][]byte) (b blocking, fail Reply) {
	q, fail := parseXread(args)
	if fail.IsError() {
		return b, fail
	}
	b = blocking{typ: keyspace.TypeStream, keys: q.keys, timeout: q.timeout, none: NullArray}
	b.take = func(c *Ctx, key []byte) Reply {
		for i := range q.keys {
			if string(q.keys[i]) != string(key) {
				continue
			}
			id, ok := stream.ParseID(q.ids[i], 0, true)
			if !ok {
				id = stream.MaxID
			}
			v := c.lookup(key).Coll
			if v.Stream.Last.Compare(id) <= 0 {
				continue
			}
			// The new entries may already have been deleted. The list is then
			// empty.
			l := collector{c: c, elems: []Reply{}}
			entriesAfter(v, &l, id, q.count, func(stream.ID) {})
			if l.over() {
				return Error(ReplyTooLarge)
			}
			return c.xreadReply([][]byte{key}, [][]Reply{l.elems})
		}
		return None // keep waiting
	}
	return b, Null
}

const xreadgroupName = "xreadgroup"

const (
	msgDollarID = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of " +
		"this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return " +
		"an empty result set."
	msgGroupGone  = "NOGROUP the consumer group this client was blocked on no longer exists"
	msgStreamGone = "UNBLOCKED the stream key no longer exists"
	inGroupOption = " in XREADGROUP with GROUP option"
)

// fromGroup resolves the IDs of XREADGROUP. It represents ">" by the largest
// ID.
func (c *Ctx) fromGroup(q *xreadQuery) (ids []stream.ID, fail Reply) {
	ids = make([]stream.ID, len(q.ids))
	for i, arg := range q.ids {
		_, at, wrong := c.groupOf(q.keys[i], q.group)
		switch {
		case wrong:
			return nil, Error(msgWrongType)
		case at < 0:
			return nil, noGroup(q.keys[i], q.group, inGroupOption)
		case string(arg) == "$":
			return nil, Error(msgDollarID)
		case string(arg) == ">":
			ids[i] = stream.MaxID
			continue
		}
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return nil, Error(msgStreamID)
		}
	}
	return ids, Null
}

func xreadgroup(c *Ctx, args [][]byte) Reply {
	b, fail := parseXreadgroup(args)
	if fail.IsError() {
		return fail
	}
	q, _ := parseStreams(args, true)
	if fail = c.mayBlock(&q, args[0]); fail.IsError() {
		return fail
	}
	ids, fail := c.fromGroup(&q)
	if fail.IsError() {
		return fail
	}
	entries := make([][]Reply, len(ids))
	size := 0
	for i, key := range q.keys {
		o, at, _ := c.groupOf(key, q.group)
		g := o.Coll.Stream.Groups.At(at)
		l := collector{c: c, elems: []Reply{}, size: size}
		read := c.readHistory
		if ids[i] == stream.MaxID {
			if c.groupSuspended(key, &q) || o.Coll.Stream.Entries.Len() == 0 ||
				o.Coll.Stream.Entries.At(o.Coll.Stream.Entries.Len()-1).ID.Compare(g.Last) <= 0 {
				continue
			}
			ids[i], read = g.Last, c.readNew
		}
		if fail = read(o, at, &q, ids[i], &l); fail.IsError() {
			if size == 0 {
				return fail
			}
			break // the entries read so far are delivered; the next call reads the rest
		}
		size = l.size
		entries[i] = l.elems
	}
	if reply := c.xreadReply(q.keys, entries); reply.kind != kindNullArray || !q.block || c.atomic {
		return reply
	}
	return c.wait(args, b)
}

// readNew delivers the entries after an ID to a consumer, as many as fit the
// reply and the query's count.
func (c *Ctx) readNew(o *keyspace.Object, at int, q *xreadQuery, after stream.ID, l *collector) Reply {
	var ids []stream.ID
	entriesAfter(o.Coll, l, after, q.count, func(id stream.ID) { ids = append(ids, id) })
	if g := o.Coll.Stream.Groups.At(at); !groupFits(&g, len(ids)) {
		return Error(msgTooMany)
	}
	if l.over() {
		return Error(ReplyTooLarge)
	}
	c.withGroup(o, at, func(n *keyspace.Object, g *stream.Group) {
		name := c.consumer(n, g, string(q.consumer))
		for _, id := range ids {
			n.Coll.Stream.Advance(g, id)
			if !q.noack {
				g.Assign(c.m.owner, stream.PendingEntry{ID: id, Consumer: name, At: c.moment(), Deliveries: 1})
			}
		}
	})
	return Null
}

// readHistory returns the consumer's pending entries after an ID. For an entry
// that the stream no longer contains, it returns only the ID.
func (c *Ctx) readHistory(o *keyspace.Object, at int, q *xreadQuery, after stream.ID, l *collector) Reply {
	v, g := o.Coll, o.Coll.Stream.Groups.At(at)
	var again []stream.ID
	if i, found := g.ConsumerPosition(string(q.consumer)); found {
		k := g.Consumers.At(i)
		k.Pending.Ascend(k.Position(after.Next()), func(id *stream.ID) bool {
			more := false
			if e := v.Stream.Entry(*id); e != nil {
				again = append(again, *id)
				more = l.addEntry(e)
			} else {
				more = l.add(Array([]Reply{Bulk(id.String()), NullArray}))
			}
			return more && int64(len(l.elems)) != q.count
		})
	} else if !groupFits(&g, 0) {
		return Error(msgTooMany)
	}
	if l.over() {
		return Error(ReplyTooLarge)
	}
	c.withGroup(o, at, func(n *keyspace.Object, g *stream.Group) {
		c.consumer(n, g, string(q.consumer))
		for _, id := range again {
			i, _ := g.PendingPosition(id)
			p := g.Pending.At(i)
			p.At = c.moment()
			p.Deliveries++
			g.Pending.Set(c.m.owner, i, p)
		}
	})
	return Null
}

// groupSuspended reports whether the stream has a suspended waiter of the same
// group. If so, a new reader must wait behind it, so that the suspended waiter
// keeps its position.
func (c *Ctx) groupSuspended(key []byte, q *xreadQuery) bool {
	w := &c.m.waits
	if !q.block || c.atomic || w.queues.Len() == 0 {
		return false
	}
	k := waitKey{c.db, string(key)}
	for n := w.first(k, 0); n != nil; n = w.first(k, n.pos) {
		if n.typ != keyspace.TypeStream || !w.suspended(n.session) {
			continue
		}
		if other, fail := parseStreams(n.args, true); !fail.IsError() && string(other.group) == string(q.group) {
			return true
		}
	}
	return false
}

// parseXreadgroup parses the arguments that XREADGROUP stored with a waiter.
// XREADGROUP waits only if all its IDs are ">".
func parseXreadgroup(args [][]byte) (b blocking, fail Reply) {
	q, fail := parseStreams(args, true)
	if fail.IsError() {
		return b, fail
	}
	b = blocking{
		typ: keyspace.TypeStream, keys: q.keys, timeout: q.timeout, none: NullArray, gone: Error(msgStreamGone),
	}
	b.take = func(c *Ctx, key []byte) Reply {
		o, at, _ := c.groupOf(key, q.group)
		if at < 0 {
			return Error(msgGroupGone)
		}
		g := o.Coll.Stream.Groups.At(at)
		if o.Coll.Stream.Last.Compare(g.Last) <= 0 {
			return None // keep waiting
		}
		l := collector{c: c, elems: []Reply{}}
		if fail := c.readNew(o, at, &q, g.Last, &l); fail.IsError() {
			return fail
		}
		return c.xreadReply([][]byte{key}, [][]Reply{l.elems})
	}
	return b, Null
}
