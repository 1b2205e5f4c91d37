package fsm

import (
	"encoding/binary"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var dumpCommands = []Command{
	{
		Name: "dump", Run: dump, Arity: 2, Flags: ReadOnly | Slow | KeyspaceCat, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "generic", Since: "2.6.0",
		Complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
		Syntax:     "key",
		Doc:        "Return a serialized version of the value stored at the specified key.",
		Tips:       []string{"nondeterministic_output"},
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
		Doc:        "An internal command for migrating keys in a cluster", History: restoreNotes,
	},
}

const (
	restoreSyntax     = "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]"
	restoreComplexity = "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N))."
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
	w := rdbWriter{c: c}
	w.value(o)
	if w.over() {
		return Error(ReplyTooLarge)
	}
	return Bulk(string(sealPayload(w.b)))
}

func (w *rdbWriter) value(o *object) {
	switch v := o.coll; {
	case o.typ == typeString:
		w.byte(rdbString)
		w.string(o.str)
	case o.typ == typeList:
		w.byte(rdbListQuicklist)
		w.list(v)
	case o.typ == typeSet && v.big:
		w.byte(rdbSet)
		w.length(uint64(v.set.Len()))
		v.set.Ascend(0, func(e *container.Item[struct{}]) bool {
			w.string(e.Name)
			return !w.over()
		})
	case o.typ == typeSet:
		w.byte(rdbSetIntset)
		w.blob(v.intset())
	case o.typ == typeHash && v.big:
		w.byte(rdbHash)
		w.length(uint64(v.hash.Len()))
		v.hash.Ascend(0, func(e *container.Item[string]) bool {
			w.string(e.Name)
			w.string(e.Value)
			return !w.over()
		})
	case o.typ == typeHash:
		w.byte(rdbHashListpack)
		l := newListpack()
		v.hash.Ascend(0, func(e *container.Item[string]) bool {
			l.text(e.Name)
			l.text(e.Value)
			return true
		})
		w.blob(l.bytes())
	case o.typ == typeZSet && v.big:
		w.byte(rdbZSet)
		w.length(uint64(v.order.Len()))
		v.order.Descend(v.order.Len()-1, func(m *container.Scored) bool {
			w.string(m.Member)
			w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(m.Score))
			w.size += 8
			return !w.over()
		})
	case o.typ == typeZSet:
		w.byte(rdbZSetListpack)
		l := newListpack()
		v.order.Ascend(0, func(m *container.Scored) bool {
			l.text(m.Member)
			l.score(m.Score)
			return true
		})
		w.blob(l.bytes())
	default:
		w.byte(rdbStreamListpacks)
		w.stream(v)
	}
}

// integralScore limits the scores that a listpack stores as integers.
const integralScore = 1 << 62

func (l *listpack) score(f float64) {
	if f >= -integralScore && f <= integralScore && f == math.Trunc(f) {
		l.integer(int64(f))
		return
	}
	l.text(number.FormatDouble(f))
}

// intset returns the set as a sorted array of integers. All of them have the
// width that the widest needs.
func (v *collection) intset() []byte {
	numbers := make([]int64, 0, v.set.Len())
	width := 2
	v.set.Ascend(0, func(e *container.Item[struct{}]) bool {
		n, _ := number.ParseInt([]byte(e.Name))
		switch {
		case n != int64(int32(n)):
			width = 8
		case n != int64(int16(n)):
			width = max(width, 4)
		}
		numbers = append(numbers, n)
		return true
	})
	b := binary.LittleEndian.AppendUint32(nil, uint32(width))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(numbers)))
	for _, n := range numbers {
		for i := range width {
			b = append(b, byte(n>>(8*i)))
		}
	}
	return b
}

// The limits of the nodes of a list. The nodes are as large as they become in
// Redis when elements are appended to the list.
const (
	listNodeBytes = 8 << 10
	// listElement is added to the size of each element to estimate the size of
	// its encoded form.
	listElement = 8
)

func (w *rdbWriter) list(v *collection) {
	start, n := len(w.b), uint64(0)
	l := newListpack()
	flush := func() {
		w.length(quicklistPacked)
		w.blob(l.bytes())
		l.b, l.n = l.b[:listpackHead], 0
		n++
	}
	v.list.Ascend(0, func(s *string) bool {
		w.c.charge(1 + len(*s)/scanBytes)
		if l.n > 0 && l.size()+len(*s)+listElement > listNodeBytes {
			flush()
		}
		l.text(*s)
		return !w.over()
	})
	flush()
	w.lengthAt(start, n)
}
