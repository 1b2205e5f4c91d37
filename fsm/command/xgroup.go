package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

var xgroupCommands = []fsm.Command{
	{
		Name: "xgroup", Arity: -2,
		Work:  fsm.WorkHooks{Call: 144, Steps: xgroupWork, Depends: deletesConsumer},
		Group: "stream", Since: "5.0.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "CREATE | CREATECONSUMER | DELCONSUMER | DESTROY | SETID | HELP [key group ...]",
		Doc:        "A container for consumer groups commands",
		Sub: []fsm.Command{
			{
				Name: "create", Run: xgroupCreate, Arity: -5, Flags: fsm.Write | fsm.DenyOOM,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
				Doc:        "Create a consumer group.",
				History:    []fsm.Change{{Since: "7.0.0", What: "Added the `entries_read` named argument."}},
			},
			{
				Name: "createconsumer", Run: xgroupCreateconsumer, Arity: 5, Flags: fsm.Write | fsm.DenyOOM,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
				Group: "stream", Since: "6.2.0",
				Complexity: "O(1)",
				Syntax:     "key group consumer",
				Doc:        "Create a consumer in a consumer group.",
			},
			{
				Name: "delconsumer", Run: xgroupDelconsumer, Arity: 5, Flags: fsm.Write,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key group consumer",
				Doc:        "Delete a consumer from a consumer group.",
			},
			{
				Name: "destroy", Run: xgroupDestroy, Arity: 4, Flags: fsm.Write,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
				Syntax:     "key group",
				Doc:        "Destroy a consumer group.",
			},
			{
				Name: "help", Run: xgroupHelp, Arity: 2, Flags: fsm.Loading | fsm.Stale,
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "setid", Run: xgroupSetid, Arity: -5, Flags: fsm.Write,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
				Group: "stream", Since: "5.0.0",
				Complexity: "O(1)",
				Syntax:     "key group <id | $> [ENTRIESREAD entries-read]",
				Doc:        "Set a consumer group to an arbitrary last delivered ID value.",
				History:    []fsm.Change{{Since: "7.0.0", What: "Added the optional `entries_read` argument."}},
			},
		},
	},
	{
		Name: "xsetid", Run: xsetid, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "stream", Since: "5.0.0",
		Complexity: "O(1)",
		Syntax:     "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
		Doc:        "An internal command for replicating stream values",
		History: []fsm.Change{{Since: "7.0.0",
			What: "Added the `entries_added` and `max_deleted_entry_id` arguments."}},
	},
}

const (
	msgNoStream = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to " +
		"use the MKSTREAM option to create an empty stream automatically."
	msgBusyGroup    = "BUSYGROUP Consumer Group name already exists"
	msgEntriesRead  = "ERR value for ENTRIESREAD must be positive or -1"
	msgEntriesAdded = "ERR entries_added must be positive"
	msgSetidDeleted = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
	msgSetidTop     = "ERR The ID specified in XSETID is smaller than the target stream top item"
	msgSetidLength  = "ERR The entries_added specified in XSETID is smaller than the target stream length"
)

func xgroupHelp(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Help("XGROUP",
		"CREATE <key> <groupname> <id|$> [option]",
		"    Create a new consumer group. Options are:",
		"    * MKSTREAM",
		"      Create the empty stream if it does not exist.",
		"    * ENTRIESREAD entries_read",
		"      Set the group's entries_read counter (internal use).",
		"CREATECONSUMER <key> <groupname> <consumer>",
		"    Create a new consumer in the specified group.",
		"DELCONSUMER <key> <groupname> <consumer>",
		"    Remove the specified consumer.",
		"DESTROY <key> <groupname>",
		"    Remove the specified group.",
		"SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
		"    Set the current group ID and entries_read counter.",
	)
}

// groupOptions parses the options after the ID in CREATE and SETID.
func groupOptions(args [][]byte, create bool) (mkstream bool, read int64, fail fsm.Reply) {
	read = stream.UnknownRead
	for i := 5; i < len(args); i++ {
		switch {
		case create && fsm.IsWord(args[i], "MKSTREAM"):
			mkstream = true
		case fsm.IsWord(args[i], "ENTRIESREAD") && i+1 < len(args):
			i++
			n, ok := number.ParseInt(args[i])
			switch {
			case !ok:
				return false, 0, fsm.Error(fsm.MsgNotInt)
			case n < 0 && n != stream.UnknownRead:
				return false, 0, fsm.Error(msgEntriesRead)
			}
			read = n
		default:
			return false, 0, fsm.WrongSubcommand(args)
		}
	}
	return mkstream, read, fsm.Null
}

// groupStart parses the ID after which a group starts to read. o may be nil.
func groupStart(o *keyspace.Object, arg []byte, strict bool) (id stream.ID, fail fsm.Reply) {
	if string(arg) == "$" {
		if o != nil {
			id = o.Coll.Stream.Last
		}
		return id, fsm.Null
	}
	id, ok := stream.ParseID(arg, 0, strict)
	if !ok {
		return id, fsm.Error(msgStreamID)
	}
	return id, fsm.Null
}

func xgroupCreate(c *fsm.Ctx, args [][]byte) fsm.Reply {
	mkstream, read, fail := groupOptions(args, true)
	if fail.IsError() {
		return fail
	}
	o, at, wrong := groupOf(c, args[2], args[3])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && !mkstream:
		return fsm.Error(msgNoStream)
	case len(args) > 8: // an option is repeated
		return fsm.WrongSubcommand(args)
	}
	id, fail := groupStart(o, args[4], true)
	switch {
	case fail.IsError():
		return fail
	case at >= 0:
		return fsm.Error(msgBusyGroup)
	case o != nil && o.Coll.Stream.Groups.Len() >= keyspace.MaxElements:
		return fsm.Error(msgTooMany)
	}
	g := stream.Group{Name: string(args[3]), Last: id, Read: read}
	n := open(c, o, args[2], keyspace.TypeStream)
	at, _ = n.Coll.Stream.GroupPosition(g.Name)
	n.Coll.Stream.Groups.Insert(c.Owner(), at, g)
	if o == nil {
		c.Assign(n)
	} else {
		c.StoreMetadata(n)
	}
	c.Notify("t", "xgroup-create", n.Key)
	return fsm.OK
}

// needGroup finds the group that a subcommand of XGROUP names. It returns an
// error if the group does not exist.
func needGroup(c *fsm.Ctx, args [][]byte) (o *keyspace.Object, at int, fail fsm.Reply) {
	o, at, wrong := groupOf(c, args[2], args[3])
	switch {
	case wrong:
		return nil, 0, fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return nil, 0, fsm.Error(msgNoStream)
	case at < 0:
		return nil, 0, missingGroup(args)
	}
	return o, at, fsm.Null
}

// missingGroup returns the error for a group that a stream does not have.
func missingGroup(args [][]byte) fsm.Reply {
	return fsm.Error("NOGROUP No such consumer group '" + cString(args[3]) + "'" +
		" for key name '" + cString(args[2]) + "'")
}

func xgroupSetid(c *fsm.Ctx, args [][]byte) fsm.Reply {
	_, read, fail := groupOptions(args, false)
	if fail.IsError() {
		return fail
	}
	o, at, fail := needGroup(c, args)
	if fail.IsError() {
		return fail
	}
	if len(args) > 7 { // an option is repeated
		return fsm.WrongSubcommand(args)
	}
	id, fail := groupStart(o, args[4], false)
	if fail.IsError() {
		return fail
	}
	withGroup(c, o, at, func(_ *keyspace.Object, g *stream.Group) { g.Last, g.Read = id, read })
	c.Notify("t", "xgroup-setid", o.Key)
	return fsm.OK
}

func xgroupDestroy(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, at, wrong := groupOf(c, args[2], args[3])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Error(msgNoStream)
	case at < 0:
		return fsm.Zero
	}
	n := open(c, o, nil, keyspace.TypeStream)
	n.Coll.Stream.Groups.Delete(c.Owner(), at)
	c.StoreMetadata(n)
	c.Notify("t", "xgroup-destroy", n.Key)
	c.SignalWaiters(n.Key) // waiters that read for the group get an error
	return fsm.One
}

func xgroupCreateconsumer(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, at, fail := needGroup(c, args)
	if fail.IsError() {
		return fail
	}
	g := o.Coll.Stream.Groups.At(at)
	if _, found := g.ConsumerPosition(string(args[4])); found {
		return fsm.Zero
	}
	if !groupFits(&g, 0) {
		return fsm.Error(msgTooMany)
	}
	withGroup(c, o, at, func(n *keyspace.Object, g *stream.Group) { consumer(c, n, g, string(args[4])) })
	return fsm.One
}

func xgroupDelconsumer(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, at, fail := needGroup(c, args)
	if fail.IsError() {
		return fail
	}
	g := o.Coll.Stream.Groups.At(at)
	i, found := g.ConsumerPosition(string(args[4]))
	if !found {
		return fsm.Zero
	}
	k := g.Consumers.At(i)
	c.Charge(fsm.StepsPut * k.Pending.Len())
	withGroup(c, o, at, func(_ *keyspace.Object, g *stream.Group) {
		k.Pending.Ascend(0, func(id *stream.ID) bool {
			p, _ := g.PendingPosition(*id)
			g.Pending.Delete(c.Owner(), p)
			return true
		})
		g.Consumers.Delete(c.Owner(), i)
	})
	c.Notify("t", "xgroup-delconsumer", o.Key)
	return fsm.Int(int64(k.Pending.Len()))
}

func xsetid(c *fsm.Ctx, args [][]byte) fsm.Reply {
	id, ok := stream.ParseID(args[2], 0, true)
	if !ok {
		return fsm.Error(msgStreamID)
	}
	added, deleted := int64(-1), stream.ID{}
	for i := 3; i < len(args); i += 2 {
		switch more := i+1 < len(args); {
		case fsm.IsWord(args[i], "ENTRIESADDED") && more:
			if added, ok = number.ParseInt(args[i+1]); !ok {
				return fsm.Error(fsm.MsgNotInt)
			}
			if added < 0 {
				return fsm.Error(msgEntriesAdded)
			}
		case fsm.IsWord(args[i], "MAXDELETEDID") && more:
			if deleted, ok = stream.ParseID(args[i+1], 0, true); !ok {
				return fsm.Error(msgStreamID)
			}
			if id.Compare(deleted) < 0 {
				return fsm.Error(msgSetidDeleted)
			}
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeStream)
	switch {
	case o == nil:
		return fsm.Error(msgNoSuchKey)
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	}
	v := o.Coll
	switch length := v.Stream.Entries.Len(); {
	case length > 0 && id.Compare(v.Stream.Entries.At(length-1).ID) < 0:
		return fsm.Error(msgSetidTop)
	case length > 0 && added >= 0 && int64(length) > added:
		return fsm.Error(msgSetidLength)
	}
	n := open(c, o, nil, keyspace.TypeStream)
	n.Coll.Stream.Last = id
	if added >= 0 {
		n.Coll.Stream.Added = uint64(added)
	}
	if deleted != (stream.ID{}) {
		n.Coll.Stream.MaxDeleted = deleted
	}
	c.StoreMetadata(n)
	c.Notify("t", "xsetid", n.Key)
	return fsm.OK
}

// moment returns the current time on both clocks.
func moment(c *fsm.Ctx) stream.Moment { return stream.Moment{Lease: c.Now(), Wall: wallMs(c)} }

// since returns the milliseconds from m to now by the lease clock.
func since(c *fsm.Ctx, m stream.Moment) int64 { return max(c.Now()-m.Lease, 0) / 1e6 }

// consumer updates the time at which a consumer of g was last seen, and returns
// the name of the consumer. If g has no such consumer, the function creates it.
// n is the stream of g.
func consumer(c *fsm.Ctx, n *keyspace.Object, g *stream.Group, name string) string {
	at, found := g.ConsumerPosition(name)
	k := stream.Consumer{Name: strings.Clone(name)}
	if found {
		k = g.Consumers.At(at)
	}
	k.Seen = moment(c)
	if found {
		g.Consumers.Set(c.Owner(), at, k)
		return k.Name
	}
	g.Consumers.Insert(c.Owner(), at, k)
	c.Notify("t", "xgroup-createconsumer", n.Key)
	return k.Name
}

// groupFits reports whether a group may get n more pending entries and one more
// consumer.
func groupFits(g *stream.Group, n int) bool {
	return g.Pending.Len() <= keyspace.MaxElements-n && g.Consumers.Len() < keyspace.MaxElements
}

// withGroup calls f with a copy of the stream o and a copy of its group at a
// position. f may change both; withGroup then stores them.
func withGroup(c *fsm.Ctx, o *keyspace.Object, at int, f func(n *keyspace.Object, g *stream.Group)) {
	n := open(c, o, nil, keyspace.TypeStream)
	g := n.Coll.Stream.Groups.At(at)
	f(n, &g)
	n.Coll.Stream.Groups.Set(c.Owner(), at, g)
	c.StoreMetadata(n)
}

// lagReply returns the number of entries that a group has not read yet, or null
// if the number is not known.
func lagReply(v *stream.Stream, g *stream.Group) fsm.Reply {
	if n, known := v.Lag(g); known {
		return fsm.Int(n)
	}
	return fsm.Null
}

// readReply returns the number of entries that a group has read, as XINFO
// reports it.
func readReply(g *stream.Group) fsm.Reply {
	if g.Read == stream.UnknownRead {
		return fsm.Null
	}
	return fsm.Int(g.Read)
}

// noGroup returns the error for a key or a group that does not exist.
func noGroup(key, group []byte, where string) fsm.Reply {
	return fsm.Error("NOGROUP No such key '" + cString(key) + "' or consumer group '" + cString(group) + "'" + where)
}

// cString returns the part of b before the first zero byte. C code prints only
// this part of a string.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// groupOf finds a group of a stream. at is -1 if the key or the group does not
// exist.
func groupOf(c *fsm.Ctx, key, name []byte) (o *keyspace.Object, at int, wrongType bool) {
	o, wrong := c.LookupType(key, keyspace.TypeStream)
	if wrong || o == nil {
		return o, -1, wrong
	}
	at, found := o.Coll.Stream.GroupPosition(string(name))
	if !found {
		at = -1
	}
	return o, at, false
}
