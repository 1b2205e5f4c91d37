package fsm

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
)

const (
	sortComplexity = "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N)."
	sortBySpec     = "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort"
	sortStoreSpec  = "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array"

	msgSortWeight = "ERR One or more scores can't be converted into double"
	msgSortMost   = "ERR SORT of more than 1048576 elements"
	msgSortWork   = "ERR SORT looks up more than it may, ask for fewer elements or patterns at a time"
	msgSortStore  = "ERR SORT stores more than 50331648 bytes"
)

// Bounds of one SORT: some seconds at most.
const (
	sortMost = 1 << 20 // elements that are sorted
	sortWork = 1 << 28 // of what lookups cost: see sorting.charge
	// sortShort is the length of a weight that is read or compared for nothing.
	sortShort = 256
	// lookupCost is what a lookup costs beside its bytes, in the time that a byte of a
	// key takes.
	lookupCost = 64
)

var (
	sortAccess    = Access{Mode: "RO", Flags: "access"}
	sortedAccess  = Access{Mode: "OW", Flags: "update"}
	sortFirst     = KeySpec{Keys: Keys{1, 1, 1}, Access: sortAccess}
	sortPatterns  = KeySpec{Unknown: true, Access: Access{Mode: "RO", Flags: "access", Notes: sortBySpec}}
	sortWritten   = KeySpec{Unknown: true, Access: Access{Mode: "OW", Flags: "update", Notes: sortStoreSpec}}
	sortedOfTypes = []string{"set", "sortedset", "list"}
)

var sortCommands = []Command{
	{Name: "sort", Arity: -2, Flags: Write | DenyOOM | MovableKeys | Dangerous, Keys: Keys{1, 1, 1}, Access: sortedAccess, Specs: []KeySpec{sortFirst, sortPatterns, sortWritten}, KeysOf: sortKeys, Categories: sortedOfTypes, Group: "generic", Since: "1.0.0", Complexity: sortComplexity, Syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE destination]", Doc: "Sort the elements in a list, set or sorted set", Run: sortCommand},
	{Name: "sort_ro", Arity: -2, Flags: ReadOnly | MovableKeys | Dangerous | Slow, Keys: Keys{1, 1, 1}, Access: sortAccess, Specs: []KeySpec{sortFirst, sortPatterns}, KeysOf: sortROKeys, Categories: sortedOfTypes, Group: "generic", Since: "7.0.0", Complexity: sortComplexity, Syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]", Doc: "Sort the elements in a list, set or sorted set. Read-only variant of SORT.", Run: sortRO},
}

// sortKeys names the key that is sorted and the one that the last STORE names,
// which is the one that is written. Keys made of patterns are not known.
func sortKeys(args [][]byte) []int {
	pos := []int{1}
	for i := 2; i < len(args); i++ {
		switch {
		case fold(args[i], "LIMIT"):
			i += 2
		case fold(args[i], "BY"), fold(args[i], "GET"):
			i++
		case fold(args[i], "STORE") && i+1 < len(args):
			i++
			pos = append(pos[:1], i)
		}
	}
	return pos
}

func sortROKeys(args [][]byte) []int { return []int{1} }

// sortOptions are the words behind the key.
type sortOptions struct {
	by            []byte // the pattern of the weights, nil for the elements themselves
	unsorted      bool   // BY without an asterisk
	get           [][]byte
	desc, alpha   bool
	limited       bool
	offset, count int64
	into          []byte // nil without STORE
	// pattern is the first option that reads other keys: BY or GET. It is noted even
	// if what follows is wrong.
	pattern string
}

func (o *sortOptions) parse(args [][]byte) (fail Reply) {
	o.count = -1
	readOnly := fold(args[0], "SORT_RO")
	for i := 2; i < len(args); i++ {
		left := len(args) - i - 1
		switch {
		case fold(args[i], "ASC"):
			o.desc = false
		case fold(args[i], "DESC"):
			o.desc = true
		case fold(args[i], "ALPHA"):
			o.alpha = true
		case fold(args[i], "LIMIT") && left >= 2:
			var ok, also bool
			o.offset, ok = parseInt(args[i+1])
			o.count, also = parseInt(args[i+2])
			if !ok || !also {
				return Error(msgNotInt)
			}
			o.limited = true
			i += 2
		case fold(args[i], "STORE") && left >= 1 && !readOnly:
			i++
			o.into = args[i]
		case fold(args[i], "BY") && left >= 1:
			i++
			o.by = args[i]
			if star(o.by) < 0 {
				o.unsorted = true
			} else {
				o.uses("BY")
			}
		case fold(args[i], "GET") && left >= 1:
			i++
			o.get = append(o.get, args[i])
			o.uses("GET")
		default:
			return Error(msgSyntax)
		}
	}
	return Null
}

func (o *sortOptions) uses(option string) {
	if o.pattern == "" {
		o.pattern = option
	}
}

// SortPattern returns the first option of a SORT or SORT_RO that reads keys which
// are not among its arguments: "BY", "GET", or "" for none. Not every user may give
// one, and none in a Redis Cluster.
func SortPattern(args [][]byte) string {
	var o sortOptions
	if len(args) > 1 {
		o.parse(args) // wrong words behind the option are no concern here
	}
	return o.pattern
}

// star returns the place of the asterisk that stands for the element, -1 if there
// is none.
func star(pattern []byte) int { return slices.Index(pattern, '*') }

// sorted is an element with what it is sorted by.
type sorted struct {
	element string
	weight  float64
	text    string
	absent  bool // there is no text
}

// sorting is one SORT under way.
type sorting struct {
	*Ctx
	sortOptions
	src  *object
	all  []sorted
	work int
}

// sortCommand also serves a SORT that does not store.
func sortCommand(c *Ctx, args [][]byte) Reply {
	s := sorting{Ctx: c}
	if fail := s.parse(args); fail.IsError() {
		return fail
	}
	s.src = c.lookup(args[1])
	if s.src != nil && s.src.typ != typeList && s.src.typ != typeSet && s.src.typ != typeZSet {
		return Error(msgWrongType)
	}
	if s.unsorted && s.src != nil && s.src.typ == typeSet && (s.into != nil || c.inScript) {
		// As Redis has it: what is kept must have an order that all agree on.
		s.unsorted, s.alpha, s.by = false, true, nil
	}
	if fail := s.gather(); fail.IsError() {
		return fail
	}
	if s.into != nil {
		return s.store()
	}
	return s.reply()
}

func sortRO(c *Ctx, args [][]byte) Reply { return sortCommand(c, args) }

// part returns which places of n elements are asked for.
func (s *sorting) part(n int) (from, to int) {
	size := int64(n)
	start := min(max(s.offset, 0), size)
	end := size
	if s.count >= 0 {
		end = start + min(s.count, size-start)
	}
	return int(start), int(end)
}

// gather makes s.all the elements that are asked for, in their order.
func (s *sorting) gather() (fail Reply) {
	if s.src == nil {
		return Null
	}
	v := s.src.coll
	n := v.Len(s.src.typ)
	from, to := s.part(n)
	first, number := 0, n
	if s.unsorted { // the rest need not be looked at
		first, number = from, to-from
	}
	if number > sortMost {
		return Error(msgSortMost)
	}
	s.all = make([]sorted, 0, number)
	take := func(element string) bool {
		if len(s.all) < number {
			s.all = append(s.all, sorted{element: element})
		}
		return len(s.all) < number
	}
	switch {
	case number == 0:
	case s.src.typ == typeList && s.unsorted && s.desc:
		v.list.Descend(n-1-first, func(e *string) bool { return take(*e) })
	case s.src.typ == typeList:
		v.list.Ascend(first, func(e *string) bool { return take(*e) })
	case s.src.typ == typeSet:
		v.set.Ascend(first, func(e *item[struct{}]) bool { return take(e.name) })
	case s.unsorted && s.desc:
		v.order.Descend(n-1-first, func(m *scored) bool { return take(m.member) })
	default:
		v.order.Ascend(first, func(m *scored) bool { return take(m.member) })
	}
	if s.unsorted {
		return Null
	}
	if fail := s.weigh(); fail.IsError() {
		return fail
	}
	slices.SortStableFunc(s.all, func(a, b sorted) int {
		if s.desc {
			return -s.compare(&a, &b)
		}
		return s.compare(&a, &b)
	})
	s.all = s.all[from:to]
	return Null
}

// weigh notes what each element is sorted by.
func (s *sorting) weigh() (fail Reply) {
	for i := range s.all {
		e := &s.all[i]
		text, ok := e.element, true
		if s.by != nil {
			text, ok = s.find(s.by, e.element)
		}
		// One long text may be the weight of all elements.
		if long := max(len(text)-sortShort, 0); s.alpha {
			s.work += long * bits.Len(uint(len(s.all))) / 16 // is compared that often, many bytes at a time
		} else {
			s.work += 2 * long
		}
		if s.work > sortWork {
			return Error(msgSortWork)
		}
		switch {
		case s.alpha:
			if s.into == nil { // Redis compares C strings, and all bytes for STORE
				text, _, _ = strings.Cut(text, "\x00")
			}
			e.text, e.absent = text, !ok
		case ok:
			if e.weight, ok = sortWeight(text); !ok {
				return Error(msgSortWeight)
			}
		}
	}
	return Null
}

// sortWeight reads a number as C's strtod does that must read all of a C string:
// nothing is 0, blanks may stand before it, and it must be in range.
func sortWeight(text string) (f float64, ok bool) {
	text, _, _ = strings.Cut(text, "\x00")
	if text == "" {
		return 0, true
	}
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	f, inRange, ok := scanDouble(text)
	if math.Abs(f) < leastNormal && f != 0 && !strings.ContainsAny(text, "xX") {
		return 0, false // it has lost digits, which C calls out of range
	}
	return f, ok && inRange && !math.IsNaN(f)
}

// leastNormal is the least positive number that has all its digits.
const leastNormal = 0x1p-1022

// compare orders two elements. What has the same weight keeps the order in which it
// was found, if nothing else tells.
func (s *sorting) compare(a, b *sorted) int {
	switch {
	case !s.alpha:
		return cmp.Or(cmp.Compare(a.weight, b.weight), strings.Compare(a.element, b.element))
	case a.absent || b.absent:
		switch {
		case !a.absent:
			return 1
		case !b.absent:
			return -1
		}
		return 0
	}
	return strings.Compare(a.text, b.text)
}

// find returns what a pattern means for an element: # the element, a_* the string
// of a key, a_*->f a field of the hash of a key.
func (s *sorting) find(pattern []byte, element string) (value string, ok bool) {
	if string(pattern) == "#" {
		return element, true
	}
	at := star(pattern)
	if at < 0 {
		return "", false
	}
	behind, field := string(pattern[at+1:]), ""
	if i := strings.Index(behind, "->"); i >= 0 && i+2 < len(behind) {
		behind, field = behind[:i], behind[i+2:]
	}
	s.work += lookupCost + len(pattern) + len(element)
	if at+len(element)+len(behind) > MaxKeyBytes { // there is no such key
		return "", false
	}
	o := s.lookup(slices.Concat(pattern[:at], []byte(element), []byte(behind)))
	switch {
	case o == nil:
		return "", false
	case field == "":
		return o.str, o.typ == typeString
	case o.typ != typeHash:
		return "", false
	}
	if h := &o.coll.hash; h.sort == byArrival { // is searched from the front
		s.work += 8 * h.Len()
	}
	return o.coll.hash.get(field)
}

// each calls f with what is asked for of each element, until f returns false.
func (s *sorting) each(f func(value string, ok bool) bool) (fail Reply) {
	for i := range s.all {
		if s.get == nil && !f(s.all[i].element, true) {
			return Null
		}
		for _, pattern := range s.get {
			value, ok := s.find(pattern, s.all[i].element)
			if s.work > sortWork {
				return Error(msgSortWork)
			}
			if !f(value, ok) {
				return Null
			}
		}
	}
	return Null
}

func (s *sorting) reply() Reply {
	var l collector
	fail := s.each(func(value string, ok bool) bool {
		if !ok {
			return l.add(Null)
		}
		return l.add(Bulk(value))
	})
	if fail.IsError() {
		return fail
	}
	return l.reply(Array)
}

// store makes a list of the result. What is not there is an empty element of it.
func (s *sorting) store() Reply {
	n := s.open(nil, s.into, typeList)
	size := 0
	fail := s.each(func(value string, ok bool) bool {
		n.coll.put(s.m.owner, false, value)
		if s.get != nil { // else it is no more than the source has
			size += len(value) + lookupCost
		}
		return size <= MaxReplyBytes
	})
	switch {
	case fail.IsError():
		return fail
	case size > MaxReplyBytes:
		return Error(msgSortStore)
	}
	return s.storeResult(n, "l", "sortstore")
}
