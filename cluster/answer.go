package cluster

import (
	"runtime"
	"slices"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// ended is a call with its outcome.
type ended struct {
	c     *call
	reply []byte
	err   error
}

func endedBy(c *call, r *fsm.GroupResult) ended {
	switch {
	case r.Status == fsm.StatusReplyLost:
		return ended{c: c, err: ErrReplyLost}
	case len(r.Reply) == 0: // every command answers something: see writeStream
		return ended{c: c, err: ErrRefused}
	default:
		return ended{c: c, reply: r.Reply}
	}
}

// minShare is how many calls are worth a goroutine of their own.
const minShare = 8

// shareLocked spreads the calls that an entry has ended over the processors, if
// they are many, and returns what is left to the caller.
func (g *gateway) shareLocked(done []ended) []ended {
	if seeded.On(seeded.CrossedReplies) && len(done) > 1 {
		done[0].reply, done[1].reply = done[1].reply, done[0].reply
	}
	procs := runtime.GOMAXPROCS(0)
	share := max(minShare, (len(done)+procs-1)/procs)
	for len(done) > share {
		part := slices.Clone(done[:share])
		done = done[share:]
		g.answering.Go(func() { answer(part) })
	}
	return done
}

// answer ends calls. The owners send their replies themselves, but each of them
// reads the next command first thing after that; so they would take turns with the
// clients, and wake one for every reply. A client that is one thread for many
// connections, as most are, is woken once for all that is sent in one go. So those
// that allow it (early) are sent their replies here, one after the other, before
// any owner is told. On two processors the kernel then needed a third less time for
// a write.
func answer(done []ended) {
	for i := range done {
		if e := &done[i]; e.err == nil && e.c.early != nil && !fsm.TooLong(e.reply) {
			e.c.early(e.reply)
		}
	}
	for i := range done {
		done[i].c.finish(done[i].reply, done[i].err)
	}
}
