package fsm

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var scanCommands = []Command{
	{
		Name: "scan", Run: scan, Arity: -2, Flags: ReadOnly | KeyspaceCat,
		Group: "generic", Since: "2.8.0",
		Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the " +
			"cursor to return back to 0. N is the number of elements inside the collection.",
		Syntax:  "cursor [MATCH pattern] [COUNT count] [TYPE type]",
		Doc:     "Incrementally iterate the keys space",
		Tips:    []string{"nondeterministic_output", "request_policy:special"},
		History: []Change{{"6.0.0", "Added the `TYPE` subcommand."}},
	},
	{
		Name: "keys", Run: keys, Arity: 2, Flags: ReadOnly | Global | Slow | KeyspaceCat | Dangerous,
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) with N being the number of keys in the database, under the assumption that the key names " +
			"in the database and the given pattern have limited length.",
		Syntax: "pattern",
		Doc:    "Find all keys matching the given pattern",
		Tips:   []string{"request_policy:all_shards", "nondeterministic_output_order"},
	},
	{
		Name: "randomkey", Run: randomkey, Arity: 1, Flags: ReadOnly | Global | KeyspaceCat,
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Return a random key from the keyspace",
		Tips:       []string{"request_policy:all_shards", "nondeterministic_output"},
	},
	{
		Name: "dbsize", Run: dbsize, Arity: 1, Flags: ReadOnly | Global | Fast | KeyspaceCat,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Return the number of keys in the selected database",
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_sum"},
	},
	{
		Name: "flushdb", Run: flushdb, Arity: -1, Flags: Write | Global | KeyspaceCat | Dangerous,
		Group: "server", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys in the selected database",
		Syntax:     "[ASYNC | SYNC]",
		Doc:        "Remove all keys from the current database",
		Tips:       allShards,
		History:    flushHistory,
	},
	{
		Name: "flushall", Run: flushall, Arity: -1, Flags: Write | Global | KeyspaceCat | Dangerous,
		Group: "server", Since: "1.0.0",
		Complexity: "O(N) where N is the total number of keys in all databases",
		Syntax:     "[ASYNC | SYNC]",
		Doc:        "Remove all keys from all databases",
		Tips:       allShards,
		History:    flushHistory,
	},
	{
		Name: "swapdb", Run: swapdb, Arity: 3, Flags: Write | Global | Fast | KeyspaceCat | Dangerous,
		Group: "server", Since: "4.0.0",
		Complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
		Syntax:     "index1 index2",
		Doc:        "Swaps two Redis databases",
	},
}

var (
	allShards    = []string{"request_policy:all_shards", "response_policy:all_succeeded"}
	flushHistory = []Change{
		{"4.0.0", "Added the `ASYNC` flushing mode modifier."},
		{"6.2.0", "Added the `SYNC` flushing mode modifier."},
	}
)

const (
	// scanDefault is the number of keys that SCAN visits if COUNT is not given.
	scanDefault = 10
	// scanMost is the largest COUNT. COUNT is a hint. SCAN runs between entries
	// of the log and must not delay them for long.
	scanMost = 10000
	// scanSteps and keysSteps limit the steps that the patterns of one command
	// may take (see package glob). They are far above what millions of ordinary
	// keys need and correspond to about 0.2 s and 3 s of work.
	scanSteps = 1 << 26
	keysSteps = 1 << 30
)

const msgSteps = "ERR pattern takes too many steps to match, make it simpler"

// scan visits keys in the order of their hashes. The cursor is the hash of the
// next key to visit. Insertions and deletions between the calls do not move
// other keys, so every key that exists from the first call to the last is
// returned. One call returns all keys with the same hash.
func scan(c *Ctx, args [][]byte) Reply {
	cursor, ok := parseCursor(args[1])
	if !ok {
		return Error(msgInvalidCur)
	}
	p, fail := c.parseScan(args[2:], true)
	if fail.IsError() {
		return fail
	}
	count, typeName, match := p.count, p.typeName, p.match
	var found []Reply
	var last, next uint64
	visited := int64(0)
	c.m.dbs[c.db].Ascend(cursor, func(o *keyspace.Object) bool {
		if visited >= count && o.Hash != last {
			next = o.Hash
			return false
		}
		visited++
		last = o.Hash
		c.charge(1)
		if c.expired(o) || typeName != nil && !fold(typeName, upperTypeNames[o.Type]) ||
			match != nil && !match.Match(o.Key) {
			return true
		}
		c.hold(replyBytes)
		found = append(found, Bulk(o.Key))
		return true
	})
	if match != nil && match.Spent() {
		return Error(msgSteps)
	}
	return Array([]Reply{Bulk(strconv.FormatUint(next, 10)), Array(found)})
}

// scanOptions has the arguments of SCAN, HSCAN, SSCAN or ZSCAN after the
// cursor.
type scanOptions struct {
	count    int64
	typeName []byte
	match    *glob.Matcher
}

func (c *Ctx) parseScan(args [][]byte, withType bool) (p scanOptions, fail Reply) {
	p.count = scanDefault
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return p, Error(msgSyntax)
		}
		switch val := args[i+1]; {
		case fold(args[i], "COUNT"):
			var ok bool
			if p.count, ok = number.ParseInt(val); !ok {
				return p, Error(msgNotInt)
			}
			if p.count < 1 {
				return p, Error(msgSyntax)
			}
		case fold(args[i], "MATCH"):
			g := glob.NewMatcher(string(val), scanSteps, c.charge)
			p.match = &g
			if string(val) == "*" {
				p.match = nil // as in Redis: nil selects the empty key too, which the pattern does not match
			}
		case withType && fold(args[i], "TYPE"):
			p.typeName = val
		default:
			return p, Error(msgSyntax)
		}
	}
	p.count = min(p.count, scanMost)
	return p, Null
}

// elementScan is one call of HSCAN, SSCAN or ZSCAN.
type elementScan struct {
	scanOptions
	cursor, next uint64
	found        collector
}

// scanCollection implements HSCAN, SSCAN and ZSCAN. walk visits the elements.
func (c *Ctx) scanCollection(args [][]byte, t keyspace.Type, walk func(o *keyspace.Object, s *elementScan)) Reply {
	s := elementScan{found: collector{c: c}}
	var ok bool
	if s.cursor, ok = parseCursor(args[2]); !ok {
		return Error(msgInvalidCur)
	}
	o, wrong := c.lookupType(args[1], t)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Array([]Reply{Bulk("0"), Array(nil)})
	}
	var fail Reply
	if s.scanOptions, fail = c.parseScan(args[3:], false); fail.IsError() {
		return fail
	}
	walk(o, &s)
	switch {
	case s.match != nil && s.match.Spent():
		return Error(msgSteps)
	case s.found.over():
		return Error(ReplyTooLarge)
	}
	return Array([]Reply{Bulk(strconv.FormatUint(s.next, 10)), Array(s.found.elems)})
}

// scanDict walks a Dict as scan walks a database. It walks a small Dict to its
// end in one call. value returns what follows a name in the reply, or None for
// nothing.
func scanDict[V any](d *container.Dict[V], s *elementScan, big bool, value func(e *container.Item[V]) Reply) {
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
func (s *elementScan) offer(name string, value Reply) {
	s.found.c.charge(1)
	if s.match != nil && !s.match.Match(name) {
		return
	}
	s.found.add(Bulk(name))
	if value.kind != kindNone {
		s.found.add(value)
	}
}

// upperTypeNames are typeNames in upper case.
var upperTypeNames = [...]string{"STRING", "LIST", "SET", "ZSET", "HASH", "STREAM"}

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

func keys(c *Ctx, args [][]byte) Reply {
	g := glob.NewMatcher(string(args[1]), keysSteps, c.charge)
	all := string(args[1]) == "*"
	var found []Reply
	size := 0
	c.m.dbs[c.db].Scan(func(o *keyspace.Object) bool {
		c.charge(1)
		if c.expired(o) || !all && !g.Match(o.Key) {
			return !g.Spent()
		}
		c.hold(replyBytes)
		found = append(found, Bulk(o.Key))
		size += len(o.Key) + len("$1\r\n\r\n")
		return size <= MaxReplyBytes
	})
	switch {
	case g.Spent():
		return Error(msgSteps)
	case size > MaxReplyBytes:
		return Error(ReplyTooLarge)
	}
	return Array(found)
}

// walk prepares a command that visits whole databases. It sets expiryPending if
// there is an expired key whose expiry is not committed yet: a key whose
// deadline has passed by the reader's clock, but which no entry has removed.
// The reply of such a read cannot be used.
func (c *Ctx) walk() {
	if o := c.m.expiry.After(c.m.clock.Lease); o != nil && o.Deadline <= c.now {
		c.expiryPending = true
	}
}

// randomkey chooses a random hash and returns the first key from there on that
// has not expired. If there is none, it starts at the first key.
func randomkey(c *Ctx, args [][]byte) Reply {
	c.walk()
	db := c.m.dbs[c.db]
	var o *keyspace.Object
	pick := func(next *keyspace.Object) bool {
		c.charge(1)
		if c.expired(next) {
			return true
		}
		o = next
		return false
	}
	if db.Ascend(c.random()>>(64-container.HashBits), pick); o == nil {
		db.Scan(pick)
	}
	if o == nil {
		return Null
	}
	return Bulk(o.Key)
}

// dbsize does not count keys that have expired and are not removed yet.
func dbsize(c *Ctx, args [][]byte) Reply {
	c.walk()
	n := c.m.dbs[c.db].Len()
	c.m.expiry.Scan(func(db int, o *keyspace.Object) bool {
		c.charge(1)
		if o.Deadline > c.now {
			return false
		}
		if db == c.db {
			n--
		}
		return true
	})
	return Int(int64(n))
}

// flushMode checks the argument of FLUSHDB and FLUSHALL. Both modes have the
// same effect, because dropping a tree takes no time.
func flushMode(args [][]byte) bool {
	return len(args) == 1 || len(args) == 2 && (fold(args[1], "ASYNC") || fold(args[1], "SYNC"))
}

func flushdb(c *Ctx, args [][]byte) Reply {
	if !flushMode(args) {
		return Error(msgSyntax)
	}
	c.change()
	c.losesStreams(c.db)
	c.removeAll(c.db)
	c.m.expiry.Drop(c.db)
	c.flushed(c.db)
	return OK
}

// removeAll removes all keys of a database. The caller must update the index of
// deadlines.
func (c *Ctx) removeAll(db int) {
	c.m.dbs[db].Scan(func(o *keyspace.Object) bool {
		c.charge(stepsProbe)
		c.m.removed.add(c.m.owner, o)
		return true
	})
	c.m.dbs[db] = keyspace.NewDB()
}

func flushall(c *Ctx, args [][]byte) Reply {
	if !flushMode(args) {
		return Error(msgSyntax)
	}
	c.change()
	for i := range c.m.dbs {
		c.losesStreams(i)
		c.removeAll(i)
		c.flushed(i)
	}
	c.m.expiry = keyspace.NewExpiryIndex()
	return OK
}

func swapdb(c *Ctx, args [][]byte) Reply {
	a, ok := number.ParseInt(args[1])
	if !ok || a != int64(int32(a)) {
		return Error("ERR invalid first DB index")
	}
	b, ok := number.ParseInt(args[2])
	if !ok || b != int64(int32(b)) {
		return Error("ERR invalid second DB index")
	}
	if min(a, b) < 0 || max(a, b) >= Databases {
		return Error(msgDBIndex)
	}
	if a == b {
		return OK
	}
	c.change()
	c.losesStreams(int(a))
	c.losesStreams(int(b))
	c.m.dbs[a], c.m.dbs[b] = c.m.dbs[b], c.m.dbs[a]
	c.m.expiry.Swap(int(a), int(b))
	if c.m.features >= FeatureMend {
		c.m.exchanged[a], c.m.exchanged[b] = c.pos, c.pos
	}
	c.flushed(int(a))
	c.flushed(int(b))
	c.readyDB(int(a))
	c.readyDB(int(b))
	return OK
}
