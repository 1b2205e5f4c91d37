package fsm

import (
	"strconv"
)

// xreadLogged is XREAD with BLOCK, which goes through the log, since it may wait.
const xreadLogged = "_xread"

var xreadCommands = []Command{
	{Name: "xread", Arity: -4, Flags: ReadOnly | Blocking | MovableKeys, Specs: []KeySpec{{Keyword: "STREAMS", Part: 2, Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}}}, KeysOf: xreadKeys, Group: "stream", Since: "5.0.0", Complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.", Syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]", Doc: "Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.", Run: xread},
	{Name: xreadLogged, Arity: -4, Flags: Internal | Write | Blocking | MovableKeys, KeysOf: xreadKeys, Group: "internal", Since: "holdfast", Complexity: "As XREAD", Syntax: "[COUNT count] BLOCK milliseconds STREAMS key [key ...] id [id ...]", Doc: "XREAD that may wait", Run: xreadWaiting, block: parseXreadWaiter},
	{Name: "xinfo", Arity: -2, Group: "stream", Since: "5.0.0", Complexity: "Depends on subcommand.", Syntax: "STREAM | GROUPS | HELP [key]", Doc: "A container for stream introspection commands", Run: xinfo, Sub: []Command{
		{Name: "groups", Arity: 3, Flags: ReadOnly, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Syntax: "key", Doc: "List the consumer groups of a stream", Run: xinfoGroups},
		{Name: "stream", Arity: -3, Flags: ReadOnly, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Syntax: "key", Doc: "Get information about a stream", Run: xinfoStream},
	}},
}

const (
	msgUnbalanced  = "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
	msgGroupID     = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
	msgTimeoutInt  = "ERR timeout is not an integer or out of range"
	msgXinfoSyntax = msgSyntax
)

// xreadQuery is what XREAD asks for.
type xreadQuery struct {
	count   int64 // 0: all
	block   bool
	timeout int64
	keys    [][]byte
	ids     [][]byte
}

func parseXread(args [][]byte) (q xreadQuery, fail Reply) {
	for i := 1; i < len(args); i++ {
		more := len(args) - i - 1
		switch {
		case fold(args[i], "BLOCK") && more > 0:
			i++
			ms, ok := parseInt(args[i])
			switch {
			case !ok:
				return q, Error(msgTimeoutInt)
			case ms < 0:
				return q, Error(msgTimeoutNegative)
			}
			q.block, q.timeout = true, ms
		case fold(args[i], "COUNT") && more > 0:
			i++
			n, ok := parseInt(args[i])
			if !ok {
				return q, Error(msgNotInt)
			}
			q.count = max(n, 0)
		case fold(args[i], "STREAMS") && more > 0:
			if more%2 != 0 {
				return q, Error(msgUnbalanced)
			}
			q.keys, q.ids = args[i+1:i+1+more/2], args[i+1+more/2:]
			return q, Null
		default:
			return q, Error(msgSyntax)
		}
	}
	return q, Error(msgSyntax)
}

func xreadKeys(args [][]byte) []int {
	for i, arg := range args {
		if rest := len(args) - i - 1; i > 0 && fold(arg, "STREAMS") && rest > 0 && rest%2 == 0 {
			pos := make([]int, rest/2)
			for j := range pos {
				pos[j] = i + 1 + j
			}
			return pos
		}
	}
	return nil
}

// Waits returns the row by which a call of a blocking command has to be run, nil
// if it never waits (XREAD without BLOCK).
func (t *Table) Waits(cmd *Command, args [][]byte) *Command {
	switch {
	case cmd.Flags&Blocking == 0:
		return nil
	case cmd.Flags&Write != 0:
		return cmd
	}
	if q, fail := parseXread(args); fail.IsError() || !q.block {
		return nil
	}
	return t.index[xreadLogged]
}

// after resolves the IDs: only what comes after them is asked for.
func (c *Ctx) after(q xreadQuery) (ids []streamID, fail Reply) {
	ids = make([]streamID, len(q.ids))
	for i, arg := range q.ids {
		o, wrong := c.lookupType(q.keys[i], typeStream)
		if wrong {
			return nil, Error(msgWrongType)
		}
		switch {
		case string(arg) == "$":
			if o != nil {
				ids[i] = o.coll.info.last
			}
			continue
		case string(arg) == ">":
			return nil, Error(msgGroupID)
		}
		var ok bool
		if ids[i], ok = parseStreamID(arg, 0, true); !ok {
			return nil, Error(msgStreamID)
		}
	}
	return ids, Null
}

// entriesAfter returns what a stream holds behind an ID, at most count entries if
// that is not 0.
func (c *Ctx) entriesAfter(key []byte, id streamID, count int64) []Reply {
	o := c.lookup(key)
	if o == nil || o.coll.info.last.compare(id) <= 0 || id == maxStreamID {
		return nil
	}
	var l collector
	o.coll.stream.Ascend(o.coll.entryPlace(id.next()), func(e *streamEntry) bool {
		return l.addEntry(e) && int64(len(l.elems)) != count
	})
	return l.elems
}

// xreadReply is a map from streams to entries, in RESP2 a list of pairs.
func (c *Ctx) xreadReply(keys [][]byte, entries [][]Reply) Reply {
	var elems []Reply
	for i, list := range entries {
		if len(list) == 0 {
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

// readStreams answers XREAD, with NullArray if there is nothing.
func (c *Ctx) readStreams(q xreadQuery, ids []streamID) Reply {
	entries := make([][]Reply, len(ids))
	for i := range ids {
		entries[i] = c.entriesAfter(q.keys[i], ids[i], q.count)
	}
	return c.xreadReply(q.keys, entries)
}

func xread(c *Ctx, args [][]byte) Reply {
	q, fail := parseXread(args)
	if fail.IsError() {
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
	// What it waits for is fixed now: $ must not mean something later.
	words := [][]byte{args[0], []byte("COUNT"), strconv.AppendInt(nil, q.count, 10), []byte("BLOCK"), strconv.AppendInt(nil, q.timeout, 10), []byte("STREAMS")}
	words = append(words, q.keys...)
	for _, id := range ids {
		words = append(words, []byte(id.String()))
	}
	b, fail := parseXreadWaiter(words)
	if fail.IsError() {
		return fail
	}
	return c.wait(words, b)
}

// parseXreadWaiter reads what xreadWaiting leaves with a waiter.
func parseXreadWaiter(args [][]byte) (b blocking, fail Reply) {
	q, fail := parseXread(args)
	if fail.IsError() {
		return b, fail
	}
	b = blocking{typ: typeStream, keys: q.keys, timeout: q.timeout, none: NullArray}
	b.take = func(c *Ctx, key []byte) Reply {
		for i := range q.keys {
			if string(q.keys[i]) != string(key) {
				continue
			}
			id, ok := parseStreamID(q.ids[i], 0, true)
			if !ok {
				id = maxStreamID
			}
			if list := c.entriesAfter(key, id, q.count); len(list) > 0 {
				return c.xreadReply([][]byte{key}, [][]Reply{list})
			}
		}
		return None // it waits on
	}
	return b, Null
}

// xinfo runs a subcommand of XINFO.
func xinfo(c *Ctx, args [][]byte) Reply {
	sub := c.m.table.Find(args[0]).FindSub(args[1])
	switch {
	case sub == nil:
		return Error(UnknownSubcommand(args[1], "XINFO"))
	case !sub.ArityOK(len(args)):
		return Error(WrongArity("xinfo|" + sub.Name))
	}
	return sub.Run(c, args)
}

func xinfoGroups(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[2], typeStream)
	switch {
	case o == nil:
		return Error(msgNoSuchKey)
	case wrong:
		return Error(msgWrongType)
	}
	return Array(nil) // there are no consumer groups
}

func xinfoStream(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[2], typeStream)
	switch {
	case o == nil:
		return Error(msgNoSuchKey)
	case wrong:
		return Error(msgWrongType)
	case len(args) > 3:
		return Error(msgXinfoSyntax)
	}
	v := o.coll
	n := v.stream.Len()
	recorded, first, last := streamID{}, Null, Null
	if n > 0 {
		e := v.stream.At(0)
		recorded, first = e.id, e.reply()
		e = v.stream.At(n - 1)
		last = e.reply()
	}
	// The numbers of the radix tree are those that Redis would have with nodes of
	// a hundred entries, one below the other.
	nodes := int64(n+trimLot-1) / trimLot
	return Map([]Reply{
		Bulk("length"), Int(int64(n)),
		Bulk("radix-tree-keys"), Int(nodes),
		Bulk("radix-tree-nodes"), Int(nodes + 1),
		Bulk("last-generated-id"), Bulk(v.info.last.String()),
		Bulk("max-deleted-entry-id"), Bulk(v.info.maxDeleted.String()),
		Bulk("entries-added"), Int(int64(v.info.added)),
		Bulk("recorded-first-entry-id"), Bulk(recorded.String()),
		Bulk("groups"), Zero,
		Bulk("first-entry"), first,
		Bulk("last-entry"), last,
	})
}
