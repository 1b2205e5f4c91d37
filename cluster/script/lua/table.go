package lua

import (
	"math"
	"math/bits"
)

// Table is a Lua table: an array part for keys 1..n and a hash part with
// internal chaining (Brent's variation), laid out as in Lua 5.1, because pairs
// shows that layout and cjson and scripts depend on its order.
type Table struct {
	array    []Value
	nodes    []node
	lastFree int
	meta     *Table
	frozen   bool // shared by all runs: nothing may change it
	id       uint32
	st       *State // pays for growth; nil while libraries are set up
}

type node struct {
	key, val Value
	next     int32 // position of the next node of the chain plus one
}

const (
	tableBytes = 96
	nodeBytes  = 56
	valueBytes = 24
	chainFree  = 8 // hops of a chain that cost nothing
)

// NewTable makes a table with room for so many array and hash entries.
func (st *State) NewTable(narr, nhash int) *Table {
	st.Alloc(tableBytes)
	t := &Table{st: st, id: st.newID()}
	if narr > 0 {
		st.Alloc(narr * valueBytes)
		t.array = make([]Value, narr)
	}
	if nhash > 0 {
		t.makeNodes(nhash)
	}
	return t
}

// NewShared makes a table that belongs to no State: fill it with Set, then
// Freeze it.
func NewShared(nhash int) *Table {
	t := &Table{id: sharedID()}
	if nhash > 0 {
		t.makeNodes(nhash)
	}
	return t
}

// Freeze makes a table read-only for ever, and so safe to share.
func (t *Table) Freeze() *Table {
	t.frozen = true
	return t
}

// SetMeta sets the metatable of a table that is not frozen.
func (t *Table) SetMeta(m *Table) { t.meta = m }

// Frozen reports whether scripts may not change the table.
func (t *Table) Frozen() bool { return t.frozen }

// Value is the table as a value.
func (t *Table) Value() Value { return Value{ref: t} }

// clone copies a table that holds no arrays, for a State that then owns it.
func (t *Table) clone(st *State) *Table {
	st.Alloc(tableBytes + len(t.nodes)*nodeBytes)
	c := &Table{lastFree: t.lastFree, st: st, id: st.newID()}
	c.nodes = append([]node(nil), t.nodes...)
	return c
}

func (t *Table) makeNodes(n int) {
	if n == 0 {
		t.nodes, t.lastFree = nil, 0
		return
	}
	size := 1 << bits.Len(uint(n-1))
	if t.st != nil {
		t.st.Alloc(size * nodeBytes)
	}
	t.nodes = make([]node, size)
	t.lastFree = size
}

// mainPosition is the node where a key is looked for first.
func (t *Table) mainPosition(k Value) int {
	size := uint32(len(t.nodes))
	switch r := k.ref.(type) {
	case *String:
		return int(r.hash & (size - 1))
	case number:
		if k.num == 0 {
			return 0
		}
		b := math.Float64bits(k.num)
		return int((uint32(b) + uint32(b>>32)) % ((size - 1) | 1))
	case boolean:
		return int(uint32(k.num) & (size - 1))
	}
	return int(identity(k) % ((size - 1) | 1))
}

// arrayIndex returns k as a key of the array part, or 0.
func arrayIndex(k Value) int {
	if _, ok := k.ref.(number); ok {
		if n := int(k.num); float64(n) == k.num && n > 0 && n <= math.MaxInt32 {
			return n
		}
	}
	return 0
}

// find returns the node of a key, or nil. It charges long chains, so that keys
// that were chosen to collide cost their finder and not the server.
func (t *Table) find(k Value) *node {
	if len(t.nodes) == 0 {
		return nil
	}
	hops := 0
	for i := t.mainPosition(k); ; {
		n := &t.nodes[i]
		if t.same(n.key, k) {
			t.charge(hops)
			return n
		}
		if n.next == 0 {
			t.charge(hops)
			return nil
		}
		i = int(n.next - 1)
		hops++
	}
}

// sameText compares two keys, and charges for long ones.
func (t *Table) sameText(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	if n := len(a) >> 8; n > 0 && t.st != nil {
		t.st.Step(n)
	}
	return a == b
}

// same is rawEqual for keys.
func (t *Table) same(a, b Value) bool {
	if s, ok := a.ref.(*String); ok {
		o, ok := b.ref.(*String)
		return ok && (s == o || s.hash == o.hash && t.sameText(s.s, o.s))
	}
	return a == b
}

func (t *Table) charge(hops int) {
	if hops > chainFree && t.st != nil {
		t.st.Step(hops)
	}
}

// Get is t[k] without metamethods.
func (t *Table) Get(k Value) Value {
	switch r := k.ref.(type) {
	case nil:
		return Nil
	case *String:
		return t.getStr(r)
	case number:
		if n := arrayIndex(k); n > 0 && n <= len(t.array) {
			return t.array[n-1]
		}
	}
	if n := t.find(k); n != nil {
		return n.val
	}
	return Nil
}

// GetInt is t[n] without metamethods.
func (t *Table) GetInt(n int) Value {
	if n > 0 && n <= len(t.array) {
		return t.array[n-1]
	}
	if len(t.nodes) == 0 {
		return Nil
	}
	return t.Get(Int(n))
}

// GetStr is t[name] without metamethods.
func (t *Table) GetStr(name string) Value {
	if len(t.nodes) == 0 {
		return Nil
	}
	return t.getStr(&String{name, hashString(name)})
}

func (t *Table) getStr(s *String) Value {
	if len(t.nodes) == 0 {
		return Nil
	}
	hops := 0
	for i := int(s.hash & uint32(len(t.nodes)-1)); ; {
		n := &t.nodes[i]
		if k, ok := n.key.ref.(*String); ok && (k == s || k.hash == s.hash && t.sameText(k.s, s.s)) {
			if hops > chainFree {
				t.charge(hops)
			}
			return n.val
		}
		if n.next == 0 {
			if hops > chainFree {
				t.charge(hops)
			}
			return Nil
		}
		i = int(n.next - 1)
		hops++
	}
}

// Set is t[k] = v without metamethods. The key is neither nil nor NaN, and the
// table is not frozen; code that scripts can reach uses State.RawSet.
func (t *Table) Set(k, v Value) {
	if n := arrayIndex(k); n > 0 && n <= len(t.array) {
		t.array[n-1] = v
		return
	}
	if n := t.find(k); n != nil {
		n.val = v
		return
	}
	t.insert(k, v)
}

// SetInt is t[n] = v without metamethods.
func (t *Table) SetInt(n int, v Value) {
	if n > 0 && n <= len(t.array) {
		t.array[n-1] = v
		return
	}
	t.Set(Int(n), v)
}

// SetStr is t[name] = v without metamethods.
func (t *Table) SetStr(name string, v Value) { t.Set(Const(name), v) }

// insert adds a key that is not there.
func (t *Table) insert(k, v Value) {
	if len(t.nodes) == 0 {
		t.rehash(k)
		t.Set(k, v)
		return
	}
	at := t.mainPosition(k)
	if mp := &t.nodes[at]; mp.val.ref != nil {
		free := t.freeNode()
		if free < 0 {
			t.rehash(k)
			t.Set(k, v)
			return
		}
		other := t.mainPosition(mp.key)
		if other != at { // the node there is a guest: it moves to the free place
			prev := other
			for hops := 0; int(t.nodes[prev].next-1) != at; hops++ {
				prev = int(t.nodes[prev].next - 1)
				if hops >= chainFree {
					t.charge(hops)
				}
			}
			t.nodes[prev].next = int32(free + 1)
			t.nodes[free] = *mp
			mp.next = 0
			mp.val = Nil
		} else { // the newcomer goes to the free place, second in the chain
			t.nodes[free].next = mp.next
			mp.next = int32(free + 1)
			at = free
		}
	}
	t.nodes[at].key, t.nodes[at].val = k, v
}

// freeNode returns a node that never had a key, or -1.
func (t *Table) freeNode() int {
	for t.lastFree > 0 {
		t.lastFree--
		if t.nodes[t.lastFree].key.ref == nil {
			return t.lastFree
		}
	}
	return -1
}

// rehash makes room for one more key. The array part becomes the largest n such
// that more than half of 1..n is in use.
func (t *Table) rehash(extra Value) {
	var nums [33]int // nums[i] counts integer keys in (2^(i-1), 2^i]
	count := func(k Value) int {
		n := arrayIndex(k)
		if n == 0 {
			return 0
		}
		nums[bits.Len(uint(n-1))]++
		return 1
	}
	inArray, total := 0, 0
	for i, v := range t.array {
		if v.ref != nil {
			nums[bits.Len(uint(i))]++
			inArray++
		}
	}
	total = inArray
	ints := inArray
	for i := range t.nodes {
		if n := &t.nodes[i]; n.val.ref != nil {
			ints += count(n.key)
			total++
		}
	}
	ints += count(extra)
	total++
	if t.st != nil {
		t.st.Step((len(t.array) + len(t.nodes)) / 8)
	}
	size, used := arraySize(nums[:], ints)
	t.resize(size, total-used)
}

// arraySize returns the best size of the array part and how many of the integer
// keys go there.
func arraySize(nums []int, ints int) (size, used int) {
	sum := 0
	for i, two := 0, 1; i < len(nums) && two/2 < ints; i, two = i+1, two*2 {
		if nums[i] > 0 {
			sum += nums[i]
			if sum > two/2 {
				size, used = two, sum
			}
		}
		if sum == ints {
			break
		}
	}
	return size, used
}

func (t *Table) resize(narr, nhash int) {
	oldArray, oldNodes := t.array, t.nodes
	if narr != len(oldArray) {
		if t.st != nil {
			t.st.Alloc(narr * valueBytes)
		}
		t.array = make([]Value, narr)
		copy(t.array, oldArray)
	}
	t.makeNodes(nhash)
	for i := narr; i < len(oldArray); i++ {
		if oldArray[i].ref != nil {
			t.SetInt(i+1, oldArray[i])
		}
	}
	for i := len(oldNodes) - 1; i >= 0; i-- {
		if n := &oldNodes[i]; n.val.ref != nil {
			t.Set(n.key, n.val)
		}
	}
}

// Len is the length operator: a border of the table.
func (t *Table) Len() int {
	j := len(t.array)
	if j > 0 && t.array[j-1].ref == nil {
		i := 0
		for j-i > 1 {
			if m := (i + j) / 2; t.array[m-1].ref == nil {
				j = m
			} else {
				i = m
			}
		}
		return i
	}
	if len(t.nodes) == 0 {
		return j
	}
	i := j
	for j++; t.GetInt(j).ref != nil; {
		i = j
		if j *= 2; j > math.MaxInt32 { // built for no good purpose: search one by one
			for i = 1; t.GetInt(i).ref != nil; i++ {
			}
			t.charge(i)
			return i - 1
		}
	}
	for j-i > 1 {
		if m := (i + j) / 2; t.GetInt(m).ref == nil {
			j = m
		} else {
			i = m
		}
	}
	return i
}

// Next returns the entry after key k, the first for nil. ok is false for a key
// that the table does not have; a nil key in the result means the end.
func (t *Table) Next(k Value) (key, val Value, ok bool) {
	i := 0
	if k.ref != nil {
		if n := arrayIndex(k); n > 0 && n <= len(t.array) {
			i = n
		} else {
			at := t.position(k)
			if at < 0 {
				return Nil, Nil, false
			}
			i = len(t.array) + at + 1
		}
	}
	skipped := 0
	for ; i < len(t.array); i++ {
		if t.array[i].ref != nil {
			t.charge(skipped)
			return Int(i + 1), t.array[i], true
		}
		skipped++
	}
	for i -= len(t.array); i < len(t.nodes); i++ {
		if n := &t.nodes[i]; n.val.ref != nil {
			t.charge(skipped)
			return n.key, n.val, true
		}
		skipped++
	}
	t.charge(skipped)
	return Nil, Nil, true
}

// position returns the node of a key, which may have been set to nil, or -1.
func (t *Table) position(k Value) int {
	if len(t.nodes) == 0 {
		return -1
	}
	hops := 0
	for i := t.mainPosition(k); ; {
		n := &t.nodes[i]
		if t.same(n.key, k) {
			t.charge(hops)
			return i
		}
		if n.next == 0 {
			t.charge(hops)
			return -1
		}
		i = int(n.next - 1)
		hops++
	}
}
