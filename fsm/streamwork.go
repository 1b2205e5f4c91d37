package fsm

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file estimates the work of commands on streams and their consumer
// groups.

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
		if o := w.find(args[1], typeStream); o != nil {
			n += o.coll.stream.EntryPosition(t.least) - o.coll.Len(typeStream)
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
func (w *weigher) groupIn(key, name []byte) (o *object, g *stream.Group) {
	if o = w.find(key, typeStream); o == nil {
		return nil, nil
	}
	at, found := o.coll.stream.GroupPosition(string(name))
	if !found {
		return o, nil
	}
	group := o.coll.stream.Groups.At(at)
	return o, &group
}

// stepsDelivery is the cost of giving an entry to a consumer.
const stepsDelivery = 3 * stepsPut

// delivered returns the work of giving n entries of a stream, starting at a
// position, to a consumer and replying with them. It estimates the size of all
// entries from the sizes of some of them.
func (w *weigher) delivered(o *object, from, n int) int {
	left, bytes := min(n, sampledEntries), 0
	if left > 0 {
		o.coll.stream.Entries.Ascend(from, func(e *stream.Entry) bool {
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
			n -= o.coll.Len(typeStream) // entries added since may be new to the group
		}
		switch {
		case g == nil:
		case string(q.ids[i]) == ">":
			from = o.coll.stream.EntryPosition(g.Last.Next())
			n += o.coll.stream.Entries.Len() - from
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
