package fsm

import "github.com/holdfast-kv/holdfast/fsm/stream"

const xreadgroupName = "xreadgroup"

var xreadgroupCommands = []Command{
	{
		Name: xreadgroupName, Run: xreadgroup, Arity: -7, Flags: Write | Blocking | MovableKeys,
		Specs: []KeySpec{
			{Keyword: "STREAMS", Part: 2, Keys: Keys{4, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		KeysOf: xreadKeys,
		Group:  "stream", Since: "5.0.0",
		Complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
		Syntax:     "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
		Doc:        "Return new entries from a stream using a consumer group, or access the history of the pending entries for a given consumer. Can block.",
		block:      parseXreadgroup,
	},
}

const (
	msgDollarID   = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set."
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
		g := o.coll.stream.Groups.At(at)
		l := collector{c: c, elems: []Reply{}, size: size}
		read := c.readHistory
		if ids[i] == stream.MaxID {
			if c.groupSuspended(key, &q) || o.coll.stream.Entries.Len() == 0 ||
				o.coll.stream.Entries.At(o.coll.stream.Entries.Len()-1).ID.Compare(g.Last) <= 0 {
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
func (c *Ctx) readNew(o *object, at int, q *xreadQuery, after stream.ID, l *collector) Reply {
	var ids []stream.ID
	o.coll.entriesAfter(l, after, q.count, func(id stream.ID) { ids = append(ids, id) })
	if g := o.coll.stream.Groups.At(at); !groupFits(&g, len(ids)) {
		return Error(msgTooMany)
	}
	if l.over() {
		return Error(ReplyTooLarge)
	}
	c.withGroup(o, at, func(n *object, g *stream.Group) {
		name := c.consumer(n, g, string(q.consumer))
		for _, id := range ids {
			n.coll.stream.Advance(g, id)
			if !q.noack {
				g.Assign(c.m.owner, stream.PendingEntry{ID: id, Consumer: name, At: c.moment(), Deliveries: 1})
			}
		}
	})
	return Null
}

// readHistory returns the consumer's pending entries after an ID. For an entry
// that the stream no longer contains, it returns only the ID.
func (c *Ctx) readHistory(o *object, at int, q *xreadQuery, after stream.ID, l *collector) Reply {
	v, g := o.coll, o.coll.stream.Groups.At(at)
	var again []stream.ID
	if i, found := g.ConsumerPosition(string(q.consumer)); found {
		k := g.Consumers.At(i)
		k.Pending.Ascend(k.Position(after.Next()), func(id *stream.ID) bool {
			more := false
			if e := v.entry(*id); e != nil {
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
	c.withGroup(o, at, func(n *object, g *stream.Group) {
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

// entry returns the entry with an ID, or nil if there is none.
func (v *collection) entry(id stream.ID) *stream.Entry {
	if i := v.stream.EntryPosition(id); i < v.stream.Entries.Len() {
		if e := v.stream.Entries.At(i); e.ID == id {
			return &e
		}
	}
	return nil
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
		if n.typ != typeStream || !w.suspended(n.session) {
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
	b = blocking{typ: typeStream, keys: q.keys, timeout: q.timeout, none: NullArray, gone: Error(msgStreamGone)}
	b.take = func(c *Ctx, key []byte) Reply {
		o, at, _ := c.groupOf(key, q.group)
		if at < 0 {
			return Error(msgGroupGone)
		}
		g := o.coll.stream.Groups.At(at)
		if o.coll.stream.Last.Compare(g.Last) <= 0 {
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
