package command

import (
	"math"
	"math/bits"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/hll"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file estimates the work of commands whose cost depends on the values of
// their keys. Each function whose name ends in Work returns the part of the
// cost that depends on the values. The constants at the end of the file are
// most of the charges of package command.

// trimWork returns the work of commands that may remove entries from the front
// of a stream.
func trimWork(w *fsm.Weigher, args [][]byte) int {
	xadd := fsm.IsWord(args[0], "XADD")
	n := w.Removable(args[1])
	t, _, _, fail := streamOptions(args, xadd)
	if xadd {
		w.Grow(args[1], fsm.Growth{Added: 1})
	}
	switch {
	case fail.IsError() || t.by == byAny:
		return 0
	case t.by == byRank:
		n = max(n-int(min(t.length, math.MaxInt32)), 0)
	default:
		if o := w.Find(args[1], keyspace.TypeStream); o != nil {
			n += o.Coll.Stream.EntryPosition(t.least) - o.Coll.Len(keyspace.TypeStream)
		}
	}
	if t.approx {
		limit := t.limit
		if limit < 0 {
			limit = 100 * trimBatch
		}
		if limit > 0 {
			n = int(min(int64(n), limit))
		}
		n -= n % trimBatch // whole batches are trimmed, except if all entries are removed
	}
	return n * fsm.StepsProbe
}

// groupIn returns a consumer group and its stream. g is nil if the group does
// not exist. Both are nil if the stream does not exist or is not known: see
// fsm.Weigher.Find.
func groupIn(w *fsm.Weigher, key, name []byte) (o *keyspace.Object, g *stream.Group) {
	if o = w.Find(key, keyspace.TypeStream); o == nil {
		return nil, nil
	}
	at, found := o.Coll.Stream.GroupPosition(string(name))
	if !found {
		return o, nil
	}
	group := o.Coll.Stream.Groups.At(at)
	return o, &group
}

// stepsDelivery is the cost of giving an entry to a consumer.
const stepsDelivery = 3 * fsm.StepsPut

// delivered returns the work of a command that delivers n entries of a stream
// to a consumer and replies with them. from is the position of the first of
// these entries. delivered estimates the size of all entries from the sizes of
// some of them.
func delivered(w *fsm.Weigher, o *keyspace.Object, from, n int) int {
	left, bytes := min(n, sampledEntries), 0
	if left > 0 {
		o.Coll.Stream.Entries.Ascend(from, func(e *stream.Entry) bool {
			for _, f := range e.Fields {
				bytes += len(f)
			}
			left--
			return left > 0
		})
	}
	return n*stepsDelivery + min(bytes/max(min(n, sampledEntries), 1)*n, fsm.MaxReplyBytes)/answerBytes
}

// sampledEntries is the maximum number of entries that are read to estimate the
// average size of all entries.
const sampledEntries = 16

func xreadgroupWork(w *fsm.Weigher, args [][]byte) int {
	q, fail := parseStreams(args, true)
	if fail.IsError() {
		return 0
	}
	steps := 0
	for i, key := range q.keys {
		o, g := groupIn(w, key, q.group)
		n, from := w.Size(key).Elems, 0
		if o != nil {
			n -= o.Coll.Len(keyspace.TypeStream) // n is now the number of entries that earlier commands may add
		}
		switch {
		case g == nil:
		case string(q.ids[i]) == ">":
			from = o.Coll.Stream.EntryPosition(g.Last.Next())
			n += o.Coll.Stream.Entries.Len() - from
		default:
			if at, found := g.ConsumerPosition(string(q.consumer)); found {
				k := g.Consumers.At(at)
				n += k.Pending.Len()
			}
		}
		if q.count > 0 {
			n = int(min(int64(n), q.count))
		}
		if o == nil {
			steps += n * stepsDelivery
			continue
		}
		steps += delivered(w, o, from, n)
	}
	return steps
}

func xautoclaimWork(w *fsm.Weigher, args [][]byte) int {
	count := int64(100)
	for i := 6; i+1 < len(args); i++ {
		if fsm.IsWord(args[i], "COUNT") {
			count, _ = number.ParseInt(args[i+1])
		}
	}
	o, g := groupIn(w, args[1], args[2])
	n, from := w.Removable(args[1]), 0 // all entries of the stream, if the group is not known
	if g != nil {
		if start, fail := intervalStart(args[5]); !fail.IsError() {
			from, _ = g.PendingPosition(start)
		}
		n = g.Pending.Len() - from
	}
	count = min(max(count, 0), int64(n))
	tries := min(10*int(count), n)
	if o == nil {
		return tries*fsm.StepsPut + int(count)*stepsDelivery
	}
	return tries*fsm.StepsPut + delivered(w, o, 0, int(count))
}

// deletesConsumer reports whether an XGROUP command removes the pending entries
// of a consumer, one by one. The other subcommands are cheap.
func deletesConsumer(args [][]byte) bool { return len(args) == 5 && fsm.IsWord(args[1], "DELCONSUMER") }

func xgroupWork(w *fsm.Weigher, args [][]byte) int {
	if !deletesConsumer(args) {
		return 0
	}
	_, g := groupIn(w, args[2], args[3])
	if g == nil {
		return w.Removable(args[2]) * fsm.StepsPut
	}
	at, found := g.ConsumerPosition(string(args[4]))
	if !found {
		return 0
	}
	k := g.Consumers.At(at)
	return k.Pending.Len() * fsm.StepsPut
}

// written returns the work of a command that copies a string to change it. The
// string then has at least end bytes.
func written(w *fsm.Weigher, key []byte, end int) int {
	size := max(w.Size(key).Bytes, min(end, fsm.MaxStringBytes))
	w.Grow(key, fsm.Growth{Bytes: size})
	return size / fsm.WriteBytes
}

func appendWork(w *fsm.Weigher, args [][]byte) int {
	return written(w, args[1], w.Size(args[1]).Bytes+len(args[2]))
}

// setrangeWork returns no work if an argument is invalid. The command then copies
// nothing, and its reply must name the argument, not the limit on the time of a
// write. The same applies to setbitWork and bitfieldWork.
func setrangeWork(w *fsm.Weigher, args [][]byte) int {
	offset, ok := number.ParseInt(args[2])
	if !ok || len(args[3]) == 0 || offset < 0 || offset > fsm.MaxStringBytes-int64(len(args[3])) {
		return 0
	}
	return written(w, args[1], int(offset)+len(args[3]))
}

func setbitWork(w *fsm.Weigher, args [][]byte) int {
	n, ok := bitOffset(args[2])
	if !ok {
		return 0
	}
	return written(w, args[1], n>>3+1)
}

// bitfieldWork returns the work of a BITFIELD command, which follows from the
// length of the string.
func bitfieldWork(w *fsm.Weigher, args [][]byte) int {
	_, end, fail := parseBitOps(args)
	if fail.IsError() {
		return 0
	}
	return written(w, args[1], (end+7)/8)
}

func bitopWork(w *fsm.Weigher, args [][]byte) int {
	longest, steps := 0, 0
	for _, key := range args[3:] {
		size := w.Size(key).Bytes
		longest, steps = max(longest, size), steps+size/fsm.ScanBytes
	}
	w.Grow(args[2], fsm.Growth{Bytes: longest})
	return steps + longest/fsm.WriteBytes
}

// pfaddWork returns the work of copying the registers of a HyperLogLog and of
// raising one register for each element. For few elements, and as long as the value
// is sparse, raising a register costs a walk through its runs.
func pfaddWork(w *fsm.Weigher, args [][]byte) int {
	n, size := len(args)-2, w.Size(args[1]).Bytes
	w.Grow(args[1], fsm.Growth{Bytes: 3 * hllSteps})
	steps := size/fsm.WriteBytes + n*stepsRaise
	if n > hllProbes {
		return steps + hllSteps
	}
	return steps + n*min(size+3*n, hll.SparseMax)/runBytes
}

// pfmergeWork returns the work of reading the registers of all keys, and of raising
// registers of the result. As long as the result is sparse, this moves its runs.
func pfmergeWork(w *fsm.Weigher, args [][]byte) int {
	size := 0
	for _, key := range args[2:] {
		size += w.Size(key).Bytes
	}
	w.Grow(args[1], fsm.Growth{Bytes: 3 * hllSteps})
	return hllSteps*len(args) + min(size, hll.SparseMax)/2*stepsMove
}

// pfdebugWork returns the work of a reply with one number for each register.
func pfdebugWork(*fsm.Weigher, [][]byte) int { return hll.Registers * stepsBuild }

// answerBytes is the number of bytes of a reply that one step produces. A reply
// is copied twice into new memory, and its checksum is computed.
const answerBytes = 16

// valueWork returns the work of a command that replies with the values of all
// its keys.
func valueWork(w *fsm.Weigher, args [][]byte) int {
	steps := 0
	last := 2
	if fsm.IsWord(args[0], "MGET") {
		last = len(args)
	}
	for _, key := range args[1:last] {
		steps += w.Size(key).Bytes / answerBytes
	}
	if fsm.IsWord(args[0], "GETSET") {
		w.Grow(args[1], fsm.Growth{Bytes: len(args[2])})
	}
	return steps
}

func setWork(w *fsm.Weigher, args [][]byte) int {
	steps := 0
	for _, arg := range args[3:] {
		if fsm.IsWord(arg, "GET") {
			steps = w.Size(args[1]).Bytes / answerBytes
		}
	}
	w.Grow(args[1], fsm.Growth{Bytes: len(args[2])})
	return steps
}

func fieldWork(w *fsm.Weigher, args [][]byte) int {
	o := w.Object(args[1])
	if o == nil || o.Type != keyspace.TypeHash {
		return 0
	}
	steps := 0
	for _, field := range args[2:] {
		v, _ := o.Coll.Hash.Get(codec.View(field))
		steps += stepsFind(&o.Coll.Hash) + len(v)/answerBytes
	}
	return steps
}

// copyWork returns the work of a command that gives the value of a key to another
// key. The command itself costs little, except for a lock: each holder of the lock
// gets a new token. copyWork also records the size of the value, because later
// commands may use the value at the new key.
func copyWork(w *fsm.Weigher, args [][]byte) int { return giveWork(w, args[1], args[2]) }

// moveWork is like copyWork, for a key of the same name in another database.
func moveWork(w *fsm.Weigher, args [][]byte) int { return giveWork(w, args[1], args[1]) }

func giveWork(w *fsm.Weigher, from, to []byte) int {
	size := w.Size(from)
	w.Grow(to, fsm.Growth{Other: size.Elems, Bytes: size.Bytes})
	if w.Find(from, keyspace.TypeLock) == nil {
		return 0
	}
	return size.Elems * 3 * fsm.StepsPut
}

// restoreWork estimates the work from the number of elements in the payload and
// from the size of the value. The payload may be compressed: a payload of a few
// kilobytes may have 100,000 elements.
func restoreWork(w *fsm.Weigher, args [][]byte) int {
	v := rdb.Weigh(args[3], fsm.RestoreLimits)
	w.Grow(args[1], fsm.Growth{Other: v.Elements, Bytes: v.Bytes})
	each := restoredSteps(rdb.NewReader(args[3], fsm.RestoreLimits).Type())
	return v.Elements*each + v.Bytes/fsm.ScanBytes // includes reading the payload
}

// restoredSteps returns the cost of adding an element to a collection that is
// restored. A list needs no index.
func restoredSteps(t rdb.Type) int {
	if t == rdb.List {
		return stepsBuild
	}
	return fsm.StepsPut
}

func sortingWork(w *fsm.Weigher, args [][]byte) int {
	n := w.Size(args[1]).Elems
	steps := 0
	for i := 2; i < len(args); i++ {
		switch {
		case i+1 < len(args) && fsm.IsWord(args[i], "STORE"):
			w.Grow(args[i+1], fsm.Growth{Other: n})
			steps += n * stepsBuild
		case i+1 < len(args) && (fsm.IsWord(args[i], "GET") || fsm.IsWord(args[i], "BY")):
			steps += n * fsm.StepsProbe
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
func walkWork(w *fsm.Weigher, args [][]byte) int {
	steps := 2
	if fsm.IsWord(args[0], "LREM") {
		steps += fsm.StepsPut / 4 // LREM may remove any of the elements
	} else {
		w.Grow(args[1], fsm.Growth{Added: 1})
	}
	return w.Size(args[1]).Elems * steps
}

func ltrimWork(w *fsm.Weigher, args [][]byte) int {
	n := w.Removable(args[1]) + 1
	start, _ := number.ParseInt(args[2])
	end, _ := number.ParseInt(args[3])
	from, to := span(start, end, n)
	return min(fsm.StepsPut*(n-(to-from)), stepsBuild*(to-from))
}

// popWork returns the work of a command that removes elements and replies with
// them. The command removes one element, or as many as its last argument says.
func popWork(w *fsm.Weigher, args [][]byte) int {
	count := int64(1)
	if len(args) > 2 {
		count, _ = number.ParseInt(args[2])
	}
	return taken(w, args[1], count)
}

// bpopWork returns the work of a command that takes one element from the first
// key that has elements.
func bpopWork(w *fsm.Weigher, args [][]byte) int { return takenFirst(w, args[1:len(args)-1], 1) }

// mpopWork is like bpopWork, for commands with a COUNT.
func mpopWork(w *fsm.Weigher, args [][]byte) int {
	count, at := int64(1), 1
	if n := len(args); fsm.IsWord(args[n-2], "COUNT") {
		count, _ = number.ParseInt(args[n-1])
	}
	if c := args[0][0]; c == 'b' || c == 'B' { // in BLMPOP and BZMPOP, the number of keys follows the timeout
		at = 2
	}
	keys := numberedKeys(args, at)
	return takenFirst(w, args[at+1:at+1+len(keys)], count)
}

// takenFirst returns the work of taking elements from the first key that has
// some. It returns the maximum over all keys, because earlier commands may add
// and remove elements and so decide which key is the first.
func takenFirst(w *fsm.Weigher, keys [][]byte, count int64) int {
	most := 0
	for _, key := range keys {
		most = max(most, taken(w, key, count))
	}
	return most
}

// sampled is the maximum number of elements at each end of a list whose lengths
// are added to estimate the size of a reply.
const sampled = 1024

// taken returns the work of taking count elements from a key and replying with
// them.
func taken(w *fsm.Weigher, key []byte, count int64) int {
	n := int(min(max(count, 0), int64(w.Size(key).Elems)))
	if o := w.Find(key, keyspace.TypeList); o != nil {
		list := &o.Coll.List
		return n*fsm.StepsPut + atEnds(list, n, func(s *string) int { return len(*s) })/answerBytes
	}
	// The value is a set or a sorted set, or its type is not known. A sorted set
	// keeps each member in two orders.
	steps := n * 6 * fsm.StepsPut
	if o := w.Find(key, keyspace.TypeZSet); o != nil {
		steps += atEnds(&o.Coll.Order, n, func(m *container.Scored) int { return len(m.Member) }) / answerBytes
	}
	if o := w.Find(key, keyspace.TypeSet); o != nil {
		steps += inSet(&o.Coll.Set, n) / answerBytes
	}
	return steps
}

// atEnds returns the bytes of the first n and the last n elements of a sequence, or
// of sampled elements at each end if n is larger. It returns at most the maximum
// size of a reply.
func atEnds[T any](all *container.Seq[T], n int, size func(*T) int) int {
	if n == 0 {
		return 0
	}
	left, bytes := min(n, sampled), 0
	look := func(e *T) bool {
		bytes += size(e)
		left--
		return left > 0
	}
	all.Ascend(0, look)
	left = min(n, sampled)
	all.Descend(all.Len()-1, look)
	return min(bytes, fsm.MaxReplyBytes)
}

// inSet returns the approximate number of bytes of n random members of a set. It
// looks at some members at equal distances.
func inSet(set *container.Dict[struct{}], n int) int {
	looks := min(set.Len(), max(8, min(n, 128)))
	if looks == 0 || n == 0 {
		return 0
	}
	bytes := 0
	for i := range looks {
		bytes += len(set.At(i * set.Len() / looks).Name)
	}
	return min(bytes*n/looks, fsm.MaxReplyBytes)
}

func lmoveWork(w *fsm.Weigher, args [][]byte) int {
	steps := taken(w, args[1], 1)
	w.Grow(args[2], fsm.Growth{Added: 1})
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

func setStoreWork(w *fsm.Weigher, args [][]byte) int {
	keys := distinctKeys(args[2:])
	sum, least, first, most := 0, math.MaxInt, 0, 0
	for i, key := range keys {
		n := w.Size(key).Elems
		if i == 0 {
			first = n
		}
		sum, least, most = sum+n, min(least, n), max(most, n)
	}
	probes := fsm.StepsProbe * (len(keys) - 1)
	switch {
	case len(args) == 3: // there is one source; if it is large, the result shares the tree nodes of the source
		replaceKey(w, args[1], sum)
		return min(sum, fewMembers) * fsm.StepsPut
	case !fsm.IsWord(args[0], "SUNIONSTORE"):
	case most <= fewMembers: // the union may be built member by member
		replaceKey(w, args[1], sum)
		return fsm.StepsPut*(sum-first) + (2+fsm.StepsPut)*sum
	default:
		replaceKey(w, args[1], sum)
		return sum * (1 + stepsBuild + stepsMerge*(1+bits.Len(uint(len(keys)-1))))
	}
	if fsm.IsWord(args[0], "SINTERSTORE") {
		replaceKey(w, args[1], least)
		return least*(1+probes+stepsBuild) + min(least, fewMembers)*fsm.StepsPut
	}
	replaceKey(w, args[1], first)
	return differenceWork(first, sum, len(keys)) + first*(1+stepsBuild) + min(first, fewMembers)*fsm.StepsPut
}

// fewMembers is the maximum number of members that the estimates count as added
// one by one. It is larger than the size above which sets are built as a whole,
// because earlier commands may make a set smaller.
const fewMembers = 1024

// differenceWork returns the cost of finding a difference. Either the members of the
// first set are looked up in each other set, or the other sets are united
// first, whichever costs less.
func differenceWork(first, sum, sets int) int {
	return min(first*fsm.StepsProbe*sets, 2*fsm.StepsPut*sum) + first*fsm.StepsPut
}

// replaceKey records that a key may receive a result of n elements.
func replaceKey(w *fsm.Weigher, key []byte, n int) { w.Grow(key, fsm.Growth{Other: n}) }

func zsetStoreWork(w *fsm.Weigher, args [][]byte) int {
	keys := numberedKeys(args, 2)
	if len(keys) == 0 {
		return 0
	}
	sum, least, first := 0, math.MaxInt, w.Size(args[keys[0]]).Elems
	for _, i := range keys {
		n := w.Size(args[i]).Elems
		sum, least = sum+n, min(least, n)
	}
	few := min(sum, fewMembers) * 2 * fsm.StepsPut
	switch {
	case len(args) == 4 && w.Find(args[keys[0]], keyspace.TypeZSet) != nil: // the result shares the source's tree nodes
		replaceKey(w, args[1], sum)
		return few
	case fsm.IsWord(args[0], "ZUNIONSTORE"):
		replaceKey(w, args[1], sum)
		return sum*(2+fsm.StepsProbe+stepsScore) + few
	case fsm.IsWord(args[0], "ZINTERSTORE"):
		replaceKey(w, args[1], least)
		return least*(1+fsm.StepsProbe*len(keys)+stepsScore) + few
	}
	replaceKey(w, args[1], first)
	return differenceWork(first, sum, len(keys)) + first*stepsScore + few
}

func zrangestoreWork(w *fsm.Weigher, args [][]byte) int {
	n := w.Size(args[2]).Elems
	if q, fail := parseRange(args[3:], byAny, false, true, true); !fail.IsError() {
		if q.by == byRank {
			from, to := span(q.start, q.end, n)
			n = to - from
		} else if q.limit >= 0 {
			n = int(min(q.limit, int64(n)))
		}
	}
	replaceKey(w, args[1], n)
	return n*(1+stepsScore) + min(n, fewMembers)*2*fsm.StepsPut
}

func zremWork(w *fsm.Weigher, args [][]byte) int {
	n := w.Removable(args[1]) + 1
	switch {
	case fsm.IsWord(args[0], "ZREMRANGEBYRANK"):
		start, _ := number.ParseInt(args[2])
		end, _ := number.ParseInt(args[3])
		from, to := span(start, end, n)
		n = to - from
	case fsm.IsWord(args[0], "ZREMRANGEBYSCORE"):
		o := w.Find(args[1], keyspace.TypeZSet)
		if r, fail := scoreRange(args[2], args[3]); o != nil && !fail.IsError() {
			from, to := r.in(o.Coll)
			// n becomes the number of members in the range, plus the number of those
			// that earlier commands may add.
			n += to - from - o.Coll.Len(keyspace.TypeZSet)
		}
	}
	return min(n*2*fsm.StepsPut, w.Size(args[1]).Elems*2*stepsBuild+2*fsm.StepsPut)
}

func geosearchstoreWork(w *fsm.Weigher, args [][]byte) int { return geoWork(w, args[2], args[1]) }

func georadiusWork(w *fsm.Weigher, args [][]byte) int { return geoWork(w, args[1], nil) }

// geoWork returns the work of a search whose result may contain all points.
// dest is the key that receives the result, or nil if this key is not known.
func geoWork(w *fsm.Weigher, from, dest []byte) int {
	n := w.Size(from).Elems
	if dest != nil {
		replaceKey(w, dest, n)
	}
	return n*(stepsDistance+3*fsm.StepsPut) + sortSteps(n)
}

func flushWork(w *fsm.Weigher, args [][]byte) int {
	return w.FlushWork(fsm.IsWord(args[0], "FLUSHALL"))
}

func swapWork(w *fsm.Weigher, args [][]byte) int {
	steps := 0
	for _, arg := range args[1:] {
		if db, ok := number.ParseInt(arg); ok && db >= 0 && db < fsm.Databases {
			steps += w.SwapWork()
		}
	}
	return steps
}

func neverDepends(args [][]byte) bool { return false }

// setDepends reports whether a SET replies with the previous value.
func setDepends(args [][]byte) bool {
	return slices.ContainsFunc(args[3:], func(arg []byte) bool { return fsm.IsWord(arg, "GET") })
}

// xaddDepends reports whether an XADD trims the stream.
func xaddDepends(args [][]byte) bool {
	t, _, _, fail := streamOptions(args, true)
	return !fail.IsError() && t.by != byAny
}

// These are the charges for frequent operations of the commands. A constant is
// a number of steps if its name begins with steps or ends in Steps, and
// otherwise a number of bytes. Package fsm has the charges that the state
// machine uses too.
const (
	stepsDraw = 8 // the cost of going to a random position
	// stepsMember is the cost of a member of a set in the arguments of a
	// command that adds or removes members.
	stepsMember = 176
	// stepsField is the cost of a field or a value of a hash in the arguments
	// of a command. stepsRemove is the cost of a field that is removed.
	stepsField  = 72
	stepsRemove = 144
	// stepsName is the cost of an argument that costs less than fsm.StepsPut,
	// such as an element of a list. stepsKey is the cost of a key that is
	// removed.
	stepsName = 40
	stepsKey  = 192
	// stepsLeased is the cost of a key or a value of a command that writes many
	// keys with a time to live.
	stepsLeased = 112
	// stepsScored is the cost of a score or a member of a sorted set in the
	// arguments of a command that may have many of them. stepsPoint is the cost
	// of one of the three arguments of a point, and stepsUnscored is the cost of a
	// member, or of a pending entry of a stream, that is removed. stepsClaim is the
	// cost of a pending entry that gets another consumer.
	stepsScored   = 144
	stepsPoint    = 104
	stepsUnscored = 224
	stepsClaim    = 512
	// stepsMerge is the cost of comparing the first elements of two sorted
	// sequences and copying one of these elements.
	stepsMerge = 3
	// stepsBuild is the cost of appending an element to a new sequence.
	stepsBuild = 8
	// stepsScore is the cost of adding a member to a new sorted set that is
	// built as a whole. The members are sorted twice, by score and by hash.
	stepsScore = 48
	// stepsDistance is the cost of deciding whether a point is in an area.
	stepsDistance = 16
	// hllSteps is the cost of reading all registers of a HyperLogLog.
	hllSteps = 4096
	// stepsRaise is the cost of raising a register of a HyperLogLog, apart from
	// the search for the register.
	stepsRaise = 80
	// stepsMove is the cost of moving the runs behind a register that is raised.
	stepsMove = 16
	// runBytes is the number of bytes of a sparse HyperLogLog that a search for a
	// register reads in one step. A byte or two are one run.
	runBytes = 6
	// stepsCompare is the cost of comparing two elements of a SORT.
	stepsCompare = 2
	// sortedBytes is the memory of an element of a SORT.
	sortedBytes = 64
	// scoreBytes is the memory of a member and its score while scores are
	// added.
	scoreBytes = 128
	// geoPointBytes is the memory of a point that a search has found.
	geoPointBytes = 96
	// replyBytes is the memory of one reply without its text.
	replyBytes = 80
)

// chargeCompared charges for comparing an element with an argument. Only texts
// of the same length are compared byte by byte.
func chargeCompared(c *fsm.Ctx, element *string, arg []byte) {
	if len(*element) == len(arg) {
		c.Charge(1 + len(arg)/fsm.CopyBytes)
		return
	}
	c.Charge(1)
}

// chargeSort charges for sorting n items.
func chargeSort(c *fsm.Ctx, n int) { c.Charge(2 * n * bits.Len(uint(n))) }
