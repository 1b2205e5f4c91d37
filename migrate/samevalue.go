package migrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// sameValue reports whether two payloads contain the same value. It ignores the
// order of elements if the type has no order, and the times at which the
// consumers of a stream were last seen.
func sameValue(a, b []byte) bool {
	kindA, partsA, okA := parts(a)
	kindB, partsB, okB := parts(b)
	return okA && okB && kindA == kindB && slices.Equal(partsA, partsB)
}

// parts returns the type and the elements of the value of a payload, in an order that
// depends only on the value.
func parts(payload []byte) (kind rdb.Type, all []string, ok bool) {
	body, ok := rdb.Open(payload)
	if !ok {
		return rdb.Unknown, nil, false
	}
	r := rdb.NewReader(body, pieceLimits)
	switch kind = r.Type(); kind {
	case rdb.String:
		all = append(all, string(r.Text()))
	case rdb.SortedSet:
		r.Scores(func(member []byte, score float64) error {
			all = append(all, fmt.Sprintf("%q %v", member, score))
			return nil
		})
	case rdb.Stream:
		all = streamParts(r)
	default:
		r.Elements(func(name, value []byte) error {
			all = append(all, fmt.Sprintf("%q %q", name, value))
			return nil
		})
	}
	if kind != rdb.List && kind != rdb.Stream {
		slices.Sort(all)
	}
	return kind, all, r.Err() == nil && r.Len() == 0
}

func streamParts(r *rdb.Reader) (all []string) {
	var s stream.Stream
	r.Stream(&s, new(container.Owner), stream.Moment{Wall: time.Now().UnixMilli()})
	all = append(all, fmt.Sprint(s.Info))
	s.Entries.Ascend(0, func(e *stream.Entry) bool {
		all = append(all, fmt.Sprintf("%v %q", e.ID, e.Fields))
		return true
	})
	s.Groups.Ascend(0, func(g *stream.Group) bool {
		all = append(all, fmt.Sprintf("group %q %v %d", g.Name, g.Last, g.Read))
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			all = append(all, fmt.Sprintf("consumer %q", k.Name))
			return true
		})
		g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
			all = append(all, fmt.Sprintf("pending %v %q %d %d", p.ID, p.Consumer, p.At.Wall, p.Deliveries))
			return true
		})
		return true
	})
	return all
}
