package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

var xinfoCommands = []Command{
	{Name: "xinfo", Arity: -2, Group: "stream", Since: "5.0.0", Complexity: "Depends on subcommand.", Syntax: "CONSUMERS | GROUPS | STREAM | HELP [key ...]", Doc: "A container for stream introspection commands", Run: xinfo, Sub: []Command{
		{
			Name: "consumers", Run: xinfoConsumers, Arity: 4, Flags: ReadOnly, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO", Flags: "access"},
			Group:  "stream", Since: "5.0.0",
			Complexity: "O(1)",
			Syntax:     "key group",
			Doc:        "List the consumers in a consumer group", Tips: []string{"nondeterministic_output"},
		},
		{
			Name: "groups", Run: xinfoGroups, Arity: 3, Flags: ReadOnly, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO", Flags: "access"},
			Group:  "stream", Since: "5.0.0",
			Complexity: "O(1)",
			Syntax:     "key",
			Doc:        "List the consumer groups of a stream",
			History:    []Change{{"7.0.0", "Added the `entries-read` and `lag` fields"}},
		},
		{
			Name: "help", Run: xinfoHelp, Arity: 2, Flags: Loading | Stale,
			Group: "stream", Since: "5.0.0",
			Complexity: "O(1)",
			Doc:        "Show helpful text about the different subcommands",
		},
		{
			Name: "stream", Run: xinfoStream, Arity: -3, Flags: ReadOnly, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO", Flags: "access"},
			Group:  "stream", Since: "5.0.0",
			Complexity: "O(1)",
			Syntax:     "key [FULL [COUNT count]]",
			Doc:        "Get information about a stream",
			History: []Change{
				{"6.0.0", "Added the `FULL` modifier."},
				{"7.0.0", "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields"},
			},
		},
	}},
}

// xinfo runs a subcommand of XINFO.
func xinfo(c *Ctx, args [][]byte) Reply { return c.subcommand(args) }

func xinfoHelp(c *Ctx, args [][]byte) Reply {
	return help("XINFO",
		"CONSUMERS <key> <groupname>",
		"    Show consumers of <groupname>.",
		"GROUPS <key>",
		"    Show the stream consumer groups.",
		"STREAM <key> [FULL [COUNT <count>]",
		"    Show information about the stream.",
	)
}

// streamOf returns the stream of a key for XINFO.
func (c *Ctx) streamOf(key []byte) (v *collection, fail Reply) {
	o, wrong := c.lookupType(key, typeStream)
	switch {
	case o == nil:
		return nil, Error(msgNoSuchKey)
	case wrong:
		return nil, Error(msgWrongType)
	}
	return o.coll, Null
}

func xinfoConsumers(c *Ctx, args [][]byte) Reply {
	v, fail := c.streamOf(args[2])
	if fail.IsError() {
		return fail
	}
	at, found := v.stream.GroupPosition(string(args[3]))
	if !found {
		return missingGroup(args)
	}
	g := v.stream.Groups.At(at)
	l := collector{c: c}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		return l.add(Map([]Reply{
			Bulk("name"), Bulk(k.Name),
			Bulk("pending"), Int(int64(k.Pending.Len())),
			Bulk("idle"), Int(c.since(k.Seen)),
		}))
	})
	return l.reply(Array)
}

func xinfoGroups(c *Ctx, args [][]byte) Reply {
	v, fail := c.streamOf(args[2])
	if fail.IsError() {
		return fail
	}
	l := collector{c: c}
	v.stream.Groups.Ascend(0, func(g *stream.Group) bool {
		return l.add(Map([]Reply{
			Bulk("name"), Bulk(g.Name),
			Bulk("consumers"), Int(int64(g.Consumers.Len())),
			Bulk("pending"), Int(int64(g.Pending.Len())),
			Bulk("last-delivered-id"), Bulk(g.Last.String()),
			Bulk("entries-read"), readReply(g),
			Bulk("lag"), lagReply(&v.stream, g),
		}))
	})
	return l.reply(Array)
}

func xinfoStream(c *Ctx, args [][]byte) Reply {
	v, fail := c.streamOf(args[2])
	if fail.IsError() {
		return fail
	}
	full, count := len(args) > 3, int64(10)
	if full {
		if len(args) == 5 || len(args) > 6 || !fold(args[3], "FULL") || len(args) == 6 && !fold(args[4], "COUNT") {
			return wrongSubcommand(args)
		}
		if len(args) == 6 {
			n, ok := number.ParseInt(args[5])
			if !ok {
				return Error(msgNotInt)
			}
			if n >= 0 {
				count = n
			}
		}
	}
	// The numbers for the radix tree are those that Redis would have with nodes
	// of trimBatch entries, each the child of the one before.
	nodes := int64(v.stream.Entries.Len()+trimBatch-1) / trimBatch
	fields := []Reply{
		Bulk("length"), Int(int64(v.stream.Entries.Len())),
		Bulk("radix-tree-keys"), Int(nodes),
		Bulk("radix-tree-nodes"), Int(nodes + 1),
		Bulk("last-generated-id"), Bulk(v.stream.Last.String()),
		Bulk("max-deleted-entry-id"), Bulk(v.stream.MaxDeleted.String()),
		Bulk("entries-added"), Int(int64(v.stream.Added)),
		Bulk("recorded-first-entry-id"), Bulk(v.stream.FirstID().String()),
	}
	if full {
		return v.fullInfo(c, fields, count)
	}
	first, last := Null, Null
	if n := v.stream.Entries.Len(); n > 0 {
		e := v.stream.Entries.At(0)
		first = entryReply(&e)
		e = v.stream.Entries.At(n - 1)
		last = entryReply(&e)
	}
	return Map(append(fields,
		Bulk("groups"), Int(int64(v.stream.Groups.Len())),
		Bulk("first-entry"), first,
		Bulk("last-entry"), last,
	))
}

// fullInfo adds to fields up to count entries of a stream and its groups, each
// with up to count pending entries. It adds all of them if count is 0.
func (v *collection) fullInfo(c *Ctx, fields []Reply, count int64) Reply {
	l := collector{c: c}
	v.stream.Entries.Ascend(0, func(e *stream.Entry) bool { return l.addEntry(e) && int64(len(l.elems)) != count })
	entries := Array(l.elems)
	l.elems = nil
	v.stream.Groups.Ascend(0, func(g *stream.Group) bool { return l.add(v.groupInfo(g, count, &l)) })
	if l.over() {
		return Error(ReplyTooLarge)
	}
	return Map(append(fields, Bulk("entries"), entries, Bulk("groups"), Array(l.elems)))
}

// groupInfo returns what XINFO STREAM FULL reports about a group. It adds the
// size of that to the size of l.
func (v *collection) groupInfo(g *stream.Group, count int64, l *collector) Reply {
	pending := collector{c: l.c, size: l.size}
	g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
		return pending.add(Array([]Reply{Bulk(p.ID.String()), Bulk(p.Consumer), Int(p.At.Wall), Int(p.Deliveries)})) &&
			int64(len(pending.elems)) != count
	})
	consumers := collector{c: l.c, size: pending.size}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		own := collector{c: l.c, size: consumers.size}
		k.Pending.Ascend(0, func(id *stream.ID) bool {
			i, _ := g.PendingPosition(*id)
			p := g.Pending.At(i)
			return own.add(Array([]Reply{Bulk(id.String()), Int(p.At.Wall), Int(p.Deliveries)})) &&
				int64(len(own.elems)) != count
		})
		consumers.size = own.size
		return consumers.add(Map([]Reply{
			Bulk("name"), Bulk(k.Name),
			Bulk("seen-time"), Int(k.Seen.Wall),
			Bulk("pel-count"), Int(int64(k.Pending.Len())),
			Bulk("pending"), Array(own.elems),
		}))
	})
	l.size = consumers.size
	return Map([]Reply{
		Bulk("name"), Bulk(g.Name),
		Bulk("last-delivered-id"), Bulk(g.Last.String()),
		Bulk("entries-read"), readReply(g),
		Bulk("lag"), lagReply(&v.stream, g),
		Bulk("pel-count"), Int(int64(g.Pending.Len())),
		Bulk("pending"), Array(pending.elems),
		Bulk("consumers"), Array(consumers.elems),
	})
}
