package command

import (
	"math"
	"math/big"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the commands that take several keys and pop from the first key
// that is not empty. Some of these commands wait until there is such a key: see
// fsm/wait.go. BLMOVE and BRPOPLPUSH wait too, but pop from one key only.

var popCommands = []fsm.Command{
	{
		Name: "lmpop", Run: lmpop, Arity: -4, Flags: fsm.Write | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Steps: mpopWork},
		KeysOf: mpopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "list", Since: "7.0.0",
		Complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
		Syntax:     "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
		Doc:        "Pop elements from a list",
	},
	{
		Name: "zmpop", Run: zmpop, Arity: -4, Flags: fsm.Write | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Steps: mpopWork},
		KeysOf: mpopKeys,
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 1, Step: 1}, Access: fsm.Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "sorted-set", Since: "7.0.0",
		Complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in " +
			"the sorted set, and M being the number of elements popped.",
		Syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
		Doc:    "Remove and return members with scores in a sorted set",
	},
	{
		Name: "blpop", Run: blpop, Arity: -3, Flags: fsm.Write | fsm.NoScript | fsm.Blocking,
		Work: fsm.WorkHooks{Steps: bpopWork},
		Keys: fsm.KeysAt(1, -2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Wait:  fsm.WaitHooks{Block: parseBlpop},
		Group: "list", Since: "2.0.0",
		Complexity: "O(N) where N is the number of provided keys.",
		Syntax:     "key [key ...] timeout",
		Doc:        "Remove and get the first element in a list, or block until one is available",
		History:    []fsm.Change{{Since: "6.0.0", What: "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "brpop", Run: brpop, Arity: -3, Flags: fsm.Write | fsm.NoScript | fsm.Blocking,
		Work: fsm.WorkHooks{Steps: bpopWork},
		Keys: fsm.KeysAt(1, -2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Wait:  fsm.WaitHooks{Block: parseBrpop},
		Group: "list", Since: "2.0.0",
		Complexity: "O(N) where N is the number of provided keys.",
		Syntax:     "key [key ...] timeout",
		Doc:        "Remove and get the last element in a list, or block until one is available",
		History:    []fsm.Change{{Since: "6.0.0", What: "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "blmove", Run: blmove, Arity: 6, Flags: fsm.Write | fsm.DenyOOM | fsm.NoScript | fsm.Blocking,
		Work: fsm.WorkHooks{Steps: lmoveWork},
		Keys: fsm.KeysAt(1, 2, 1), Wait: fsm.WaitHooks{Block: parseBlmove},
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
		Doc: "Pop an element from a list, push it to another list and return it; or block until one is " +
			"available",
	},
	{
		Name: "brpoplpush", Run: brpoplpush, Arity: 4, Flags: fsm.Write | fsm.DenyOOM | fsm.NoScript | fsm.Blocking,
		Work: fsm.WorkHooks{Steps: lmoveWork},
		Keys: fsm.KeysAt(1, 2, 1),
		Wait: fsm.WaitHooks{Block: parseBrpoplpush},
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"}},
		},
		Group: "list", Since: "2.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
		Complexity: "O(1)",
		Syntax:     "source destination timeout",
		Doc: "Pop an element from a list, push it to another list and return it; or block until one is " +
			"available",
		History: []fsm.Change{{Since: "6.0.0", What: "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "blmpop", Run: blmpop, Arity: -5, Flags: fsm.Write | fsm.Blocking | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Steps: mpopWork},
		KeysOf: mpopKeysBlocking, Wait: fsm.WaitHooks{Block: parseBlmpop},
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 2, Step: 1}, Access: fsm.Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
		},
		Group: "list", Since: "7.0.0",
		Complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
		Syntax:     "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
		Doc:        "Pop elements from a list, or block until one is available",
	},
	{
		Name: "bzpopmin", Run: bzpopmin, Arity: -3, Flags: fsm.Write | fsm.NoScript | fsm.Blocking | fsm.Fast,
		Keys: fsm.KeysAt(1, -2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Wait:  fsm.WaitHooks{Block: parseBzpopmin},
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key [key ...] timeout",
		Doc: "Remove and return the member with the lowest score from one or more sorted sets, or block " +
			"until one is available",
		History: []fsm.Change{{Since: "6.0.0", What: "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "bzpopmax", Run: bzpopmax, Arity: -3, Flags: fsm.Write | fsm.NoScript | fsm.Blocking | fsm.Fast,
		Keys: fsm.KeysAt(1, -2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Wait:  fsm.WaitHooks{Block: parseBzpopmax},
		Group: "sorted-set", Since: "5.0.0",
		Complexity: "O(log(N)) with N being the number of elements in the sorted set.",
		Syntax:     "key [key ...] timeout",
		Doc: "Remove and return the member with the highest score from one or more sorted sets, or block " +
			"until one is available",
		History: []fsm.Change{{Since: "6.0.0", What: "`timeout` is interpreted as a double instead of an integer."}},
	},
	{
		Name: "bzmpop", Run: bzmpop, Arity: -5, Flags: fsm.Write | fsm.Blocking | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Steps: mpopWork},
		KeysOf: mpopKeysBlocking, Wait: fsm.WaitHooks{Block: parseBzmpop},
		Specs: []fsm.KeySpec{
			{Keys: fsm.Keys{First: 2, Step: 1}, Access: fsm.Access{Mode: "RW", Flags: "access delete"}, NumKeys: true},
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
// up. A timeout that is too large becomes negative in Redis, so parseTimeout
// returns the error for a negative timeout.
func parseTimeout(arg []byte) (ms int64, fail fsm.Reply) {
	f, ok := number.ParseLongDouble(arg)
	switch {
	case !ok:
		return 0, fsm.Error(msgTimeout)
	case f.IsInf():
		return 0, fsm.Error(msgTimeoutNegative)
	}
	f = new(big.Float).SetPrec(number.LongDoubleBits).SetMode(big.ToNearestEven).Mul(f, big.NewFloat(1000))
	ms, accuracy := f.Int64()
	switch {
	case accuracy == big.Below && ms < math.MaxInt64 && f.Sign() > 0:
		ms++
	case accuracy == big.Below:
		return 0, fsm.Error(msgTimeoutNegative)
	}
	if ms < 0 {
		return 0, fsm.Error(msgTimeoutNegative)
	}
	return ms, fsm.Null
}

func blpop(c *fsm.Ctx, args [][]byte) fsm.Reply      { return parseAndBlock(c, args, parseBlpop) }
func brpop(c *fsm.Ctx, args [][]byte) fsm.Reply      { return parseAndBlock(c, args, parseBrpop) }
func blmove(c *fsm.Ctx, args [][]byte) fsm.Reply     { return parseAndBlock(c, args, parseBlmove) }
func brpoplpush(c *fsm.Ctx, args [][]byte) fsm.Reply { return parseAndBlock(c, args, parseBrpoplpush) }
func blmpop(c *fsm.Ctx, args [][]byte) fsm.Reply     { return parseAndBlock(c, args, parseBlmpop) }
func bzpopmin(c *fsm.Ctx, args [][]byte) fsm.Reply   { return parseAndBlock(c, args, parseBzpopmin) }
func bzpopmax(c *fsm.Ctx, args [][]byte) fsm.Reply   { return parseAndBlock(c, args, parseBzpopmax) }
func bzmpop(c *fsm.Ctx, args [][]byte) fsm.Reply     { return parseAndBlock(c, args, parseBzmpop) }

func parseAndBlock(c *fsm.Ctx, args [][]byte, parse func(args [][]byte) (fsm.BlockingCall, fsm.Reply)) fsm.Reply {
	b, fail := parse(args)
	if fail.IsError() {
		return fail
	}
	return c.Block(args, b)
}

func parseBlpop(args [][]byte) (fsm.BlockingCall, fsm.Reply) {
	return parseBpop(args, keyspace.TypeList, popFirst)
}
func parseBrpop(args [][]byte) (fsm.BlockingCall, fsm.Reply) {
	return parseBpop(args, keyspace.TypeList, popLast)
}
func parseBzpopmin(args [][]byte) (fsm.BlockingCall, fsm.Reply) {
	return parseBpop(args, keyspace.TypeZSet, popLowest)
}
func parseBzpopmax(args [][]byte) (fsm.BlockingCall, fsm.Reply) {
	return parseBpop(args, keyspace.TypeZSet, popHighest)
}

// parseBpop parses the keys and the timeout of a blocking pop such as BLPOP.
func parseBpop(
	args [][]byte, t keyspace.Type, take func(c *fsm.Ctx, key []byte) fsm.Reply,
) (b fsm.BlockingCall, fail fsm.Reply) {
	last := len(args) - 1
	b = fsm.BlockingCall{Type: t, Keys: args[1:last], Take: take, None: fsm.NullArray}
	b.Timeout, fail = parseTimeout(args[last])
	return b, fail
}

func popFirst(c *fsm.Ctx, key []byte) fsm.Reply { return popElement(c, key, true) }
func popLast(c *fsm.Ctx, key []byte) fsm.Reply  { return popElement(c, key, false) }

// popElement removes an element from one end of a list and returns the key and
// the element.
func popElement(c *fsm.Ctx, key []byte, left bool) fsm.Reply {
	elems, fail := takeElements(c, c.Lookup(key), 1, left)
	if fail.IsError() {
		return fail
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(string(key)), elems[0]})
}

func popLowest(c *fsm.Ctx, key []byte) fsm.Reply  { return popScored(c, key, false) }
func popHighest(c *fsm.Ctx, key []byte) fsm.Reply { return popScored(c, key, true) }

// popScored removes the member with the lowest or the highest score and returns
// the key, the member and its score.
func popScored(c *fsm.Ctx, key []byte, fromMax bool) fsm.Reply {
	elems, fail := takeScored(c, c.Lookup(key), 1, fromMax, false)
	if fail.IsError() {
		return fail
	}
	return fsm.Array(append([]fsm.Reply{fsm.Bulk(string(key))}, elems...))
}

func parseBrpoplpush(args [][]byte) (fsm.BlockingCall, fsm.Reply) {
	return parseMove(args, false, true, args[3])
}

func parseBlmove(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	var left [2]bool
	for i := range left {
		if left[i] = fsm.IsWord(args[3+i], "LEFT"); !left[i] && !fsm.IsWord(args[3+i], "RIGHT") {
			return b, fsm.Error(fsm.MsgSyntax)
		}
	}
	return parseMove(args, left[0], left[1], args[5])
}

func parseMove(args [][]byte, fromLeft, toLeft bool, timeout []byte) (b fsm.BlockingCall, fail fsm.Reply) {
	b = fsm.BlockingCall{Type: keyspace.TypeList, Keys: args[1:2], None: fsm.Null}
	b.Take = func(c *fsm.Ctx, key []byte) fsm.Reply { return moveElement(c, key, args[2], fromLeft, toLeft) }
	b.Timeout, fail = parseTimeout(timeout)
	return b, fail
}

func parseBlmpop(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	return parseMpopTimeout(args, keyspace.TypeList, "LEFT", "RIGHT")
}

func parseBzmpop(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	return parseMpopTimeout(args, keyspace.TypeZSet, "MIN", "MAX")
}

func parseMpopTimeout(args [][]byte, t keyspace.Type, low, high string) (b fsm.BlockingCall, fail fsm.Reply) {
	if b, fail = parseMpop(args, 2, t, low, high); fail.IsError() {
		return b, fail
	}
	b.Timeout, fail = parseTimeout(args[1])
	return b, fail
}

func lmpop(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return mpop(c, args, keyspace.TypeList, "LEFT", "RIGHT")
}
func zmpop(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return mpop(c, args, keyspace.TypeZSet, "MIN", "MAX")
}

func mpop(c *fsm.Ctx, args [][]byte, t keyspace.Type, low, high string) fsm.Reply {
	b, fail := parseMpop(args, 1, t, low, high)
	if fail.IsError() {
		return fail
	}
	for _, key := range b.Keys {
		o, wrong := c.LookupType(key, t)
		switch {
		case wrong:
			return fsm.Error(fsm.MsgWrongType)
		case o != nil:
			return b.Take(c, key)
		}
	}
	return b.None
}

// parseMpop parses the arguments from the number of keys on. low is the keyword
// that selects the first elements of a value, and high is the keyword that
// selects the last ones.
func parseMpop(args [][]byte, at int, t keyspace.Type, low, high string) (b fsm.BlockingCall, fail fsm.Reply) {
	num, ok := number.ParseInt(args[at])
	switch {
	case !ok || num < 1:
		return b, fsm.Error(msgNumKeysLow)
	case num > int64(len(args)-at-2):
		return b, fsm.Error(fsm.MsgSyntax)
	}
	where := at + 1 + int(num)
	first := fsm.IsWord(args[where], low)
	if !first && !fsm.IsWord(args[where], high) {
		return b, fsm.Error(fsm.MsgSyntax)
	}
	count := int64(1)
	switch rest := args[where+1:]; {
	case len(rest) == 0:
	case len(rest) != 2 || !fsm.IsWord(rest[0], "COUNT"):
		// Redis checks the first COUNT before the arguments after it.
		if len(rest) > 2 && fsm.IsWord(rest[0], "COUNT") {
			if n, ok := number.ParseInt(rest[1]); !ok || n < 1 {
				return b, fsm.Error(msgCountLow)
			}
		}
		return b, fsm.Error(fsm.MsgSyntax)
	default:
		if count, ok = number.ParseInt(rest[1]); !ok || count < 1 {
			return b, fsm.Error(msgCountLow)
		}
	}
	b = fsm.BlockingCall{Type: t, Keys: args[at+1 : where], None: fsm.NullArray}
	b.Take = func(c *fsm.Ctx, key []byte) fsm.Reply {
		var elems []fsm.Reply
		var fail fsm.Reply
		if o := c.Lookup(key); t == keyspace.TypeList {
			elems, fail = takeElements(c, o, count, first)
		} else if elems, fail = takeScored(c, o, count, !first, true); !fail.IsError() && c.Proto() < 3 {
			elems = inPairs(elems)
		}
		if fail.IsError() {
			return fail
		}
		return fsm.Array([]fsm.Reply{fsm.Bulk(string(key)), fsm.Array(elems)})
	}
	return b, fsm.Null
}

// inPairs groups a flat list of members and scores into arrays of two.
func inPairs(flat []fsm.Reply) []fsm.Reply {
	pairs := make([]fsm.Reply, 0, len(flat)/2)
	for ; len(flat) > 0; flat = flat[2:] {
		pairs = append(pairs, fsm.Array(flat[:2:2]))
	}
	return pairs
}

func mpopKeys(args [][]byte) []int         { return numberedKeys(args, 1) }
func mpopKeysBlocking(args [][]byte) []int { return numberedKeys(args, 2) }
