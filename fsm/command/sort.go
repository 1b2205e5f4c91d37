package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

const (
	sortComplexity = "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the " +
		"number of returned elements. When the elements are not sorted, complexity is O(N)."
	sortBySpec = "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from " +
		"the content of the key we sort"
	sortStoreSpec = "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear " +
		"anywhere in the argument array"

	msgSortWeight = "ERR One or more scores can't be converted into double"
	msgSortMost   = "ERR SORT of more than 1048576 elements"
	msgSortWork   = "ERR SORT looks up more than it may, ask for fewer elements or patterns at a time"
	msgSortStore  = "ERR SORT stores more than 50331648 bytes"
)

// These limits bound one SORT, which then takes a few seconds at most.
const (
	sortMost = 1 << 20 // maximum number of elements that a SORT reads
	sortWork = 1 << 28 // maximum of sorting.work, the cost of lookups and of long weights
	// sortShort is the length, in bytes, up to which reading or comparing a
	// weight costs nothing.
	sortShort = 256
	// lookupCost is the cost of a lookup in addition to its bytes. The unit is
	// the time that a byte of a key takes.
	lookupCost = 64
)

var (
	sortAccess    = fsm.Access{Mode: "RO", Flags: "access"}
	sortedAccess  = fsm.Access{Mode: "OW", Flags: "update"}
	sortFirst     = fsm.KeySpec{Keys: fsm.KeysAt(1, 1, 1), Access: sortAccess}
	sortPatterns  = fsm.KeySpec{Unknown: true, Access: fsm.Access{Mode: "RO", Flags: "access", Notes: sortBySpec}}
	sortWritten   = fsm.KeySpec{Unknown: true, Access: fsm.Access{Mode: "OW", Flags: "update", Notes: sortStoreSpec}}
	sortedOfTypes = []string{"set", "sortedset", "list"}
)

var sortCommands = []fsm.Command{
	{
		Name: "sort", Run: sortCommand, Arity: -2, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys | fsm.Dangerous,
		KeyPattern: sortPattern,
		Work:       fsm.WorkHooks{Steps: sortingWork},
		Keys:       fsm.KeysAt(1, 1, 1), KeysOf: sortKeys, Access: sortedAccess,
		Specs: []fsm.KeySpec{sortFirst, sortPatterns, sortWritten},
		Group: "generic", Since: "1.0.0", Categories: sortedOfTypes,
		Complexity: sortComplexity,
		Syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] " +
			"[STORE destination]",
		Doc: "Sort the elements in a list, set or sorted set",
	},
	{
		Name: "sort_ro", Run: sortRO, Arity: -2, Flags: fsm.ReadOnly | fsm.MovableKeys | fsm.Dangerous | fsm.Slow,
		KeyPattern: sortPattern,
		Keys:       fsm.KeysAt(1, 1, 1), KeysOf: sortROKeys, Access: sortAccess,
		Specs: []fsm.KeySpec{sortFirst, sortPatterns},
		Group: "generic", Since: "7.0.0", Categories: sortedOfTypes,
		Complexity: sortComplexity,
		Syntax:     "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
		Doc:        "Sort the elements in a list, set or sorted set. Read-only variant of SORT.",
	},
}

// sortKeys returns the positions of the source key and of the key after the
// last STORE, the key that SORT writes. It does not return the keys that the
// patterns of BY and GET select, because these depend on the data.
func sortKeys(args [][]byte) []int {
	pos := []int{1}
	for i := 2; i < len(args); i++ {
		switch {
		case fsm.IsWord(args[i], "LIMIT"):
			i += 2
		case fsm.IsWord(args[i], "BY"), fsm.IsWord(args[i], "GET"):
			i++
		case fsm.IsWord(args[i], "STORE") && i+1 < len(args):
			i++
			pos = append(pos[:1], i)
		}
	}
	return pos
}

func sortROKeys(args [][]byte) []int { return []int{1} }

// sortOptions has the arguments after the key.
type sortOptions struct {
	by            []byte // the pattern of the weights, nil to sort by the elements themselves
	unsorted      bool   // BY without an asterisk
	get           [][]byte
	desc, alpha   bool
	limited       bool
	offset, count int64
	into          []byte // nil without STORE
	// pattern is the first option that reads other keys: BY or GET. It is set
	// even if a later argument is not valid.
	pattern string
}

func (o *sortOptions) parse(args [][]byte) (fail fsm.Reply) {
	o.count = -1
	readOnly := fsm.IsWord(args[0], "SORT_RO")
	for i := 2; i < len(args); i++ {
		left := len(args) - i - 1
		switch {
		case fsm.IsWord(args[i], "ASC"):
			o.desc = false
		case fsm.IsWord(args[i], "DESC"):
			o.desc = true
		case fsm.IsWord(args[i], "ALPHA"):
			o.alpha = true
		case fsm.IsWord(args[i], "LIMIT") && left >= 2:
			var ok, also bool
			o.offset, ok = number.ParseInt(args[i+1])
			o.count, also = number.ParseInt(args[i+2])
			if !ok || !also {
				return fsm.Error(fsm.MsgNotInt)
			}
			o.limited = true
			i += 2
		case fsm.IsWord(args[i], "STORE") && left >= 1 && !readOnly:
			i++
			o.into = args[i]
		case fsm.IsWord(args[i], "BY") && left >= 1:
			i++
			o.by = args[i]
			if star(o.by) < 0 {
				o.unsorted = true
			} else {
				o.uses("BY")
			}
		case fsm.IsWord(args[i], "GET") && left >= 1:
			i++
			o.get = append(o.get, args[i])
			o.uses("GET")
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	return fsm.Null
}

func (o *sortOptions) uses(option string) {
	if o.pattern == "" {
		o.pattern = option
	}
}

// sortPattern returns the first option, "BY" or "GET", with which a SORT or
// SORT_RO reads keys that are not among its arguments, or "" if there is none.
func sortPattern(args [][]byte) string {
	var o sortOptions
	if len(args) > 1 {
		o.parse(args) // an error after the option does not matter here
	}
	return o.pattern
}

// star returns the position of the asterisk that stands for the element, or -1
// if there is none.
func star(pattern []byte) int { return slices.Index(pattern, '*') }

// sorted is an element with its weight.
type sorted struct {
	element string
	weight  float64
	text    string
	absent  bool // set if the element has no text to sort by
}

// sorting is a SORT that is being executed.
type sorting struct {
	*fsm.Ctx
	sortOptions
	src  *keyspace.Object
	all  []sorted
	work int
}

// sortCommand implements SORT and SORT_RO.
func sortCommand(c *fsm.Ctx, args [][]byte) fsm.Reply {
	s := sorting{Ctx: c}
	if fail := s.parse(args); fail.IsError() {
		return fail
	}
	s.src = c.Lookup(args[1])
	if s.src != nil && s.src.Type != keyspace.TypeList && s.src.Type != keyspace.TypeSet &&
		s.src.Type != keyspace.TypeZSet {
		return fsm.Error(fsm.MsgWrongType)
	}
	if s.unsorted && s.src != nil && s.src.Type == keyspace.TypeSet && (s.into != nil || c.InScript()) {
		// As in Redis, a result that is stored or used in a script must have an
		// order on which all nodes agree.
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

func sortRO(c *fsm.Ctx, args [][]byte) fsm.Reply { return sortCommand(c, args) }

// part returns the range of the positions that LIMIT selects, out of n
// elements.
func (s *sorting) part(n int) (from, to int) {
	size := int64(n)
	start := min(max(s.offset, 0), size)
	end := size
	if s.count >= 0 {
		end = start + min(s.count, size-start)
	}
	return int(start), int(end)
}

// gather sets s.all to the selected elements in their order.
func (s *sorting) gather() (fail fsm.Reply) {
	if s.src == nil {
		return fsm.Null
	}
	v := s.src.Coll
	n := v.Len(s.src.Type)
	from, to := s.part(n)
	first, number := 0, n
	if s.unsorted { // without an order, elements outside of LIMIT need not be read
		first, number = from, to-from
	}
	if number > sortMost {
		return fsm.Error(msgSortMost)
	}
	s.ChargeMemory(sortedBytes * number)
	s.all = make([]sorted, 0, number)
	take := func(element string) bool {
		s.Charge(1)
		if len(s.all) < number {
			s.all = append(s.all, sorted{element: element})
		}
		return len(s.all) < number
	}
	switch {
	case number == 0:
	case s.src.Type == keyspace.TypeList && s.unsorted && s.desc:
		v.List.Descend(n-1-first, func(e *string) bool { return take(*e) })
	case s.src.Type == keyspace.TypeList:
		v.List.Ascend(first, func(e *string) bool { return take(*e) })
	case s.src.Type == keyspace.TypeSet:
		v.Set.Ascend(first, func(e *container.Item[struct{}]) bool { return take(e.Name) })
	case s.unsorted && s.desc:
		v.Order.Descend(n-1-first, func(m *container.Scored) bool { return take(m.Member) })
	default:
		v.Order.Ascend(first, func(m *container.Scored) bool { return take(m.Member) })
	}
	if s.unsorted {
		return fsm.Null
	}
	if fail := s.weigh(); fail.IsError() {
		return fail
	}
	slices.SortStableFunc(s.all, func(a, b sorted) int {
		s.Charge(stepsCompare)
		if s.desc {
			return -s.compare(&a, &b)
		}
		return s.compare(&a, &b)
	})
	s.all = s.all[from:to]
	return fsm.Null
}

// weigh computes the weight of each element.
func (s *sorting) weigh() (fail fsm.Reply) {
	for i := range s.all {
		e := &s.all[i]
		text, ok := e.element, true
		s.Charge(1)
		if s.by != nil {
			text, ok = s.find(s.by, e.element)
		}
		// The same long text may be the weight of all elements, so its cost
		// counts for each of them.
		if long := max(len(text)-sortShort, 0); s.alpha {
			s.Charge(long * bits.Len(uint(len(s.all))) / fsm.CopyBytes)
			s.work += long * bits.Len(uint(len(s.all))) / 16 // log2(n) comparisons, 16 bytes at a time
		} else {
			s.work += 2 * long
		}
		if s.work > sortWork {
			return fsm.Error(msgSortWork)
		}
		switch {
		case s.alpha:
			if s.into == nil { // Redis compares C strings; it compares all bytes only for STORE
				text, _, _ = strings.Cut(text, "\x00")
			}
			e.text, e.absent = text, !ok
		case ok:
			if e.weight, ok = sortWeight(text); !ok {
				return fsm.Error(msgSortWeight)
			}
		}
	}
	return fsm.Null
}

// sortWeight parses a number as C's strtod does when it must consume a whole C
// string. An empty text is 0, leading blanks are allowed, and the number must
// be in range.
func sortWeight(text string) (f float64, ok bool) {
	text, _, _ = strings.Cut(text, "\x00")
	if text == "" {
		return 0, true
	}
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	f, inRange, ok := number.Strtod(text)
	if math.Abs(f) < leastNormal && f != 0 && !strings.ContainsAny(text, "xX") {
		return 0, false // a number that has lost digits is out of range in C
	}
	return f, ok && inRange && !math.IsNaN(f)
}

// leastNormal is the smallest positive number with full precision.
const leastNormal = 0x1p-1022

// compare compares two elements. The sort is stable, so elements that compare
// as equal keep the order in which they were found.
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

// find returns the value of a pattern for an element. The pattern # stands for
// the element itself, a_* for the string of a key, and a_*->f for a field of
// the hash of a key.
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
	s.Charge(fsm.StepsProbe + (len(pattern)+len(element))/fsm.ScanBytes)
	if at+len(element)+len(behind) > fsm.MaxKeyBytes { // a key of this length cannot exist
		return "", false
	}
	o := s.Lookup(slices.Concat(pattern[:at], []byte(element), []byte(behind)))
	switch {
	case o == nil:
		return "", false
	case field == "":
		return o.Str, o.Type == keyspace.TypeString
	case o.Type != keyspace.TypeHash:
		return "", false
	}
	s.Charge(stepsFind(&o.Coll.Hash))
	if h := &o.Coll.Hash; h.Order == container.ByArrival { // such a hash is searched from the front
		s.work += 8 * h.Len()
	}
	return o.Coll.Hash.Get(field)
}

// each calls f with the values that SORT returns for each element, until f
// returns false.
func (s *sorting) each(f func(value string, ok bool) bool) (fail fsm.Reply) {
	for i := range s.all {
		if s.get == nil && !f(s.all[i].element, true) {
			return fsm.Null
		}
		for _, pattern := range s.get {
			value, ok := s.find(pattern, s.all[i].element)
			if s.work > sortWork {
				return fsm.Error(msgSortWork)
			}
			if !f(value, ok) {
				return fsm.Null
			}
		}
	}
	return fsm.Null
}

func (s *sorting) reply() fsm.Reply {
	l := collector{c: s.Ctx}
	fail := s.each(func(value string, ok bool) bool {
		if !ok {
			return l.add(fsm.Null)
		}
		return l.add(fsm.Bulk(value))
	})
	if fail.IsError() {
		return fail
	}
	return l.reply(fsm.Array)
}

// store stores the result as a list. A value that does not exist becomes an
// empty element.
func (s *sorting) store() fsm.Reply {
	n := open(s.Ctx, nil, s.into, keyspace.TypeList)
	size := 0
	var values []string
	fail := s.each(func(value string, ok bool) bool {
		s.Charge(stepsBuild)
		values = append(values, value)
		if s.get != nil { // without GET, the result is not larger than the source
			size += len(value) + lookupCost
		}
		return size <= fsm.MaxReplyBytes
	})
	switch {
	case fail.IsError():
		return fail
	case size > fsm.MaxReplyBytes:
		return fsm.Error(msgSortStore)
	}
	n.Coll.List = container.SeqOf(s.Owner(), values)
	return storeResult(s.Ctx, n, "l", "sortstore")
}
