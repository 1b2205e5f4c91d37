package resp

import (
	"bytes"
	"errors"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/metrics"
)

// Limits of a group. A longer pipeline is executed as several groups.
const (
	maxGroupBytes = 64 << 10
	maxGroupOps   = 1024
)

// batch contains the state that a connection needs to build groups and to run
// them.
type batch struct {
	rows      []*row   // commands of the group, for metrics
	audited   [][]byte // arguments of the group's only command, if it belongs in the audit log
	first     [][]byte // arguments of the group's first command, for the slow log
	reads     []string // keys that the group reads and that tracking will remember
	splitting splitting
	// ownEvents is the result of mayCauseOwnEvents when the group was sent.
	ownEvents bool
	front     fsm.Front
	// traced are the groups of the pipeline that are traced and whose replies have
	// not been passed to the socket yet.
	traced []tracedGroup
	parsed int64    // bytes of all commands of this connection that redcon or the method more has parsed
	args   [][]byte // memory that the method cut reuses
	// shortReplies is true if the replies of the last group that wrote were less
	// than half as long as its commands.
	shortReplies bool
	// reserved is the part of conn.mem for a large reply. It can be set before the
	// reply exists: see answerPiece.
	reserved int64
}

// flush runs the group and writes its replies.
func (c *conn) flush() {
	if c.group.Ops() == 0 {
		return
	}
	if c.ended() { // the client would get no replies
		c.reset()
		return
	}
	c.activity.doing.Store(&c.batch.rows[len(c.batch.rows)-1].stats.Name)
	c.exec.begin()
	if !c.group.Write {
		c.runReads()
		return
	}
	for c.runWrites() {
	}
}

// runWrites runs a group that writes, and writes its replies. It reports whether
// the group must be run again. That is the case if the group is a script that was
// executed as a read, and if its large reply was dropped because there was no room
// for it at first. Such a script has changed nothing.
func (c *conn) runWrites() (again bool) {
	tracked := c.track()
	if c.group.Ops() == 1 && c.batch.rows[0].has(fsm.MayWrite) && c.batch.audited == nil {
		c.batch.front.Most = pieceBytes
		c.group.Front = &c.batch.front
	}
	start := time.Now()
	out, err := c.do(false)
	if err == nil && c.group.Front.Cut() {
		c.updateSplitting(0)
		c.batch.shortReplies = false
		if c.answerPiece(out, time.Since(start)) {
			c.exec.begin() // the script has changed nothing
			return true
		}
		c.setReserved(0)
		c.reset()
		c.out.Drain()
		return false
	}
	c.setReserved(0)
	c.updateSplitting(len(out))
	c.batch.shortReplies = err == nil && 2*len(out) < c.group.Size()
	out = c.tracked(tracked, out, err)
	c.answerGroup(out, err, time.Since(start))
	return false
}

// flushLast flushes the group at the end of a pipeline. If the group writes,
// and the pipeline has no other replies, the goroutine that delivers the
// replies of the group may send them to the client: see output.Writer.
func (c *conn) flushLast() {
	c.w.AllowEarly(!c.w.Sent() && c.group.Write && !c.w.Silent())
	c.flush()
	c.w.AllowEarly(false)
}

// more runs the commands of a long pipeline that redcon has not read yet, because
// redcon reads only 4 KiB at a time. These commands then share a group with the
// commands before them. received is the number of bytes of the commands that redcon
// has read. more returns the number of bytes of the commands that it has run.
//
// Only writes gain from larger groups, because each group that writes waits for the
// disks and for other nodes. But the state machine keeps the replies of a group
// only up to 64 KiB, and without these replies a client does not learn the outcome
// after a failover. So the method more does nothing unless the replies of the last
// group that wrote were short.
func (c *conn) more(received int) (total int) {
	c.batch.parsed += int64(received)
	g, ok := c.net.(*guard.Conn)
	for ok && c.batch.shortReplies && c.group.Write && c.tx.multi == nil && !c.ended() {
		packet := g.More(maxGroupBytes-received-total, c.batch.parsed)
		if packet == nil {
			break
		}
		for len(packet) > 0 && !c.ended() {
			var cmd redcon.Command
			cmd, packet = c.batch.cut(packet)
			total += len(cmd.Raw)
			c.batch.parsed += int64(len(cmd.Raw))
			c.activity.commands.Add(1)
			c.command(cmd.Args)
		}
	}
	return total
}

// cut parses the first command of a packet and returns the rest. The command gets
// its own memory, because a connection may keep it longer than the packet.
func (b *batch) cut(packet []byte) (cmd redcon.Command, rest []byte) {
	ok, args, _, rest, err := redcon.ReadNextCommand(packet, b.args)
	if err != nil || !ok {
		panic("the guard returned an invalid command") // closes the connection: see recover
	}
	cmd.Raw = bytes.Clone(packet[:len(packet)-len(rest)])
	cmd.Args = make([][]byte, len(args))
	for i, a := range args {
		at := cap(packet) - cap(a)
		cmd.Args[i] = cmd.Raw[at : at+len(a) : at+len(a)]
	}
	clear(args) // otherwise they keep the packet in memory
	if b.args = args; cap(args) > maxGroupOps {
		b.args = nil
	}
	return cmd, rest
}

// answerGroup writes the replies of the group and empties it. If err is not
// nil, it writes the error for each command instead. d is how long the group
// took.
func (c *conn) answerGroup(out []byte, err error, d time.Duration) {
	if c.batch.audited != nil {
		c.auditGroup(out, err)
	}
	if err != nil {
		text := errorText(err)
		line := fsm.Error(text).Append(nil, c.proto)
		for range c.batch.rows {
			c.w.Write(line)
		}
		c.srv.metrics.FailedGroup(len(c.batch.rows), seriesOf(c.batch.rows), d, text)
		c.done = c.done || errors.Is(err, outcome.ErrAbandoned)
	} else {
		c.writeGroup(c.w.Rest(out))
		c.srv.countGroup(c.batch.rows, d, out)
	}
	if len(c.batch.rows) > 0 {
		r := c.batch.rows[0]
		c.slow(r, c.batch.first, len(c.batch.rows)-1, r.has(fsm.Fast), d)
	}
	c.reset()
	c.out.Drain()
}

// reset empties the group.
func (c *conn) reset() {
	c.group.Reset(c.proto, c.id)
	c.batch.rows, c.batch.first, c.batch.reads = c.batch.rows[:0], nil, c.batch.reads[:0]
	c.batch.audited = nil
}

// do runs the group. If a CLIENT PAUSE delays the group, do first waits for the
// end of the pause.
func (c *conn) do(local bool) ([]byte, error) {
	if err := c.waitPause(c.group.Write); err != nil {
		return nil, err
	}
	c.pieces = nil
	c.batch.ownEvents = c.group.Write && c.mayCauseOwnEvents()
	defer c.trace(time.Now())
	if !c.batch.ownEvents {
		return c.exec.Do(&c.group, local, c.w.Early())
	}
	out, err := c.exec.Do(&c.group, local, nil) // replies must not be sent early: see ownevents.go
	if err == nil {
		c.awaitOwnEvents()
	}
	return out, err
}

// tracedGroup is a traced group that do has run.
type tracedGroup struct {
	number         uint64 // 0 if it was not sent through the log
	command        string
	begun, replied time.Time
}

// maxTraced is the largest number of traced groups for which a connection keeps
// memory between pipelines.
const maxTraced = 16

// trace remembers the group if it is traced. The group began at the given time and
// has its replies now. If a group was run in pieces, trace remembers the attempt to
// run it as a whole.
func (c *conn) trace(begun time.Time) {
	number, _ := c.exec.Sent()
	if number == 0 && c.group.Write || !c.exec.Traced(number) {
		return
	}
	name := "exec"
	if len(c.batch.rows) > 0 {
		name = c.batch.rows[0].stats.Name
	}
	c.batch.traced = append(c.batch.traced, tracedGroup{number, name, begun, time.Now()})
}

// recordTraces records the traces of groups whose replies have been passed to the
// socket.
func (c *conn) recordTraces() {
	if len(c.batch.traced) == 0 {
		return
	}
	now := time.Now()
	for _, g := range c.batch.traced {
		c.exec.Trace(g.number, g.command, g.begun, g.replied, now)
	}
	if c.batch.traced = c.batch.traced[:0]; cap(c.batch.traced) > maxTraced {
		c.batch.traced = nil
	}
}

// A group of reads is run in pieces (fsm.Front). A large reply refers to parts of
// the state. It is encoded and sent piece by piece, so it is never copied as a
// whole. It is charged to the memory of all clients before the connection keeps it:
// see clientmem.Budget. The same is true for the reply of a script that is executed
// as a read: see cluster.Session.Do. The replies of other groups that write, and of
// transactions, are complete when they arrive, and are charged then.

// pieceBytes is the approximate maximum size of the replies of one piece of a
// group, not counting a large reply at its end.
const pieceBytes = 256 << 10

const msgNoRoom = "OOM the memory for clients (--max-client-memory) has no room for the reply: " +
	"not executed, try again later"

// runReads runs a group of reads in pieces and writes its replies.
func (c *conn) runReads() {
	keys := c.track()
	defer c.setReserved(0)
	for pieces := 0; ; pieces++ {
		if pieces > 0 && c.ended() {
			c.trackedPieces(keys)
			c.reset()
			return
		}
		c.batch.front.Most = pieceBytes
		c.group.Front = &c.batch.front
		start := time.Now()
		// A client that watches keys may compute a transaction from its reads,
		// so these reads must not be stale.
		out, err := c.do(c.local && len(c.tx.watch) == 0)
		took := time.Since(start)
		if err == nil && c.batch.front.Cut() {
			if c.answerPiece(out, took) {
				continue
			}
			c.trackedPieces(keys)
			c.reset()
			c.out.Drain()
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
	c.w.Write(out)
	c.srv.countGroup(c.batch.rows[:n], took, out)
	if n > 0 {
		r := c.batch.rows[0]
		c.slow(r, c.batch.first, n-1, r.has(fsm.Fast), took)
		c.batch.first = nil
	}
	if large != nil && !c.ended() {
		size := large.Held()
		switch {
		case size <= c.batch.reserved || c.mem.TryReserve(size-c.batch.reserved):
			c.batch.reserved = max(size, c.batch.reserved)
			c.w.Stream(large, c.proto)
		default:
			// There is no room for the reply, so it is dropped. When there is room,
			// the command is executed again.
			large = nil
			c.setReserved(0)
			if c.mem.Reserve(size, c.srv.life.stopping) {
				c.batch.reserved = size
				return c.skip(n, true)
			}
			c.w.Write(fsm.Error(msgNoRoom).Append(nil, c.proto))
			c.srv.metrics.Error(msgNoRoom)
		}
		c.setReserved(0)
		c.srv.countGroup(c.batch.rows[n:n+1], took, errorStart(large))
		r := c.batch.rows[n]
		c.slow(r, c.batch.first, 0, r.has(fsm.Fast), took)
		c.batch.first = nil
		left = p.Left
		n++
	}
	return c.skip(n, left)
}

// errorStart returns the beginning of a reply if the reply is an error, and
// otherwise nil. The metrics need no more of an error than its first word.
func errorStart(reply *fsm.Reply) []byte {
	if reply == nil || !reply.IsError() {
		return nil
	}
	text := reply.Text()
	return fsm.Error(text[:min(len(text), 100)]).Append(nil, 2)
}

// countGroup records a group that took d. out contains the replies, one for each
// command.
func (s *Server) countGroup(rows []*row, d time.Duration, out []byte) {
	s.metrics.Group(len(rows), seriesOf(rows), d, out)
}

// seriesOf returns a function that returns the metrics of the row with index i.
func seriesOf(rows []*row) func(i int) *metrics.Series {
	return func(i int) *metrics.Series { return rows[i].stats }
}

// skip removes the first n operations, which have been answered, from the
// group. left says whether the group has other operations. skip reports whether
// the connection must run them.
func (c *conn) skip(n int, left bool) bool {
	if !left || c.ended() {
		return false
	}
	if err := c.group.Skip(n); err != nil {
		panic(err) // cannot happen: the connection built the group itself
	}
	c.batch.rows = append(c.batch.rows[:0], c.batch.rows[min(n, len(c.batch.rows)):]...)
	return true
}

// setReserved sets the number of bytes that are reserved for a large reply.
func (c *conn) setReserved(n int64) {
	if n != c.batch.reserved {
		c.mem.Add(n - c.batch.reserved)
		c.batch.reserved = n
	}
}

// trackedPieces is like tracked, for a group that was run in pieces. The pieces
// have read at different log indices, so every change since the call of track
// counts. There may be too many invalidations, but never too few.
func (c *conn) trackedPieces(keys []string) {
	if keys != nil {
		c.srv.hub.Settle(c.id, keys, 0, true)
	}
}

// evict closes the connection because it occupies too much of the memory for
// clients.
func (c *conn) evict(bytes int64) {
	c.srv.metrics.Evicted.Add(1)
	c.srv.refusal("client_memory", "closed a client to free memory for clients",
		"client", c.id, "addr", c.net.RemoteAddr(), "user", c.userName(),
		"bytes", bytes, "limit", c.srv.clientMem.Limit())
	c.out.Discard()
	c.kill()
	if err := ignoreClosed(c.net.Close()); err != nil {
		c.srv.log.Debug("cannot close evicted client", "client", c.id, "error", err)
	}
}

// splitting is the number of groups that write for which the connection still
// keeps reads and writes in separate groups. Each group that writes reduces it
// by one.
//
// A group that contains a write goes through the log with all its reads. The
// leader executes the costly reads while other writes wait, and all nodes
// execute the cheap reads. For a pipeline of small reads and writes, that is
// the fastest way. But if such a group is slow or has large replies, the
// connection splits its next splitGroups groups that write. So at most one in
// splitGroups groups that write is a mixed group that delays other clients.
type splitting int

const (
	splitGroups = 64
	// splitReplies is a limit in bytes. If the replies of a group that writes
	// are longer, the connection's next groups are split.
	splitReplies = 256 << 10
)

// updateSplitting updates splitting after a group that writes. replies is the
// size of its replies in bytes.
func (c *conn) updateSplitting(replies int) {
	if c.batch.splitting > 0 {
		c.batch.splitting--
	}
	if c.group.Ops() < 2 {
		return
	}
	// The two numbers differ if cluster.Session.Do has run the group in pieces,
	// because the group was too slow or the reply of a script was too large.
	if first, last := c.exec.Sent(); first != last || replies > splitReplies {
		c.batch.splitting = splitGroups
	}
}

// mustFlushBefore reports whether a command must not join the current group. On
// a connection that tracks, costly reads never join a group that writes: the keys
// of the reads must be remembered, and the leader could not take the reads out of
// the group.
func (c *conn) mustFlushBefore(cmd *fsm.Command, args [][]byte) bool {
	if c.batch.splitting == 0 && !c.tracking.Reads() {
		return false
	}
	row := cmd.Routed(args)
	writes, reads := row.IsWrite(), row.Flags&fsm.ReadOnly != 0
	if c.batch.splitting > 0 {
		return writes && !c.group.Write || reads && c.group.Write
	}
	return writes && c.group.Costly || row.Costly() && c.group.Write
}
