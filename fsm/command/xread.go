package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// xreadLogged is the name of the command that the log contains in place of an
// XREAD with BLOCK. Such an XREAD is logged because it may wait.
const xreadLogged = "_xread"

var xreadCommands = []fsm.Command{
	{
		Name: "xread", Run: xread, Arity: -4, Flags: fsm.ReadOnly | fsm.Blocking | fsm.MovableKeys,
		KeysOf: xreadKeys, Wait: fsm.WaitHooks{Logged: xreadLogged, MayWait: xreadMayWait},
		Specs: []fsm.KeySpec{
			{Keyword: "STREAMS", Part: 2, Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
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
		Name: xreadLogged, Run: xreadWaiting, Arity: -4,
		Flags:  fsm.Internal | fsm.Write | fsm.Blocking | fsm.MovableKeys,
		KeysOf: xreadKeys, Wait: fsm.WaitHooks{Block: parseXreadWaiter},
		Group: "internal", Since: "holdfast",
		Complexity: "As XREAD",
		Syntax:     "[COUNT count] BLOCK milliseconds STREAMS key [key ...] id [id ...]",
		Doc:        "XREAD that may wait",
	},
	{
		Name: "xreadgroup", Run: xreadgroup, Arity: -7, Flags: fsm.Write | fsm.Blocking | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Steps: xreadgroupWork},
		KeysOf: xreadKeys, Wait: fsm.WaitHooks{Block: parseXreadgroup, MayWait: xreadgroupMayWait},
		Specs: []fsm.KeySpec{
			{Keyword: "STREAMS", Part: 2, Keys: fsm.KeysAt(4, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
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

func parseXread(args [][]byte) (q xreadQuery, fail fsm.Reply) {
	return parseStreams(args, false)
}

// parseStreams parses the arguments of XREAD, or of XREADGROUP if group is set.
func parseStreams(args [][]byte, group bool) (q xreadQuery, fail fsm.Reply) {
	for i := 1; i < len(args); i++ {
		more := len(args) - i - 1
		switch {
		case fsm.IsWord(args[i], "BLOCK") && more > 0:
			i++
			ms, ok := number.ParseInt(args[i])
			switch {
			case !ok:
				return q, fsm.Error(msgTimeoutInt)
			case ms < 0:
				return q, fsm.Error(msgTimeoutNegative)
			}
			q.block, q.timeout = true, ms
		case fsm.IsWord(args[i], "COUNT") && more > 0:
			i++
			n, ok := number.ParseInt(args[i])
			if !ok {
				return q, fsm.Error(fsm.MsgNotInt)
			}
			q.count = max(n, 0)
		case fsm.IsWord(args[i], "STREAMS") && more > 0:
			if more%2 != 0 {
				return q, fsm.Error(msgUnbalanced)
			}
			if group && q.group == nil {
				return q, fsm.Error(msgNoGroupWord)
			}
			q.keys, q.ids = args[i+1:i+1+more/2], args[i+1+more/2:]
			return q, fsm.Null
		case fsm.IsWord(args[i], "GROUP") && more > 1:
			if !group {
				return q, fsm.Error(msgGroupOption)
			}
			q.group, q.consumer = args[i+1], args[i+2]
			i += 2
		case fsm.IsWord(args[i], "NOACK"):
			if !group {
				return q, fsm.Error(msgNoackOption)
			}
			q.noack = true
		default:
			return q, fsm.Error(fsm.MsgSyntax)
		}
	}
	return q, fsm.Error(fsm.MsgSyntax)
}

// xreadKeys returns the positions of the keys. It skips the names of the group
// and the consumer, which may be "STREAMS" too.
func xreadKeys(args [][]byte) []int {
	for i := 1; i < len(args); i++ {
		rest := len(args) - i - 1
		switch {
		case fsm.IsWord(args[i], "GROUP"):
			i += 2
		case fsm.IsWord(args[i], "STREAMS") && rest > 0 && rest%2 == 0:
			pos := make([]int, rest/2)
			for j := range pos {
				pos[j] = i + 1 + j
			}
			return pos
		}
	}
	return nil
}

func xreadMayWait(args [][]byte) bool      { return mayWait(args, false) }
func xreadgroupMayWait(args [][]byte) bool { return mayWait(args, true) }

// mayWait reports whether a call of XREAD or XREADGROUP has the option BLOCK.
func mayWait(args [][]byte, group bool) bool {
	q, fail := parseStreams(args, group)
	return !fail.IsError() && q.block
}

// after resolves the IDs of XREAD. The command returns only entries after these
// IDs.
func after(c *fsm.Ctx, q xreadQuery) (ids []stream.ID, fail fsm.Reply) {
	ids = make([]stream.ID, len(q.ids))
	for i, arg := range q.ids {
		o, wrong := c.LookupType(q.keys[i], keyspace.TypeStream)
		if wrong {
			return nil, fsm.Error(fsm.MsgWrongType)
		}
		switch {
		case string(arg) == "$":
			if o != nil {
				ids[i] = o.Coll.Stream.Last
			}
			continue
		case string(arg) == ">":
			return nil, fsm.Error(msgGroupID)
		}
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return nil, fsm.Error(msgStreamID)
		}
	}
	return ids, fsm.Null
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
// pairs. It omits streams whose list is nil, and returns NullArray if all lists
// are nil.
func xreadReply(c *fsm.Ctx, keys [][]byte, entries [][]fsm.Reply) fsm.Reply {
	var elems []fsm.Reply
	for i, list := range entries {
		if list == nil {
			continue
		}
		key, value := fsm.Bulk(string(keys[i])), fsm.Array(list)
		if c.Proto() >= 3 {
			elems = append(elems, key, value)
		} else {
			elems = append(elems, fsm.Array([]fsm.Reply{key, value}))
		}
	}
	switch {
	case elems == nil:
		return fsm.NullArray
	case c.Proto() >= 3:
		return fsm.Map(elems)
	}
	return fsm.Array(elems)
}

// readStreams returns the reply of XREAD, or NullArray if there are no entries.
func readStreams(c *fsm.Ctx, q xreadQuery, ids []stream.ID) fsm.Reply {
	entries := make([][]fsm.Reply, len(ids))
	size := 0
	for i := range ids {
		o := c.Lookup(q.keys[i])
		if o == nil {
			continue
		}
		l := collector{c: c, size: size}
		entriesAfter(o.Coll, &l, ids[i], q.count, func(stream.ID) {})
		if size = l.size; l.over() {
			return fsm.Error(fsm.ReplyTooLarge)
		}
		entries[i] = l.elems
	}
	return xreadReply(c, q.keys, entries)
}

// mayBlock returns an error for BLOCK in a script.
func mayBlock(c *fsm.Ctx, q *xreadQuery, name []byte) fsm.Reply {
	if q.block && c.InScript() {
		return fsm.Error("ERR " + string(name) + msgBlockScript)
	}
	return fsm.Null
}

func xread(c *fsm.Ctx, args [][]byte) fsm.Reply {
	q, fail := parseXread(args)
	if fail.IsError() {
		return fail
	}
	if fail = mayBlock(c, &q, args[0]); fail.IsError() {
		return fail
	}
	ids, fail := after(c, q)
	if fail.IsError() {
		return fail
	}
	return readStreams(c, q, ids)
}

func xreadWaiting(c *fsm.Ctx, args [][]byte) fsm.Reply {
	q, fail := parseXread(args)
	if fail.IsError() {
		return fail
	}
	ids, fail := after(c, q)
	if fail.IsError() {
		return fail
	}
	if reply := readStreams(c, q, ids); reply.Kind() != fsm.KindNullArray || c.Atomic() {
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
			b.Resume = append(b.Resume, id.String())
		}
	}
	return c.Wait(words, b)
}

// parseXreadWaiter parses the arguments that xreadWaiting stored with a waiter.
func parseXreadWaiter(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	q, fail := parseXread(args)
	if fail.IsError() {
		return b, fail
	}
	b = fsm.BlockingCall{Type: keyspace.TypeStream, Keys: q.keys, Timeout: q.timeout, None: fsm.NullArray}
	b.Take = func(c *fsm.Ctx, key []byte) fsm.Reply {
		for i := range q.keys {
			if string(q.keys[i]) != string(key) {
				continue
			}
			id, ok := stream.ParseID(q.ids[i], 0, true)
			if !ok {
				id = stream.MaxID
			}
			v := c.Lookup(key).Coll
			if v.Stream.Last.Compare(id) <= 0 {
				continue
			}
			// The new entries may already have been deleted. The list is then
			// empty.
			l := collector{c: c, elems: []fsm.Reply{}}
			entriesAfter(v, &l, id, q.count, func(stream.ID) {})
			if l.over() {
				return fsm.Error(fsm.ReplyTooLarge)
			}
			return xreadReply(c, [][]byte{key}, [][]fsm.Reply{l.elems})
		}
		return fsm.None // keep waiting
	}
	return b, fsm.Null
}

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
func fromGroup(c *fsm.Ctx, q *xreadQuery) (ids []stream.ID, fail fsm.Reply) {
	ids = make([]stream.ID, len(q.ids))
	for i, arg := range q.ids {
		_, at, wrong := groupOf(c, q.keys[i], q.group)
		switch {
		case wrong:
			return nil, fsm.Error(fsm.MsgWrongType)
		case at < 0:
			return nil, noGroup(q.keys[i], q.group, inGroupOption)
		case string(arg) == "$":
			return nil, fsm.Error(msgDollarID)
		case string(arg) == ">":
			ids[i] = stream.MaxID
			continue
		}
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return nil, fsm.Error(msgStreamID)
		}
	}
	return ids, fsm.Null
}

func xreadgroup(c *fsm.Ctx, args [][]byte) fsm.Reply {
	b, fail := parseXreadgroup(args)
	if fail.IsError() {
		return fail
	}
	q, _ := parseStreams(args, true)
	if fail = mayBlock(c, &q, args[0]); fail.IsError() {
		return fail
	}
	ids, fail := fromGroup(c, &q)
	if fail.IsError() {
		return fail
	}
	entries := make([][]fsm.Reply, len(ids))
	size := 0
	for i, key := range q.keys {
		o, at, _ := groupOf(c, key, q.group)
		g := o.Coll.Stream.Groups.At(at)
		l := collector{c: c, elems: []fsm.Reply{}, size: size}
		if ids[i] == stream.MaxID {
			if groupSuspended(c, key, &q) || o.Coll.Stream.Entries.Len() == 0 ||
				o.Coll.Stream.Entries.At(o.Coll.Stream.Entries.Len()-1).ID.Compare(g.Last) <= 0 {
				continue
			}
			fail = readNew(c, o, at, &q, g.Last, &l)
		} else {
			fail = readHistory(c, o, at, &q, ids[i], &l)
		}
		if fail.IsError() {
			if size == 0 {
				return fail
			}
			break // the entries read so far are delivered; the next call reads the rest
		}
		size = l.size
		entries[i] = l.elems
	}
	if reply := xreadReply(c, q.keys, entries); reply.Kind() != fsm.KindNullArray || !q.block || c.Atomic() {
		return reply
	}
	return c.Wait(args, b)
}

// readNew delivers the entries after an ID to a consumer, at most as many as the
// query's count. If they do not fit into the reply or into the group, it delivers
// none and returns an error.
func readNew(c *fsm.Ctx, o *keyspace.Object, at int, q *xreadQuery, after stream.ID, l *collector) fsm.Reply {
	var ids []stream.ID
	entriesAfter(o.Coll, l, after, q.count, func(id stream.ID) { ids = append(ids, id) })
	if g := o.Coll.Stream.Groups.At(at); !groupFits(&g, len(ids)) {
		return fsm.Error(msgTooMany)
	}
	if l.over() {
		return fsm.Error(fsm.ReplyTooLarge)
	}
	withGroup(c, o, at, func(n *keyspace.Object, g *stream.Group) {
		name := consumer(c, n, g, string(q.consumer))
		for _, id := range ids {
			n.Coll.Stream.Advance(g, id)
			if !q.noack {
				g.Assign(c.Owner(), stream.PendingEntry{ID: id, Consumer: name, At: moment(c), Deliveries: 1})
			}
		}
	})
	return fsm.Null
}

// readHistory adds the consumer's pending entries after an ID to the reply, at
// most as many as the query's count, and records that they were delivered again.
// If the stream no longer contains an entry, the reply has only its ID.
func readHistory(c *fsm.Ctx, o *keyspace.Object, at int, q *xreadQuery, after stream.ID, l *collector) fsm.Reply {
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
				more = l.add(fsm.Array([]fsm.Reply{fsm.Bulk(id.String()), fsm.NullArray}))
			}
			return more && int64(len(l.elems)) != q.count
		})
	} else if !groupFits(&g, 0) {
		return fsm.Error(msgTooMany)
	}
	if l.over() {
		return fsm.Error(fsm.ReplyTooLarge)
	}
	withGroup(c, o, at, func(n *keyspace.Object, g *stream.Group) {
		consumer(c, n, g, string(q.consumer))
		for _, id := range again {
			i, _ := g.PendingPosition(id)
			p := g.Pending.At(i)
			p.At = moment(c)
			p.Deliveries++
			g.Pending.Set(c.Owner(), i, p)
		}
	})
	return fsm.Null
}

// groupSuspended reports whether q must wait because the stream has a suspended
// waiter that reads for the same group. If q may wait, it waits behind this
// waiter, so that the suspended waiter keeps its position.
func groupSuspended(c *fsm.Ctx, key []byte, q *xreadQuery) bool {
	return q.block && !c.Atomic() && c.SuspendedWaiter(key, keyspace.TypeStream, func(args [][]byte) bool {
		other, fail := parseStreams(args, true)
		return !fail.IsError() && string(other.group) == string(q.group)
	})
}

// parseXreadgroup parses the arguments of XREADGROUP, which are also those of its
// waiter. XREADGROUP waits only if all its IDs are ">".
func parseXreadgroup(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	q, fail := parseStreams(args, true)
	if fail.IsError() {
		return b, fail
	}
	b = fsm.BlockingCall{
		Type: keyspace.TypeStream,
		Keys: q.keys, Timeout: q.timeout, None: fsm.NullArray, Gone: fsm.Error(msgStreamGone),
	}
	b.Take = func(c *fsm.Ctx, key []byte) fsm.Reply {
		o, at, _ := groupOf(c, key, q.group)
		if at < 0 {
			return fsm.Error(msgGroupGone)
		}
		g := o.Coll.Stream.Groups.At(at)
		if o.Coll.Stream.Last.Compare(g.Last) <= 0 {
			return fsm.None // keep waiting
		}
		l := collector{c: c, elems: []fsm.Reply{}}
		if fail := readNew(c, o, at, &q, g.Last, &l); fail.IsError() {
			return fail
		}
		return xreadReply(c, [][]byte{key}, [][]fsm.Reply{l.elems})
	}
	return b, fsm.Null
}
