package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"math"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file has XADD, XTRIM, XLEN, XDEL, XRANGE, XREVRANGE and XINFO.

var streamCommands = []fsm.Command{
	{
		Name: "xadd", Run: xadd, Arity: -5, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 192, Steps: trimWork, Depends: xaddDepends},
		Keys: fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{
			Flags: "update", Mode: "RW", Notes: "UPDATE instead of INSERT because of the optional trimming feature",
		},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
		Syntax: "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value " +
			"[field value ...]",
		Doc:  "Appends a new entry to a stream",
		Tips: []string{"nondeterministic_output"},
		History: []fsm.Change{
			{Since: "6.2.0", What: "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option."},
			{Since: "7.0.0", What: "Added support for the `<ms>-*` explicit ID form."},
		},
	},
	{
		Name: "xtrim", Run: xtrim, Arity: -4, Flags: fsm.Write,
		Work: fsm.WorkHooks{Steps: trimWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, " +
			"since entries are organized in macro nodes containing multiple entries that can be released with a " +
			"single deallocation.",
		Syntax:  "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count]",
		Doc:     "Trims the stream to (approximately if '~' is passed) a certain size",
		Tips:    []string{"nondeterministic_output"},
		History: []fsm.Change{{Since: "6.2.0", What: "Added the `MINID` trimming strategy and the `LIMIT` option."}},
	},
	{
		Name: "xlen", Run: xlen, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Return the number of entries in a stream",
	},
	{
		Name: "xdel", Run: xdel, Arity: -3, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 80, PerArgument: stepsMember},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
		Syntax:     "key id [id ...]",
		Doc: "Removes the specified entries from the stream. Returns the number of items actually deleted, " +
			"that may be different from the number of IDs passed in case certain IDs do not exist.",
	},
	{
		Name: "xrange", Run: xrange, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking " +
			"for the first 10 elements with COUNT), you can consider it O(1).",
		Syntax:  "key start end [COUNT count]",
		Doc:     "Return a range of elements in a stream, with IDs matching the specified IDs interval",
		History: []fsm.Change{{Since: "6.2.0", What: "Added exclusive ranges."}},
	},
	{
		Name: "xrevrange", Run: xrevrange, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for " +
			"the first 10 elements with COUNT), you can consider it O(1).",
		Syntax: "key end start [COUNT count]",
		Doc: "Return a range of elements in a stream, with IDs matching the specified IDs interval, in " +
			"reverse order (from greater to smaller IDs) compared to XRANGE",
		History: []fsm.Change{{Since: "6.2.0", What: "Added exclusive ranges."}},
	},
	{
		Name: "xinfo", Arity: -2,
		Group: "stream", Since: "5.0.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "CONSUMERS | GROUPS | STREAM | HELP [key ...]",
		Doc:        "A container for stream introspection commands",
		Sub: []fsm.Command{
			{
				Name: "consumers", Run: xinfoConsumers, Arity: 4, Flags: fsm.ReadOnly,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key group",
				Doc:        "List the consumers in a consumer group",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "groups", Run: xinfoGroups, Arity: 3, Flags: fsm.ReadOnly,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "List the consumer groups of a stream",
				History:    []fsm.Change{{Since: "7.0.0", What: "Added the `entries-read` and `lag` fields"}},
			},
			{
				Name: "help", Run: xinfoHelp, Arity: 2, Flags: fsm.Loading | fsm.Stale,
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "stream", Run: xinfoStream, Arity: -3, Flags: fsm.ReadOnly,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key [FULL [COUNT count]]",
				Doc:        "Get information about a stream",
				History: []fsm.Change{
					{Since: "6.0.0", What: "Added the `FULL` modifier."},
					{Since: "7.0.0",
						What: "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, " +
							"`entries-read` and `lag` fields"},
				},
			},
		},
	},
}

const (
	msgStreamID     = "ERR Invalid stream ID specified as stream command argument"
	msgStreamZero   = "ERR The ID specified in XADD must be greater than 0-0"
	msgStreamTop    = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
	msgStreamFull   = "ERR The stream has exhausted the last possible ID, unable to add more items"
	msgMaxlenStream = "ERR The MAXLEN argument must be >= 0."
	msgLimitStream  = "ERR The LIMIT argument must be >= 0."
	msgBothTrims    = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
	msgNoTrim       = "ERR syntax error, XTRIM must be called with a trimming strategy"
	msgLimitAlone   = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
	msgLimitExact   = "ERR syntax error, LIMIT cannot be used without the special ~ option"
	msgStartID      = "ERR invalid start ID for the interval"
	msgEndID        = "ERR invalid end ID for the interval"
)

// entryReply returns the reply for an entry: its ID and its fields.
func entryReply(e *stream.Entry) fsm.Reply {
	return fsm.Array([]fsm.Reply{fsm.Bulk(e.ID.String()), fsm.Strings(e.Fields...)})
}

// trimming has the trim options of XADD and XTRIM.
type trimming struct {
	by     rangeBy // byRank: by length; byScore: by ID; byAny: do not trim
	approx bool
	length int64
	least  stream.ID
	limit  int64 // -1: not given
}

// trimBatch is the number of entries that trimming with ~ removes at a time. By
// default, a node of the radix tree of Redis has as many entries.
const trimBatch = 100

// streamOptions parses the options of XADD, which end before the ID, or those
// of XTRIM, which end with the arguments. at is the position of the first
// argument that is not a part of the options.
func streamOptions(args [][]byte, xadd bool) (t trimming, mustExist bool, at int, fail fsm.Reply) {
	t.limit = -1
	for at = 2; at < len(args); at++ {
		more := len(args) - at - 1
		switch arg := args[at]; {
		case xadd && string(arg) == "*":
			return t, mustExist, at, t.check(xadd)
		case fsm.IsWord(arg, "MAXLEN") && more > 0, fsm.IsWord(arg, "MINID") && more > 0:
			by := byRank
			if fsm.IsWord(arg, "MINID") {
				by = byScore
			}
			if t.by != byAny && t.by != by {
				return t, false, 0, fsm.Error(msgBothTrims)
			}
			t.by, t.approx = by, false
			if next := string(args[at+1]); more > 1 && (next == "~" || next == "=") {
				t.approx = next == "~"
				at++
			}
			at++
			var ok bool
			if by == byScore {
				if t.least, ok = stream.ParseID(args[at], 0, true); !ok {
					return t, false, 0, fsm.Error(msgStreamID)
				}
				continue
			}
			if t.length, ok = number.ParseInt(args[at]); !ok {
				return t, false, 0, fsm.Error(fsm.MsgNotInt)
			}
			if t.length < 0 {
				return t, false, 0, fsm.Error(msgMaxlenStream)
			}
		case fsm.IsWord(arg, "LIMIT") && more > 0:
			at++
			var ok bool
			if t.limit, ok = number.ParseInt(args[at]); !ok {
				return t, false, 0, fsm.Error(fsm.MsgNotInt)
			}
			if t.limit < 0 {
				return t, false, 0, fsm.Error(msgLimitStream)
			}
		case xadd && fsm.IsWord(arg, "NOMKSTREAM"):
			mustExist = true
		case xadd: // an error in the ID is reported before errors in the options
			if _, _, _, ok := addID(arg); !ok {
				return t, false, 0, fsm.Error(msgStreamID)
			}
			return t, mustExist, at, t.check(xadd)
		default:
			return t, false, 0, fsm.Error(fsm.MsgSyntax)
		}
	}
	return t, mustExist, at, t.check(xadd)
}

func (t *trimming) check(xadd bool) fsm.Reply {
	switch {
	case t.limit > 0 && t.by == byAny:
		return fsm.Error(msgLimitAlone)
	case !xadd && t.by == byAny:
		return fsm.Error(msgNoTrim)
	case t.limit >= 0 && !t.approx:
		return fsm.Error(msgLimitExact)
	}
	return fsm.Null
}

// trim removes entries from the front of a stream and returns their number.
func (t *trimming) trim(o *container.Owner, v *keyspace.Collection) int64 {
	n := 0
	switch t.by {
	case byRank:
		n = max(v.Stream.Entries.Len()-int(min(t.length, math.MaxInt32)), 0)
	case byScore:
		n = v.Stream.EntryPosition(t.least)
	}
	if t.approx {
		if n < v.Stream.Entries.Len() { // when all entries are removed, the last batch may be incomplete
			n -= n % trimBatch
		}
		limit := t.limit
		if limit < 0 {
			limit = 100 * trimBatch
		}
		if limit > 0 && int64(n) > limit {
			n = int(limit - limit%trimBatch)
		}
	}
	v.Stream.TrimFront(o, n)
	return int64(n)
}

func xadd(c *fsm.Ctx, args [][]byte) fsm.Reply {
	t, mustExist, at, fail := streamOptions(args, true)
	if fail.IsError() {
		return fail
	}
	if rest := len(args) - at - 1; rest < 2 || rest%2 == 1 {
		return fsm.Error(fsm.WrongArity("xadd"))
	}
	id, auto, autoSeq, _ := addID(args[at]) // streamOptions has checked the ID
	if !auto && !autoSeq && id == (stream.ID{}) {
		return fsm.Error(msgStreamZero)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeStream)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && mustExist:
		return fsm.Null
	case !room(o, 1):
		return fsm.Error(msgTooMany)
	}
	n := open(c, o, args[1], keyspace.TypeStream)
	v := n.Coll
	last := v.Stream.Last
	if last == stream.MaxID {
		return fsm.Error(msgStreamFull)
	}
	switch {
	case auto:
		if id = (stream.ID{Ms: uint64(wallMs(c)), Seq: 0}); id.Compare(last) <= 0 {
			id = last.Next()
		}
	case autoSeq && id.Ms == last.Ms:
		if last.Seq == math.MaxUint64 {
			return fsm.Error(msgStreamTop)
		}
		id.Seq = last.Seq + 1
	}
	if id.Compare(last) <= 0 {
		return fsm.Error(msgStreamTop)
	}
	e := stream.Entry{ID: id}
	for _, arg := range args[at+1:] {
		e.Fields = append(e.Fields, string(arg))
	}
	if e.Size() > fsm.MaxStringBytes { // an entry must fit into one block of a snapshot
		return fsm.Error(fsm.MsgTooLong)
	}
	v.Stream.Entries.Insert(c.Owner(), v.Stream.Entries.Len(), e)
	v.Stream.Last = id
	v.Stream.Added++
	gone := t.trim(c.Owner(), v)
	c.Charge(fsm.StepsProbe * int(gone))
	c.Assign(n)
	c.SignalWaiters(n.Key)
	c.Notify("t", "xadd", n.Key)
	if gone > 0 {
		c.Notify("t", "xtrim", n.Key)
	}
	return fsm.Bulk(id.String())
}

// addID parses the ID of XADD. The stream chooses the whole ID if auto is set,
// and its sequence number if autoSeq is set.
func addID(arg []byte) (id stream.ID, auto, autoSeq, ok bool) {
	if string(arg) == "*" {
		return id, true, false, true
	}
	if ms, star := strings.CutSuffix(string(arg), "-*"); star {
		id.Ms, ok = stream.ParseUint(ms)
		return id, false, true, ok
	}
	id, ok = stream.ParseID(arg, 0, true)
	return id, false, false, ok
}

func xtrim(c *fsm.Ctx, args [][]byte) fsm.Reply {
	t, _, _, fail := streamOptions(args, false)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeStream)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	n := open(c, o, args[1], keyspace.TypeStream)
	gone := t.trim(c.Owner(), n.Coll)
	c.Charge(fsm.StepsProbe * int(gone))
	if gone > 0 {
		c.Assign(n)
		c.Notify("t", "xtrim", n.Key)
	}
	return fsm.Int(gone)
}

func xlen(c *fsm.Ctx, args [][]byte) fsm.Reply { return size(c, args[1], keyspace.TypeStream) }

func xdel(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeStream)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	ids := make([]stream.ID, len(args)-2)
	for i, arg := range args[2:] {
		var ok bool
		if ids[i], ok = stream.ParseID(arg, 0, true); !ok {
			return fsm.Error(msgStreamID)
		}
	}
	n := open(c, o, args[1], keyspace.TypeStream)
	v := n.Coll
	gone := int64(0)
	for _, id := range ids {
		if at := v.Stream.EntryPosition(id); at < v.Stream.Entries.Len() && v.Stream.Entries.At(at).ID == id {
			v.Stream.Entries.Delete(c.Owner(), at)
			gone++
			if id.Compare(v.Stream.MaxDeleted) > 0 {
				v.Stream.MaxDeleted = id
			}
		}
	}
	if gone > 0 {
		c.Assign(n)
		c.Notify("t", "xdel", n.Key)
	}
	return fsm.Int(gone)
}

func xrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return streamRange(c, args, args[2], args[3], false)
}
func xrevrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return streamRange(c, args, args[3], args[2], true)
}

// intervalEnd parses one end of an interval. A leading "(" excludes the ID
// itself.
func intervalEnd(arg []byte, missing uint64) (id stream.ID, open, ok bool) {
	if len(arg) > 1 && arg[0] == '(' {
		id, ok = stream.ParseID(arg[1:], missing, true)
		return id, true, ok
	}
	id, ok = stream.ParseID(arg, missing, false)
	return id, false, ok
}

// interval parses both ends of an interval of IDs.
func interval(low, high []byte) (from, to stream.ID, fail fsm.Reply) {
	from, fail = intervalStart(low)
	if fail.IsError() {
		return from, to, fail
	}
	to, open, ok := intervalEnd(high, math.MaxUint64)
	switch {
	case !ok:
		return from, to, fsm.Error(msgStreamID)
	case open && to == stream.ID{}:
		return from, to, fsm.Error(msgEndID)
	case open:
		to = to.Previous()
	}
	return from, to, fsm.Null
}

// intervalStart parses the first ID of an interval.
func intervalStart(low []byte) (from stream.ID, fail fsm.Reply) {
	from, open, ok := intervalEnd(low, 0)
	switch {
	case !ok:
		return from, fsm.Error(msgStreamID)
	case open && from == stream.MaxID:
		return from, fsm.Error(msgStartID)
	case open:
		from = from.Next()
	}
	return from, fsm.Null
}

func streamRange(c *fsm.Ctx, args [][]byte, low, high []byte, reverse bool) fsm.Reply {
	from, to, fail := interval(low, high)
	if fail.IsError() {
		return fail
	}
	count := int64(-1)
	for i := 4; i < len(args); i += 2 {
		if !fsm.IsWord(args[i], "COUNT") || i+1 == len(args) {
			return fsm.Error(fsm.MsgSyntax)
		}
		n, ok := number.ParseInt(args[i+1])
		if !ok {
			return fsm.Error(fsm.MsgNotInt)
		}
		count = max(n, 0)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeStream)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Array(nil)
	case count == 0:
		return fsm.NullArray
	}
	v := o.Coll
	first, end := v.Stream.EntryPosition(from), v.Stream.Entries.Len()
	if to != stream.MaxID {
		end = v.Stream.EntryPosition(to.Next())
	}
	left := int64(end - first)
	if count > 0 {
		left = min(left, count)
	}
	if left <= 0 {
		return fsm.Array(nil)
	}
	l := collector{c: c}
	step := func(e *stream.Entry) bool {
		left--
		return l.addEntry(e) && left > 0
	}
	if reverse {
		v.Stream.Entries.Descend(end-1, step)
	} else {
		v.Stream.Entries.Ascend(first, step)
	}
	return l.reply(fsm.Array)
}

// addEntry adds an entry to the reply. add alone does not suffice: it counts the
// ID and the list of fields, but not the bytes of the fields.
func (l *collector) addEntry(e *stream.Entry) bool {
	if l.c != nil { // the reply has an element for each field
		l.c.Charge(len(e.Fields))
		l.c.ChargeMemory(replyBytes * len(e.Fields))
	}
	for _, f := range e.Fields {
		l.size += len(f) + len("$1\r\n\r\n")
	}
	return l.add(entryReply(e))
}

func xinfoHelp(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Help("XINFO",
		"CONSUMERS <key> <groupname>",
		"    Show consumers of <groupname>.",
		"GROUPS <key>",
		"    Show the stream consumer groups.",
		"STREAM <key> [FULL [COUNT <count>]",
		"    Show information about the stream.",
	)
}

// streamOf returns the stream of a key for XINFO.
func streamOf(c *fsm.Ctx, key []byte) (v *keyspace.Collection, fail fsm.Reply) {
	o, wrong := c.LookupType(key, keyspace.TypeStream)
	switch {
	case o == nil:
		return nil, fsm.Error(msgNoSuchKey)
	case wrong:
		return nil, fsm.Error(fsm.MsgWrongType)
	}
	return o.Coll, fsm.Null
}

func xinfoConsumers(c *fsm.Ctx, args [][]byte) fsm.Reply {
	v, fail := streamOf(c, args[2])
	if fail.IsError() {
		return fail
	}
	at, found := v.Stream.GroupPosition(string(args[3]))
	if !found {
		return missingGroup(args)
	}
	g := v.Stream.Groups.At(at)
	l := collector{c: c}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		return l.add(fsm.Map([]fsm.Reply{
			fsm.Bulk("name"), fsm.Bulk(k.Name),
			fsm.Bulk("pending"), fsm.Int(int64(k.Pending.Len())),
			fsm.Bulk("idle"), fsm.Int(since(c, k.Seen)),
		}))
	})
	return l.reply(fsm.Array)
}

func xinfoGroups(c *fsm.Ctx, args [][]byte) fsm.Reply {
	v, fail := streamOf(c, args[2])
	if fail.IsError() {
		return fail
	}
	l := collector{c: c}
	v.Stream.Groups.Ascend(0, func(g *stream.Group) bool {
		return l.add(fsm.Map([]fsm.Reply{
			fsm.Bulk("name"), fsm.Bulk(g.Name),
			fsm.Bulk("consumers"), fsm.Int(int64(g.Consumers.Len())),
			fsm.Bulk("pending"), fsm.Int(int64(g.Pending.Len())),
			fsm.Bulk("last-delivered-id"), fsm.Bulk(g.Last.String()),
			fsm.Bulk("entries-read"), readReply(g),
			fsm.Bulk("lag"), lagReply(&v.Stream, g),
		}))
	})
	return l.reply(fsm.Array)
}

func xinfoStream(c *fsm.Ctx, args [][]byte) fsm.Reply {
	v, fail := streamOf(c, args[2])
	if fail.IsError() {
		return fail
	}
	full, count := len(args) > 3, int64(10)
	if full {
		if len(args) == 5 || len(args) > 6 || !fsm.IsWord(args[3], "FULL") ||
			len(args) == 6 && !fsm.IsWord(args[4], "COUNT") {
			return fsm.WrongSubcommand(args)
		}
		if len(args) == 6 {
			n, ok := number.ParseInt(args[5])
			if !ok {
				return fsm.Error(fsm.MsgNotInt)
			}
			if n >= 0 {
				count = n
			}
		}
	}
	// Holdfast has no radix tree. The reply counts one key for each trimBatch
	// entries, as in Redis, and one more node than keys. The tree of Redis has
	// more nodes than that if it has more than one key.
	nodes := int64(v.Stream.Entries.Len()+trimBatch-1) / trimBatch
	fields := []fsm.Reply{
		fsm.Bulk("length"), fsm.Int(int64(v.Stream.Entries.Len())),
		fsm.Bulk("radix-tree-keys"), fsm.Int(nodes),
		fsm.Bulk("radix-tree-nodes"), fsm.Int(nodes + 1),
		fsm.Bulk("last-generated-id"), fsm.Bulk(v.Stream.Last.String()),
		fsm.Bulk("max-deleted-entry-id"), fsm.Bulk(v.Stream.MaxDeleted.String()),
		fsm.Bulk("entries-added"), fsm.Int(int64(v.Stream.Added)),
		fsm.Bulk("recorded-first-entry-id"), fsm.Bulk(v.Stream.FirstID().String()),
	}
	if full {
		return fullInfo(c, v, fields, count)
	}
	first, last := fsm.Null, fsm.Null
	if n := v.Stream.Entries.Len(); n > 0 {
		e := v.Stream.Entries.At(0)
		first = entryReply(&e)
		e = v.Stream.Entries.At(n - 1)
		last = entryReply(&e)
	}
	return fsm.Map(append(fields,
		fsm.Bulk("groups"), fsm.Int(int64(v.Stream.Groups.Len())),
		fsm.Bulk("first-entry"), first,
		fsm.Bulk("last-entry"), last,
	))
}

// fullInfo returns the reply of XINFO STREAM FULL. The reply contains the given
// fields, up to count entries of the stream, and its groups, each with up to
// count pending entries. If count is 0, the numbers are not limited.
func fullInfo(c *fsm.Ctx, v *keyspace.Collection, fields []fsm.Reply, count int64) fsm.Reply {
	l := collector{c: c}
	v.Stream.Entries.Ascend(0, func(e *stream.Entry) bool { return l.addEntry(e) && int64(len(l.elems)) != count })
	entries := fsm.Array(l.elems)
	l.elems = nil
	v.Stream.Groups.Ascend(0, func(g *stream.Group) bool { return l.add(groupInfo(v, g, count, &l)) })
	if l.over() {
		return fsm.Error(fsm.ReplyTooLarge)
	}
	return fsm.Map(append(fields, fsm.Bulk("entries"), entries, fsm.Bulk("groups"), fsm.Array(l.elems)))
}

// groupInfo returns the part of the reply of XINFO STREAM FULL that describes a
// group. It adds the size of this part to the size of l.
func groupInfo(v *keyspace.Collection, g *stream.Group, count int64, l *collector) fsm.Reply {
	pending := collector{c: l.c, size: l.size}
	g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
		return pending.add(fsm.Array([]fsm.Reply{fsm.Bulk(p.ID.String()), fsm.Bulk(p.Consumer), fsm.Int(p.At.Wall),
			fsm.Int(p.Deliveries)})) &&
			int64(len(pending.elems)) != count
	})
	consumers := collector{c: l.c, size: pending.size}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		own := collector{c: l.c, size: consumers.size}
		k.Pending.Ascend(0, func(id *stream.ID) bool {
			i, _ := g.PendingPosition(*id)
			p := g.Pending.At(i)
			return own.add(fsm.Array([]fsm.Reply{fsm.Bulk(id.String()), fsm.Int(p.At.Wall), fsm.Int(p.Deliveries)})) &&
				int64(len(own.elems)) != count
		})
		consumers.size = own.size
		return consumers.add(fsm.Map([]fsm.Reply{
			fsm.Bulk("name"), fsm.Bulk(k.Name),
			fsm.Bulk("seen-time"), fsm.Int(k.Seen.Wall),
			fsm.Bulk("pel-count"), fsm.Int(int64(k.Pending.Len())),
			fsm.Bulk("pending"), fsm.Array(own.elems),
		}))
	})
	l.size = consumers.size
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("name"), fsm.Bulk(g.Name),
		fsm.Bulk("last-delivered-id"), fsm.Bulk(g.Last.String()),
		fsm.Bulk("entries-read"), readReply(g),
		fsm.Bulk("lag"), lagReply(&v.Stream, g),
		fsm.Bulk("pel-count"), fsm.Int(int64(g.Pending.Len())),
		fsm.Bulk("pending"), fsm.Array(pending.elems),
		fsm.Bulk("consumers"), fsm.Array(consumers.elems),
	})
}
