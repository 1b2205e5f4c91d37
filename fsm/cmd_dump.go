package fsm

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

var dumpCommands = []Command{
	{
		Name: "dump", Run: dump, Arity: 2, Flags: ReadOnly | Slow | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis " +
			"objects composing the value and M their average size. For small string values the time complexity is " +
			"thus O(1)+O(1*M) where M is small, so simply O(1).",
		Syntax: "key",
		Doc:    "Return a serialized version of the value stored at the specified key.",
		Tips:   []string{"nondeterministic_output"},
	},
	{
		Name: "restore", Run: restore, Arity: -4, Flags: Write | DenyOOM | KeyspaceCat | Dangerous,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: restoreComplexity,
		Syntax:     restoreSyntax,
		Doc:        "Create a key using the provided serialized value, previously obtained using DUMP.",
		History:    restoreNotes,
	},
	{
		Name: "restore-asking", Run: restore, Arity: -4, Flags: Write | DenyOOM | KeyspaceCat | Dangerous | Asking,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"},
		Group: "server", Since: "3.0.0",
		Complexity: restoreComplexity,
		Syntax:     restoreSyntax,
		Doc:        "An internal command for migrating keys in a cluster",
		History:    restoreNotes,
	},
}

const (
	restoreSyntax     = "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]"
	restoreComplexity = "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, " +
		"where N is the number of Redis objects composing the value and M their average size. For small string " +
		"values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set " +
		"values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N))."
)

var restoreNotes = []Change{
	{"3.0.0", "Added the `REPLACE` modifier."},
	{"5.0.0", "Added the `ABSTTL` modifier."},
	{"5.0.0", "Added the `IDLETIME` and `FREQ` options."},
}

const (
	msgBusyKey    = "BUSYKEY Target key name already exists."
	msgBadPayload = "ERR DUMP payload version or checksum are wrong"
	msgBadData    = "ERR Bad data format"
	msgRestoreTTL = "ERR Invalid TTL value, must be >= 0"
	msgRestoreLRU = "ERR Invalid IDLETIME value, must be >= 0"
	msgRestoreLFU = "ERR Invalid FREQ value, must be >= 0 and <= 255"
)

// dump returns the same bytes as Redis does for the same value, where the value
// determines them. Where they also depend on the history of the value (the
// nodes of a list, the order of a hash table), dump uses the simplest form.
// Equal values always give equal bytes.
func dump(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[1])
	if o == nil {
		return Null
	}
	w := c.newRDB()
	writeValue(w, o)
	if w.Over() {
		return Error(ReplyTooLarge)
	}
	return Bulk(string(w.Payload()))
}

// newRDB returns a writer that charges c.
func (c *Ctx) newRDB() *rdb.Writer { return rdb.NewWriter(MaxReplyBytes, c.charge, c.hold) }

// writeValue writes the value of o in the form that Redis would use for it.
func writeValue(w *rdb.Writer, o *keyspace.Object) {
	switch v := o.Coll; {
	case o.Type == keyspace.TypeString:
		w.String(o.Str)
	case o.Type == keyspace.TypeList:
		w.List(&v.List)
	case o.Type == keyspace.TypeSet && v.Big:
		w.Set(&v.Set)
	case o.Type == keyspace.TypeSet:
		w.Intset(&v.Set)
	case o.Type == keyspace.TypeHash && v.Big:
		w.Hash(&v.Hash)
	case o.Type == keyspace.TypeHash:
		w.SmallHash(&v.Hash)
	case o.Type == keyspace.TypeZSet && v.Big:
		w.SortedSet(&v.Order)
	case o.Type == keyspace.TypeZSet:
		w.SmallSortedSet(&v.Order)
	default:
		w.Stream(&v.Stream)
	}
}

// maxIdle is the largest idle time in seconds that the clock of Redis can
// represent.
const maxIdle = 1<<24 - 1

// restoreOptions has the arguments of RESTORE after the payload. FREQ is parsed
// and ignored, because it is for an eviction policy that Holdfast does not
// have.
type restoreOptions struct {
	replace, absolute bool
	idle, freq        int64 // -1: not given
}

func parseRestore(args [][]byte) (p restoreOptions, fail Reply) {
	p.idle, p.freq = -1, -1
	for i := 0; i < len(args); i++ {
		more := i+1 < len(args)
		var ok bool
		switch {
		case fold(args[i], "REPLACE"):
			p.replace = true
		case fold(args[i], "ABSTTL"):
			p.absolute = true
		case fold(args[i], "IDLETIME") && more && p.freq == -1:
			i++
			if p.idle, ok = number.ParseInt(args[i]); !ok {
				return p, Error(msgNotInt)
			}
			if p.idle < 0 {
				return p, Error(msgRestoreLRU)
			}
		case fold(args[i], "FREQ") && more && p.idle == -1:
			i++
			if p.freq, ok = number.ParseInt(args[i]); !ok {
				return p, Error(msgNotInt)
			}
			if p.freq < 0 || p.freq > math.MaxUint8 {
				return p, Error(msgRestoreLFU)
			}
		default:
			return p, Error(msgSyntax)
		}
	}
	return p, Null
}

func restore(c *Ctx, args [][]byte) Reply {
	p, fail := parseRestore(args[4:])
	if fail.IsError() {
		return fail
	}
	old := c.lookup(args[1])
	if old != nil && !p.replace {
		return Error(msgBusyKey)
	}
	ttl, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return Error(msgNotInt)
	case ttl < 0:
		return Error(msgRestoreTTL)
	}
	body, ok := rdb.Open(args[3])
	if !ok {
		return Error(msgBadPayload)
	}
	n, fail := c.fromPayload(args[1], body)
	if fail.IsError() {
		return fail
	}
	l := c.restoredLife(ttl, p.absolute)
	switch {
	case !l.past:
	case old != nil:
		c.delete(old)
		return OK
	default:
		return OK
	}
	c.storeAsNew(within(n, l))
	if p.idle >= 0 {
		n.Touched = c.now - min(p.idle, maxIdle)*1e9
	}
	c.notify("g", "restore", n.Key)
	return OK
}

// restoredLife returns the lifetime of a time to live in milliseconds. 0 means
// that the key does not expire.
func (c *Ctx) restoredLife(ttl int64, absolute bool) lifetime {
	switch {
	case ttl == 0:
		return lifetime{}
	case absolute:
		return c.lifetimeAt(ttl)
	case number.AddOverflows(ttl, c.wallMs()):
		return lifetime{past: true} // in Redis, the sum becomes negative
	}
	return c.lifetimeAt(ttl + c.wallMs())
}

// Limits on the value of a payload, see rdb.Limits. Restoring an element costs
// about as much as adding one with a write command.
const (
	maxUnfolded = MaxReplyBytes
	maxRestored = MaxArguments
)

var restoreLimits = rdb.Limits{String: MaxStringBytes, Unfolded: maxUnfolded, Elements: maxRestored}

// fromPayload returns an object for key with the value of a payload. It does
// not store the object.
func (c *Ctx) fromPayload(key, body []byte) (o *keyspace.Object, fail Reply) {
	r := rdb.NewReader(body, restoreLimits)
	if t := r.Type(); t == rdb.String {
		o = keyspace.NewObject(key, r.Text())
	} else {
		o = keyspace.NewObject(key, nil)
		c.readCollection(r, o, t)
	}
	switch err := r.Err(); {
	case err == rdb.ErrTooLong:
		return nil, Error(msgTooLong)
	case err == rdb.ErrTooMany:
		return nil, Error(msgTooMany)
	case err != nil, r.Len() > 0,
		o.Type != keyspace.TypeString && o.Type != keyspace.TypeStream && o.Coll.Len(o.Type) == 0:
		return nil, Error(msgBadData)
	}
	return o, Null
}

// readCollection reads a collection into o, which must be empty.
func (c *Ctx) readCollection(r *rdb.Reader, o *keyspace.Object, t rdb.Type) {
	as := func(t keyspace.Type) *keyspace.Collection {
		o.Type, o.Coll = t, keyspace.NewCollection(t)
		return o.Coll
	}
	owner := c.m.owner
	switch t {
	case rdb.List:
		v := as(keyspace.TypeList)
		r.Elements(func(elem, _ []byte) error {
			v.List.Insert(owner, v.List.Len(), string(elem))
			return nil
		})
	case rdb.Set:
		v := as(keyspace.TypeSet)
		r.Elements(func(member, _ []byte) error {
			if !v.PutMember(owner, codec.View(member)) {
				return rdb.ErrFormat
			}
			return nil
		})
	case rdb.Hash:
		v := as(keyspace.TypeHash)
		r.Elements(func(field, value []byte) error {
			switch {
			case len(field) > MaxKeyBytes:
				return rdb.ErrTooLong
			case !v.PutField(owner, codec.View(field), string(value)):
				return rdb.ErrFormat
			}
			return nil
		})
	case rdb.SortedSet:
		c.readSortedSet(r, as(keyspace.TypeZSet))
	case rdb.Stream:
		r.Stream(&as(keyspace.TypeStream).Stream, owner, c.moment())
	}
}

// readSortedSet reads a sorted set into v. If it is in a form for large ones,
// the encoding can be chosen only after all members were read.
func (c *Ctx) readSortedSet(r *rdb.Reader, v *keyspace.Collection) {
	if !r.Small() {
		v.Grow(c.m.owner, keyspace.TypeZSet)
	}
	longest := 0
	r.Scores(func(member []byte, score float64) error {
		if _, twice := v.Score.Find(codec.View(member)); twice || math.IsNaN(score) {
			return rdb.ErrFormat
		}
		v.PutScore(c.m.owner, codec.View(member), score)
		longest = max(longest, len(member))
		return nil
	})
	if r.Small() || v.Order.Len() > keyspace.CompactMembers || longest > keyspace.CompactBytes {
		return
	}
	small := keyspace.NewCollection(keyspace.TypeZSet)
	v.Order.Ascend(0, func(m *container.Scored) bool {
		small.PutScore(c.m.owner, m.Member, m.Score)
		return true
	})
	*v = *small
}
