package lua

import (
	"math"
	"strings"
)

// metaLoops bounds chains of __index and __newindex.
const metaLoops = 100

// names of metamethods, hashed once
var metaNames = func() map[string]*String {
	m := make(map[string]*String)
	for _, n := range []string{"__index", "__newindex", "__call", "__eq", "__lt", "__le", "__concat", "__unm",
		"__add", "__sub", "__mul", "__div", "__mod", "__pow", "__tostring", "__metatable"} {
		m[n] = newString(n)
	}
	return m
}()

var (
	nameIndex    = metaNames["__index"]
	nameNewIndex = metaNames["__newindex"]
	nameEq       = metaNames["__eq"]
)

func (st *State) metatable(v Value) *Table {
	switch r := v.ref.(type) {
	case *Table:
		return r.meta
	case *String:
		return st.strings
	}
	return nil
}

func (st *State) metamethod(v Value, event string) Value {
	if m := st.metatable(v); m != nil {
		return m.getStr(metaNames[event])
	}
	return Nil
}

// index is v[k].
func (st *State) index(at *site, v, k Value) Value {
	for range metaLoops {
		var h Value
		if t, ok := v.ref.(*Table); ok {
			r := t.Get(k)
			if r.ref != nil || t.meta == nil {
				return r
			}
			if h = t.meta.getStr(nameIndex); h.ref == nil {
				return Nil
			}
		} else {
			m := st.metatable(v)
			if m == nil {
				st.indexError(at, v)
			}
			if h = m.getStr(nameIndex); h.ref == nil {
				st.indexError(at, v)
			}
		}
		switch h.ref.(type) {
		case *closure, *Builtin:
			return st.handler(at, h, v, k)
		}
		v = h
		st.Step(1)
	}
	st.opErrorf(at, "loop in gettable")
	return Nil
}

func (st *State) indexError(at *site, v Value) {
	name := operand{}
	if at != nil {
		name = at.a
	}
	st.typeError(at, name, v, "index")
}

// setIndex is v[k] = x.
func (st *State) setIndex(at *site, v, k, x Value) {
	for range metaLoops {
		var h Value
		if t, ok := v.ref.(*Table); ok {
			if t.meta == nil {
				st.rawSet(at, t, k, x)
				return
			}
			if t.Get(k).ref != nil {
				st.rawSet(at, t, k, x)
				return
			}
			if h = t.meta.getStr(nameNewIndex); h.ref == nil {
				st.rawSet(at, t, k, x)
				return
			}
		} else {
			m := st.metatable(v)
			if m == nil {
				st.indexError(at, v)
			}
			if h = m.getStr(nameNewIndex); h.ref == nil {
				st.indexError(at, v)
			}
		}
		switch h.ref.(type) {
		case *closure, *Builtin:
			st.handler(at, h, v, k, x)
			return
		}
		v = h
		st.Step(1)
	}
	st.opErrorf(at, "loop in settable")
}

// RawSet is t[k] = v from a builtin, without metamethods.
func (st *State) RawSet(t *Table, k, v Value) { st.rawSet(nil, t, k, v) }

func (st *State) rawSet(at *site, t *Table, k, v Value) {
	if t.frozen {
		st.opErrorf(at, "Attempt to modify a readonly table")
	}
	if k.ref == nil {
		st.opErrorf(at, "table index is nil")
	}
	if math.IsNaN(k.num) {
		st.opErrorf(at, "table index is NaN")
	}
	t.Set(k, v)
}

var arithNames = [...]string{opAdd: "__add", opSub: "__sub", opMul: "__mul", opDiv: "__div", opMod: "__mod", opPow: "__pow"}

func compute(op binOp, a, b float64) float64 {
	switch op {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return a * b
	case opDiv:
		return a / b
	case opMod:
		return a - math.Floor(a/b)*b
	}
	return math.Pow(a, b)
}

// arith is an arithmetic operation of values that are not both numbers.
func (st *State) arith(at *site, op binOp, a, b Value) Value {
	x, ok := a.ToNumber()
	if ok {
		if y, ok := b.ToNumber(); ok {
			return Number(compute(op, x, y))
		}
	}
	h := st.metamethod(a, arithNames[op])
	if h.ref == nil {
		h = st.metamethod(b, arithNames[op])
	}
	if h.ref == nil {
		if ok {
			st.typeError(at, at.b, b, "perform arithmetic on")
		}
		st.typeError(at, at.a, a, "perform arithmetic on")
	}
	return st.handler(at, h, a, b)
}

func (st *State) negate(at *site, a Value) Value {
	if x, ok := a.ToNumber(); ok {
		return Number(-x)
	}
	h := st.metamethod(a, "__unm")
	if h.ref == nil {
		st.typeError(at, at.a, a, "perform arithmetic on")
	}
	return st.handler(at, h, a, a)
}

func (st *State) length(at *site, a Value) Value {
	switch r := a.ref.(type) {
	case *String:
		return Int(len(r.s))
	case *Table:
		return Int(r.Len())
	}
	st.typeError(at, at.a, a, "get length of")
	return Nil
}

func (st *State) equal(at *site, a, b Value) bool {
	if s, ok := a.ref.(*String); ok {
		o, ok := b.ref.(*String)
		if !ok || len(s.s) != len(o.s) {
			return false
		}
		if n := len(s.s) >> 8; n > 0 && s != o {
			st.Step(n)
		}
		return s == o || s.s == o.s
	}
	if a == b {
		return true
	}
	x, ok := a.ref.(*Table)
	if !ok || x.meta == nil {
		return false
	}
	y, ok := b.ref.(*Table)
	if !ok || y.meta == nil {
		return false
	}
	h := x.meta.getStr(nameEq)
	if h.ref == nil || x.meta != y.meta && !rawEqual(h, y.meta.getStr(nameEq)) {
		return false
	}
	return st.handler(at, h, a, b).Truth()
}

func (st *State) less(at *site, a, b Value) bool {
	if a.isNumber() && b.isNumber() {
		return a.num < b.num
	}
	if x, ok := a.ref.(*String); ok {
		if y, ok := b.ref.(*String); ok {
			st.Step(min(len(x.s), len(y.s)) >> 8)
			return x.s < y.s
		}
	}
	if r, ok := st.order(at, "__lt", a, b); ok {
		return r
	}
	st.orderError(at, a, b)
	return false
}

func (st *State) lessEqual(at *site, a, b Value) bool {
	if a.isNumber() && b.isNumber() {
		return a.num <= b.num
	}
	if x, ok := a.ref.(*String); ok {
		if y, ok := b.ref.(*String); ok {
			st.Step(min(len(x.s), len(y.s)) >> 8)
			return x.s <= y.s
		}
	}
	if r, ok := st.order(at, "__le", a, b); ok {
		return r
	}
	if r, ok := st.order(at, "__lt", b, a); ok {
		return !r
	}
	st.orderError(at, a, b)
	return false
}

// order calls a metamethod that both operands share.
func (st *State) order(at *site, event string, a, b Value) (r, ok bool) {
	if a.TypeName() != b.TypeName() {
		return false, false
	}
	h := st.metamethod(a, event)
	if h.ref == nil || !rawEqual(h, st.metamethod(b, event)) {
		return false, false
	}
	return st.handler(at, h, a, b).Truth(), true
}

func (st *State) orderError(at *site, a, b Value) {
	x, y := a.TypeName(), b.TypeName()
	if x == y {
		st.opErrorf(at, "attempt to compare two %s values", x)
	}
	st.opErrorf(at, "attempt to compare %s with %s", x, y)
}

// concat joins values from the right, as .. associates; it uses vals as scratch.
func (st *State) concat(at *site, vals []Value, names []operand) Value {
	for n := len(vals); n > 1; {
		a, b := vals[n-2], vals[n-1]
		_, okA := a.textLen()
		size, okB := b.textLen()
		if !okA || !okB {
			h := st.metamethod(a, "__concat")
			if h.ref == nil {
				h = st.metamethod(b, "__concat")
			}
			if h.ref == nil {
				i := n - 2
				if okA {
					i = n - 1
				}
				st.typeError(at, names[i], vals[i], "concatenate")
			}
			n--
			vals[n-1] = st.handler(at, h, a, b)
			continue
		}
		from := n - 1
		for from > 0 {
			l, ok := vals[from-1].textLen()
			if !ok {
				break
			}
			size += l
			from--
		}
		vals[from] = st.join(vals[from:n], size)
		n = from + 1
	}
	return vals[0]
}

// textLen is the length of what concatenation makes of a value, at most.
func (v Value) textLen() (int, bool) {
	switch r := v.ref.(type) {
	case *String:
		return len(r.s), true
	case number:
		return 32, true
	}
	return 0, false
}

func (st *State) join(vals []Value, size int) Value {
	st.Alloc(size + stringBytes)
	st.Step(size >> 7)
	var b strings.Builder
	b.Grow(size)
	for _, v := range vals {
		if s, ok := v.ref.(*String); ok {
			b.WriteString(s.s)
		} else {
			b.WriteString(FormatNumber(v.num))
		}
	}
	return Value{ref: newString(b.String())}
}
