package fsm

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file has the estimates: for each command, the part of its work that
// depends on what its keys hold.

// trimWork returns the work of commands that may remove entries from the front
// of a stream.
func trimWork(w *weigher, args [][]byte) int {
	xadd := fold(args[0], "XADD")
	n := w.left(args[1])
	t, _, _, fail := streamOptions(args, xadd)
	if xadd {
		w.grow(args[1], growth{added: 1})
	}
	switch {
	case fail.IsError() || t.by == byAny:
		return 0
	case t.by == byRank:
		n = max(n-int(min(t.length, math.MaxInt32)), 0)
	default:
		if o := w.find(args[1], keyspace.TypeStream); o != nil {
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
		n -= n % trimBatch // only whole batches are trimmed
	}
	return n * stepsProbe
}

// groupIn returns a consumer group, or nil if the group does not exist or is
// not known.
func (w *weigher) groupIn(key, name []byte) (o *keyspace.Object, g *stream.Group) {
	if o = w.find(key, keyspace.TypeStream); o == nil {
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
const stepsDelivery = 3 * stepsPut

// delivered returns the work of giving n entries of a stream, starting at a
// position, to a consumer and replying with them. It estimates the size of all
// entries from the sizes of some of them.
func (w *weigher) delivered(o *keyspace.Object, from, n int) int {
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
	return n*stepsDelivery + min(bytes/max(min(n, sampledEntries), 1)*n, MaxReplyBytes)/answerBytes
}

// sampledEntries is how many entries are looked at to estimate their length.
const sampledEntries = 16

func xreadgroupWork(w *weigher, args [][]byte) int {
	q, fail := parseStreams(args, true)
	if fail.IsError() {
		return 0
	}
	steps := 0
	for i, key := range q.keys {
		o, g := w.groupIn(key, q.group)
		n, from := w.size(key).elems, 0
		if o != nil {
			n -= o.Coll.Len(keyspace.TypeStream) // entries added since may be new to the group
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
		steps += w.delivered(o, from, n)
	}
	return steps
}

func xautoclaimWork(w *weigher, args [][]byte) int {
	count := int64(100)
	for i := 6; i+1 < len(args); i++ {
		if fold(args[i], "COUNT") {
			count, _ = number.ParseInt(args[i+1])
		}
	}
	o, g := w.groupIn(args[1], args[2])
	n, from := w.left(args[1]), 0 // all entries of the stream, if the group is not known
	if g != nil {
		if start, fail := intervalStart(args[5]); !fail.IsError() {
			from, _ = g.PendingPosition(start)
		}
		n = g.Pending.Len() - from
	}
	count = min(max(count, 0), int64(n))
	tries := min(10*int(count), n)
	if o == nil {
		return tries*stepsPut + int(count)*stepsDelivery
	}
	return tries*stepsPut + w.delivered(o, 0, int(count))
}

// deletesConsumer reports whether an XGROUP command removes the pending entries
// of a consumer, one by one. The other subcommands are cheap.
func deletesConsumer(args [][]byte) bool { return len(args) == 5 && fold(args[1], "DELCONSUMER") }

func xgroupWork(w *weigher, args [][]byte) int {
	if !deletesConsumer(args) {
		return 0
	}
	_, g := w.groupIn(args[2], args[3])
	if g == nil {
		return w.left(args[2]) * stepsPut
	}
	at, found := g.ConsumerPosition(string(args[4]))
	if !found {
		return 0
	}
	k := g.Consumers.At(at)
	return k.Pending.Len() * stepsPut
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
	o := w.m.dbs[w.db].Get(args[1])
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
	o := w.find(key, keyspace.TypeList)
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
		o.Coll.List.Ascend(0, look)
		left = min(n, sampled)
		o.Coll.List.Descend(o.Coll.List.Len()-1, look)
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
		o := w.find(args[1], keyspace.TypeZSet)
		if r, fail := scoreRange(args[2], args[3]); o != nil && !fail.IsError() {
			from, to := r.in(o.Coll)
			n += to - from - o.Coll.Len(keyspace.TypeZSet) // all elements added since may be in the range
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
	return w.m.dbs[w.db].Len()*stepsProbe + w.m.expiry.CountIn(w.db)*stepsPut
}

func swapWork(w *weigher, args [][]byte) int {
	w.swapped = true
	n := 0
	for _, arg := range args[1:] {
		if db, ok := number.ParseInt(arg); ok && db >= 0 && db < Databases {
			n += w.m.expiry.CountIn(int(db))
		}
	}
	return 3 * n * stepsPut
}
