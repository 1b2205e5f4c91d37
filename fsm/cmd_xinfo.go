package fsm

import "github.com/holdfast-kv/holdfast/fsm/number"

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
	at, found := v.groupPosition(string(args[3]))
	if !found {
		return missingGroup(args)
	}
	g := v.groups.At(at)
	l := collector{c: c}
	g.consumers.Ascend(0, func(k *consumer) bool {
		return l.add(Map([]Reply{
			Bulk("name"), Bulk(k.name),
			Bulk("pending"), Int(int64(k.pending.Len())),
			Bulk("idle"), Int(c.since(k.seen)),
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
	v.groups.Ascend(0, func(g *streamGroup) bool {
		return l.add(Map([]Reply{
			Bulk("name"), Bulk(g.name),
			Bulk("consumers"), Int(int64(g.consumers.Len())),
			Bulk("pending"), Int(int64(g.pending.Len())),
			Bulk("last-delivered-id"), Bulk(g.last.String()),
			Bulk("entries-read"), g.readReply(),
			Bulk("lag"), v.lag(g),
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
	nodes := int64(v.stream.Len()+trimBatch-1) / trimBatch
	fields := []Reply{
		Bulk("length"), Int(int64(v.stream.Len())),
		Bulk("radix-tree-keys"), Int(nodes),
		Bulk("radix-tree-nodes"), Int(nodes + 1),
		Bulk("last-generated-id"), Bulk(v.info.last.String()),
		Bulk("max-deleted-entry-id"), Bulk(v.info.maxDeleted.String()),
		Bulk("entries-added"), Int(int64(v.info.added)),
		Bulk("recorded-first-entry-id"), Bulk(v.firstID().String()),
	}
	if full {
		return v.fullInfo(c, fields, count)
	}
	first, last := Null, Null
	if n := v.stream.Len(); n > 0 {
		e := v.stream.At(0)
		first = e.reply()
		e = v.stream.At(n - 1)
		last = e.reply()
	}
	return Map(append(fields,
		Bulk("groups"), Int(int64(v.groups.Len())),
		Bulk("first-entry"), first,
		Bulk("last-entry"), last,
	))
}

// fullInfo adds to fields up to count entries of a stream and its groups, each
// with up to count pending entries. It adds all of them if count is 0.
func (v *collection) fullInfo(c *Ctx, fields []Reply, count int64) Reply {
	l := collector{c: c}
	v.stream.Ascend(0, func(e *streamEntry) bool { return l.addEntry(e) && int64(len(l.elems)) != count })
	entries := Array(l.elems)
	l.elems = nil
	v.groups.Ascend(0, func(g *streamGroup) bool { return l.add(v.groupInfo(g, count, &l)) })
	if l.over() {
		return Error(ReplyTooLarge)
	}
	return Map(append(fields, Bulk("entries"), entries, Bulk("groups"), Array(l.elems)))
}

// groupInfo returns what XINFO STREAM FULL reports about a group. It adds the
// size of that to the size of l.
func (v *collection) groupInfo(g *streamGroup, count int64, l *collector) Reply {
	pending := collector{c: l.c, size: l.size}
	g.pending.Ascend(0, func(p *pendingEntry) bool {
		return pending.add(Array([]Reply{Bulk(p.id.String()), Bulk(p.consumer), Int(p.at.wall), Int(p.deliveries)})) &&
			int64(len(pending.elems)) != count
	})
	consumers := collector{c: l.c, size: pending.size}
	g.consumers.Ascend(0, func(k *consumer) bool {
		own := collector{c: l.c, size: consumers.size}
		k.pending.Ascend(0, func(id *streamID) bool {
			i, _ := g.pendingPosition(*id)
			p := g.pending.At(i)
			return own.add(Array([]Reply{Bulk(id.String()), Int(p.at.wall), Int(p.deliveries)})) &&
				int64(len(own.elems)) != count
		})
		consumers.size = own.size
		return consumers.add(Map([]Reply{
			Bulk("name"), Bulk(k.name),
			Bulk("seen-time"), Int(k.seen.wall),
			Bulk("pel-count"), Int(int64(k.pending.Len())),
			Bulk("pending"), Array(own.elems),
		}))
	})
	l.size = consumers.size
	return Map([]Reply{
		Bulk("name"), Bulk(g.name),
		Bulk("last-delivered-id"), Bulk(g.last.String()),
		Bulk("entries-read"), g.readReply(),
		Bulk("lag"), v.lag(g),
		Bulk("pel-count"), Int(int64(g.pending.Len())),
		Bulk("pending"), Array(pending.elems),
		Bulk("consumers"), Array(consumers.elems),
	})
}
