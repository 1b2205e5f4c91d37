package script

import lua "github.com/yuin/gopher-lua"

var tableLib = []entry{
	{name: "concat", fn: tabConcat}, {name: "foreach", fn: tabForeach}, {name: "foreachi", fn: tabForeachi},
	{name: "getn", fn: tabGetn}, {name: "maxn", fn: tabMaxn}, {name: "insert", fn: tabInsert},
	{name: "remove", fn: tabRemove}, {name: "setn", fn: tabSetn}, {name: "sort", fn: tabSort},
}

func tabConcat(st *State, args []Value) []Value {
	// Check the separator before the table, as Lua does.
	sep := st.OptString(args, 2, "")
	t := st.CheckTable(args, 1)
	from := st.OptInt(args, 3, 1)
	to := st.length(t)
	if arg(args, 4) != Nil {
		to = st.CheckInt(args, 4)
	}
	out := NewBuffer(st)
	for i := from; i <= to; i++ {
		st.Step(1)
		s, ok := toString(getInt(t, i))
		if !ok {
			st.Errorf("invalid value (%s) at index %d in table for 'concat'", typeName(getInt(t, i)), i)
		}
		out.Add(s)
		if i < to {
			out.Add(sep)
		}
	}
	return st.Ret(st.NewString(out.String()))
}

func tabForeach(st *State, args []Value) []Value {
	t, f := st.CheckTable(args, 1), st.checkFunction(args, 2)
	for k := Nil; ; {
		var v Value
		if k, v = st.next(t, k); k == Nil {
			return nil
		}
		st.Step(1)
		if ret := st.call1(f, k, v); ret != Nil {
			return st.Ret(ret)
		}
	}
}

func tabForeachi(st *State, args []Value) []Value {
	t, f := st.CheckTable(args, 1), st.checkFunction(args, 2)
	n := st.length(t)
	for i := 1; i <= n; i++ {
		st.Step(1)
		if ret := st.call1(f, Int(i), getInt(t, i)); ret != Nil {
			return st.Ret(ret)
		}
	}
	return nil
}

func tabGetn(st *State, args []Value) []Value { return st.Ret(Int(st.length(st.CheckTable(args, 1)))) }

func tabMaxn(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	most := 0.0
	for k := Nil; ; {
		if k, _ = st.next(t, k); k == Nil {
			return st.Ret(Number(most))
		}
		st.Step(1)
		if f, ok := asNumber(k); ok {
			most = max(most, f)
		}
	}
}

func tabSetn(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	st.Errorf("'setn' is obsolete")
	return nil
}

func tabInsert(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	end := st.length(t) + 1
	pos := end
	switch len(args) {
	case 2:
	case 3:
		pos = st.CheckInt(args, 2)
		end = max(end, pos)
		for i := end; i > pos; i-- {
			st.Step(1)
			st.RawSet(t, Int(i), getInt(t, i-1))
		}
	default:
		st.Errorf("wrong number of arguments to 'insert'")
	}
	st.RawSet(t, Int(pos), args[len(args)-1])
	return nil
}

func tabRemove(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	end := st.length(t)
	pos := st.OptInt(args, 2, end)
	if pos < 1 || pos > end {
		return nil
	}
	v := getInt(t, pos)
	for ; pos < end; pos++ {
		st.Step(1)
		st.RawSet(t, Int(pos), getInt(t, pos+1))
	}
	st.RawSet(t, Int(end), Nil)
	return st.Ret(v)
}

func tabSort(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	s := sorter{st: st, t: t}
	if arg(args, 2) != Nil {
		s.less = st.checkFunction(args, 2)
	}
	s.sort(1, st.length(t))
	return nil
}

// sorter is the quicksort of Lua 5.1, step by step. It has to be the same
// algorithm, because a script can observe the final order of equal elements and
// the elements with which its function is called.
type sorter struct {
	st   *State
	t    *Table
	less Value
}

func (s *sorter) before(a, b Value) bool {
	s.st.Step(2)
	if s.less == nil {
		return s.st.less(a, b)
	}
	return truth(s.st.call1(s.less, a, b))
}

func (s *sorter) get(i int) Value { return getInt(s.t, i) }

func (s *sorter) put(i int, v Value) { s.st.RawSet(s.t, Int(i), v) }

// order swaps the elements i < j if they are in the wrong order.
func (s *sorter) order(i, j int) {
	if a, b := s.get(i), s.get(j); s.before(b, a) {
		s.put(i, b)
		s.put(j, a)
	}
}

func (s *sorter) sort(lo, up int) {
	for lo < up {
		s.order(lo, up)
		if up-lo == 1 {
			return
		}
		mid := (lo + up) / 2
		if a, b := s.get(mid), s.get(lo); s.before(a, b) {
			s.put(mid, b)
			s.put(lo, a)
		} else {
			s.order(mid, up)
		}
		if up-lo == 2 {
			return
		}
		i := s.partition(lo, up, mid)
		if i-lo < up-i { // recurse into the smaller part
			s.sort(lo, i-1)
			lo = i + 1
		} else {
			s.sort(i+1, up)
			up = i - 1
		}
	}
}

// partition partitions the range around the pivot at mid and returns the final
// index of the pivot.
func (s *sorter) partition(lo, up, mid int) int {
	pivot := s.get(mid)
	s.swap(mid, up-1)
	i, j := lo, up-1
	for {
		for i++; s.before(s.get(i), pivot); i++ {
			if i > up {
				s.st.Errorf("invalid order function for sorting")
			}
		}
		for j--; s.before(pivot, s.get(j)); j-- {
			if j < lo {
				s.st.Errorf("invalid order function for sorting")
			}
		}
		if j < i {
			s.swap(up-1, i)
			return i
		}
		s.swap(i, j)
	}
}

func (s *sorter) swap(i, j int) {
	a, b := s.get(i), s.get(j)
	s.put(i, b)
	s.put(j, a)
}

// less returns a < b for a builtin.
func (st *State) less(a, b Value) bool {
	switch x := a.(type) {
	case lua.LNumber:
		if y, ok := b.(lua.LNumber); ok {
			return x < y
		}
	case lua.LString:
		if y, ok := b.(lua.LString); ok {
			st.Step(min(len(x), len(y)) >> 8)
			return x < y
		}
	}
	x, y := typeName(a), typeName(b)
	if x == y {
		if h := st.metamethod(a, "__lt"); h != Nil && h == st.metamethod(b, "__lt") {
			return truth(st.call1(h, a, b))
		}
		st.plainErrorf("attempt to compare two %s values", x)
	}
	st.plainErrorf("attempt to compare %s with %s", x, y)
	return false
}
