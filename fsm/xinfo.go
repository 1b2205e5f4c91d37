package fsm

var xinfoCommands = []Command{
	{Name: "xinfo", Arity: -2, Group: "stream", Since: "5.0.0", Complexity: "Depends on subcommand.", Syntax: "CONSUMERS | GROUPS | STREAM | HELP [key ...]", Doc: "A container for stream introspection commands", Run: xinfo, Sub: []Command{
		{Name: "consumers", Arity: 4, Flags: ReadOnly, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Syntax: "key group", Doc: "List the consumers in a consumer group", Tips: []string{"nondeterministic_output"}, Run: xinfoConsumers},
		{Name: "groups", Arity: 3, Flags: ReadOnly, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Syntax: "key", Doc: "List the consumer groups of a stream", History: []Change{{"7.0.0", "Added the `entries-read` and `lag` fields"}}, Run: xinfoGroups},
		{Name: "help", Arity: 2, Flags: Loading | Stale, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Doc: "Show helpful text about the different subcommands", Run: xinfoHelp},
		{Name: "stream", Arity: -3, Flags: ReadOnly, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "stream", Since: "5.0.0", Complexity: "O(1)", Syntax: "key [FULL [COUNT count]]", Doc: "Get information about a stream", History: []Change{{"6.0.0", "Added the `FULL` modifier."}, {"7.0.0", "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields"}}, Run: xinfoStream},
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

// streamToTell finds the stream that XINFO is asked for.
func (c *Ctx) streamToTell(key []byte) (v *collection, fail Reply) {
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
	v, fail := c.streamToTell(args[2])
	if fail.IsError() {
		return fail
	}
	at, found := v.groupPlace(string(args[3]))
	if !found {
		return missingGroup(args)
	}
	g := v.groups.At(at)
	var l collector
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
	v, fail := c.streamToTell(args[2])
	if fail.IsError() {
		return fail
	}
	var l collector
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
	v, fail := c.streamToTell(args[2])
	if fail.IsError() {
		return fail
	}
	full, count := len(args) > 3, int64(10)
	if full {
		if len(args) == 5 || len(args) > 6 || !fold(args[3], "FULL") || len(args) == 6 && !fold(args[4], "COUNT") {
			return wrongSubcommand(args)
		}
		if len(args) == 6 {
			n, ok := parseInt(args[5])
			if !ok {
				return Error(msgNotInt)
			}
			if n >= 0 {
				count = n
			}
		}
	}
	// The numbers of the radix tree are those that Redis would have with nodes of
	// a hundred entries, one below the other.
	nodes := int64(v.stream.Len()+trimLot-1) / trimLot
	told := []Reply{
		Bulk("length"), Int(int64(v.stream.Len())),
		Bulk("radix-tree-keys"), Int(nodes),
		Bulk("radix-tree-nodes"), Int(nodes + 1),
		Bulk("last-generated-id"), Bulk(v.info.last.String()),
		Bulk("max-deleted-entry-id"), Bulk(v.info.maxDeleted.String()),
		Bulk("entries-added"), Int(int64(v.info.added)),
		Bulk("recorded-first-entry-id"), Bulk(v.firstID().String()),
	}
	if full {
		return v.inFull(told, count)
	}
	first, last := Null, Null
	if n := v.stream.Len(); n > 0 {
		e := v.stream.At(0)
		first = e.reply()
		e = v.stream.At(n - 1)
		last = e.reply()
	}
	return Map(append(told, Bulk("groups"), Int(int64(v.groups.Len())), Bulk("first-entry"), first, Bulk("last-entry"), last))
}

// inFull adds to what is told of a stream count of its entries, and its groups with
// count of their pending entries; all of them if count is 0.
func (v *collection) inFull(told []Reply, count int64) Reply {
	var l collector
	v.stream.Ascend(0, func(e *streamEntry) bool { return l.addEntry(e) && int64(len(l.elems)) != count })
	entries := Array(l.elems)
	l.elems = nil
	v.groups.Ascend(0, func(g *streamGroup) bool { return l.add(v.groupInFull(g, count, &l)) })
	if l.over() {
		return Error(replyTooLarge)
	}
	return Map(append(told, Bulk("entries"), entries, Bulk("groups"), Array(l.elems)))
}

// groupInFull adds to the size of l what it adds to the reply.
func (v *collection) groupInFull(g *streamGroup, count int64, l *collector) Reply {
	pending := collector{size: l.size}
	g.pending.Ascend(0, func(p *pendingEntry) bool {
		return pending.add(Array([]Reply{Bulk(p.id.String()), Bulk(p.consumer), Int(p.at.wall), Int(p.deliveries)})) && int64(len(pending.elems)) != count
	})
	consumers := collector{size: pending.size}
	g.consumers.Ascend(0, func(k *consumer) bool {
		own := collector{size: consumers.size}
		k.pending.Ascend(0, func(id *streamID) bool {
			i, _ := g.pendingPlace(*id)
			p := g.pending.At(i)
			return own.add(Array([]Reply{Bulk(id.String()), Int(p.at.wall), Int(p.deliveries)})) && int64(len(own.elems)) != count
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
