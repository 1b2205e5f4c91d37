package cluster

import (
	"runtime"
	"slices"

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
	// An empty reply means that the leader does not know a command, because
	// every command has a reply: see writeStream.
	case len(r.Reply) == 0:
		return ended{c: c, err: ErrRefused}
	default:
		return ended{c: c, reply: r.Reply}
	}
}

// minShare is the smallest number of calls that is worth its own goroutine.
const minShare = 8

// shareLocked distributes the calls that an entry has ended over the
// processors, if there are many, and returns the calls that are left for the
// caller to answer. mu must be held.
func (fw *forwarder) shareLocked(done []ended) []ended {
	procs := runtime.GOMAXPROCS(0)
	share := max(minShare, (len(done)+procs-1)/procs)
	for len(done) > share {
		part := slices.Clone(done[:share])
		done = done[share:]
		fw.answering.Go(func() { answer(part) })
	}
	return done
}

// answer ends calls. For calls with an early function, it first sends all
// replies, one after another, and only then wakes the goroutines that wait for
// the calls.
//
// If each waiting goroutine sent its own reply, it would then read its next
// command, so the goroutines would alternate with the clients and wake a client
// for every reply. Most clients use one thread for many connections, and such a
// client is woken once for all replies that are sent together. On two
// processors this reduced the kernel's time for a write by a third.
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
