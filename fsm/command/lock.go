package command

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the command LOCK. A lock of one owner is a string: its value is
// the owner, and its time to live is the lease. A lock that several owners hold
// is a keyspace.Lock. See "Locks" in docs/architecture.md.

var lockCommands = []fsm.Command{
	{
		Name: "lock", Arity: -2, Required: fsm.Required{Feature: fsm.FeatureLocks},
		Work:  fsm.WorkHooks{Call: 240},
		Group: "lock", Since: "holdfast",
		Complexity: "Depends on subcommand.",
		Syntax:     "ACQUIRE | BREAK | CHECK | HISTORY | INFO | LIST | RELEASE | RENEW | TOKEN | HELP [key]",
		Doc:        "A container for commands on locks",
		Sub: []fsm.Command{
			{
				Name: "acquire", Run: lockAcquire, Arity: -6, Flags: fsm.Write | fsm.DenyOOM | fsm.Blocking | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access insert"},
				Wait:     fsm.WaitHooks{Block: parseAcquireCall, Logged: AcquireCommand, MayWait: acquireMayWait},
				Required: fsm.Required{FeatureOf: acquireFeature},
				Group:    "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken, and of clients " +
					"that wait",
				Syntax: "key owner PX milliseconds [WAIT milliseconds] [META text] [SHARED | LIMIT permits]",
				Doc: "Take a lock, or extend the lease if the owner holds the lock, and get the fencing token; " +
					"wait in a queue if another owner holds it",
			},
			{
				Name: "break", Run: lockBreak, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.Dangerous,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(log(N)) where N is the number of locks that LOCK ACQUIRE has taken, for each owner " +
					"that loses the lock",
				Syntax: "key [token]",
				Doc:    "Take a lock away from its owner, or from all owners that share it",
			},
			{
				Name: "check", Run: lockCheck, Arity: 4, Flags: fsm.ReadOnly | fsm.Fast,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(1)",
				Syntax:     "key token",
				Doc:        "Determine if a fencing token is that of a current grant of a lock",
			},
			{
				Name: "help", Run: lockHelp, Arity: 2, Flags: fsm.Loading | fsm.Stale,
				Group: "lock", Since: "holdfast",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "history", Run: lockHistory, Arity: -3, Flags: fsm.ReadOnly | fsm.NoScript | fsm.NoMulti,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(N) where N is the number of grants of the lock in the history, from the newest to the " +
					"last one returned",
				Syntax: "key [FROM time] [TO time] [COUNT count]",
				Doc:    "Get the past grants of a lock, newest first, from the files of this node",
				Tips:   []string{"nondeterministic_output"},
			},
			{
				Name: "info", Run: lockInfo, Arity: 3, Flags: fsm.ReadOnly,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(N) where N is the number of owners of the lock, and of clients that wait for it",
				Syntax:     "key",
				Doc:        "Get the owner of a lock, and the clients that wait for it",
			},
			{
				Name: "list", Run: lockList, Arity: -2, Flags: fsm.ReadOnly | fsm.Slow | fsm.Dangerous,
				KeyPattern: func([][]byte) string { return "LOCK LIST" },
				Group:      "lock", Since: "holdfast",
				Complexity: "O(N) where N is the number of keys in the database if other commands than LOCK ACQUIRE " +
					"have taken locks in it, otherwise the number of its locks up to the last one returned; with " +
					"WAITED, O(M*log(M)+N) where M is the number of clients that wait for locks and N is COUNT",
				Syntax: "[MATCH pattern] [OWNER text] [WAITED] [COUNT count] [CURSOR cursor]",
				Doc: "Iterate over the locks that are held, oldest grant first, or over those that most clients " +
					"wait for",
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
				Name: "token", Run: lockToken, Arity: -3, Flags: fsm.ReadOnly | fsm.Fast,
				Required: fsm.Required{FeatureOf: tokenFeature},
				Keys:     fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
				Group: "lock", Since: "holdfast", Categories: lockCategories,
				Complexity: "O(1)",
				Syntax:     "key [owner]",
				Doc:        "Get the fencing token of the current grant of a lock",
			},
		},
	},
	{
		Name: AcquireCommand, Run: lockAcquire, Arity: -6, Flags: fsm.Internal | fsm.Write | fsm.DenyOOM | fsm.Blocking,
		Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access insert"},
		Wait:  fsm.WaitHooks{Block: parseAcquireCall},
		Group: "internal", Since: "holdfast",
		Required:   fsm.Required{Feature: fsm.FeatureLocks, FeatureOf: acquireFeature},
		Complexity: "O(log(N))",
		Syntax: "acquire key owner PX milliseconds [WAIT milliseconds] [META text] [SHARED | LIMIT permits] " +
			"[CLIENT address name]",
		Doc: "LOCK ACQUIRE with the client",
	},
}

// AcquireCommand is LOCK ACQUIRE in the form in which nodes write it to the log.
// This form contains the address and the name of the client, for LOCK INFO.
const AcquireCommand = "_lock"

// lockCategories are the ACL categories of commands on locks. They include string,
// because a lock of one owner is a string.
var lockCategories = []string{"string"}

const (
	// maxLockMeta is the maximum length of the text of META. maxHolder is the
	// maximum length of the name of an owner that shares a lock. Both are in
	// bytes.
	maxLockMeta = 1024
	maxHolder   = 1024

	msgLockMeta  = "ERR META is longer than 1024 bytes"
	msgLockWait  = "ERR WAIT is not an integer or out of range"
	msgLockLimit = "ERR LIMIT is not an integer from 1 to 10000"
	msgHolder    = "ERR the owner of a lock with SHARED or LIMIT is longer than 1024 bytes"
	msgToken     = "ERR token is not an integer or out of range"
	msgLockMode  = "ERR the owner holds the lock in another mode: release it first"
)

// lookupLock returns the object of a lock: a string, a Lock or, for the locks of
// Redisson, a hash. It returns nil if the lock is free.
func lookupLock(c *fsm.Ctx, key []byte) (o *keyspace.Object, wrongType bool) {
	o = c.Lookup(key)
	return o, o != nil && o.Type != keyspace.TypeString && o.Type != keyspace.TypeHash && o.Type != keyspace.TypeLock
}

// tokenFeature returns the feature version that a call of LOCK TOKEN needs:
// FeatureShared if the call names an owner, and otherwise 0.
func tokenFeature(args [][]byte) int {
	if len(args) > 3 {
		return fsm.FeatureShared
	}
	return 0
}

func lockToken(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args) > 4 || len(args) > 3 && c.Features() < fsm.FeatureShared {
		return fsm.Error(fsm.WrongArity("lock|token"))
	}
	if len(args) == 4 {
		g, fail := heldBy(c, args[2], args[3])
		if g.o == nil {
			return fail
		}
		return fsm.Int(int64(g.token()))
	}
	o, wrong := lookupLock(c, args[2])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Null
	}
	return fsm.Int(int64(latestToken(c, o)))
}

// latestToken returns the token of a lock. If the lock may have several
// holders, it returns the highest token of a holder whose lease has not ended.
func latestToken(c *fsm.Ctx, o *keyspace.Object) fsm.Pos {
	if o.Type != keyspace.TypeLock {
		return o.Token
	}
	l := o.Coll.Lock
	for i := l.Len() - 1; i >= 0; i-- {
		if h := l.At(i); h.Deadline > c.Now() {
			return h.Token
		}
	}
	return 0
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
	if o != nil && o.Type == keyspace.TypeLock {
		_, held := c.HolderWith(o, token)
		return fsm.Bool(held)
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
	many           bool // SHARED or LIMIT is given
	limit          int  // see keyspace.Lock
}

// acquireFeature returns the feature version that the options of LOCK ACQUIRE need.
func acquireFeature(args [][]byte) int {
	option := func(arg []byte) bool { return fsm.IsWord(arg, "SHARED") || fsm.IsWord(arg, "LIMIT") }
	if len(args) < 6 || !slices.ContainsFunc(args[4:], option) {
		return 0
	}
	if a, _ := parseAcquire(args, true); a.many {
		return fsm.FeatureShared
	}
	return 0
}

// parseAcquire parses LOCK ACQUIRE. Only the internal form may have the option
// CLIENT. The options SHARED and LIMIT are accepted only if many is set.
func parseAcquire(args [][]byte, many bool) (a acquisition, fail fsm.Reply) {
	internal := string(args[0]) == AcquireCommand
	a.key, a.owner = args[2], args[3]
	for i := 4; i < len(args); i += 2 {
		if many && fsm.IsWord(args[i], "SHARED") && !a.many {
			a.many = true
			i--
			continue
		}
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
		case many && fsm.IsWord(word, "LIMIT") && !a.many:
			n, ok := number.ParseInt(val)
			if !ok || n < 1 || n > keyspace.MaxHolders {
				return a, fsm.Error(msgLockLimit)
			}
			a.many, a.limit = true, int(n)
		case internal && fsm.IsWord(word, "CLIENT") && i+3 == len(args):
			a.addr, a.name = string(val), string(args[i+2])
			i++
		default:
			return a, fsm.Error(fsm.MsgSyntax)
		}
	}
	switch {
	case a.px == nil:
		return a, fsm.Error(fsm.MsgSyntax)
	case a.many && len(a.owner) > maxHolder:
		return a, fsm.Error(msgHolder)
	}
	return a, checkLease(a.px)
}

// maxLease is the maximum length of a lease, in milliseconds. It is so low that
// a lease can be added to any time without an overflow.
const maxLease = 1 << 53

// checkLease returns an error unless arg is a valid length of a lease, in
// milliseconds.
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
	a, fail := parseAcquire(args, true)
	return a.call(), fail
}

func (a *acquisition) call() fsm.BlockingCall {
	return fsm.BlockingCall{
		Type: keyspace.TypeString, Keys: [][]byte{a.key}, Timeout: a.wait, None: fsm.Null, Lock: true, Joins: a.joins,
		Take: func(c *fsm.Ctx, _ []byte) fsm.Reply { return a.grant(c) },
	}
}

// joins reports whether the owner of a may join the holders of the lock o, or
// already is one of them. It reports false if a has another mode than the lock.
func (a *acquisition) joins(c *fsm.Ctx, o *keyspace.Object) bool {
	if !a.many || o.Coll.Lock.Limit != a.limit {
		return false
	}
	_, held := c.HolderOf(o, a.owner)
	return held || c.Holders(o) < cmp.Or(a.limit, keyspace.MaxHolders)
}

// acquireMayWait reports whether a call of LOCK ACQUIRE is valid and has WAIT.
func acquireMayWait(args [][]byte) bool {
	if len(args) < 6 {
		return false
	}
	a, fail := parseAcquire(args, true)
	return !fail.IsError() && a.waits
}

func lockAcquire(c *fsm.Ctx, args [][]byte) fsm.Reply {
	a, fail := parseAcquire(args, c.Features() >= fsm.FeatureShared)
	if fail.IsError() {
		return fail
	}
	o, wrong := lookupLock(c, a.key)
	switch {
	case wrong || o != nil && o.Type == keyspace.TypeHash:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil && !c.LockReserved(a.key):
		return a.grant(c)
	case o != nil && o.Type == keyspace.TypeLock:
		_, held := c.HolderOf(o, a.owner)
		joins := a.joins(c, o)
		if held && !joins {
			return fsm.Error(msgLockMode)
		}
		if held || joins && !c.LockWanted(a.key) && !c.Delayed(a.key) {
			return a.grant(c)
		}
	case o != nil && o.Str == string(a.owner):
		if a.many {
			return fsm.Error(msgLockMode)
		}
		return renewLock(c, o, a.px, a.meta)
	}
	if !a.waits || c.Atomic() {
		c.LockRefused()
		return fsm.Null
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	return c.Wait(args, a.call())
}

// grant gives the owner a lock that is free, or adds the owner to the holders
// of a lock. If the owner already is a holder, grant renews the owner's lease.
func (a *acquisition) grant(c *fsm.Ctx) fsm.Reply {
	var o *keyspace.Object
	if a.many {
		if o = c.Lookup(a.key); o == nil {
			o = keyspace.NewLock(a.key, a.limit)
		} else if h, held := c.HolderOf(o, a.owner); held {
			return grip{o, h}.renew(c, a.px, a.meta)
		}
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	l, fail := lifetimeIn(c, unitPX, a.px, "lock")
	if fail.IsError() {
		return fail
	}
	g := &fsm.Grant{LockClient: fsm.LockClient{Addr: a.addr, Name: a.name}}
	if a.meta != nil {
		g.Meta = *a.meta
	}
	if a.many {
		h := keyspace.Holder{Owner: string(a.owner), Deadline: l.deadline, ExpireAt: l.expireAt}
		token := c.AddHolder(o, h, g)
		c.Notify("g", "lock", o.Key)
		return fsm.Int(int64(token))
	}
	o = within(keyspace.NewObject(a.key, a.owner), l)
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

// grip is a lock that an owner holds.
type grip struct {
	o *keyspace.Object // nil if the owner does not hold the lock
	h keyspace.Holder  // zero unless the lock is a keyspace.Lock; in LOCK BREAK, zero means all holders
}

// heldBy returns the lock of a key if the owner holds it, and otherwise a grip
// without an object.
func heldBy(c *fsm.Ctx, key, owner []byte) (g grip, fail fsm.Reply) {
	o, wrong := lookupLock(c, key)
	switch {
	case wrong || o != nil && o.Type == keyspace.TypeHash:
		return g, fsm.Error(fsm.MsgWrongType)
	case o == nil:
	case o.Type == keyspace.TypeLock:
		if h, held := c.HolderOf(o, owner); held {
			return grip{o, h}, fsm.Null
		}
	case o.Str == string(owner):
		return grip{o: o}, fsm.Null
	}
	return g, fsm.Null
}

func (g grip) token() fsm.Pos {
	if g.o.Type == keyspace.TypeLock {
		return g.h.Token
	}
	return g.o.Token
}

// renew extends the lease, and never shortens it.
func (g grip) renew(c *fsm.Ctx, px []byte, meta *string) fsm.Reply {
	if g.o.Type != keyspace.TypeLock {
		return renewLock(c, g.o, px, meta)
	}
	l, fail := lifetimeIn(c, unitPX, px, "lock")
	if fail.IsError() {
		return fail
	}
	if later(l, lifetime{deadline: g.h.Deadline, expireAt: g.h.ExpireAt}) {
		g.h.Deadline, g.h.ExpireAt = l.deadline, l.expireAt
	}
	c.RenewHolder(g.o, g.h, meta)
	c.Notify("g", "expire", g.o.Key)
	return fsm.Int(int64(g.h.Token))
}

func (g grip) end(c *fsm.Ctx, how string) {
	if g.h.Token != 0 {
		c.EndHolder(g.o, g.h, how)
	} else {
		c.EndLock(g.o, how)
	}
}

func lockRenew(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if !fsm.IsWord(args[4], "PX") {
		return fsm.Error(fsm.MsgSyntax)
	}
	if fail := checkLease(args[5]); fail.IsError() {
		return fail
	}
	g, fail := heldBy(c, args[2], args[3])
	if g.o == nil {
		return fail
	}
	return g.renew(c, args[5], nil)
}

func lockRelease(c *fsm.Ctx, args [][]byte) fsm.Reply {
	g, fail := heldBy(c, args[2], args[3])
	if fail.IsError() {
		return fail
	}
	return endLock(c, args, g, args[4:], fsm.LockReleased)
}

func lockBreak(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := lookupLock(c, args[2])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return endLock(c, args, grip{o: o}, args[3:], fsm.LockBroken)
}

// endLock ends the grant of g. If last contains a fencing token, endLock ends
// only the grant with this token. LOCK BREAK names no holder: if several owners
// hold the lock, the token selects one of them, and without a token the grants
// of all holders end.
func endLock(c *fsm.Ctx, args [][]byte, g grip, last [][]byte, how string) fsm.Reply {
	if len(last) > 1 {
		return fsm.Error(fsm.WrongArity("lock|" + string(bytes.ToLower(args[1]))))
	}
	if len(last) == 1 {
		token, fail := parseToken(last[0])
		if fail.IsError() {
			return fail
		}
		held := true
		if g.o != nil && g.o.Type == keyspace.TypeLock && g.h.Token == 0 {
			g.h, held = c.HolderWith(g.o, token)
		}
		if g.o != nil && (!held || g.token() != token) {
			return fsm.Zero
		}
	}
	if g.o == nil {
		return fsm.Zero
	}
	g.end(c, how)
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
		waiters = append(waiters, describeWaiter(c, n))
		return true
	})
	delay := c.DelayLeft(args[2])
	if o == nil && waiters == nil && delay == 0 {
		return fsm.Null
	}
	fields := describeLock(c, o, string(args[2]))
	if delay > 0 {
		fields = append(fields, fsm.Bulk("delay-ms"), fsm.Int((delay+1e6-1)/1e6))
	}
	if o != nil && o.Type == keyspace.TypeLock {
		var holders []fsm.Reply
		c.EachHolder(o, func(h *keyspace.Holder) bool {
			c.ChargeMemory(lockFields * replyBytes)
			holders = append(holders, fsm.Map(describeHolder(c, h)))
			return true
		})
		fields = append(fields, fsm.Bulk("holders"), fsm.Array(holders))
	}
	return fsm.Map(append(fields, fsm.Bulk("waiters"), fsm.Array(waiters)))
}

// waiterFields is the maximum number of elements that describe a waiter in a
// reply.
const waiterFields = 18

func describeWaiter(c *fsm.Ctx, n fsm.LockWaiter) fsm.Reply {
	a, _ := parseAcquire(n.Args, true) // no error: the arguments were parsed before the client began to wait
	n.Addr, n.Name = a.addr, a.name
	fields := []fsm.Reply{fsm.Bulk("owner"), fsm.Bulk(string(a.owner))}
	fields = append(fields, describeClient(n.LockClient)...)
	meta := ""
	if a.meta != nil {
		meta = *a.meta
	}
	fields = append(fields, fsm.Bulk("meta"), fsm.Bulk(meta), fsm.Bulk("waited-ms"), fsm.Int(n.Waited/1e6))
	return fsm.Map(append(fields, describeMode(c, a.many, a.limit)...))
}

// describeMode returns names and values that describe how a lock is held.
func describeMode(c *fsm.Ctx, many bool, limit int) []fsm.Reply {
	switch {
	case c.Features() < fsm.FeatureShared:
		return nil
	case limit > 0:
		return []fsm.Reply{fsm.Bulk("mode"), fsm.Bulk("limit"), fsm.Bulk("limit"), fsm.Int(int64(limit))}
	case many:
		return fsm.Strings("mode", "shared").Elems()
	}
	return fsm.Strings("mode", "exclusive").Elems()
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
	fields = append(fields, fsm.Bulk("owner"), owner, fsm.Bulk("token"), fsm.Int(int64(latestToken(c, o))),
		fsm.Bulk("ttl-ms"), fsm.Int(leaseLeft(c, lifeOf(o))))
	switch o.Type {
	case keyspace.TypeString:
		fields = append(fields, describeMode(c, false, 0)...)
	case keyspace.TypeLock:
		return append(fields, describeMode(c, true, o.Coll.Lock.Limit)...)
	}
	return describeGrant(c, fields, c.Grant(o))
}

// leaseLeft returns the milliseconds until a lease ends, or -1 if the lease has
// no end.
func leaseLeft(c *fsm.Ctx, l lifetime) int64 {
	if l.deadline == 0 {
		return ttlNone
	}
	return max(left(c, l), 0)
}

// describeHolder returns names and values that describe a holder of a lock.
func describeHolder(c *fsm.Ctx, h *keyspace.Holder) []fsm.Reply {
	fields := []fsm.Reply{
		fsm.Bulk("owner"), fsm.Bulk(h.Owner), fsm.Bulk("token"), fsm.Int(int64(h.Token)),
		fsm.Bulk("ttl-ms"), fsm.Int(leaseLeft(c, lifetime{deadline: h.Deadline, expireAt: h.ExpireAt})),
	}
	return describeGrant(c, fields, c.HolderGrant(h))
}

// describeGrant adds names and values that describe a grant, which may be nil.
func describeGrant(c *fsm.Ctx, fields []fsm.Reply, g *fsm.Grant) []fsm.Reply {
	if g == nil {
		return fields
	}
	fields = append(fields, describeClient(g.LockClient)...)
	return append(fields, fsm.Bulk("meta"), fsm.Bulk(g.Meta),
		fsm.Bulk("acquired-ms"), fsm.Int(g.Wall/1e3), fsm.Bulk("held-ms"), fsm.Int(max(c.Now()-g.Lease, 0)/1e6),
		fsm.Bulk("waited-ms"), fsm.Int(g.Waited/1e6), fsm.Bulk("renewals"), fsm.Int(int64(g.Renewals)))
}

// lockHistory runs LOCK HISTORY in a transaction or a script, where it is an
// error. Nodes execute all other calls themselves, because the history is not part
// of the state.
func lockHistory(*fsm.Ctx, [][]byte) fsm.Reply {
	return fsm.Error("ERR LOCK HISTORY cannot be part of a transaction or a script")
}

func lockHelp(c *fsm.Ctx, args [][]byte) fsm.Reply {
	switch {
	case c.Features() < fsm.FeatureShared:
		return fsm.Help("LOCK", lockHelpBefore...)
	case c.Features() < fsm.FeatureHistory:
		return fsm.Help("LOCK", lockHelpShared...)
	}
	i := slices.IndexFunc(lockHelpShared, func(line string) bool { return strings.HasPrefix(line, "INFO ") })
	return fsm.Help("LOCK", slices.Insert(slices.Clone(lockHelpShared), i,
		"HISTORY <key> [FROM <time>] [TO <time>] [COUNT <count>]",
		"    Return the past grants of the lock <key> from the files of this node, the",
		"    newest first. A time is in RFC 3339, or in milliseconds since 1970.",
	)...)
}
