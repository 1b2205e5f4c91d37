package script

import (
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

const (
	// maxNesting bounds the depth of the encoded replies that fromRaw parses and of
	// the replies of scripts. A script can nest tables to any depth, and it can
	// build cycles.
	maxNesting = 500
	replyBytes = 96 // bytes charged for an fsm.Reply, which takes 64
)

const textTooDeep = "ERR reached lua stack limit"

// fromReply converts the reply r of a command to the value that redis.call
// returns. resp is the RESP version that the script uses.
func fromReply(st *State, r fsm.Reply, resp int) Value {
	st.Step(1)
	switch r.Kind() {
	case fsm.KindSimple:
		return tagged(st, "ok", st.NewString(r.Text()))
	case fsm.KindError:
		t := st.NewTable(0, 2)
		st.RawSet(t, keyErr, st.NewString(r.Text()))
		st.RawSet(t, keyCounted, True) // visible in pairs, as in Redis
		return t
	case fsm.KindInt:
		return Number(float64(r.Int64()))
	case fsm.KindBulk:
		return st.NewString(r.Text())
	case fsm.KindArray:
		return fromElems(st, r.Elems(), resp)
	case fsm.KindMap:
		if resp >= 3 {
			return tagged(st, "map", fromPairs(st, r.Elems(), resp))
		}
		return fromElems(st, r.Elems(), resp)
	case fsm.KindSet:
		if resp >= 3 {
			return tagged(st, "set", fromMembers(st, r.Elems(), resp))
		}
		return fromElems(st, r.Elems(), resp)
	case fsm.KindDouble:
		if resp >= 3 {
			return tagged(st, "double", Number(r.Float64()))
		}
		return st.NewString(r.Text())
	case fsm.KindBoolean:
		return Bool(r.Int64() != 0)
	case fsm.KindBigNumber:
		if resp >= 3 {
			return tagged(st, "big_number", st.NewString(r.Text()))
		}
		return st.NewString(r.Text())
	case fsm.KindVerbatim:
		if resp >= 3 {
			return verbatim(st, r.Format(), r.Text())
		}
		return st.NewString(r.Text())
	case fsm.KindRaw:
		return fromRaw(st, r.Text(), resp)
	}
	return null(resp)
}

// null returns the value that a script receives for a null reply: nil with RESP3,
// and false with RESP2.
func null(resp int) Value {
	if resp >= 3 {
		return Nil
	}
	return False
}

// tagged makes a table with one field.
func tagged(st *State, name string, v Value) Value {
	t := st.NewTable(0, 1)
	st.setField(t, name, v)
	return t
}

func verbatim(st *State, format, text string) Value {
	t := st.NewTable(0, 2)
	st.setField(t, "string", st.NewString(text))
	st.setField(t, "format", st.NewString(format))
	return tagged(st, "verbatim_string", t)
}

func fromElems(st *State, elems []fsm.Reply, resp int) Value {
	t := st.NewTable(len(elems), 0)
	for i, e := range elems {
		st.setInt(t, i+1, fromReply(st, e, resp))
	}
	return t
}

func fromPairs(st *State, elems []fsm.Reply, resp int) Value {
	t := st.NewTable(0, 0)
	for i := 0; i+1 < len(elems); i += 2 {
		st.RawSet(t, fromReply(st, elems[i], resp), fromReply(st, elems[i+1], resp))
	}
	return t
}

func fromMembers(st *State, elems []fsm.Reply, resp int) Value {
	t := st.NewTable(0, 0)
	for _, e := range elems {
		st.RawSet(t, fromReply(st, e, resp), True)
	}
	return t
}

// fromRaw parses a reply that Do returned as encoded bytes.
func fromRaw(st *State, raw string, resp int) Value {
	v, _, ok := parseRESP(st, raw, resp, 0)
	if !ok {
		return tagged(st, "err", st.NewString("ERR reply could not be read"))
	}
	return v
}

// parseRESP parses one value and returns it with the rest of s.
func parseRESP(st *State, s string, resp, depth int) (v Value, rest string, ok bool) {
	st.Step(1)
	line, rest, found := strings.Cut(s, "\r\n")
	if !found || line == "" || depth > maxNesting {
		return Nil, "", false
	}
	typ, line := line[0], line[1:]
	n, err := strconv.ParseInt(line, 10, 64)
	switch typ {
	case '+':
		return tagged(st, "ok", st.NewString(line)), rest, true
	case '-':
		return fromReply(st, fsm.Error(line), resp), rest, true
	case ':':
		return Number(float64(n)), rest, err == nil
	case '_':
		return null(resp), rest, true
	case '#':
		return Bool(line == "t"), rest, true
	case ',':
		f, ok := numeral.Parse(line)
		return tagged(st, "double", Number(f)), rest, ok
	case '(':
		return tagged(st, "big_number", st.NewString(line)), rest, true
	}
	if err != nil {
		return Nil, "", false
	}
	if n < 0 {
		return null(resp), rest, true
	}
	if typ == '$' || typ == '=' {
		if int64(len(rest)) < n+2 {
			return Nil, "", false
		}
		text := rest[:n]
		rest = rest[n+2:]
		if typ == '=' && n >= 4 {
			return verbatim(st, text[:3], text[4:]), rest, true
		}
		return st.NewString(text), rest, true
	}
	return parseAggregate(st, typ, int(n), rest, resp, depth)
}

func parseAggregate(st *State, typ byte, n int, rest string, resp, depth int) (v Value, _ string, ok bool) {
	t := st.NewTable(0, 0)
	for i := 1; i <= n; i++ {
		var key, val Value
		if key, rest, ok = parseRESP(st, rest, resp, depth+1); !ok {
			return Nil, "", false
		}
		switch typ {
		case '%':
			if val, rest, ok = parseRESP(st, rest, resp, depth+1); !ok {
				return Nil, "", false
			}
			st.RawSet(t, key, val)
		case '~':
			st.RawSet(t, key, True)
		case '*':
			st.setInt(t, i, key)
		default:
			return Nil, "", false
		}
	}
	switch typ {
	case '%':
		return tagged(st, "map", t), rest, true
	case '~':
		return tagged(st, "set", t), rest, true
	}
	return t, rest, typ == '*'
}

// toReply makes the reply of the script from the first value that the script has
// returned. It ignores the other values.
func (st *State) toReply(results []Value) fsm.Reply {
	if len(results) == 0 {
		return fsm.Null
	}
	c := converter{st: st, proto: st.call.Proto, resp: st.resp}
	reply := c.reply(results[0], 0)
	if c.tooDeep {
		return fsm.ErrorResult(textTooDeep)
	}
	return reply
}

// converter turns values into replies. If the result refers to a table twice, the
// reply contains the table twice. So a script's reply can be far larger than the
// data that the script holds. The converter therefore charges the run for the
// reply.
type converter struct {
	st      *State
	proto   int
	resp    int
	tooDeep bool
}

func (c *converter) reply(v Value, depth int) fsm.Reply {
	c.st.Step(1)
	c.st.Alloc(replyBytes)
	if s, ok := asString(v); ok {
		c.st.Alloc(len(s))
		return fsm.Bulk(s)
	}
	if f, ok := asNumber(v); ok {
		return fsm.Int(numeral.ToInt64(f))
	}
	if b, ok := asBool(v); ok {
		return c.boolean(b)
	}
	if t, ok := asTable(v); ok {
		if depth >= maxNesting {
			c.tooDeep = true
			return fsm.Null
		}
		return c.table(t, depth)
	}
	return fsm.Null
}

func (c *converter) boolean(b bool) fsm.Reply {
	switch {
	case c.resp < 3 && b:
		return fsm.One
	case c.resp < 3:
		return fsm.Null
	case c.proto < 3:
		return fsm.Bool(b)
	}
	return fsm.Boolean(b)
}

// table converts t. It looks for the fields that give a table a type, in the
// order in which Redis does.
func (c *converter) table(t *Table, depth int) fsm.Reply {
	if s, ok := asString(field(t, "err")); ok {
		c.st.Alloc(2 * len(s))
		return fsm.ErrorResult(oneLine(s))
	}
	if s, ok := asString(field(t, "ok")); ok {
		c.st.Alloc(2 * len(s))
		return fsm.Simple(s)
	}
	if f, ok := asNumber(field(t, "double")); ok {
		return fsm.Double(f)
	}
	if m, ok := asTable(field(t, "map")); ok {
		return fsm.Map(c.pairs(m, true, depth))
	}
	if m, ok := asTable(field(t, "set")); ok {
		return fsm.Set(c.pairs(m, false, depth))
	}
	if s, ok := asString(field(t, "big_number")); ok {
		return c.bigNumber(s)
	}
	if m, ok := asTable(field(t, "verbatim_string")); ok {
		format, ok1 := asString(field(m, "format"))
		text, ok2 := asString(field(m, "string"))
		if ok1 && ok2 {
			return c.verbatim(format, text)
		}
	}
	var elems []fsm.Reply
	for i := 1; ; i++ {
		v := getInt(t, i)
		if v == Nil {
			return fsm.Array(elems)
		}
		elems = append(elems, c.reply(v, depth+1))
	}
}

func (c *converter) pairs(t *Table, values bool, depth int) []fsm.Reply {
	var elems []fsm.Reply
	for k := Nil; ; {
		var v Value
		if k, v = c.st.next(t, k); k == Nil {
			return elems
		}
		elems = append(elems, c.reply(k, depth+1))
		if values {
			elems = append(elems, c.reply(v, depth+1))
		}
	}
}

func (c *converter) bigNumber(s string) fsm.Reply {
	c.st.Alloc(2 * len(s))
	return fsm.BigNumber(mapLines(s))
}

func (c *converter) verbatim(format, text string) fsm.Reply {
	c.st.Alloc(len(text))
	return fsm.VerbatimAs(mapLines((format + "   ")[:3]), text)
}

func mapLines(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }
