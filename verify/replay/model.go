package replay

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// value is what a key holds, as far as the log says. The zero value is an absent
// key.
type value struct {
	unknown bool // the log began later than the key
	present bool
	text    string
	list    int   // length, for a list
	isList  bool  //
	dies    int64 // lease clock, 0 for never
}

// model is the second meaning of the commands.
type model struct {
	keys      map[string]value
	volatile  map[string]int64 // keys with a time to live, and when it ends
	compacted bool             // keys that were not seen yet are unknown
	clock     int64            // lease clock of the entry
	changed   func(key string, v value)
}

func (m *model) get(key string) value {
	v, ok := m.keys[key]
	switch {
	case !ok:
		return value{unknown: m.compacted}
	case v.present && v.dies != 0 && v.dies <= m.clock:
		return value{}
	}
	return v
}

func (m *model) put(key string, v value) {
	m.keys[key] = v
	if v.present && v.dies != 0 {
		m.volatile[key] = v.dies
	} else {
		delete(m.volatile, key)
	}
	m.changed(key, v)
}

// tick moves the lease clock, and takes away the keys whose time is over.
func (m *model) tick(clock int64) {
	m.clock = max(m.clock, clock)
	for key, dies := range m.volatile {
		if dies <= m.clock {
			m.put(key, value{})
		}
	}
}

// parse reads the arguments of a command that the model knows.
func parse(args []string) (o oracle.Op, ok bool) {
	if len(args) < 2 {
		return o, false
	}
	o.Key = args[1]
	name := strings.ToUpper(args[0])
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch kind := oracle.Kind(name); kind {
	case oracle.Set:
		o.Kind, o.Arg = kind, arg(2)
		return o, parseOptions(&o, args[3:])
	case oracle.SetNX, oracle.GetSet:
		o.Kind, o.Arg = kind, arg(2)
	case oracle.Get, oracle.GetDel, oracle.Del, oracle.Incr, oracle.Persist, oracle.PTTL:
		o.Kind = kind
		return o, len(args) == 2
	case oracle.DelIfEq:
		o.Kind, o.Cmp = kind, arg(2)
	case oracle.PExpire:
		n, err := strconv.ParseInt(arg(2), 10, 64)
		if err != nil || len(args) != 3 {
			return o, false
		}
		o.Kind, o.TTL = kind, time.Duration(n)*time.Millisecond
	case rpush:
		o.Kind, o.Arg = kind, arg(2)
		return o, len(args) == 3
	default:
		return o, false
	}
	return o, true
}

// rpush is known to the replay alone: porcupine is not asked about lists.
const rpush oracle.Kind = "RPUSH"

func parseOptions(o *oracle.Op, words []string) bool {
	for i := 0; i < len(words); i++ {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch strings.ToUpper(words[i]) {
		case "NX":
			o.NX = true
		case "XX":
			o.XX = true
		case "GET":
			o.Get = true
		case "KEEPTTL":
			o.KeepTTL = true
		case "IFEQ":
			o.Cmp = next
			i++
		case "PX":
			n, err := strconv.ParseInt(next, 10, 64)
			if err != nil {
				return false
			}
			o.TTL = time.Duration(n) * time.Millisecond
			i++
		default:
			return false
		}
	}
	return true
}

func (m *model) deadline(ttl time.Duration) int64 {
	if ttl == 0 {
		return 0
	}
	if int64(ttl) > math.MaxInt64-m.clock {
		return math.MaxInt64
	}
	return m.clock + int64(ttl)
}

var (
	ok   = oracle.Reply{Text: "OK"}
	null = oracle.Reply{Null: true}
)

func number(n int64) oracle.Reply { return oracle.Reply{Int: n} }

// run runs a command on the keys. sure is false if the reply depends on what the
// log does not say.
func (m *model) run(o oracle.Op, key string) (reply oracle.Reply, sure bool) {
	v := m.get(key)
	old, sure := null, !v.unknown
	if v.present {
		old = oracle.Reply{Text: v.text}
	}
	wrong := v.isList != (o.Kind == rpush) && v.present
	switch o.Kind {
	case oracle.Del: // of any type
	case oracle.Set:
		wrong = wrong && (o.Get || o.Cmp != "")
	case oracle.SetNX, oracle.PExpire, oracle.Persist, oracle.PTTL:
		wrong = false
	}
	if wrong {
		return oracle.Reply{Error: true}, sure
	}
	switch o.Kind {
	case oracle.Get:
		return old, sure
	case oracle.Set:
		return m.set(o, key, v, old, sure)
	case oracle.SetNX:
		return m.setnx(o, key, v)
	case oracle.GetSet:
		m.put(key, value{present: true, text: o.Arg})
		return old, sure
	case oracle.GetDel, oracle.Del:
		m.put(key, value{})
		if o.Kind == oracle.GetDel {
			return old, sure
		}
		return flag(v.present), sure
	case oracle.DelIfEq:
		if v.unknown {
			return number(0), false // still unknown
		}
		if !v.present || v.text != o.Cmp {
			return number(0), true
		}
		m.put(key, value{})
		return number(1), true
	case oracle.Incr:
		return m.incr(key, v)
	case rpush:
		if v.unknown {
			return number(0), false
		}
		m.put(key, value{present: true, isList: true, list: v.list + 1, dies: v.dies})
		return number(int64(v.list + 1)), true
	case oracle.PExpire, oracle.Persist:
		if v.unknown || !v.present || o.Kind == oracle.Persist && v.dies == 0 {
			return number(0), sure
		}
		v.dies = m.deadline(o.TTL)
		m.put(key, v)
		return number(1), true
	case oracle.PTTL:
		switch {
		case !v.present:
			return number(-2), sure
		case v.dies == 0:
			return number(-1), sure
		}
		return number((v.dies - m.clock + int64(time.Millisecond) - 1) / int64(time.Millisecond)), sure
	}
	panic("replay: the model does not know " + string(o.Kind))
}

func flag(b bool) oracle.Reply {
	if b {
		return number(1)
	}
	return number(0)
}

func (m *model) setnx(o oracle.Op, key string, v value) (oracle.Reply, bool) {
	if v.unknown {
		return number(0), false
	}
	if !v.present {
		m.put(key, value{present: true, text: o.Arg})
	}
	return flag(!v.present), true
}

func (m *model) incr(key string, v value) (oracle.Reply, bool) {
	if v.unknown {
		return number(0), false
	}
	n := int64(0)
	if v.present {
		var err error
		if n, err = strconv.ParseInt(v.text, 10, 64); err != nil {
			return oracle.Reply{Error: true}, true
		}
	}
	m.put(key, value{present: true, text: strconv.FormatInt(n+1, 10), dies: v.dies})
	return number(n + 1), true
}

func (m *model) set(o oracle.Op, key string, v value, old oracle.Reply, sure bool) (oracle.Reply, bool) {
	holds := true
	switch {
	case o.NX:
		holds = !v.present
	case o.XX:
		holds = v.present
	case o.Cmp != "":
		holds = v.present && v.text == o.Cmp
	}
	if v.unknown && (o.NX || o.XX || o.Cmp != "") {
		m.put(key, value{unknown: true}) // written or not
		return null, false
	}
	if holds {
		next := value{present: true, text: o.Arg, dies: m.deadline(o.TTL)}
		if o.KeepTTL && v.present {
			next.dies = v.dies
		}
		m.put(key, next)
	}
	switch {
	case o.Get:
		return old, sure
	case holds:
		return ok, true
	}
	return null, sure
}
