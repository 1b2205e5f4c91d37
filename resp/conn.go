package resp

import (
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/metrics"
	"github.com/holdfast-kv/holdfast/resp/output"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

// conn is one client connection. Only the goroutine that serves the connection
// may use the fields, unless their comments say otherwise. srv, net, id, created,
// out and sub do not change, so any goroutine may read these fields.
type conn struct {
	srv     *Server
	net     net.Conn
	exec    *executor
	id      uint64
	created time.Time
	killed  atomic.Bool // the server closes the socket, for example for CLIENT KILL; any goroutine may set it
	done    bool        // the connection reads no further command and ends after its replies

	proto    int
	db       int
	local    bool // after READONLY: reads may be stale
	tracking pubsub.Mode
	user     identity
	tx       transaction
	wait     blocking

	group fsm.Group
	batch batch
	// pieces contains the positions in the log of the group whose replies are
	// written next, one for each piece of the group. The messages that the group
	// caused are sent between these replies: see writeGroup. pieces is empty if the
	// positions are not known or do not matter.
	pieces pieces
	busy   busy

	w   output.Writer      // sends replies and messages
	out *output.Outbox     // queues messages
	sub *pubsub.Subscriber // the subscriptions of the connection
	mem *clientmem.Account // the connection's share of the memory for clients

	activity activity
	// mu guards info, because other goroutines read it, for example for CLIENT
	// LIST. Except for info.broken, only this connection's goroutine changes
	// the fields of info, so it reads these fields without mu.
	mu   sync.Mutex
	info clientInfo
}

// activity describes the last pipeline and the last command of a connection.
// Any goroutine may read it.
type activity struct {
	last  atomic.Int64           // time at which the last pipeline began, in Unix nanoseconds
	doing atomic.Pointer[string] // name of the last command
	// commands counts the commands that have arrived. Commands that redcon
	// reads together are counted before the first of them is executed.
	commands atomic.Int64
}

func newConn(s *Server, rc redcon.Conn) *conn {
	now := time.Now()
	c := &conn{
		srv: s, net: rc.NetConn(), exec: &executor{Executor: s.cluster.NewExecutor()},
		id: s.cluster.ClientID(), proto: 2, created: now,
	}
	c.activity.last.Store(now.UnixNano())
	c.sub = pubsub.NewSubscriber(c.id, audience{c})
	c.mem = s.clientMem.Account(c.evict)
	c.w.Init(output.WriterConfig{
		Redcon: rc, Net: c.net, Memory: c.mem, Pushed: &s.metrics.BytesOut, Pushers: s.pushers,
	})
	c.out = output.NewOutbox(&s.outboxes, c.id, &c.w, c.cutOff)
	c.exec.OnPiece(c.pieceExecuted)
	// The server sets confirmed after the users have become current. So
	// confirmed must be read before the users.
	c.user.early = !s.accounts.confirmed.Load()
	def := s.accounts.current.Load().def
	open := def.Open() && !c.user.early
	c.info, c.user.born = clientInfo{user: def.Name, proto: 2, multi: -1, authed: open}, def.born
	if g, ok := c.net.(*guard.Conn); ok {
		g.SetMemory(c.mem)
		g.SetAuthenticated(open || c.user.early && def.Open())
		c.exec.WatchClient(g.ReadAhead)
	}
	c.group.Reset(2, c.id)
	return c
}

// serve runs a pipeline. Commands after QUIT are dropped, as in Redis.
func (c *conn) serve(first redcon.Command, rest []redcon.Command) {
	c.activity.last.Store(time.Now().UnixNano())
	c.activity.commands.Add(int64(1 + len(rest)))
	c.out.Begin()
	received := len(first.Raw)
	c.command(first.Args)
	for i := range rest {
		received += len(rest[i].Raw)
		if c.ended() {
			break
		}
		c.command(rest[i].Args)
	}
	received += c.more(received)
	c.flushLast()
	c.srv.metrics.BytesIn.Add(uint64(received))
	c.srv.metrics.BytesOut.Add(uint64(c.w.TakeSent()))
	c.group.Release(2 * maxGroupBytes)
	c.group.Reset(c.proto, c.id) // a released group has lost its header too
	if c.ended() {
		c.recordTraces()
		c.hangUp()
		return
	}
	// Send the replies now. redcon would send them only after handle has
	// returned. By then, the server may already have closed the connection
	// because it stops, or another goroutine may have sent a message ahead of
	// the replies. The error can be ignored: redcon keeps the error and ends
	// the connection with it.
	_ = c.out.End()
	c.recordTraces()
}

// ended reports whether the connection runs no further command.
func (c *conn) ended() bool { return c.done || c.w.Failed() || c.killed.Load() }

// command runs one command. Then it ends the effects of CLIENT REPLY SKIP and
// CLIENT CACHING, which apply to one command.
func (c *conn) command(args [][]byte) {
	if len(args) == 0 {
		return
	}
	skip := c.w.Mode == output.ReplySkipNext
	if skip {
		c.w.Mode = output.ReplySkip
	}
	r := c.take(args)
	c.busy.yield()
	if c.tracking.Caching && c.tx.multi == nil && (r == nil || !r.has(fsm.KeepsCaching)) {
		c.flush()
		c.tracking.Caching = false
	}
	if skip {
		c.flush()
		if c.w.Mode == output.ReplySkip {
			c.w.Mode = output.ReplyOn
		}
	}
}

// take runs, queues or refuses one command. A command on data joins the group, and
// a blocking one runs by itself: see data. Any other command runs at once, after
// the group. Inside MULTI, the method take queues commands of both kinds, except
// those with the flag fsm.RunsInMulti. take returns the row of the command, or nil
// if there is no such command.
func (c *conn) take(args [][]byte) *row {
	r, refusal := c.srv.cmds.find(args)
	if refusal != "" {
		c.refuse(nil, refusal)
		return r
	}
	if refusal = c.admit(r, args); refusal != "" {
		c.auditRefused(r, args, refusal)
		c.refuse(r, refusal)
		return r
	}
	switch {
	case c.tx.multi != nil && !r.has(fsm.RunsInMulti):
		c.enqueue(r, args)
	case r.data:
		c.data(r, args)
	default:
		c.runNow(r, args)
	}
	return r
}

// runNow runs a connection command, after the group before it.
func (c *conn) runNow(r *row, args [][]byte) {
	c.flush()
	c.activity.doing.Store(&r.stats.Name)
	if !r.has(fsm.NotPaused) && c.waitPause(false) != nil {
		return
	}
	c.answer(r, args)
}

// data runs a blocking command, and adds any other command on data to the group.
func (c *conn) data(r *row, args [][]byte) {
	if r.check != nil {
		if refusal := r.check(c, args); refusal != "" {
			c.refuse(r, refusal)
			return
		}
	}
	if c.srv.cmds.machine.Waits(r.cmd, args) != nil {
		c.block(r, args)
		return
	}
	c.show(r, c.db, args)
	audits := c.srv.audit.log != nil && r.audits(args)
	if audits { // the command must be alone in its group, so that its reply is known
		c.flush()
	}
	cmd, logged := c.forLog(r, args)
	if c.group.Ops() > 0 &&
		(c.group.Ops() >= maxGroupOps || c.group.Size() >= maxGroupBytes || c.mustFlushBefore(cmd, logged)) {
		c.flush()
	}
	if c.group.Ops() == 0 {
		c.batch.first = args
	}
	c.group.Command(cmd, c.db, logged)
	c.batch.rows = append(c.batch.rows, r)
	if c.tracking.Reads() {
		c.rememberReads(r.cmd, args)
	}
	if audits {
		c.batch.audited = args
		c.flush()
	}
}

// forLog returns the command and the arguments with which a command on data joins a
// group.
func (c *conn) forLog(r *row, args [][]byte) (*fsm.Command, [][]byte) {
	if r.logged == nil {
		return r.cmd, args
	}
	return r.logged(c, r.cmd, args)
}

// answer runs a connection command and writes its reply.
func (c *conn) answer(r *row, args [][]byte) {
	c.exec.begin()
	proto := c.proto
	reply := c.run(r, args)
	if !r.has(fsm.PreviousProtocol) {
		proto = c.proto
	}
	c.pieces = nil // there is one reply, and no message belongs before it: see writeGroup
	c.show(r, c.db, args)
	if c.info.monitor { // the line about this command in the MONITOR stream comes right after its reply
		defer c.out.Drain()
	}
	switch {
	case r.has(fsm.AlwaysAnswers):
		c.w.Put(reply.Append(nil, proto))
		return
	case reply.Exceeds(pieceBytes):
		c.setReserved(reply.Held())
		c.w.Stream(&reply, proto)
		c.setReserved(0)
	default:
		c.w.Write(reply.Append(nil, proto))
	}
	if r.answered != nil {
		r.answered(c)
	}
}

// run runs a connection command, measures it, and writes it to the audit log if it
// belongs there.
func (c *conn) run(r *row, args [][]byte) fsm.Reply {
	start := time.Now()
	audits := c.srv.audit.log != nil && r.audits(args)
	if audits && r.final {
		c.audit(r, args, "received")
	}
	reply := r.run(c, args)
	d := time.Since(start)
	switch {
	case !audits || r.final && !reply.IsError():
	case reply.IsError():
		c.audit(r, args, r.auditError(reply.Text()))
	default:
		c.audit(r, args, "ok")
	}
	c.busy += busy(d)
	c.srv.metrics.Command(r.stats, d, reply)
	if !r.has(fsm.SkipSlowlog) {
		c.slow(r, args, 0, r.has(fsm.Fast), d)
	}
	return reply
}

// refuse sends an error for a command that does not run. A transaction that is
// being queued becomes invalid. r is nil if the command is unknown.
func (c *conn) refuse(r *row, text string) {
	c.busy += refusalTime
	if r != nil && r.refused != nil {
		text = r.refused(c, text)
	}
	if c.tx.multi != nil {
		c.tx.multi.dirty = true
	}
	var stats *metrics.Series
	if r != nil {
		stats = r.stats
	}
	c.srv.metrics.Reject(stats, text)
	c.reply(fsm.Error(text))
}

// reply writes one reply, after the replies of the group before it.
func (c *conn) reply(r fsm.Reply) {
	c.flush()
	c.w.Write(r.Append(nil, c.proto))
}

// setProto changes the RESP version for the following commands.
func (c *conn) setProto(proto int) {
	c.proto = proto
	c.group.Reset(proto, c.id)
	c.out.SetProto(proto)
	c.edit(func(i *clientInfo) { i.proto = proto })
}

// setDB selects a database.
func (c *conn) setDB(db int) {
	c.db = db
	c.edit(func(i *clientInfo) { i.db = db })
}

// setLocal sets whether reads may be stale.
func (c *conn) setLocal(local bool) {
	c.local = local
	c.edit(func(i *clientInfo) { i.local = local })
	if local && c.tracking.On {
		c.srv.hub.ReadsBehind(c.id)
	}
}

// setMulti sets the transaction that the connection is queuing, or nil. It
// updates the memory of the transaction and its length in CLIENT LIST.
func (c *conn) setMulti(m *multi) {
	c.tx.multi = m
	c.tx.mem.Set(c.mem, m.memory())
	c.edit(func(i *clientInfo) { i.multi = m.len() })
}

// hangUp closes the connection after the written replies have been sent.
func (c *conn) hangUp() {
	c.done = true
	if err := c.w.Close(); err != nil {
		c.srv.log.Debug("cannot close connection", "client", c.id, "error", err)
	}
}

// cutOff closes the connection, for example because its client reads messages too
// slowly.
func (c *conn) cutOff(reason string, bytes int) {
	c.srv.metrics.CutOff.Inc()
	c.srv.warn("slow_subscriber", "closed a connection that receives messages",
		"client", c.id, "addr", c.net.RemoteAddr(), "reason", reason, "bytes", bytes)
	c.kill()
	if err := ignoreClosed(c.net.Close()); err != nil {
		c.srv.log.Debug("cannot close a connection that receives messages", "client", c.id, "error", err)
	}
}

// recover closes the connection after a panic on the connection's goroutine, so
// that a bug in serving one connection does not end the process. A panic while an
// entry of the log is applied still ends it: another goroutine applies the log.
func (c *conn) recover() {
	if r := recover(); r != nil {
		c.srv.metrics.Panics.Inc()
		c.srv.log.Error("connection failed", "client", c.id, "panic", r, "stack", string(debug.Stack()))
		c.hangUp()
	}
}

// busy is the time for which a connection has run commands since it last
// yielded. Only connection commands and refused commands count, because most of
// them do not wait. A client can send such commands without end, and then the
// connection never waits. Commands on data do not count, because they wait for
// the cluster.
type busy time.Duration

// refusalTime is an estimate of the time that it takes to refuse a command.
const refusalTime = busy(2 * time.Microsecond)

// yield lets other connections run if this connection has been busy for a long
// time.
func (b *busy) yield() {
	if *b >= busy(yield.Every) {
		*b = 0
		yield.Now()
	}
}
