package lua

var tableLib = lib{"table", []Builtin{
	{name: "concat", fn: tabConcat}, {name: "foreach", fn: tabForeach}, {name: "foreachi", fn: tabForeachi},
	{name: "getn", fn: tabGetn}, {name: "maxn", fn: tabMaxn}, {name: "insert", fn: tabInsert},
	{name: "remove", fn: tabRemove}, {name: "setn", fn: tabSetn}, {name: "sort", fn: tabSort},
}}

func tabConcat(st *State, args []Value) []Value {
	sep := st.OptString(args, 2, "") // first, as in Lua
	t := st.CheckTable(args, 1)
	from := st.OptInt(args, 3, 1)
	to := t.Len()
	if arg(args, 4).ref != nil {
		to = st.CheckInt(args, 4)
	}
	out := NewBuffer(st)
	for i := from; i <= to; i++ {
		st.Step(1)
		s, ok := t.GetInt(i).ToString()
		if !ok {
			st.Errorf("invalid value (%s) at index %d in table for 'concat'", t.GetInt(i).TypeName(), i)
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
		var ok bool
		if k, v, ok = t.Next(k); !ok {
			st.opErrorf(nil, "invalid key to 'next'")
		}
		if k.ref == nil {
			return nil
		}
		st.Step(1)
		if ret := first(st.Call(f, k, v)); ret.ref != nil {
			return st.Ret(ret)
		}
	}
}

func tabForeachi(st *State, args []Value) []Value {
	t, f := st.CheckTable(args, 1), st.checkFunction(args, 2)
	n := t.Len()
	for i := 1; i <= n; i++ {
		st.Step(1)
		if ret := first(st.Call(f, Int(i), t.GetInt(i))); ret.ref != nil {
			return st.Ret(ret)
		}
	}
	return nil
}

func tabGetn(st *State, args []Value) []Value { return st.Ret(Int(st.CheckTable(args, 1).Len())) }

func tabMaxn(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	most := 0.0
	st.Step((len(t.array) + len(t.nodes)) / 8)
	for i := len(t.array); i > 0; i-- {
		if t.array[i-1].ref != nil {
			most = float64(i)
			break
		}
	}
	for i := range t.nodes {
		if n := &t.nodes[i]; n.val.ref != nil && n.key.isNumber() && n.key.num > most {
			most = n.key.num
		}
	}
	return st.Ret(Number(most))
}

func tabSetn(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	st.Errorf("'setn' is obsolete")
	return nil
}

func tabInsert(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	end := t.Len() + 1
	pos := end
	switch len(args) {
	case 2:
	case 3:
		pos = st.CheckInt(args, 2)
		end = max(end, pos)
		for i := end; i > pos; i-- {
			st.Step(1)
			st.RawSet(t, Int(i), t.GetInt(i-1))
		}
	default:
		st.Errorf("wrong number of arguments to 'insert'")
	}
	st.RawSet(t, Int(pos), args[len(args)-1])
	return nil
}

func tabRemove(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	end := t.Len()
	pos := st.OptInt(args, 2, end)
	if pos < 1 || pos > end {
		return nil
	}
	v := t.GetInt(pos)
	for ; pos < end; pos++ {
		st.Step(1)
		st.RawSet(t, Int(pos), t.GetInt(pos+1))
	}
	st.RawSet(t, Int(end), Nil)
	return st.Ret(v)
}

func tabSort(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	s := sorter{st: st, t: t}
	if arg(args, 2).ref != nil {
		s.less = st.checkFunction(args, 2)
	}
	s.sort(1, t.Len())
	return nil
}

// sorter is the quicksort of Lua 5.1, step by step: a script sees in which order
// equal elements end up, and with which elements its function is called.
type sorter struct {
	st   *State
	t    *Table
	less Value
}

func (s *sorter) before(a, b Value) bool {
	s.st.Step(2)
	if s.less.ref == nil {
		return s.st.less(nil, a, b)
	}
	return first(s.st.Call(s.less, a, b)).Truth()
}

func (s *sorter) get(i int) Value { return s.t.GetInt(i) }

func (s *sorter) put(i int, v Value) { s.st.RawSet(s.t, Int(i), v) }

// order swaps elements i < j that are in the wrong order.
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

// partition splits around the pivot at mid and returns where it ends up.
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
