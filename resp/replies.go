package resp

import (
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// A group of reads is run in pieces (fsm.Front). A large reply is not copied:
// it refers to parts of the state, which are written to the socket directly. It
// is charged to the memory of all clients before it is kept: see
// clientmem.Budget. The replies of a group that writes, and of a transaction,
// are complete when they arrive, and are charged then: see writeGroup.

// pieceBytes is the approximate size of the replies of one piece of a group.
const pieceBytes = 256 << 10

const msgNoRoom = "OOM replies that clients have not taken fill the memory for clients (--max-client-memory): not executed, try again later"

// runReads runs a group of reads in pieces and writes its replies.
func (c *conn) runReads() {
	keys := c.track()
	defer c.room(0)
	for pieces := 0; ; pieces++ {
		if pieces > 0 && c.ended() {
			c.trackedPieces(keys)
			c.reset()
			return
		}
		c.batch.front.Most = pieceBytes
		c.group.Front = &c.batch.front
		start := time.Now()
		// Reads while keys are watched are the basis of a transaction, so they
		// must not be stale.
		out, err := c.do(c.local && len(c.tx.watch) == 0)
		took := time.Since(start)
		if err == nil && c.batch.front.Cut() {
			if c.answerPiece(out, took) {
				continue
			}
			c.trackedPieces(keys)
			c.reset()
			c.out.drain()
			return
		}
		if pieces > 0 {
			c.trackedPieces(keys)
			if keys != nil && err == nil {
				out, _, _ = splitPosition(out)
			}
		} else {
			out = c.tracked(keys, out, err)
		}
		c.answerGroup(out, err, took)
		return
	}
}

// answerPiece writes the replies of the operations that ran, and removes those
// operations from the group. It reports whether operations are left.
func (c *conn) answerPiece(out []byte, took time.Duration) (left bool) {
	p := &c.batch.front
	n, large := p.Ops, p.Large
	p.Large = nil
	if large != nil {
		n--
	}
	left = p.Left || large != nil
	c.w.write(out)
	c.srv.metrics.group(c.batch.cmds[:n], took, out)
	if n > 0 {
		c.slow(c.batch.first, n-1, c.batch.cmds[0].Flags&fsm.Fast != 0, took)
		c.batch.first = nil
	}
	if large != nil && !c.ended() {
		size := large.Held()
		switch {
		case size <= c.batch.reserved || c.mem.TryReserve(size-c.batch.reserved):
			c.batch.reserved = max(size, c.batch.reserved)
			c.w.stream(large, c.proto)
		default:
			// The reply is not kept while there is no room: it is read again
			// when there is.
			large = nil
			c.room(0)
			if c.mem.Reserve(size, c.srv.life.stopping) {
				c.batch.reserved = size
				return c.skip(n, true)
			}
			c.w.write(fsm.Error(msgNoRoom).Append(nil, c.proto))
			c.srv.metrics.errors.add(msgNoRoom)
		}
		c.room(0)
		c.srv.metrics.group(c.batch.cmds[n:n+1], took, nil)
		c.slow(c.batch.first, 0, c.batch.cmds[n].Flags&fsm.Fast != 0, took)
		c.batch.first = nil
		left = p.Left
		n++
	}
	return c.skip(n, left)
}

// skip removes n operations that have been answered from the group.
func (c *conn) skip(n int, left bool) bool {
	if !left || c.ended() {
		return false
	}
	if err := c.group.Skip(n); err != nil {
		panic(err) // the connection built the group itself
	}
	c.batch.cmds = append(c.batch.cmds[:0], c.batch.cmds[min(n, len(c.batch.cmds)):]...)
	return true
}

// room sets the number of bytes that are reserved for the next large reply.
func (c *conn) room(n int64) {
	if n != c.batch.reserved {
		c.mem.Add(n - c.batch.reserved)
		c.batch.reserved = n
	}
}

// trackedPieces is tracked for a group that was run in pieces. The pieces read
// at different log indices, so every change since track counts: there may be
// too many invalidations, but never too few.
func (c *conn) trackedPieces(keys []string) {
	if keys != nil {
		c.srv.hub.Settle(c.id, keys, 0, true)
	}
}

// evict closes the connection because of the memory that it takes.
func (c *conn) evict(bytes int64) {
	c.srv.metrics.evicted.Add(1)
	c.srv.refusal("client_memory", "closed a client to free memory for clients", "client", c.id, "addr", c.net.RemoteAddr(), "user", c.userName(), "bytes", bytes, "limit", c.srv.clientMem.Limit())
	c.killed.Store(true)
	c.out.discard()
	c.wakeBlocked(wakeKilled)
	if err := ignoreClosed(c.net.Close()); err != nil {
		c.srv.log.Debug("close client", "client", c.id, "error", err)
	}
}
