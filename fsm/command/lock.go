package command

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the command LOCK. A lock is a string whose value is its owner,
// and whose time to live is its lease: see "Locks" in docs/architecture.md.

var lockCommands = []fsm.Command{
	{
		Name: "lock", Run: lock, Arity: -2, Feature: fsm.FeatureLocks,
		Group: "lock", Since: "holdfast",
		Complexity: "Depends on subcommand.",
		Syntax:     "ACQUIRE | BREAK | CHECK | INFO | LIST | RELEASE | RENEW | TOKEN | HELP [key]",
		Doc:        "A container for commands on locks",
		Sub: []fsm.Command{
			{
				Name: "acquire", Run: lockAcquire, Arity: -6, Flags: fsm.Write | fsm.DenyOOM | fsm.Blocking | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access insert"},
				Wait:  fsm.WaitHooks{Block: parseAcquireCall, Logged: AcquireCommand, MayWait: acquireMayWait},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken, and of clients " +
					"that wait",
				Syntax: "key owner PX milliseconds [WAIT milliseconds] [META text]",
				Doc: "Take a lock, or extend the lease if the owner holds the lock, and get the fencing token; " +
					"wait in a queue if another owner holds it",
			},
			{
				Name: "break", Run: lockBreak, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.Dangerous,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken",
				Syntax:     "key [token]",
				Doc:        "Take a lock away from its owner",
			},
			{
				Name: "check", Run: lockCheck, Arity: 4, Flags: fsm.ReadOnly | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(1)",
				Syntax:     "key token",
				Doc:        "Determine if a fencing token is that of the current grant of a lock",
			},
			{
				Name: "help", Run: lockHelp, Arity: 2, Flags: fsm.Loading | fsm.Stale,
				Group: "lock", Since: "holdfast",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "info", Run: lockInfo, Arity: 3, Flags: fsm.ReadOnly,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(N) where N is the number of clients that wait for the lock",
				Syntax:     "key",
				Doc:        "Get the owner of a lock, and the clients that wait for it",
			},
			{
				Name: "list", Run: lockList, Arity: -2, Flags: fsm.ReadOnly | fsm.Slow | fsm.Dangerous,
				Group: "lock", Since: "holdfast",
				Complexity: "O(N) where N is COUNT",
				Syntax:     "[MATCH pattern] [OWNER text] [WAITED] [COUNT count] [CURSOR cursor]",
				Doc:        "Iterate over the locks that LOCK ACQUIRE has taken, oldest grant first",
			},
			{
				Name: "release", Run: lockRelease, Arity: -4, Flags: fsm.Write | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken",
				Syntax:     "key owner [token]",
				Doc:        "Release a lock if the owner holds it",
			},
			{
				Name: "renew", Run: lockRenew, Arity: 6, Flags: fsm.Write | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken",
				Syntax:     "key owner PX milliseconds",
				Doc:        "Extend the lease of a lock if the owner holds it",
			},
			{
				Name: "token", Run: lockToken, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the fencing token of the current grant of a lock",
			},
		},
	},
	{
		Name: AcquireCommand, Run: lockAcquire, Arity: -6, Flags: fsm.Internal | fsm.Write | fsm.DenyOOM | fsm.Blocking,
		Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access insert"},
		Wait:  fsm.WaitHooks{Block: parseAcquireCall},
		Group: "internal", Since: "holdfast", Feature: fsm.FeatureLocks,
		Complexity: "O(log(N))",
		Syntax:     "acquire key owner PX milliseconds [WAIT milliseconds] [META text] [CLIENT address name]",
		Doc:        "LOCK ACQUIRE with the client",
	},
}

// AcquireCommand is LOCK ACQUIRE in the form in which nodes write it to the log:
// with the address and the name of the client, for LOCK INFO.
const AcquireCommand = "_lock"

// lockCategories are the ACL categories of commands on locks: a lock is a
// string.
var lockCategories = []string{"string"}

const (
	// maxLockMeta bounds the text of META, in bytes.
	maxLockMeta = 1024

	msgLockMeta = "ERR META is longer than 1024 bytes"
	msgLockWait = "ERR WAIT is not an integer or out of range"
	msgToken    = "ERR token is not an integer or out of range"
)

func lock(c *fsm.Ctx, args [][]byte) fsm.Reply { return c.Subcommand(args) }

// lookupLock returns the object of a lock: a string or, for the locks of
// Redisson, a hash. It returns nil if the lock is free.
func lookupLock(c *fsm.Ctx, key []byte) (o *keyspace.Object, wrongType bool) {
	o = c.Lookup(key)
	return o, o != nil && o.Type != keyspace.TypeString && o.Type != keyspace.TypeHash
}

func lockToken(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := lookupLock(c, args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Null
	}
	return fsm.Int(int64(o.Token))
}

// parseToken parses a fencing token.
func parseToken(arg []byte) (token fsm.Pos, fail fsm.Reply) {
	n, ok := number.ParseInt(arg)
	if !ok || n < 0 {
		return 0, fsm.Error(msgToken)
	}
	return fsm.Pos(n), fsm.Null
}

func lockCheck(c *fsm.Ctx, args [][]byte) fsm.Reply {
	token, fail := parseToken(args[3])
	if fail.IsError() {
		return fail
	}
	o, wrong := lookupLock(c, args[2])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return fsm.Bool(o != nil && o.Token == token)
}

// acquisition is a decoded LOCK ACQUIRE.
type acquisition struct {
	key, owner, px []byte
	waits          bool
	wait           int64   // milliseconds, 0 for no limit
	meta           *string // nil if META is not given
	addr, name     string
}

// parseAcquire parses LOCK ACQUIRE. Only the internal form may name the client.
func parseAcquire(args [][]byte) (a acquisition, fail fsm.Reply) {
	internal := string(args[0]) == AcquireCommand
	a.key, a.owner = args[2], args[3]
	for i := 4; i < len(args); i += 2 {
		if i+1 == len(args) {
			return a, fsm.Error(fsm.MsgSyntax)
		}
		switch word, val := args[i], args[i+1]; {
		case fsm.IsWord(word, "PX") && a.px == nil:
			a.px = val
		case fsm.IsWord(word, "WAIT") && !a.waits:
			var ok bool
			if a.wait, ok = number.ParseInt(val); !ok || a.wait < 0 {
				return a, fsm.Error(msgLockWait)
			}
			a.waits = true
		case fsm.IsWord(word, "META") && a.meta == nil:
			if len(val) > maxLockMeta {
				return a, fsm.Error(msgLockMeta)
			}
			text := string(val)
			a.meta = &text
		case internal && fsm.IsWord(word, "CLIENT") && i+3 == len(args):
			a.addr, a.name = string(val), string(args[i+2])
			i++
		default:
			return a, fsm.Error(fsm.MsgSyntax)
		}
	}
	if a.px == nil {
		return a, fsm.Error(fsm.MsgSyntax)
	}
	return a, checkLease(a.px)
}

// maxLease bounds a lease, in milliseconds, so that it can be added to any time.
const maxLease = 1 << 53

// checkLease returns an error unless arg is a lease.
func checkLease(arg []byte) fsm.Reply {
	n, ok := number.ParseInt(arg)
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case n <= 0 || n > maxLease:
		return invalidExpire("lock")
	}
	return fsm.Null
}

// parseAcquireCall decodes LOCK ACQUIRE as a blocking command.
func parseAcquireCall(args [][]byte) (b fsm.BlockingCall, fail fsm.Reply) {
	a, fail := parseAcquire(args)
	return a.call(), fail
}

func (a *acquisition) call() fsm.BlockingCall {
	return fsm.BlockingCall{
		Type: keyspace.TypeString, Keys: [][]byte{a.key}, Timeout: a.wait, None: fsm.Null, Lock: true,
		Take: func(c *fsm.Ctx, _ []byte) fsm.Reply { return a.grant(c) },
	}
}

// acquireMayWait reports whether a call of LOCK ACQUIRE has a valid WAIT.
func acquireMayWait(args [][]byte) bool {
	if len(args) < 6 {
		return false
	}
	a, fail := parseAcquire(args)
	return !fail.IsError() && a.waits
}

func lockAcquire(c *fsm.Ctx, args [][]byte) fsm.Reply {
	a, fail := parseAcquire(args)
	if fail.IsError() {
		return fail
	}
	o, wrong := c.LookupString(a.key)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o != nil && o.Str == string(a.owner):
		return renewLock(c, o, a.px, a.meta)
	case o == nil && !c.LockReserved(a.key):
		return a.grant(c)
	case !a.waits || c.Atomic():
		return fsm.Null
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	return c.Wait(args, a.call())
}

// grant takes a lock that is free.
func (a *acquisition) grant(c *fsm.Ctx) fsm.Reply {
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	l, fail := lifetimeIn(c, unitPX, a.px, "lock")
	if fail.IsError() {
		return fail
	}
	o := within(keyspace.NewObject(a.key, a.owner), l)
	g := fsm.Grant{LockClient: fsm.LockClient{Addr: a.addr, Name: a.name}}
	if a.meta != nil {
		g.Meta = *a.meta
	}
	c.GrantLock(o, g)
	c.Notify("$", "set", o.Key)
	c.Notify("g", "expire", o.Key)
	return fsm.Int(int64(o.Token))
}

// renewLock extends the lease of a lock, and never shortens it.
func renewLock(c *fsm.Ctx, o *keyspace.Object, px []byte, meta *string) fsm.Reply {
	l, fail := lifetimeIn(c, unitPX, px, "lock")
	if fail.IsError() {
		return fail
	}
	renewLease(c, o, l, true)
	c.RenewGrant(o, meta)
	return fsm.Int(int64(o.Token))
}

// renewLease extends the lease of a lock if expires is set, and never shortens
// it.
func renewLease(c *fsm.Ctx, o *keyspace.Object, l lifetime, expires bool) {
	if !expires || l.past || !later(l, lifeOf(o)) {
		l = lifeOf(o)
	}
	n := within(o.With(o.Str), l)
	c.Store(n)
	c.Notify("g", "expire", n.Key)
}

// takenBy reports whether SET NX succeeds because the key has the value: see the
// setting lock-idempotent.
func takenBy(c *fsm.Ctx, o *keyspace.Object, owner []byte) bool {
	return o != nil && o.Type == keyspace.TypeString && o.Str == string(owner) && c.Idempotent([]byte(o.Key))
}

// heldBy returns the lock of an owner, nil if the owner does not hold it.
func heldBy(c *fsm.Ctx, key, owner []byte) (o *keyspace.Object, fail fsm.Reply) {
	o, wrong := c.LookupString(key)
	switch {
	case wrong:
		return nil, fsm.Error(fsm.MsgWrongType)
	case o == nil || o.Str != string(owner):
		return nil, fsm.Null
	}
	return o, fsm.Null
}

func lockRenew(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if !fsm.IsWord(args[4], "PX") {
		return fsm.Error(fsm.MsgSyntax)
	}
	if fail := checkLease(args[5]); fail.IsError() {
		return fail
	}
	o, fail := heldBy(c, args[2], args[3])
	if o == nil {
		return fail
	}
	return renewLock(c, o, args[5], nil)
}

func lockRelease(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, fail := heldBy(c, args[2], args[3])
	if fail.IsError() {
		return fail
	}
	return endLock(c, args, o, args[4:], fsm.LockReleased)
}

func lockBreak(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := lookupLock(c, args[2])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return endLock(c, args, o, args[3:], fsm.LockBroken)
}

// endLock ends the grant of o, which may be nil, if it has the token that the
// last argument gives, if there is one.
func endLock(c *fsm.Ctx, args [][]byte, o *keyspace.Object, last [][]byte, how string) fsm.Reply {
	if len(last) > 1 {
		return fsm.Error(fsm.WrongArity("lock|" + string(bytes.ToLower(args[1]))))
	}
	if len(last) == 1 {
		token, fail := parseToken(last[0])
		if fail.IsError() {
			return fail
		}
		if o != nil && o.Token != token {
			return fsm.Zero
		}
	}
	if o == nil {
		return fsm.Zero
	}
	c.EndLock(o, how)
	return fsm.One
}

func lockInfo(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := lookupLock(c, args[2])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var waiters []fsm.Reply
	c.LockWaiters(string(args[2]), func(n fsm.LockWaiter) bool {
		c.Charge(1)
		c.ChargeMemory(waiterFields * replyBytes)
		waiters = append(waiters, describeWaiter(n))
		return true
	})
	if o == nil && waiters == nil {
		return fsm.Null
	}
	return fsm.Map(append(describeLock(c, o, string(args[2])), fsm.Bulk("waiters"), fsm.Array(waiters)))
}

// waiterFields is the number of elements that describe a waiter in a reply.
const waiterFields = 14

func describeWaiter(n fsm.LockWaiter) fsm.Reply {
	a, _ := parseAcquire(n.Args) // the command was parsed when it began to wait
	n.Addr, n.Name = a.addr, a.name
	fields := []fsm.Reply{fsm.Bulk("owner"), fsm.Bulk(string(a.owner))}
	fields = append(fields, describeClient(n.LockClient)...)
	meta := ""
	if a.meta != nil {
		meta = *a.meta
	}
	return fsm.Map(append(fields, fsm.Bulk("meta"), fsm.Bulk(meta), fsm.Bulk("waited-ms"), fsm.Int(n.Waited/1e6)))
}

func describeClient(n fsm.LockClient) []fsm.Reply {
	node, _, _ := strings.Cut(n.Node, "@") // the rest names the data directory
	return []fsm.Reply{
		fsm.Bulk("node"), fsm.Bulk(node), fsm.Bulk("client-id"), fsm.Int(int64(n.ID)),
		fsm.Bulk("addr"), fsm.Bulk(n.Addr), fsm.Bulk("name"), fsm.Bulk(n.Name),
	}
}

// describeLock returns names and values that describe a lock. o is nil if the
// lock is free.
func describeLock(c *fsm.Ctx, o *keyspace.Object, key string) []fsm.Reply {
	fields := []fsm.Reply{fsm.Bulk("key"), fsm.Bulk(key)}
	if o == nil {
		return append(fields, fsm.Bulk("owner"), fsm.Null, fsm.Bulk("token"), fsm.Null)
	}
	owner := fsm.Null
	if o.Type == keyspace.TypeString {
		owner = fsm.Bulk(o.Str)
	}
	fields = append(fields, fsm.Bulk("owner"), owner, fsm.Bulk("token"), fsm.Int(int64(o.Token)),
		fsm.Bulk("ttl-ms"), fsm.Int(remaining(c, []byte(key))))
	g := c.Grant(o)
	if g == nil {
		return fields
	}
	fields = append(fields, describeClient(g.LockClient)...)
	return append(fields, fsm.Bulk("meta"), fsm.Bulk(g.Meta),
		fsm.Bulk("acquired-ms"), fsm.Int(g.Wall/1e3), fsm.Bulk("held-ms"), fsm.Int(max(c.Now()-g.Lease, 0)/1e6),
		fsm.Bulk("waited-ms"), fsm.Int(g.Waited/1e6), fsm.Bulk("renewals"), fsm.Int(int64(g.Renewals)))
}

// listOptions has the options of LOCK LIST.
type listOptions struct {
	match  *glob.Matcher
	owner  []byte // nil for any
	waited bool
	count  int64
	cursor fsm.Pos
}

func parseLockList(c *fsm.Ctx, args [][]byte) (p listOptions, fail fsm.Reply) {
	p.count = scanDefault
	for i := 2; i < len(args); i++ {
		if fsm.IsWord(args[i], "WAITED") {
			p.waited = true
			continue
		}
		if i+1 == len(args) {
			return p, fsm.Error(fsm.MsgSyntax)
		}
		word := args[i]
		i++
		switch val := args[i]; {
		case fsm.IsWord(word, "MATCH"):
			g := glob.NewMatcher(string(val), scanSteps, c.Charge)
			p.match = &g
		case fsm.IsWord(word, "OWNER"):
			p.owner = val
		case fsm.IsWord(word, "COUNT"):
			n, ok := number.ParseInt(val)
			if !ok {
				return p, fsm.Error(fsm.MsgNotInt)
			}
			if n < 1 {
				return p, fsm.Error(fsm.MsgSyntax)
			}
			p.count = min(n, ScanMost)
		case fsm.IsWord(word, "CURSOR"):
			n, ok := parseCursor(val)
			if !ok {
				return p, fsm.Error(msgInvalidCur)
			}
			p.cursor = fsm.Pos(n)
		default:
			return p, fsm.Error(fsm.MsgSyntax)
		}
	}
	return p, fsm.Null
}

// lockList visits up to COUNT locks. The cursor is the token of the next one. A
// lock that is held from the first call to the last is returned once.
func lockList(c *fsm.Ctx, args [][]byte) fsm.Reply {
	p, fail := parseLockList(c, args)
	if fail.IsError() {
		return fail
	}
	var found []fsm.Reply
	var next fsm.Pos
	visited := int64(0)
	c.Grants(p.cursor, func(g *fsm.Grant) bool {
		if visited == p.count {
			next = g.Token
			return false
		}
		visited++
		c.Charge(fsm.StepsProbe)
		o := c.Lookup([]byte(g.Key))
		if o == nil || p.owner != nil && o.Str != string(p.owner) || p.match != nil && !p.match.Match(g.Key) {
			return true
		}
		waiting := c.LockWaiting(g.Key)
		if p.waited && waiting == 0 {
			return true
		}
		c.ChargeMemory(lockFields * replyBytes)
		found = append(found,
			fsm.Map(append(describeLock(c, o, g.Key), fsm.Bulk("waiting"), fsm.Int(int64(waiting)))))
		return true
	})
	if p.match != nil && p.match.Spent() {
		return fsm.Error(msgSteps)
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(strconv.FormatUint(uint64(next), 10)), fsm.Array(found)})
}

// lockFields is the number of elements that describe a lock in a reply.
const lockFields = 32

func lockHelp(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Help("LOCK",
		"ACQUIRE <key> <owner> PX <milliseconds> [WAIT <milliseconds>] [META <text>]",
		"    Take the lock <key> for <owner>, and return its fencing token, or null if",
		"    another owner holds it until WAIT is over. WAIT 0 waits without a limit.",
		"BREAK <key> [<token>]",
		"    Take the lock <key> away from its owner.",
		"CHECK <key> <token>",
		"    Return 1 if <token> is the fencing token of the present grant of the lock",
		"    <key>, otherwise 0.",
		"INFO <key>",
		"    Return the owner of the lock <key>, and the clients that wait for it.",
		"LIST [MATCH <pattern>] [OWNER <text>] [WAITED] [COUNT <count>] [CURSOR <cursor>]",
		"    Iterate over the locks that LOCK ACQUIRE has taken, the longest held first.",
		"RELEASE <key> <owner> [<token>]",
		"    Release the lock <key> if <owner> holds it.",
		"RENEW <key> <owner> PX <milliseconds>",
		"    Extend the lease of the lock <key> if <owner> holds it.",
		"TOKEN <key>",
		"    Return the fencing token of the present grant of the lock <key>, or null if",
		"    the lock is free.",
	)
}
