package script

import (
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
	"github.com/holdfast-kv/holdfast/fsm"
)

const (
	// maxNesting bounds replies in both directions: a script can nest tables as
	// deep as it likes, and even in a circle.
	maxNesting = 500
	replyBytes = 96 // of a fsm.Reply
)

const textTooDeep = "ERR reached lua stack limit"

// fromReply is what redis.call returns, for a script that speaks RESP resp.
func fromReply(st *lua.State, r fsm.Reply, resp int) lua.Value {
	st.Step(1)
	switch r.Kind() {
	case fsm.KindSimple:
		return field(st, "ok", st.NewString(r.Text()))
	case fsm.KindError:
		t := st.NewTable(0, 2)
		t.Set(keyErr, st.NewString(r.Text()))
		t.Set(keyCounted, lua.True) // shows in pairs, as in Redis
		return t.Value()
	case fsm.KindInt:
		return lua.Number(float64(r.Int64()))
	case fsm.KindBulk:
		return st.NewString(r.Text())
	case fsm.KindArray:
		return fromElems(st, r.Elems(), resp)
	case fsm.KindMap:
		if resp >= 3 {
			return field(st, "map", fromPairs(st, r.Elems(), resp))
		}
		return fromElems(st, r.Elems(), resp)
	case fsm.KindSet:
		if resp >= 3 {
			return field(st, "set", fromMembers(st, r.Elems(), resp))
		}
		return fromElems(st, r.Elems(), resp)
	case fsm.KindDouble:
		if resp >= 3 {
			return field(st, "double", lua.Number(r.Float64()))
		}
		return st.NewString(fsm.FormatDouble(r.Float64()))
	case fsm.KindVerbatim:
		if resp >= 3 {
			return verbatim(st, "txt", r.Text())
		}
		return st.NewString(r.Text())
	case fsm.KindRaw:
		return fromRaw(st, r.Text(), resp)
	}
	return null(resp)
}

// null is a reply without a value: nil came to scripts with RESP3 only.
func null(resp int) lua.Value {
	if resp >= 3 {
		return lua.Nil
	}
	return lua.False
}

// field makes a table with one field.
func field(st *lua.State, name string, v lua.Value) lua.Value {
	t := st.NewTable(0, 1)
	t.SetStr(name, v)
	return t.Value()
}

func verbatim(st *lua.State, format, text string) lua.Value {
	t := st.NewTable(0, 2)
	t.SetStr("string", st.NewString(text))
	t.SetStr("format", st.NewString(format))
	return field(st, "verbatim_string", t.Value())
}

func fromElems(st *lua.State, elems []fsm.Reply, resp int) lua.Value {
	t := st.NewTable(len(elems), 0)
	for i, e := range elems {
		t.SetInt(i+1, fromReply(st, e, resp))
	}
	return t.Value()
}

func fromPairs(st *lua.State, elems []fsm.Reply, resp int) lua.Value {
	t := st.NewTable(0, 0)
	for i := 0; i+1 < len(elems); i += 2 {
		st.RawSet(t, fromReply(st, elems[i], resp), fromReply(st, elems[i+1], resp))
	}
	return t.Value()
}

func fromMembers(st *lua.State, elems []fsm.Reply, resp int) lua.Value {
	t := st.NewTable(0, 0)
	for _, e := range elems {
		st.RawSet(t, fromReply(st, e, resp), lua.True)
	}
	return t.Value()
}

// fromRaw reads a reply that came as bytes.
func fromRaw(st *lua.State, raw string, resp int) lua.Value {
	v, _, ok := parseRESP(st, raw, resp, 0)
	if !ok {
		return field(st, "err", st.NewString("ERR reply could not be read"))
	}
	return v
}

// parseRESP reads one value and returns the rest.
func parseRESP(st *lua.State, s string, resp, depth int) (v lua.Value, rest string, ok bool) {
	st.Step(1)
	line, rest, found := strings.Cut(s, "\r\n")
	if !found || line == "" || depth > maxNesting {
		return lua.Nil, "", false
	}
	typ, line := line[0], line[1:]
	n, err := strconv.ParseInt(line, 10, 64)
	switch typ {
	case '+':
		return field(st, "ok", st.NewString(line)), rest, true
	case '-':
		return fromReply(st, fsm.Error(line), resp), rest, true
	case ':':
		return lua.Number(float64(n)), rest, err == nil
	case '_':
		return null(resp), rest, true
	case '#':
		return lua.Bool(line == "t"), rest, true
	case ',':
		f, ok := lua.ParseNumber(line)
		return field(st, "double", lua.Number(f)), rest, ok
	case '(':
		return field(st, "big_number", st.NewString(line)), rest, true
	}
	if err != nil {
		return lua.Nil, "", false
	}
	if n < 0 {
		return null(resp), rest, true
	}
	if typ == '$' || typ == '=' {
		if int64(len(rest)) < n+2 {
			return lua.Nil, "", false
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

func parseAggregate(st *lua.State, typ byte, n int, rest string, resp, depth int) (v lua.Value, _ string, ok bool) {
	t := st.NewTable(0, 0)
	for i := 1; i <= n; i++ {
		var key, val lua.Value
		if key, rest, ok = parseRESP(st, rest, resp, depth+1); !ok {
			return lua.Nil, "", false
		}
		switch typ {
		case '%':
			if val, rest, ok = parseRESP(st, rest, resp, depth+1); !ok {
				return lua.Nil, "", false
			}
			st.RawSet(t, key, val)
		case '~':
			st.RawSet(t, key, lua.True)
		case '*':
			t.SetInt(i, key)
		default:
			return lua.Nil, "", false
		}
	}
	switch typ {
	case '%':
		return field(st, "map", t.Value()), rest, true
	case '~':
		return field(st, "set", t.Value()), rest, true
	}
	return t.Value(), rest, typ == '*'
}

// toReply is the reply of a script that returned these values.
func (r *run) toReply(st *lua.State, results []lua.Value) fsm.Reply {
	if len(results) == 0 {
		return fsm.Null
	}
	c := converter{st: st, proto: r.call.Proto, resp: r.resp}
	reply := c.reply(results[0], 0)
	if c.tooDeep {
		return fsm.Error(textTooDeep)
	}
	return reply
}

// converter turns values into replies. Tables that are reached twice are sent
// twice, so what a script returns can be far larger than what it holds: the run
// pays for it.
type converter struct {
	st      *lua.State
	proto   int
	resp    int
	tooDeep bool
}

func (c *converter) reply(v lua.Value, depth int) fsm.Reply {
	c.st.Step(1)
	c.st.Alloc(replyBytes)
	if s, ok := v.AsString(); ok {
		c.st.Alloc(len(s))
		return fsm.Bulk(s)
	}
	if f, ok := v.AsNumber(); ok {
		return fsm.Int(lua.ToInt64(f))
	}
	if b, ok := v.AsBool(); ok {
		return c.boolean(b)
	}
	if t, ok := v.AsTable(); ok {
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
	case b:
		return fsm.Raw([]byte("#t\r\n"))
	}
	return fsm.Raw([]byte("#f\r\n"))
}

// table looks at the fields that give a table a type, in Redis' order.
func (c *converter) table(t *lua.Table, depth int) fsm.Reply {
	if s, ok := t.Field(nameErr).AsString(); ok {
		c.st.Alloc(2 * len(s))
		return fsm.Error(oneLine(s))
	}
	if s, ok := t.Field(nameOK).AsString(); ok {
		c.st.Alloc(2 * len(s))
		return fsm.Simple(s)
	}
	if f, ok := t.Field(nameDouble).AsNumber(); ok {
		return fsm.Double(f)
	}
	if m, ok := t.Field(nameMap).AsTable(); ok {
		return fsm.Map(c.pairs(m, true, depth))
	}
	if m, ok := t.Field(nameSet).AsTable(); ok {
		return fsm.Set(c.pairs(m, false, depth))
	}
	if s, ok := t.Field(nameBig).AsString(); ok {
		return c.bigNumber(s)
	}
	if m, ok := t.Field(nameVerbatim).AsTable(); ok {
		format, ok1 := m.Field(nameFormat).AsString()
		text, ok2 := m.Field(nameString).AsString()
		if ok1 && ok2 {
			return c.verbatim(format, text)
		}
	}
	var elems []fsm.Reply
	for i := 1; ; i++ {
		v := t.GetInt(i)
		if v.IsNil() {
			return fsm.Array(elems)
		}
		elems = append(elems, c.reply(v, depth+1))
	}
}

func (c *converter) pairs(t *lua.Table, values bool, depth int) []fsm.Reply {
	var elems []fsm.Reply
	for k := lua.Nil; ; {
		var v lua.Value
		if k, v, _ = t.Next(k); k.IsNil() {
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
	if c.proto < 3 {
		return fsm.Bulk(mapLines(s))
	}
	return fsm.Raw([]byte("(" + mapLines(s) + "\r\n"))
}

func (c *converter) verbatim(format, text string) fsm.Reply {
	c.st.Alloc(len(text))
	if c.proto < 3 || format == "txt" {
		return fsm.Verbatim(text)
	}
	c.st.Alloc(2 * len(text))
	format = (format + "   ")[:3]
	raw := fsm.AppendHead(nil, '=', int64(len(text)+4))
	raw = append(raw, mapLines(format)...)
	raw = append(raw, ':')
	raw = append(raw, text...)
	return fsm.Raw(append(raw, '\r', '\n'))
}

func mapLines(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }
