package command

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the command LOCK LIST.

// listOptions has the options of LOCK LIST.
type listOptions struct {
	match   *glob.Matcher
	pattern string // text of match
	owner   []byte // nil for any
	waited  bool
	count   int64
	cursor  fsm.Pos
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
			g := glob.NewMatcher(string(val), keysSteps, c.Charge) // LOCK LIST may compare the pattern with all keys
			p.match, p.pattern = &g, string(val)
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

// lister is one call of LOCK LIST.
type lister struct {
	*listOptions
	c     *fsm.Ctx
	found []fsm.Reply
	bytes int
	next  fsm.Pos // cursor of the reply
}

const (
	// listBytes is the size of the keys and texts, in bytes, at which a reply
	// ends. The lock with which a reply reaches this size is its last one.
	listBytes = 1 << 20
	// maxListed is the maximum length of an owner in the reply, in bytes. LOCK
	// LIST cuts longer owners.
	maxListed = 1024
	// stepsVisit is the cost of deciding whether a key is a lock.
	stepsVisit = 4
	// lockFields is an upper bound on the number of elements that describe a lock
	// in a reply.
	lockFields = 38
)

// lockList lists up to COUNT locks, those with the lowest tokens first. The cursor
// is a token: the next page contains only locks that have this token or a higher
// one. A lock that is held from the first call to the last is returned once.
//
// The list contains the locks whose lease had not ended when the last entry was
// applied. It may therefore contain locks whose lease has ended since then. To
// exclude these locks, the read would have to wait for an entry that removes them,
// and during each wait further leases may end.
func lockList(c *fsm.Ctx, args [][]byte) fsm.Reply {
	p, fail := parseLockList(c, args)
	switch {
	case fail.IsError():
		return fail
	case p.waited && c.Features() >= fsm.FeatureDelay:
		return listWaited(c, &p)
	}
	l := lister{listOptions: &p, c: c}
	if c.UnindexedLocks() == 0 {
		l.grants()
	} else {
		l.page()
	}
	return p.reply(uint64(l.next), l.found)
}

// grants lists the locks that LOCK ACQUIRE has taken.
func (l *lister) grants() {
	l.c.Grants(l.cursor, func(g *fsm.Grant) bool {
		if l.full() {
			l.next = g.Token
			return false
		}
		l.c.Charge(fsm.StepsProbe)
		if o := l.c.Keyspace().Get([]byte(g.Key)); o != nil {
			l.add(o, g.Token)
		}
		return !l.spent()
	})
}

// page lists the locks that any command has taken.
func (l *lister) page() {
	q := locklist.Query{DB: l.c.DB(), Owner: string(l.owner), ByOwner: l.owner != nil, Exchanged: l.c.Exchanged()}
	if l.match != nil {
		q.Match, q.ByMatch = l.pattern, true
	}
	kept := l.c.LockPages()
	var locks []locklist.Lock
	var next fsm.Pos
	found := false
	if kept != nil && l.cursor > 0 {
		locks, next, found = kept.Find(q, l.cursor, l.c.Now())
	}
	if !found {
		most := int(l.count)
		// A cursor means that the client asks for a second or later page. It
		// will probably ask for more pages, so one walk finds the locks of
		// several pages.
		keep := kept != nil && l.cursor > 0
		if keep {
			most = max(most, locklist.Keep(l.c.Keyspace().Len()))
		}
		locks, next = l.walk(most)
		if l.spent() {
			return
		}
		if keep {
			kept.Put(q, l.cursor, cmp.Or(next, l.c.LastToken()+1), locks, l.c.Now())
		}
	}
	if next > l.c.LastToken() {
		next = 0 // no lock has such a token, so no page follows
	}
	from, _ := slices.BinarySearchFunc(locks, l.cursor, func(e locklist.Lock, token fsm.Pos) int {
		return cmp.Compare(e.Token, token)
	})
	for _, e := range locks[from:] {
		if l.full() {
			l.next = e.Token
			return
		}
		l.c.Keyspace().Ascend(e.Hash, func(o *keyspace.Object) bool {
			l.c.Charge(fsm.StepsProbe)
			if o.Hash == e.Hash {
				l.add(o, e.Token)
			}
			return o.Hash == e.Hash
		})
	}
	l.next = next
}

// walk returns the selected locks with the lowest tokens from the cursor on, up
// to the number most. All other selected locks from the cursor on have the
// token next or a higher one; next is 0 if there are no others.
func (l *lister) walk(most int) (locks []locklist.Lock, next fsm.Pos) {
	oldest, now := locklist.NewOldest(most), l.c.LogTime()
	offer := func(o *keyspace.Object, h *keyspace.Holder, token fsm.Pos, end int64) {
		if token < l.cursor || end != 0 && end <= now || oldest.Ignores(token) || !l.selects(o, h, o.Key) {
			return
		}
		l.c.Charge(stepsVisit)
		if oldest.Add(locklist.Lock{Token: token, Hash: o.Hash}) {
			l.c.ChargeMemory(2 * locklist.LockBytes) // twice, because the list is copied while it grows
		}
	}
	l.c.Keyspace().Scan(func(o *keyspace.Object) bool {
		l.c.Charge(stepsVisit)
		switch {
		case o.Type == keyspace.TypeLock:
			o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
				l.c.Charge(1)
				offer(o, h, h.Token, h.Deadline)
				return !l.spent()
			})
		case fsm.IsLock(o):
			offer(o, nil, o.Token, o.Deadline)
		}
		return !l.spent()
	})
	return oldest.Sorted(func() { l.c.Charge(stepsVisit) })
}

// full reports whether the reply is complete.
func (l *lister) full() bool { return int64(len(l.found)) >= l.count || l.bytes >= listBytes }

// add adds the lock with a token to the reply if o still has this token, its
// lease has not ended, and the options select it.
func (l *lister) add(o *keyspace.Object, token fsm.Pos) {
	var h *keyspace.Holder
	end := o.Deadline
	switch {
	case o.Type == keyspace.TypeLock:
		holder, held := o.Coll.Lock.WithToken(token)
		if !held {
			return
		}
		h, end = &holder, holder.Deadline
	case o.Token != token || !fsm.IsLock(o):
		return
	}
	if end != 0 && end <= l.c.LogTime() || !l.selects(o, h, o.Key) {
		return
	}
	if waiting := l.c.LockWaiting(o.Key); waiting > 0 || !l.waited {
		l.describe(o, h, o.Key, waiting)
	}
}

// selects reports whether the options select a lock. o is nil if the lock is
// free. h is the holder if the value of o is a keyspace.Lock, and otherwise
// nil.
func (p *listOptions) selects(o *keyspace.Object, h *keyspace.Holder, key string) bool {
	if p.owner != nil {
		switch {
		case o == nil:
			return false
		case h != nil && h.Owner != string(p.owner), h == nil && o.Str != string(p.owner):
			return false
		}
	}
	return p.match == nil || p.match.Match(key)
}

// spent reports whether matching the pattern has taken too many steps.
func (p *listOptions) spent() bool { return p.match != nil && p.match.Spent() }

func (p *listOptions) reply(next uint64, found []fsm.Reply) fsm.Reply {
	if p.spent() {
		return fsm.Error(msgSteps)
	}
	return fsm.Array([]fsm.Reply{fsm.Bulk(strconv.FormatUint(next, 10)), fsm.Array(found)})
}

// describe adds a lock to the reply. For o and h, see listOptions.selects.
func (l *lister) describe(o *keyspace.Object, h *keyspace.Holder, key string, waiting int) {
	l.c.ChargeMemory(lockFields * replyBytes)
	var fields []fsm.Reply
	whole := 0 // full length of the owner if it is cut, otherwise 0
	if h == nil {
		fields = describeLock(l.c, o, key)
		if o != nil && o.Type == keyspace.TypeString && len(o.Str) > maxListed {
			whole = len(o.Str)
			fields[3] = fsm.Bulk(beginning(o.Str, maxListed))
		}
	} else {
		fields = append([]fsm.Reply{fsm.Bulk("key"), fsm.Bulk(key)}, describeHolder(l.c, h)...)
		fields = append(fields, describeMode(l.c, true, o.Coll.Lock.Limit)...)
	}
	if whole > 0 {
		fields = append(fields, fsm.Bulk("owner-bytes"), fsm.Int(int64(whole)))
	}
	fields = append(fields, fsm.Bulk("waiting"), fsm.Int(int64(waiting)))
	lock := fsm.Map(fields)
	l.bytes += lock.Charged()
	l.found = append(l.found, lock)
}

// beginning returns at most the first n bytes of a text, which must be longer
// than n bytes. It does not cut a UTF-8 character in two.
func beginning(s string, n int) string {
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// waitedLock is a lock that clients wait for.
type waitedLock struct {
	key     string
	waiting int
	token   fsm.Pos // 0 if the lock is free
}

// listWaited visits up to COUNT of the locks that clients wait for, those with the
// most waiting clients first. Locks with equal numbers are in the order of their
// tokens. The cursor is the number of locks that were visited. Locks whose clients
// come and go between the calls may be returned twice or not at all.
func listWaited(c *fsm.Ctx, p *listOptions) fsm.Reply {
	var all []waitedLock
	c.WaitedLocks(func(key string, n int) bool {
		c.Charge(fsm.StepsProbe)
		c.ChargeMemory(replyBytes)
		w := waitedLock{key: key, waiting: n}
		if o := c.Lookup([]byte(key)); o != nil {
			w.token = latestToken(c, o)
		}
		all = append(all, w)
		return true
	})
	slices.SortFunc(all, func(a, b waitedLock) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(a.token, b.token), cmp.Compare(a.key, b.key))
	})
	from := min(uint64(p.cursor), uint64(len(all)))
	to, l := from, lister{listOptions: p, c: c}
	for ; to < min(from+uint64(p.count), uint64(len(all))) && l.bytes < listBytes; to++ {
		w := all[to]
		o := c.Lookup([]byte(w.key))
		if o == nil || o.Type != keyspace.TypeLock {
			if p.selects(o, nil, w.key) {
				l.describe(o, nil, w.key, w.waiting)
			}
			continue
		}
		c.EachHolder(o, func(h *keyspace.Holder) bool {
			if p.selects(o, h, w.key) {
				l.describe(o, h, w.key, w.waiting)
			}
			return true
		})
	}
	if to == uint64(len(all)) {
		to = 0
	}
	return p.reply(to, l.found)
}
