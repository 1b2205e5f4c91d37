package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var scanCommands = []fsm.Command{
	{
		Name: "scan", Run: scan, Arity: -2, Flags: fsm.ReadOnly | fsm.KeyspaceCat,
		Group: "generic", Since: "2.8.0",
		Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the " +
			"cursor to return back to 0. N is the number of elements inside the collection.",
		Syntax:  "cursor [MATCH pattern] [COUNT count] [TYPE type]",
		Doc:     "Incrementally iterate the keys space",
		Tips:    []string{"nondeterministic_output", "request_policy:special"},
		History: []fsm.Change{{Since: "6.0.0", What: "Added the `TYPE` subcommand."}},
	},
	{
		Name: "keys", Run: keys, Arity: 2,
		Flags: fsm.ReadOnly | fsm.Global | fsm.Slow | fsm.KeyspaceCat | fsm.Dangerous,
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) with N being the number of keys in the database, under the assumption that the key names " +
			"in the database and the given pattern have limited length.",
		Syntax: "pattern",
		Doc:    "Find all keys matching the given pattern",
		Tips:   []string{"request_policy:all_shards", "nondeterministic_output_order"},
	},
	{
		Name: "randomkey", Run: randomkey, Arity: 1, Flags: fsm.ReadOnly | fsm.Global | fsm.KeyspaceCat,
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Return a random key from the keyspace",
		Tips:       []string{"request_policy:all_shards", "nondeterministic_output"},
	},
	{
		Name: "dbsize", Run: dbsize, Arity: 1, Flags: fsm.ReadOnly | fsm.Global | fsm.Fast | fsm.KeyspaceCat,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Return the number of keys in the selected database",
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_sum"},
	},
	{
		Name: "flushdb", Run: flushdb, Arity: -1, Flags: fsm.Write | fsm.Global | fsm.KeyspaceCat | fsm.Dangerous,
		Work:  fsm.WorkHooks{Steps: flushWork},
		Group: "server", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys in the selected database",
		Syntax:     "[ASYNC | SYNC]",
		Doc:        "Remove all keys from the current database",
		Tips:       allShards,
		History:    flushHistory,
	},
	{
		Name: "flushall", Run: flushall, Arity: -1, Flags: fsm.Write | fsm.Global | fsm.KeyspaceCat | fsm.Dangerous,
		Work:  fsm.WorkHooks{Steps: flushWork},
		Group: "server", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of keys in all databases",
		Syntax:     "[ASYNC | SYNC]",
		Doc:        "Remove all keys from all databases",
		Tips:       allShards,
		History:    flushHistory,
	},
	{
		Name: "swapdb", Run: swapdb, Arity: 3,
		Flags: fsm.Write | fsm.Global | fsm.Fast | fsm.KeyspaceCat | fsm.Dangerous,
		Work:  fsm.WorkHooks{Steps: swapWork},
		Group: "server", Since: "4.0.0",
		Complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
		Syntax:     "index1 index2",
		Doc:        "Swaps two Redis databases",
	},
}

var (
	allShards    = []string{"request_policy:all_shards", "response_policy:all_succeeded"}
	flushHistory = []fsm.Change{
		{Since: "4.0.0", What: "Added the `ASYNC` flushing mode modifier."},
		{Since: "6.2.0", What: "Added the `SYNC` flushing mode modifier."},
	}
)

const (
	// scanDefault is the COUNT of SCAN, HSCAN, SSCAN, ZSCAN and LOCK LIST if a call
	// does not give it.
	scanDefault = 10
	// ScanMost is the maximum COUNT that takes effect. COUNT is only a hint.
	// SCAN runs between entries of the log and must not delay them for long.
	ScanMost = 10000
	// scanSteps and keysSteps limit the steps that matching the pattern of one
	// command may take (see package glob). They are far above what millions of
	// ordinary keys need and correspond to about 0.2 s and 3 s of work.
	scanSteps = 1 << 26
	keysSteps = 1 << 30
)

const msgSteps = "ERR pattern takes too many steps to match, make it simpler"

// scan visits keys in the order of their hashes. The cursor is the hash of the
// next key to visit. Insertions and deletions between the calls do not move
// other keys, so every key that exists from the first call to the last is
// returned. One call returns all keys with the same hash.
func scan(c *fsm.Ctx, args [][]byte) fsm.Reply {
	cursor, ok := parseCursor(args[1])
	if !ok {
		return fsm.Error(msgInvalidCur)
	}
	p, fail := parseScan(c, args[2:], true)
	if fail.IsError() {
		return fail
	}
	count, typeName, match := p.count, p.typeName, p.match
	var found []fsm.Reply
	var last, next uint64
	visited := int64(0)
	c.Keyspace().Ascend(cursor, func(o *keyspace.Object) bool {
		if visited >= count && o.Hash != last {
			next = o.Hash
			return false
		}
		visited++
		last = o.Hash
		c.Charge(1)
		if c.Expired(o) || typeName != nil && !fsm.IsWord(typeName, upperTypeNames[o.Type]) ||
			match != nil && !match.Match(o.Key) {
			return true
		}
		c.ChargeMemory(replyBytes)
		found = append(found, fsm.Bulk(o.Key))
		return true
	})
	if match != nil && match.Spent() {
		return fsm.Error(msgSteps)
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(strconv.FormatUint(next, 10)), fsm.Array(found)})
}

// scanOptions has the arguments of SCAN, HSCAN, SSCAN or ZSCAN after the
// cursor.
type scanOptions struct {
	count    int64
	typeName []byte
	match    *glob.Matcher
}

func parseScan(c *fsm.Ctx, args [][]byte, withType bool) (p scanOptions, fail fsm.Reply) {
	p.count = scanDefault
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return p, fsm.Error(fsm.MsgSyntax)
		}
		switch val := args[i+1]; {
		case fsm.IsWord(args[i], "COUNT"):
			var ok bool
			if p.count, ok = number.ParseInt(val); !ok {
				return p, fsm.Error(fsm.MsgNotInt)
			}
			if p.count < 1 {
				return p, fsm.Error(fsm.MsgSyntax)
			}
		case fsm.IsWord(args[i], "MATCH"):
			g := glob.NewMatcher(string(val), scanSteps, c.Charge)
			p.match = &g
			if string(val) == "*" {
				p.match = nil // as in Redis, MATCH * also selects the empty key, which the pattern does not match
			}
		case withType && fsm.IsWord(args[i], "TYPE"):
			p.typeName = val
		default:
			return p, fsm.Error(fsm.MsgSyntax)
		}
	}
	p.count = min(p.count, ScanMost)
	return p, fsm.Null
}

// elementScan is one call of HSCAN, SSCAN or ZSCAN.
type elementScan struct {
	scanOptions
	cursor, next uint64
	found        collector
}

// scanCollection implements HSCAN, SSCAN and ZSCAN. walk visits the elements.
func scanCollection(
	c *fsm.Ctx, args [][]byte, t keyspace.Type, walk func(o *keyspace.Object, s *elementScan),
) fsm.Reply {
	s := elementScan{found: collector{c: c}}
	var ok bool
	if s.cursor, ok = parseCursor(args[2]); !ok {
		return fsm.Error(msgInvalidCur)
	}
	o, wrong := c.LookupType(args[1], t)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Array([]fsm.Reply{fsm.Bulk("0"), fsm.Array(nil)})
	}
	var fail fsm.Reply
	if s.scanOptions, fail = parseScan(c, args[3:], false); fail.IsError() {
		return fail
	}
	walk(o, &s)
	switch {
	case s.match != nil && s.match.Spent():
		return fsm.Error(msgSteps)
	case s.found.over():
		return fsm.Error(fsm.ReplyTooLarge)
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(strconv.FormatUint(s.next, 10)), fsm.Array(s.found.elems)})
}

// scanDict walks a Dict as scan walks a database. It walks a small Dict to its
// end in one call. value returns the reply element that follows a name, or None
// if no element follows.
func scanDict[V any](d *container.Dict[V], s *elementScan, big bool, value func(e *container.Item[V]) fsm.Reply) {
	from, visited, last := 0, int64(0), uint64(0)
	if big {
		from = d.Search(func(e *container.Item[V]) bool { return e.Hash < s.cursor })
	}
	d.Ascend(from, func(e *container.Item[V]) bool {
		if big && visited >= s.count && e.Hash != last {
			s.next = e.Hash
			return false
		}
		visited++
		last = e.Hash
		s.offer(e.Name, value(e))
		return !s.found.over()
	})
}

// offer adds an element to the reply if it matches.
func (s *elementScan) offer(name string, value fsm.Reply) {
	s.found.c.Charge(1)
	if s.match != nil && !s.match.Match(name) {
		return
	}
	s.found.add(fsm.Bulk(name))
	if value.Kind() != fsm.KindNone {
		s.found.add(value)
	}
}

// upperTypeNames are keyspace.TypeNames in upper case.
var upperTypeNames = [...]string{"STRING", "LIST", "SET", "ZSET", "HASH", "STREAM", "LOCK"}

// parseCursor parses a cursor as C's strtoul does. It accepts a sign and an
// empty text, but no leading blanks.
func parseCursor(b []byte) (uint64, bool) {
	s := string(b)
	if s == "" {
		return 0, true
	}
	negative := s[0] == '-'
	if negative || s[0] == '+' {
		s = s[1:]
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if negative {
		n = -n
	}
	return n, err == nil
}

func keys(c *fsm.Ctx, args [][]byte) fsm.Reply {
	g := glob.NewMatcher(string(args[1]), keysSteps, c.Charge)
	all := string(args[1]) == "*"
	var found []fsm.Reply
	size := 0
	c.Keyspace().Scan(func(o *keyspace.Object) bool {
		c.Charge(1)
		if c.Expired(o) || !all && !g.Match(o.Key) {
			return !g.Spent()
		}
		c.ChargeMemory(replyBytes)
		found = append(found, fsm.Bulk(o.Key))
		size += len(o.Key) + len("$1\r\n\r\n")
		return size <= fsm.MaxReplyBytes
	})
	switch {
	case g.Spent():
		return fsm.Error(msgSteps)
	case size > fsm.MaxReplyBytes:
		return fsm.Error(fsm.ReplyTooLarge)
	}
	return fsm.Array(found)
}

// randomkey chooses a random hash. It returns the first key that has not
// expired and whose hash is at least the chosen one. If there is none, it
// starts at the first key.
func randomkey(c *fsm.Ctx, args [][]byte) fsm.Reply {
	c.PrepareWalk()
	db := c.Keyspace()
	var o *keyspace.Object
	pick := func(next *keyspace.Object) bool {
		c.Charge(1)
		if c.Expired(next) {
			return true
		}
		o = next
		return false
	}
	if db.Ascend(c.Random()>>(64-container.HashBits), pick); o == nil {
		db.Scan(pick)
	}
	if o == nil {
		return fsm.Null
	}
	return fsm.Bulk(o.Key)
}

// dbsize does not count keys that have expired and are not removed yet.
func dbsize(c *fsm.Ctx, args [][]byte) fsm.Reply {
	c.PrepareWalk()
	return fsm.Int(int64(c.LiveKeys()))
}

// flushMode checks the argument of FLUSHDB and FLUSHALL. Both modes have the
// same effect, because the garbage collector always frees the memory later.
func flushMode(args [][]byte) bool {
	return len(args) == 1 || len(args) == 2 && (fsm.IsWord(args[1], "ASYNC") || fsm.IsWord(args[1], "SYNC"))
}

func flushdb(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if !flushMode(args) {
		return fsm.Error(fsm.MsgSyntax)
	}
	c.FlushDB()
	return fsm.OK
}

func flushall(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if !flushMode(args) {
		return fsm.Error(fsm.MsgSyntax)
	}
	c.FlushAll()
	return fsm.OK
}

func swapdb(c *fsm.Ctx, args [][]byte) fsm.Reply {
	a, ok := number.ParseInt(args[1])
	if !ok || a != int64(int32(a)) {
		return fsm.Error("ERR invalid first DB index")
	}
	b, ok := number.ParseInt(args[2])
	if !ok || b != int64(int32(b)) {
		return fsm.Error("ERR invalid second DB index")
	}
	if min(a, b) < 0 || max(a, b) >= fsm.Databases {
		return fsm.Error(fsm.MsgDBIndex)
	}
	if a == b {
		return fsm.OK
	}
	c.SwapDB(int(a), int(b))
	return fsm.OK
}
