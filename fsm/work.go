package fsm

import (
	"math"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// Work is the estimated cost of executing commands, in steps, before they are
// executed. The leader asks for it to bound what one entry costs to apply: see
// BatchBuilder.Divide. The estimate uses the sizes of the keys and does not
// walk their values. It may therefore be higher than what the commands are
// charged when they run, and it is at most slightly lower.

// StepNanos is approximately how many nanoseconds one step of work takes.
const StepNanos = 10

// WorkLimits bounds the work of what the leader proposes, in steps.
type WorkLimits struct {
	// Entry is the limit for the groups of one entry, if the entry has several.
	Entry int
	// Operation is the limit for a single command or transaction. A command or
	// transaction that needs more is answered with BUSY.
	Operation int
}

// stepsCommand is the cost of a command apart from its arguments: finding the
// command and its key, and storing the key.
const stepsCommand = 48

// mostWork is the upper bound of an estimate. It keeps the sum of many
// estimates from overflowing.
const mostWork = 1 << 40

// workFunc returns the part of a command's work that depends on what its keys
// hold, and records in w how the command will have made the keys grow.
type workFunc func(w *weigher, args [][]byte) int

// works lists the commands whose work depends on what their keys hold, and that
// nodes execute when they apply an entry. It leaves out costly reads: see
// Costly. It also leaves out commands that take a bounded number of steps or
// bytes for each argument.
var works = map[string]workFunc{
	"append": appendWork, "setrange": setrangeWork, "setbit": setbitWork, "bitfield": bitfieldWork,
	"bitop": bitopWork, "pfmerge": pfmergeWork, "pfadd": pfmergeWork,
	"get": valueWork, "mget": valueWork, "getset": valueWork, "getdel": valueWork, "getex": valueWork, "set": setWork,
	"hget": fieldWork, "hmget": fieldWork,
	"copy": copyWork, "rename": copyWork, "renamenx": copyWork,
	"sort": sortingWork,
	"lrem": walkWork, "linsert": walkWork, "ltrim": ltrimWork,
	"lpop": popWork, "rpop": popWork, "lmpop": mpopWork, "lmove": lmoveWork, "rpoplpush": lmoveWork,
	"spop": popWork, "zpopmin": popWork, "zpopmax": popWork, "zmpop": mpopWork,
	"sunionstore": setStoreWork, "sinterstore": setStoreWork, "sdiffstore": setStoreWork,
	"zunionstore": zsetStoreWork, "zinterstore": zsetStoreWork, "zdiffstore": zsetStoreWork,
	"zrangestore": zrangestoreWork, "zremrangebyscore": zremWork, "zremrangebylex": zremWork, "zremrangebyrank": zremWork,
	"geosearchstore": geosearchstoreWork, "georadius": georadiusWork, "georadiusbymember": georadiusWork,
	"xadd": trimWork, "xtrim": trimWork,
	"xreadgroup": xreadgroupWork, "xautoclaim": xautoclaimWork, "xgroup": xgroupWork,
	"blpop": bpopWork, "brpop": bpopWork, "blmove": lmoveWork, "brpoplpush": lmoveWork, "blmpop": mpopWork, "bzmpop": mpopWork,
	"restore": restoreWork, "restore-asking": restoreWork, "move": moveWork,
	"flushdb": flushWork, "flushall": flushWork, "swapdb": swapWork,
}

// Weigh returns the approximate cost of applying a group, as far as the
// arguments determine it, and whether the cost also depends on what the keys
// hold. Weigh is called for every group that is proposed, so it allocates
// nothing for most groups.
func (t *Table) Weigh(body []byte) (steps int, depends bool) {
	var r groupReader
	if r.open(body) != nil {
		return 0, false
	}
	d := &r.d
	for len(d.b) > 0 {
		commands := uint64(1)
		if d.byte() == opTransaction {
			for n := d.uvarint(); n > 0 && d.err == nil; n-- { // watches
				d.uvarint()
				d.bytes()
				d.uvarint()
			}
			commands = d.uvarint()
		}
		for ; commands > 0 && d.err == nil; commands-- {
			start := *d
			d.uvarint() // database
			n := d.uvarint()
			cmd := t.Find(d.bytes())
			steps += stepsCommand + stepsPerKey*int(min(n, MaxArguments))
			for i := uint64(1); i < n && d.err == nil; i++ {
				steps += len(d.bytes()) / copyBytes
			}
			if depends || cmd == nil || cmd.work == nil || n == 3 && cmd.Name == "set" {
				continue
			}
			c := groupReader{d: start}
			if _, args, err := c.command(); err == nil {
				depends = cmd.depends(args)
			}
		}
	}
	return steps, depends
}

// depends reports whether the work of a command depends on what its keys hold.
func (cmd *Command) depends(args [][]byte) bool {
	switch {
	case cmd == nil || cmd.work == nil || !cmd.ArityOK(len(args)):
		return false
	case cmd.Name == "copy" || cmd.Name == "rename" || cmd.Name == "renamenx" || cmd.Name == "move": // cheap: see copyWork
		return false
	case cmd.Name == "set":
		return slices.ContainsFunc(args[3:], func(arg []byte) bool { return fold(arg, "GET") })
	case cmd.Name == "xadd":
		t, _, _, fail := streamOptions(args, true)
		return !fail.IsError() && t.by != byAny
	case cmd.Name == "xgroup":
		return deletesConsumer(args)
	}
	return true
}

// argumentWork returns the part of a command's work that its arguments
// determine.
func argumentWork(args [][]byte) int {
	steps := stepsCommand + stepsPerKey*len(args)
	for _, arg := range args[1:] {
		steps += len(arg) / copyBytes
	}
	return steps
}

// weigher estimates the cost of commands that are executed one after the other.
type weigher struct {
	m  *Machine
	db int
	// grown records how the commands so far may have changed keys. Its index is
	// the name of the key, in any database. Keys never shrink here, because a
	// command that would make a key smaller may fail.
	grown map[string]growth
	undo  []undoneGrowth
	// swapped reports that databases were exchanged, so a key may be the key of
	// any of them.
	swapped bool
}

// extent is the size of a value.
type extent struct{ elems, bytes int }

// growth is the amount by which a key may have grown.
type growth struct {
	// added counts the elements that commands had as arguments. The work of
	// adding them also covers the work of removing each of them once.
	added int
	more  int // other elements: copied ones and those of results
	bytes int // minimum size of a string
}

// smallString is the size below which a string costs no more than the command
// that reads it.
const smallString = 512

// undoneGrowth is the previous value of w.grown for a key.
type undoneGrowth struct {
	key string
	was growth
	had bool
}

// forget removes what was recorded after the undo log had n records, because
// the commands are not executed.
func (w *weigher) forget(n int) {
	for i := len(w.undo) - 1; i >= n; i-- {
		if u := &w.undo[i]; u.had {
			w.grown[u.key] = u.was
		} else {
			delete(w.grown, u.key)
		}
	}
	w.undo = w.undo[:n]
}

// operation returns the work of the next operation, and the union of the flags
// of its commands.
func (w *weigher) operation(r *groupReader) (steps int, flags Flags, err error) {
	err = r.commandsIn(func(db int, args [][]byte) {
		w.db = db
		steps = min(steps+w.command(args), mostWork)
		if cmd := w.m.table.Find(args[0]); cmd != nil {
			flags |= cmd.Flags
		}
	})
	return steps, flags, err
}

// command returns the work of a command.
func (w *weigher) command(args [][]byte) int {
	steps := argumentWork(args)
	cmd := w.m.table.Find(args[0])
	switch {
	case cmd == nil || !cmd.ArityOK(len(args)):
	case cmd.work != nil:
		steps += min(max(cmd.work(w, args), 0), mostWork)
	case cmd.Flags&Write != 0:
		by := growth{added: len(args) - 1}
		for _, arg := range args[1:] {
			by.bytes = max(by.bytes, len(arg))
		}
		for _, i := range cmd.KeyPositions(args) {
			w.grow(args[i], by)
		}
	}
	return steps
}

// find returns the value of a key. It returns nil if the key does not exist or
// its value is not known.
func (w *weigher) find(key []byte, t typ) *object {
	if o := w.m.dbs[w.db].get(key); o != nil && o.typ == t && !w.swapped {
		return o
	}
	return nil
}

// size returns approximately how large the value of a key will be at most.
func (w *weigher) size(key []byte) extent {
	e := w.m.dbs[w.db].get(key).extent()
	if w.swapped {
		for db := range w.m.dbs {
			other := w.m.dbs[db].get(key).extent()
			e = extent{max(e.elems, other.elems), max(e.bytes, other.bytes)}
		}
	}
	if len(w.grown) > 0 {
		g := w.grown[string(key)]
		e = extent{e.elems + g.added + g.more, max(e.bytes, g.bytes)}
	}
	return e
}

// left returns how many elements a key may lose, in addition to the elements
// that were added to it: see growth.
func (w *weigher) left(key []byte) int {
	n := w.size(key).elems
	if len(w.grown) > 0 {
		n -= w.grown[string(key)].added
	}
	return n
}

// extent returns the size of a value.
func (o *object) extent() extent {
	switch {
	case o == nil:
		return extent{}
	case o.coll == nil:
		return extent{bytes: len(o.str)}
	}
	return extent{elems: o.coll.Len(o.typ)}
}

// grow records that a key may have more elements, and that a string may have at
// least the given number of bytes.
func (w *weigher) grow(key []byte, by growth) {
	if by.added == 0 && by.more == 0 && by.bytes < smallString {
		return
	}
	if w.grown == nil {
		w.grown = make(map[string]growth)
	}
	k := viewString(key) // the groups outlive w
	g, had := w.grown[k]
	w.undo = append(w.undo, undoneGrowth{k, g, had})
	w.grown[k] = growth{min(g.added+by.added, MaxElements), min(g.more+by.more, MaxElements), max(g.bytes, min(by.bytes, MaxStringBytes))}
}

// written returns the work of a command that copies a string to change it. The
// string then has at least end bytes.
func (w *weigher) written(key []byte, end int) int {
	size := max(w.size(key).bytes, min(end, MaxStringBytes))
	w.grow(key, growth{bytes: size})
	return size / copyBytes
}

func appendWork(w *weigher, args [][]byte) int {
	return w.written(args[1], w.size(args[1]).bytes+len(args[2]))
}

func setrangeWork(w *weigher, args [][]byte) int {
	offset, _ := number.ParseInt(args[2])
	return w.written(args[1], cutOffset(offset)+len(args[3]))
}

func setbitWork(w *weigher, args [][]byte) int {
	offset, _ := number.ParseInt(args[2])
	return w.written(args[1], cutOffset(offset/8)+1)
}

// cutOffset limits an offset to the maximum length of a string.
func cutOffset(offset int64) int { return int(min(max(offset, 0), MaxStringBytes)) }

// bitfieldWork looks for the offsets of SET and INCRBY. An offset with # counts
// fields, which have at most 64 bits.
func bitfieldWork(w *weigher, args [][]byte) int {
	end := 0
	for i := 2; i+2 < len(args); i++ {
		if !fold(args[i], "SET") && !fold(args[i], "INCRBY") {
			continue
		}
		at, unit := args[i+2], int64(1)
		if len(at) > 0 && at[0] == '#' {
			at, unit = at[1:], 64
		}
		offset, _ := number.ParseInt(at)
		end = max(end, cutOffset(min(max(offset, 0), math.MaxInt64/64)*unit/8)+9)
	}
	return 2 * w.written(args[1], end)
}

func bitopWork(w *weigher, args [][]byte) int {
	longest, steps := 0, 0
	for _, key := range args[3:] {
		size := w.size(key).bytes
		longest, steps = max(longest, size), steps+size/scanBytes
	}
	w.grow(args[2], growth{bytes: longest})
	return steps + longest/copyBytes
}

func pfmergeWork(w *weigher, args [][]byte) int {
	w.grow(args[1], growth{bytes: 3 * hllSteps})
	if fold(args[0], "PFADD") {
		return hllSteps + stepsPut*(len(args)-2)
	}
	return hllSteps * len(args)
}

// answerBytes is the number of bytes of a reply that are produced in one step.
// A reply is copied twice into new memory, and its checksum is computed.
const answerBytes = 16

// valueWork returns the work of a command that replies with the values of all
// its keys.
func valueWork(w *weigher, args [][]byte) int {
	steps := 0
	last := 2
	if fold(args[0], "MGET") {
		last = len(args)
	}
	for _, key := range args[1:last] {
		steps += w.size(key).bytes / answerBytes
	}
	if fold(args[0], "GETSET") {
		w.grow(args[1], growth{bytes: len(args[2])})
	}
	return steps
}

func setWork(w *weigher, args [][]byte) int {
	steps := 0
	for _, arg := range args[3:] {
		if fold(arg, "GET") {
			steps = w.size(args[1]).bytes / answerBytes
		}
	}
	w.grow(args[1], growth{bytes: len(args[2])})
	return steps
}

func fieldWork(w *weigher, args [][]byte) int {
	o := w.m.dbs[w.db].get(args[1])
	if o == nil || o.typ != typeHash {
		return 0
	}
	steps := 0
	for _, field := range args[2:] {
		v, _ := o.coll.hash.Get(viewString(field))
		steps += stepsFind(&o.coll.hash) + len(v)/answerBytes
	}
	return steps
}

// copyWork handles commands that give a value to another key. The command
// itself costs little, but later commands may use the value at the new key.
func copyWork(w *weigher, args [][]byte) int {
	size := w.size(args[1])
	w.grow(args[2], growth{more: size.elems, bytes: size.bytes})
	return 0
}

// moveWork is copyWork for a key of the same name in another database.
func moveWork(w *weigher, args [][]byte) int {
	size := w.size(args[1])
	w.grow(args[1], growth{more: size.elems, bytes: size.bytes})
	return 0
}

// restoreWork estimates the work from the bytes of the payload and does not
// count the elements. Few elements have less than 16 bytes on average. The
// payload may be compressed.
func restoreWork(w *weigher, args [][]byte) int {
	n := len(args[3])
	w.grow(args[1], growth{more: n, bytes: 16 * n})
	return n * stepsPut / 16
}

func sortingWork(w *weigher, args [][]byte) int {
	n := w.size(args[1]).elems
	steps := 0
	for i := 2; i < len(args); i++ {
		switch {
		case i+1 < len(args) && fold(args[i], "STORE"):
			w.grow(args[i+1], growth{more: n})
			steps += n * stepsPut
		case i+1 < len(args) && (fold(args[i], "GET") || fold(args[i], "BY")):
			steps += n * stepsProbe
		}
	}
	return steps + sortSteps(n)
}

// sortSteps returns the cost of sorting n items.
func sortSteps(n int) int {
	bits := 1
	for 1<<bits <= n {
		bits++
	}
	return n * (1 + stepsCompare*bits)
}

// walkWork returns the work of a command that looks at each element of a list.
func walkWork(w *weigher, args [][]byte) int {
	steps := 2
	if fold(args[0], "LREM") {
		steps += stepsPut / 4 // LREM may remove any of the elements
	} else {
		w.grow(args[1], growth{added: 1})
	}
	return w.size(args[1]).elems * steps
}

func ltrimWork(w *weigher, args [][]byte) int {
	n := w.left(args[1]) + 1
	start, _ := number.ParseInt(args[2])
	end, _ := number.ParseInt(args[3])
	from, to := span(start, end, n)
	return stepsPut / 2 * min(to-from, n-(to-from))
}

// popWork returns the work of a command that removes elements and replies with
// them. It removes one element, or as many as the last argument says.
func popWork(w *weigher, args [][]byte) int {
	count := int64(1)
	if len(args) > 2 {
		count, _ = number.ParseInt(args[2])
	}
	return w.taken(args[1], count)
}

// bpopWork returns the work of a command that takes one element from the first
// key that has elements.
func bpopWork(w *weigher, args [][]byte) int { return w.takenFirst(args[1:len(args)-1], 1) }

// mpopWork is bpopWork for commands with a COUNT.
func mpopWork(w *weigher, args [][]byte) int {
	count, at := int64(1), 1
	if n := len(args); fold(args[n-2], "COUNT") {
		count, _ = number.ParseInt(args[n-1])
	}
	if c := args[0][0]; c == 'b' || c == 'B' { // BLMPOP, BZMPOP: after the timeout
		at = 2
	}
	keys := numberedKeys(args, at)
	return w.takenFirst(args[at+1:at+1+len(keys)], count)
}

// takenFirst returns the work of taking elements from the first key that has
// some. Earlier commands decide which key that is, so takenFirst returns the
// maximum over all keys.
func (w *weigher) takenFirst(keys [][]byte, count int64) int {
	most := 0
	for _, key := range keys {
		most = max(most, w.taken(key, count))
	}
	return most
}

// sampled is how many elements are looked at to estimate their length.
const sampled = 1024

// taken returns the work of taking count elements from a key and replying with
// them.
func (w *weigher) taken(key []byte, count int64) int {
	n := int(min(max(count, 0), int64(w.size(key).elems)))
	o := w.find(key, typeList)
	// Members are short. They are kept in two orders, or in the order of their
	// hashes.
	if o == nil {
		return n * 6 * stepsPut
	}
	left, bytes := min(n, sampled), 0
	look := func(s *string) bool {
		bytes += len(*s)
		left--
		return left > 0
	}
	if n > 0 {
		o.coll.list.Ascend(0, look)
		left = min(n, sampled)
		o.coll.list.Descend(o.coll.list.Len()-1, look)
	}
	return n*stepsPut + min(bytes, MaxReplyBytes)/answerBytes
}

func lmoveWork(w *weigher, args [][]byte) int {
	steps := w.taken(args[1], 1)
	w.grow(args[2], growth{added: 1})
	return steps
}

// distinctKeys returns keys without repetitions.
func distinctKeys(keys [][]byte) [][]byte {
	if len(keys) < 2 {
		return keys
	}
	seen := make(map[string]bool, len(keys))
	var once [][]byte
	for _, key := range keys {
		if !seen[string(key)] {
			seen[string(key)] = true
			once = append(once, key)
		}
	}
	return once
}

func setStoreWork(w *weigher, args [][]byte) int {
	keys := distinctKeys(args[2:])
	sum, least, first := 0, math.MaxInt, 0
	for i, key := range keys {
		n := w.size(key).elems
		if i == 0 {
			first = n
		}
		sum, least = sum+n, min(least, n)
	}
	probes := stepsProbe * (len(keys) - 1)
	switch {
	case fold(args[0], "SUNIONSTORE"):
		w.replace(args[1], sum)
		return stepsPut*(sum-first) + (2+stepsPut)*sum
	case fold(args[0], "SINTERSTORE"):
		w.replace(args[1], least)
		return least * (1 + probes + stepsPut)
	}
	w.replace(args[1], first)
	return differenceWork(first, sum, len(keys))
}

// differenceWork returns the cost of a difference. Either the members of the
// first set are looked up in each other set, or the other sets are united
// first, whichever costs less.
func differenceWork(first, sum, sets int) int {
	return min(first*stepsProbe*sets, 2*stepsPut*sum) + first*(1+2*stepsPut)
}

// replace records that a key may receive a result of n elements.
func (w *weigher) replace(key []byte, n int) { w.grow(key, growth{more: n}) }

func zsetStoreWork(w *weigher, args [][]byte) int {
	keys := numberedKeys(args, 2)
	if len(keys) == 0 {
		return 0
	}
	sum, least, first := 0, math.MaxInt, w.size(args[keys[0]]).elems
	for _, i := range keys {
		n := w.size(args[i]).elems
		sum, least = sum+n, min(least, n)
	}
	switch {
	case fold(args[0], "ZUNIONSTORE"):
		w.replace(args[1], sum)
		return sum * (2 + 4*stepsPut)
	case fold(args[0], "ZINTERSTORE"):
		w.replace(args[1], least)
		return least * (1 + stepsProbe*len(keys) + 2*stepsPut)
	}
	w.replace(args[1], first)
	return differenceWork(first, sum, len(keys))
}

func zrangestoreWork(w *weigher, args [][]byte) int {
	n := w.size(args[2]).elems
	if q, fail := parseRange(args[3:], byAny, false, true, true); !fail.IsError() {
		if q.by == byRank {
			from, to := span(q.start, q.end, n)
			n = to - from
		} else if q.limit >= 0 {
			n = int(min(q.limit, int64(n)))
		}
	}
	w.replace(args[1], n)
	return n * (1 + 2*stepsPut)
}

func zremWork(w *weigher, args [][]byte) int {
	n := w.left(args[1]) + 1
	switch {
	case fold(args[0], "ZREMRANGEBYRANK"):
		start, _ := number.ParseInt(args[2])
		end, _ := number.ParseInt(args[3])
		from, to := span(start, end, n)
		n = to - from
	case fold(args[0], "ZREMRANGEBYSCORE"):
		o := w.find(args[1], typeZSet)
		if r, fail := scoreRange(args[2], args[3]); o != nil && !fail.IsError() {
			from, to := r.in(o.coll)
			n += to - from - o.coll.Len(typeZSet) // all elements added since may be in the range
		}
	}
	return n * 2 * stepsPut
}

func geosearchstoreWork(w *weigher, args [][]byte) int { return w.geoWork(args[2], args[1]) }

func georadiusWork(w *weigher, args [][]byte) int { return w.geoWork(args[1], nil) }

// geoWork returns the work of a search whose result may contain all points.
// dest is where the result is stored, or nil if that is not known.
func (w *weigher) geoWork(from, dest []byte) int {
	n := w.size(from).elems
	if dest != nil {
		w.replace(dest, n)
	}
	return n*(stepsDistance+3*stepsPut) + sortSteps(n)
}

func flushWork(w *weigher, args [][]byte) int {
	if fold(args[0], "FLUSHALL") {
		return w.m.Len() * stepsProbe
	}
	return w.m.dbs[w.db].tree.Len()*stepsProbe + w.m.expiry.count[w.db]*stepsPut
}

func swapWork(w *weigher, args [][]byte) int {
	w.swapped = true
	n := 0
	for _, arg := range args[1:] {
		if db, ok := number.ParseInt(arg); ok && db >= 0 && db < Databases {
			n += w.m.expiry.count[db]
		}
	}
	return 3 * n * stepsPut
}
