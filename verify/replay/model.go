package replay

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// value is the value of a key, as far as the log shows it. The zero value is an
// absent key.
type value struct {
	unknown bool // true if the log does not show the value of the key
	present bool
	text    string
	list    int // length, for a list
	isList  bool
	expires int64 // lease clock, 0 for never
}

// model is the second model of the commands.
type model struct {
	keys      map[string]value
	volatile  map[string]int64 // keys with a time to live, and when it ends on the lease clock
	compacted bool             // true if keys that have not occurred in the log yet are unknown
	clock     int64            // lease clock of the entry
	changed   func(key string, v value)
}

func (m *model) get(key string) value {
	v, ok := m.keys[key]
	switch {
	case !ok:
		return value{unknown: m.compacted}
	case v.present && v.expires != 0 && v.expires <= m.clock:
		return value{}
	}
	return v
}

func (m *model) put(key string, v value) {
	m.keys[key] = v
	if v.present && v.expires != 0 {
		m.volatile[key] = v.expires
	} else {
		delete(m.volatile, key)
	}
	m.changed(key, v)
}

// advance moves the lease clock and removes the keys whose time to live has
// ended.
func (m *model) advance(clock int64) {
	m.clock = max(m.clock, clock)
	for key, dies := range m.volatile {
		if dies <= m.clock {
			m.put(key, value{})
		}
	}
}

// parse reads the arguments of a command that the model knows.
func parse(args []string) (o checker.Op, ok bool) {
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
	switch kind := checker.Kind(name); kind {
	case checker.Set:
		o.Kind, o.Arg = kind, arg(2)
		return o, parseOptions(&o, args[3:])
	case checker.SetNX, checker.GetSet:
		o.Kind, o.Arg = kind, arg(2)
	case checker.Get, checker.GetDel, checker.Del, checker.Incr, checker.Persist, checker.PTTL:
		o.Kind = kind
		return o, len(args) == 2
	case checker.DelIfEq:
		o.Kind, o.Cmp = kind, arg(2)
	case checker.PExpire:
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

// rpush is a command that only the replay models: porcupine does not check
// lists.
const rpush checker.Kind = "RPUSH"

func parseOptions(o *checker.Op, args []string) bool {
	for i := 0; i < len(args); i++ {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch strings.ToUpper(args[i]) {
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
	ok   = checker.Reply{Text: "OK"}
	null = checker.Reply{Null: true}
)

func number(n int64) checker.Reply { return checker.Reply{Int: n} }

// run runs a command on the keys. sure is false if the reply depends on state
// that the log does not show.
func (m *model) run(o checker.Op, key string) (reply checker.Reply, sure bool) {
	v := m.get(key)
	old, sure := null, !v.unknown
	if v.present {
		old = checker.Reply{Text: v.text}
	}
	wrong := v.isList != (o.Kind == rpush) && v.present
	switch o.Kind {
	case checker.Del: // DEL deletes a key of any type
	case checker.Set:
		wrong = wrong && (o.Get || o.Cmp != "")
	case checker.SetNX, checker.PExpire, checker.Persist, checker.PTTL:
		wrong = false
	}
	if wrong {
		return checker.Reply{Error: true}, sure
	}
	switch o.Kind {
	case checker.Get:
		return old, sure
	case checker.Set:
		return m.set(o, key, v, old, sure)
	case checker.SetNX:
		return m.setnx(o, key, v)
	case checker.GetSet:
		m.put(key, value{present: true, text: o.Arg})
		return old, sure
	case checker.GetDel, checker.Del:
		m.put(key, value{})
		if o.Kind == checker.GetDel {
			return old, sure
		}
		return flag(v.present), sure
	case checker.DelIfEq:
		if v.unknown {
			return number(0), false // the key is still unknown
		}
		if !v.present || v.text != o.Cmp {
			return number(0), true
		}
		m.put(key, value{})
		return number(1), true
	case checker.Incr:
		return m.incr(key, v)
	case rpush:
		if v.unknown {
			return number(0), false
		}
		m.put(key, value{present: true, isList: true, list: v.list + 1, expires: v.expires})
		return number(int64(v.list + 1)), true
	case checker.PExpire, checker.Persist:
		if v.unknown || !v.present || o.Kind == checker.Persist && v.expires == 0 {
			return number(0), sure
		}
		v.expires = m.deadline(o.TTL)
		m.put(key, v)
		return number(1), true
	case checker.PTTL:
		switch {
		case !v.present:
			return number(-2), sure
		case v.expires == 0:
			return number(-1), sure
		}
		return number((v.expires - m.clock + int64(time.Millisecond) - 1) / int64(time.Millisecond)), sure
	}
	panic("replay: the model does not know " + string(o.Kind))
}

func flag(b bool) checker.Reply {
	if b {
		return number(1)
	}
	return number(0)
}

func (m *model) setnx(o checker.Op, key string, v value) (checker.Reply, bool) {
	if v.unknown {
		return number(0), false
	}
	if !v.present {
		m.put(key, value{present: true, text: o.Arg})
	}
	return flag(!v.present), true
}

func (m *model) incr(key string, v value) (checker.Reply, bool) {
	if v.unknown {
		return number(0), false
	}
	n := int64(0)
	if v.present {
		var err error
		if n, err = strconv.ParseInt(v.text, 10, 64); err != nil {
			return checker.Reply{Error: true}, true
		}
	}
	m.put(key, value{present: true, text: strconv.FormatInt(n+1, 10), expires: v.expires})
	return number(n + 1), true
}

func (m *model) set(o checker.Op, key string, v value, old checker.Reply, sure bool) (checker.Reply, bool) {
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
		m.put(key, value{unknown: true}) // it is not known whether the command has written
		return null, false
	}
	if holds {
		next := value{present: true, text: o.Arg, expires: m.deadline(o.TTL)}
		if o.KeepTTL && v.present {
			next.expires = v.expires
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
