package command

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

var dumpCommands = []fsm.Command{
	{
		Name: "dump", Run: dump, Arity: 2, Flags: fsm.ReadOnly | fsm.Slow | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis " +
			"objects composing the value and M their average size. For small string values the time complexity is " +
			"thus O(1)+O(1*M) where M is small, so simply O(1).",
		Syntax: "key",
		Doc:    "Return a serialized version of the value stored at the specified key.",
		Tips:   []string{"nondeterministic_output"},
	},
	{
		Name: "restore", Run: restore, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.KeyspaceCat | fsm.Dangerous,
		Work: fsm.WorkHooks{Steps: restoreWork, Stores: true},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: restoreComplexity,
		Syntax:     restoreSyntax,
		Doc:        "Create a key using the provided serialized value, previously obtained using DUMP.",
		History:    restoreNotes,
	},
	{
		Name: "restore-asking", Run: restore, Arity: -4,
		Flags: fsm.Write | fsm.DenyOOM | fsm.KeyspaceCat | fsm.Dangerous | fsm.Asking,
		Work:  fsm.WorkHooks{Steps: restoreWork, Stores: true},
		Keys:  fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"},
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

var restoreNotes = []fsm.Change{
	{Since: "3.0.0", What: "Added the `REPLACE` modifier."},
	{Since: "5.0.0", What: "Added the `ABSTTL` modifier."},
	{Since: "5.0.0", What: "Added the `IDLETIME` and `FREQ` options."},
}

const (
	msgDumpLock   = "ERR a lock with several owners has no form that RESTORE could read"
	msgBusyKey    = "BUSYKEY Target key name already exists."
	msgBadPayload = "ERR DUMP payload version or checksum are wrong"
	msgBadData    = "ERR Bad data format"
	msgRestoreTTL = "ERR Invalid TTL value, must be >= 0"
	msgRestoreLRU = "ERR Invalid IDLETIME value, must be >= 0"
	msgRestoreLFU = "ERR Invalid FREQ value, must be >= 0 and <= 255"
)

// dump returns the same bytes as Redis for the same value, as far as the value
// alone determines them. In Redis, some bytes also depend on the history of the
// value (the nodes of a list, the order of a hash table). For these, dump uses
// the simplest form. Equal values always give equal bytes.
func dump(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[1])
	switch {
	case o == nil:
		return fsm.Null
	case o.Type == keyspace.TypeLock:
		return fsm.Error(msgDumpLock)
	}
	w := c.RDBWriter()
	writeValue(w, o)
	if w.Over() {
		return fsm.Error(fsm.ReplyTooLarge)
	}
	return fsm.Bulk(string(w.Payload()))
}

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

func parseRestore(args [][]byte) (p restoreOptions, fail fsm.Reply) {
	p.idle, p.freq = -1, -1
	for i := 0; i < len(args); i++ {
		more := i+1 < len(args)
		var ok bool
		switch {
		case fsm.IsWord(args[i], "REPLACE"):
			p.replace = true
		case fsm.IsWord(args[i], "ABSTTL"):
			p.absolute = true
		case fsm.IsWord(args[i], "IDLETIME") && more && p.freq == -1:
			i++
			if p.idle, ok = number.ParseInt(args[i]); !ok {
				return p, fsm.Error(fsm.MsgNotInt)
			}
			if p.idle < 0 {
				return p, fsm.Error(msgRestoreLRU)
			}
		case fsm.IsWord(args[i], "FREQ") && more && p.idle == -1:
			i++
			if p.freq, ok = number.ParseInt(args[i]); !ok {
				return p, fsm.Error(fsm.MsgNotInt)
			}
			if p.freq < 0 || p.freq > math.MaxUint8 {
				return p, fsm.Error(msgRestoreLFU)
			}
		default:
			return p, fsm.Error(fsm.MsgSyntax)
		}
	}
	return p, fsm.Null
}

func restore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	p, fail := parseRestore(args[4:])
	if fail.IsError() {
		return fail
	}
	old := c.Lookup(args[1])
	if old != nil && !p.replace {
		return fsm.Error(msgBusyKey)
	}
	ttl, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case ttl < 0:
		return fsm.Error(msgRestoreTTL)
	}
	body, ok := rdb.Open(args[3])
	if !ok {
		return fsm.Error(msgBadPayload)
	}
	n, fail := fromPayload(c, args[1], body)
	if fail.IsError() {
		return fail
	}
	l := restoredLife(c, ttl, p.absolute)
	switch {
	case !l.past:
	case old != nil:
		c.Delete(old)
		return fsm.OK
	default:
		return fsm.OK
	}
	storeAsNew(c, within(n, l))
	if p.idle >= 0 {
		n.Touched = c.Now() - min(p.idle, maxIdle)*1e9
	}
	c.Notify("g", "restore", n.Key)
	return fsm.OK
}

// restoredLife returns the lifetime that RESTORE gives a key. ttl is a time to
// live in milliseconds, or a Unix time in milliseconds if absolute is set. 0
// means that the key does not expire.
func restoredLife(c *fsm.Ctx, ttl int64, absolute bool) lifetime {
	switch {
	case ttl == 0:
		return lifetime{}
	case absolute:
		return lifetimeAt(c, ttl)
	case number.AddOverflows(ttl, wallMs(c)):
		return lifetime{past: true} // in Redis, the sum becomes negative
	}
	return lifetimeAt(c, ttl+wallMs(c))
}

// fromPayload returns an object for key with the value of a payload. It does
// not store the object.
func fromPayload(c *fsm.Ctx, key, body []byte) (o *keyspace.Object, fail fsm.Reply) {
	r := rdb.NewReader(body, fsm.RestoreLimits)
	if t := r.Type(); t == rdb.String {
		o = keyspace.NewObject(key, r.Text())
	} else {
		o = keyspace.NewObject(key, nil)
		readCollection(c, r, o, t)
		if o.Coll != nil {
			c.Charge(o.Coll.Len(o.Type) * restoredSteps(t))
		}
	}
	switch err := r.Err(); {
	case err == rdb.ErrTooLong:
		return nil, fsm.Error(fsm.MsgTooLong)
	case err == rdb.ErrTooMany:
		return nil, fsm.Error(msgTooMany)
	case err != nil, r.Len() > 0,
		o.Type != keyspace.TypeString && o.Type != keyspace.TypeStream && o.Coll.Len(o.Type) == 0:
		return nil, fsm.Error(msgBadData)
	}
	return o, fsm.Null
}

// readCollection reads a collection into o, which must be empty.
func readCollection(c *fsm.Ctx, r *rdb.Reader, o *keyspace.Object, t rdb.Type) {
	as := func(t keyspace.Type) *keyspace.Collection {
		o.Type, o.Coll = t, keyspace.NewCollection(t)
		return o.Coll
	}
	owner := c.Owner()
	switch t {
	case rdb.List:
		v := as(keyspace.TypeList)
		var all []string
		r.Elements(func(elem, _ []byte) error {
			all = append(all, string(elem))
			return nil
		})
		v.List = container.SeqOf(owner, all)
	case rdb.Set:
		v := as(keyspace.TypeSet)
		var all []member
		r.Elements(func(name, _ []byte) error {
			all = append(all, member{Hash: container.Hash(name), Name: string(name)})
			return nil
		})
		if !v.FillSet(owner, all) {
			r.Reject()
		}
	case rdb.Hash:
		v := as(keyspace.TypeHash)
		var all []container.Item[string]
		r.Elements(func(field, value []byte) error {
			if len(field) > fsm.MaxKeyBytes {
				return rdb.ErrTooLong
			}
			all = append(all, container.Item[string]{
				Hash: container.Hash(field), Name: string(field), Value: string(value),
			})
			return nil
		})
		if !v.FillHash(owner, all) {
			r.Reject()
		}
	case rdb.SortedSet:
		readSortedSet(c, r, as(keyspace.TypeZSet))
	case rdb.Stream:
		r.Stream(&as(keyspace.TypeStream).Stream, owner, moment(c))
	}
}

// readSortedSet reads a sorted set into v. If the payload has a form for large
// sorted sets, the encoding can be chosen only after all members were read.
func readSortedSet(c *fsm.Ctx, r *rdb.Reader, v *keyspace.Collection) {
	if !r.Small() {
		v.Grow(c.Owner(), keyspace.TypeZSet)
	}
	var all []container.Scored
	longest := 0
	r.Scores(func(name []byte, score float64) error {
		if math.IsNaN(score) {
			return rdb.ErrFormat
		}
		all = append(all, container.Scored{Score: score, Member: string(name)})
		longest = max(longest, len(name))
		return nil
	})
	if !v.FillScores(c.Owner(), all) {
		r.Reject()
		return
	}
	if r.Small() || v.Order.Len() > keyspace.CompactMembers || longest > keyspace.CompactBytes {
		return
	}
	small := keyspace.NewCollection(keyspace.TypeZSet)
	v.Order.Ascend(0, func(m *container.Scored) bool {
		small.PutScore(c.Owner(), m.Member, m.Score)
		return true
	})
	*v = *small
}
