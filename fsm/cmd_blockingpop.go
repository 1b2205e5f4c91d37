package fsm

import (
	"math"
	"math/big"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the commands that pop from the first of several keys that is
// not empty, and the commands that wait until there is such a key: see wait.go.

var popCommands = []Command{
	{
		Name: "lmpop", Run: lmpop, Arity: -4, Flags: Write | MovableKeys,
		KeysOf: mpopKeys,
		Specs: []KeySpec{
			{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "list", Since: "7.0.0",
		Complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
		Syntax:     "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
		Doc:        "Pop elements from a list",
	},
	{
		Name: "zmpop", Run: zmpop, Arity: -4, Flags: Write | MovableKeys,
		KeysOf: mpopKeys,
		Specs: []KeySpec{
			{Keys: Keys{First: 1, Step: 1}, Access: Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "7.0.0",
		Complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in " +
			"the sorted set, and M being the number of elements popped.",
		Syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
		Doc:    "Remove and return members with scores in a sorted set",
	},
	{
		Name: "blpop", Run: blpop, Arity: -3, Flags: Write | NoScript | Blocking,
		Keys: Keys{1, -2, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, block: parseBlpop,
		Group: "list", Since: "2.0.0",
		Complexity: "O(N) where N is the number of provided keys.",
		Syntax:     "key [key ...] timeout",
		Doc:        "Remove and get the first element in a list, or block until one is available",
		History:    []Change{{"6.0.0", "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "brpop", Run: brpop, Arity: -3, Flags: Write | NoScript | Blocking,
		Keys: Keys{1, -2, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, block: parseBrpop,
		Group: "list", Since: "2.0.0",
		Complexity: "O(N) where N is the number of provided keys.",
		Syntax:     "key [key ...] timeout",
		Doc:        "Remove and get the last element in a list, or block until one is available",
		History:    []Change{{"6.0.0", "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "blmove", Run: blmove, Arity: 6, Flags: Write | DenyOOM | NoScript | Blocking,
		Keys: Keys{1, 2, 1}, block: parseBlmove,
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
		Doc: "Pop an element from a list, push it to another list and return it; or block until one is " +
			"available",
	},
	{
		Name: "brpoplpush", Run: brpoplpush, Arity: 4, Flags: Write | DenyOOM | NoScript | Blocking,
		Keys: Keys{1, 2, 1}, block: parseBrpoplpush,
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "2.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
		Complexity: "O(1)",
		Syntax:     "source destination timeout",
		Doc: "Pop an element from a list, push it to another list and return it; or block until one is " +
			"available",
		History: []Change{{"6.0.0", "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "blmpop", Run: blmpop, Arity: -5, Flags: Write | Blocking | MovableKeys,
		KeysOf: mpopKeysBlocking, block: parseBlmpop,
		Specs: []KeySpec{
			{Keys: Keys{First: 2, Step: 1}, Access: Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "list", Since: "7.0.0",
		Complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
		Syntax:     "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
		Doc:        "Pop elements from a list, or block until one is available",
	},
	{
		Name: "bzpopmin", Run: bzpopmin, Arity: -3, Flags: Write | NoScript | Blocking | Fast,
		Keys: Keys{1, -2, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, block: parseBzpopmin,
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key [key ...] timeout",
		Doc: "Remove and return the member with the lowest score from one or more sorted sets, or block " +
			"until one is available",
		History: []Change{{"6.0.0", "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "bzpopmax", Run: bzpopmax, Arity: -3, Flags: Write | NoScript | Blocking | Fast,
		Keys: Keys{1, -2, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, block: parseBzpopmax,
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key [key ...] timeout",
		Doc: "Remove and return the member with the highest score from one or more sorted sets, or block " +
			"until one is available",
		History: []Change{{"6.0.0", "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "bzmpop", Run: bzmpop, Arity: -5, Flags: Write | Blocking | MovableKeys,
		KeysOf: mpopKeysBlocking, block: parseBzmpop,
		Specs: []KeySpec{
			{Keys: Keys{First: 2, Step: 1}, Access: Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "7.0.0",
		Complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in " +
			"the sorted set, and M being the number of elements popped.",
		Syntax: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
		Doc:    "Remove and return members with scores in a sorted set or block until one is available",
	},
}

const (
	msgTimeout         = "ERR timeout is not a float or out of range"
	msgTimeoutNegative = "ERR timeout is negative"
	msgCountLow        = "ERR count should be greater than 0"
)

// parseTimeout parses a timeout in seconds and returns milliseconds, rounded
// up. Where Redis lets a number overflow and wrap, parseTimeout returns the
// error that Redis then gives.
func parseTimeout(arg []byte) (ms int64, fail Reply) {
	f, ok := number.ParseLongDouble(arg)
	switch {
	case !ok:
		return 0, Error(msgTimeout)
	case f.IsInf():
		return 0, Error(msgTimeoutNegative)
	}
	f = new(big.Float).SetPrec(number.LongDoubleBits).SetMode(big.ToNearestEven).Mul(f, big.NewFloat(1000))
	ms, accuracy := f.Int64()
	switch {
	case accuracy == big.Below && ms < math.MaxInt64 && f.Sign() > 0:
		ms++
	case accuracy == big.Below:
		return 0, Error(msgTimeoutNegative)
	}
	if ms < 0 {
		return 0, Error(msgTimeoutNegative)
	}
	return ms, Null
}

func blpop(c *Ctx, args [][]byte) Reply      { return c.parseAndBlock(args, parseBlpop) }
func brpop(c *Ctx, args [][]byte) Reply      { return c.parseAndBlock(args, parseBrpop) }
func blmove(c *Ctx, args [][]byte) Reply     { return c.parseAndBlock(args, parseBlmove) }
func brpoplpush(c *Ctx, args [][]byte) Reply { return c.parseAndBlock(args, parseBrpoplpush) }
func blmpop(c *Ctx, args [][]byte) Reply     { return c.parseAndBlock(args, parseBlmpop) }
func bzpopmin(c *Ctx, args [][]byte) Reply   { return c.parseAndBlock(args, parseBzpopmin) }
func bzpopmax(c *Ctx, args [][]byte) Reply   { return c.parseAndBlock(args, parseBzpopmax) }
func bzmpop(c *Ctx, args [][]byte) Reply     { return c.parseAndBlock(args, parseBzmpop) }

func (c *Ctx) parseAndBlock(args [][]byte, parse func(args [][]byte) (blocking, Reply)) Reply {
	b, fail := parse(args)
	if fail.IsError() {
		return fail
	}
	return c.block(args, b)
}

func parseBlpop(args [][]byte) (blocking, Reply) { return parseBpop(args, keyspace.TypeList, popFirst) }
func parseBrpop(args [][]byte) (blocking, Reply) { return parseBpop(args, keyspace.TypeList, popLast) }
func parseBzpopmin(args [][]byte) (blocking, Reply) {
	return parseBpop(args, keyspace.TypeZSet, popLowest)
}
func parseBzpopmax(args [][]byte) (blocking, Reply) {
	return parseBpop(args, keyspace.TypeZSet, popHighest)
}

// parseBpop parses the keys and the timeout.
func parseBpop(args [][]byte, t keyspace.Type, take func(c *Ctx, key []byte) Reply) (b blocking, fail Reply) {
	last := len(args) - 1
	b = blocking{typ: t, keys: args[1:last], take: take, none: NullArray}
	b.timeout, fail = parseTimeout(args[last])
	return b, fail
}

func popFirst(c *Ctx, key []byte) Reply { return c.popElement(key, true) }
func popLast(c *Ctx, key []byte) Reply  { return c.popElement(key, false) }

// popElement returns the key and an element.
func (c *Ctx) popElement(key []byte, left bool) Reply {
	elems, fail := c.takeElements(c.lookup(key), 1, left)
	if fail.IsError() {
		return fail
	}
	return Array([]Reply{Bulk(string(key)), elems[0]})
}

func popLowest(c *Ctx, key []byte) Reply  { return c.popScored(key, false) }
func popHighest(c *Ctx, key []byte) Reply { return c.popScored(key, true) }

// popScored returns the key, a member and its score.
func (c *Ctx) popScored(key []byte, fromMax bool) Reply {
	elems, fail := c.takeScored(c.lookup(key), 1, fromMax, false)
	if fail.IsError() {
		return fail
	}
	return Array(append([]Reply{Bulk(string(key))}, elems...))
}

func parseBrpoplpush(args [][]byte) (blocking, Reply) { return parseMove(args, false, true, args[3]) }

func parseBlmove(args [][]byte) (b blocking, fail Reply) {
	var left [2]bool
	for i := range left {
		if left[i] = fold(args[3+i], "LEFT"); !left[i] && !fold(args[3+i], "RIGHT") {
			return b, Error(msgSyntax)
		}
	}
	return parseMove(args, left[0], left[1], args[5])
}

func parseMove(args [][]byte, fromLeft, toLeft bool, timeout []byte) (b blocking, fail Reply) {
	b = blocking{typ: keyspace.TypeList, keys: args[1:2], none: Null}
	b.take = func(c *Ctx, key []byte) Reply { return c.moveElement(key, args[2], fromLeft, toLeft) }
	b.timeout, fail = parseTimeout(timeout)
	return b, fail
}

func parseBlmpop(args [][]byte) (b blocking, fail Reply) {
	return parseMpopTimeout(args, keyspace.TypeList, "LEFT", "RIGHT")
}

func parseBzmpop(args [][]byte) (b blocking, fail Reply) {
	return parseMpopTimeout(args, keyspace.TypeZSet, "MIN", "MAX")
}

func parseMpopTimeout(args [][]byte, t keyspace.Type, low, high string) (b blocking, fail Reply) {
	if b, fail = parseMpop(args, 2, t, low, high); fail.IsError() {
		return b, fail
	}
	b.timeout, fail = parseTimeout(args[1])
	return b, fail
}

func lmpop(c *Ctx, args [][]byte) Reply { return c.mpop(args, keyspace.TypeList, "LEFT", "RIGHT") }
func zmpop(c *Ctx, args [][]byte) Reply { return c.mpop(args, keyspace.TypeZSet, "MIN", "MAX") }

func (c *Ctx) mpop(args [][]byte, t keyspace.Type, low, high string) Reply {
	b, fail := parseMpop(args, 1, t, low, high)
	if fail.IsError() {
		return fail
	}
	for _, key := range b.keys {
		o, wrong := c.lookupType(key, t)
		switch {
		case wrong:
			return Error(msgWrongType)
		case o != nil:
			return b.take(c, key)
		}
	}
	return b.none
}

// parseMpop parses the arguments from the number of keys on. low is the keyword
// for the first elements of a value, high the keyword for the last.
func parseMpop(args [][]byte, at int, t keyspace.Type, low, high string) (b blocking, fail Reply) {
	num, ok := number.ParseInt(args[at])
	switch {
	case !ok || num < 1:
		return b, Error(msgNumKeysLow)
	case num > int64(len(args)-at-2):
		return b, Error(msgSyntax)
	}
	where := at + 1 + int(num)
	first := fold(args[where], low)
	if !first && !fold(args[where], high) {
		return b, Error(msgSyntax)
	}
	count := int64(1)
	switch rest := args[where+1:]; {
	case len(rest) == 0:
	case len(rest) != 2 || !fold(rest[0], "COUNT"):
		// Redis checks the first COUNT before it checks what follows it.
		if len(rest) > 2 && fold(rest[0], "COUNT") {
			if n, ok := number.ParseInt(rest[1]); !ok || n < 1 {
				return b, Error(msgCountLow)
			}
		}
		return b, Error(msgSyntax)
	default:
		if count, ok = number.ParseInt(rest[1]); !ok || count < 1 {
			return b, Error(msgCountLow)
		}
	}
	b = blocking{typ: t, keys: args[at+1 : where], none: NullArray}
	b.take = func(c *Ctx, key []byte) Reply {
		var elems []Reply
		var fail Reply
		if o := c.lookup(key); t == keyspace.TypeList {
			elems, fail = c.takeElements(o, count, first)
		} else if elems, fail = c.takeScored(o, count, !first, true); !fail.IsError() && c.proto < 3 {
			elems = inPairs(elems)
		}
		if fail.IsError() {
			return fail
		}
		return Array([]Reply{Bulk(string(key)), Array(elems)})
	}
	return b, Null
}

// inPairs groups a flat list of members and scores into arrays of two.
func inPairs(flat []Reply) []Reply {
	pairs := make([]Reply, 0, len(flat)/2)
	for ; len(flat) > 0; flat = flat[2:] {
		pairs = append(pairs, Array(flat[:2:2]))
	}
	return pairs
}

func mpopKeys(args [][]byte) []int         { return numberedKeys(args, 1) }
func mpopKeysBlocking(args [][]byte) []int { return numberedKeys(args, 2) }
