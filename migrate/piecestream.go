package migrate

import (
	"time"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// stream writes a stream with its groups. It uses the commands with which Redis
// rewrites its append-only file. It returns the number of entries. A pending
// entry that the stream no longer contains is lost, because XCLAIM does not add
// it to the group.
func (p *pieces) stream(r *rdb.Reader) (entries int, err error) {
	var s stream.Stream
	r.Stream(&s, new(container.Owner), stream.Moment{Wall: time.Now().UnixMilli()})
	if r.Err() != nil {
		return 0, nil // the caller checks r.Err
	}
	if s.Entries.Len() == 0 {
		// XADD creates the stream, and removes the entry at once.
		err = p.do(0, "XADD", p.key, "MAXLEN", 0, last(s.Last), "x", "y")
	}
	s.Entries.Ascend(0, func(e *stream.Entry) bool {
		c := command("XADD", p.key, e.ID.String())
		for _, f := range e.Fields {
			c = append(c, f)
		}
		err = p.do(e.Size(), c...)
		return err == nil
	})
	if err != nil {
		return 0, err
	}
	if err := p.do(0, "XSETID", p.key, s.Last.String(), "ENTRIESADDED", s.Added, "MAXDELETEDID",
		s.MaxDeleted.String()); err != nil {
		return 0, err
	}
	s.Groups.Ascend(0, func(g *stream.Group) bool {
		err = p.group(g)
		return err == nil
	})
	return s.Entries.Len(), err
}

// last returns an ID that XADD accepts: id itself, or another ID if id is 0-0,
// which XADD refuses.
func last(id stream.ID) string {
	if id == (stream.ID{}) {
		id.Seq = 1
	}
	return id.String()
}

// group writes a consumer group.
func (p *pieces) group(g *stream.Group) (err error) {
	if err := p.do(0, "XGROUP", "CREATE", p.key, g.Name, g.Last.String(), "ENTRIESREAD", g.Read); err != nil {
		return err
	}
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		err = p.do(0, "XGROUP", "CREATECONSUMER", p.key, g.Name, k.Name)
		return err == nil
	})
	if err != nil {
		return err
	}
	g.Pending.Ascend(0, func(e *stream.PendingEntry) bool {
		err = p.do(0, "XCLAIM", p.key, g.Name, e.Consumer, 0, e.ID.String(), "TIME", e.At.Wall, "RETRYCOUNT",
			e.Deliveries, "JUSTID", "FORCE")
		return err == nil
	})
	return err
}
