package resp

import (
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Limits of a group: a pipeline longer than this is run in pieces.
const (
	maxGroupBytes = 64 << 10
	maxGroupOps   = 1024
)

// conn is one client connection. Its fields belong to the goroutine that serves
// it, save those that say otherwise.
type conn struct {
	srv  *Server
	rc   redcon.Conn
	net  net.Conn
	exec *steps
	id   uint64

	proto int
	db    int
	local bool // READONLY: reads may be stale
	multi *multi
	watch []fsm.Watch
	// weaving: session commands of a transaction are run whose other replies have
	// not been written yet: see weave.
	weaving bool

	group  fsm.Group
	cmds   []*fsm.Command // of the group's operations, for metrics
	first  [][]byte       // the first of them, for the slow log
	replay replyMode
	done   bool // no further command is read: the connection ends after its replies
	// subscribedTo is what the connection has subscribed to, by kind.
	subscribedTo [3]map[string]struct{}
	tracking     trackMode
	reads        []string // keys that the group reads, while they are to be remembered
	out          *outbox
	// heard says where in the log the group is whose replies are to be written next,
	// with the messages that it caused between them: see writeGroup.
	heard   cause
	early   early
	sent    int // bytes of replies of this pipeline
	strikes int // failed AUTHs: see auth

	created time.Time
	killed  atomic.Bool // CLIENT KILL has closed the socket
	blocked atomic.Pointer[blocked]
	waiter  fsm.Pos // names the blocking command that waits
	// What other connections may see of this one (CLIENT LIST). info.authed is
	// changed by this connection only, which therefore reads it without mu, as it
	// does with info.user.
	mu    sync.Mutex
	info  clientInfo
	born  fsm.Pos                // of its user: see account
	last  atomic.Int64           // unix nanoseconds of the last command
	doing atomic.Pointer[string] // name of the last command

	// limits is what the connection's user may do, nil if that is everything.
	limits   atomic.Pointer[acl.User]
	deleting atomic.Bool // it runs ACL DELUSER: see orphaned
}

func newConn(s *Server, rc redcon.Conn) *conn {
	now := time.Now()
	c := &conn{srv: s, rc: rc, net: rc.NetConn(), exec: &steps{Executor: s.cluster.NewExecutor()}, id: s.nextID.Add(1), proto: 2, created: now}
	c.last.Store(now.UnixNano())
	c.out = newOutbox(c)
	c.early.send = c.sendEarly
	def := s.users.Load().def
	c.info, c.born = clientInfo{user: def.Name, proto: 2, multi: -1, authed: def.Open()}, def.born
	if g, ok := c.net.(*Guard); ok {
		g.SetAuthenticated(c.info.authed)
	}
	c.group.Reset(2, c.id)
	return c
}

// serve runs a pipeline. What follows QUIT in it is dropped, as Redis does.
func (c *conn) serve(first redcon.Command, rest []redcon.Command) {
	c.last.Store(time.Now().UnixNano())
	c.out.begin()
	received := len(first.Raw)
	c.command(first.Args)
	for i := range rest {
		received += len(rest[i].Raw)
		if c.ended() {
			break
		}
		c.command(rest[i].Args)
	}
	c.flushLast()
	c.srv.metrics.bytesIn.Add(uint64(received))
	c.srv.metrics.bytesOut.Add(uint64(c.sent))
	c.sent = 0
	c.group.Release(2 * maxGroupBytes)
	c.group.Reset(c.proto, c.id) // a released group has lost its head too
	if c.ended() {
		c.hangUp()
		return
	}
	// redcon would flush as soon as handle has returned, but then Stop might come
	// in between, and what the connection has not asked for. redcon keeps the error
	// and ends the connection by it.
	_ = c.out.end()
}

// ended reports whether the connection runs no further command.
func (c *conn) ended() bool { return c.done || c.killed.Load() }

// command takes one command, and ends what was said for it alone.
func (c *conn) command(args [][]byte) {
	if len(args) == 0 {
		return
	}
	skip := c.replay == replySkipNext
	if skip {
		c.replay = replySkip
	}
	c.take(args)
	if c.tracking.caching && c.multi == nil && !strings.EqualFold(string(args[0]), "client") {
		c.flush()
		c.tracking.caching = false
	}
	if skip {
		c.flush()
		if c.replay == replySkip {
			c.replay = replyOn
		}
	}
}

// take takes one command: data commands join the group, the rest are done
// at once, after the group.
func (c *conn) take(args [][]byte) {
	cmd := c.srv.table.Find(args[0])
	if cmd == nil || cmd.Flags&fsm.Internal != 0 {
		c.session(args)
		return
	}
	stats := c.srv.metrics.byCommand[cmd.ID()]
	switch { // in the order of Redis: what is no command at all is not a matter of passwords
	case !cmd.ArityOK(len(args)):
		c.refuse(stats, fsm.WrongArity(cmd.Name))
	case cmd.Sub != nil && !c.knownSub(cmd, args, stats):
	case !c.info.authed && c.needsAuth():
		c.refuse(stats, msgNoAuth)
	case c.denied(args, stats):
	case c.tooNew(cmd, args, stats):
	case c.refusedElsewhere(cmd, args, stats):
	case c.restricted():
		c.refuse(stats, msgRestricted(cmd.Name))
	case c.listens(cmd, args):
		c.refuse(stats, msgMonitorData)
	case c.multi != nil:
		c.enqueue(queued{cmd: cmd, db: c.multi.db, args: args}, stats)
	case c.patternRefused(cmd, args) != "":
		c.refuse(stats, c.patternRefused(cmd, args))
	case c.srv.table.Waits(cmd, args) != nil:
		c.block(cmd, args)
	default:
		c.show(cmd, c.db, args)
		if c.group.Ops() > 0 && (c.group.Ops() >= maxGroupOps || c.group.Size() >= maxGroupBytes) {
			c.flush()
		}
		if c.group.Ops() == 0 {
			c.first = args
		}
		row, logged := c.forLog(cmd, args)
		c.group.Command(row, c.db, logged)
		c.cmds = append(c.cmds, cmd)
		if c.tracking.reads() {
			c.noteReads(cmd, args)
		}
	}
}

// knownSub checks the subcommand of a container such as OBJECT.
func (c *conn) knownSub(cmd *fsm.Command, args [][]byte, stats *series) bool {
	sub := cmd.FindSub(args[1])
	switch {
	case sub == nil:
		c.refuse(nil, fsm.UnknownSubcommand(args[1], upper(cmd.Name)))
	case !sub.ArityOK(len(args)):
		c.refuse(stats, fsm.WrongArity(cmd.Name+"|"+sub.Name))
	default:
		return true
	}
	return false
}

// session runs a command that concerns the connection.
func (c *conn) session(args [][]byte) {
	r := c.srv.findRow(args[0])
	if r == nil {
		c.refuse(nil, fsm.UnknownCommand(args))
		return
	}
	if r.subs != nil && len(args) > 1 {
		sub := lookup(r.subs, args[1])
		if sub == nil {
			c.refuse(nil, fsm.UnknownSubcommand(args[1], upper(r.cmd.Name)))
			return
		}
		r = sub
	}
	switch {
	case !r.cmd.ArityOK(len(args)):
		c.refuse(r.stats, fsm.WrongArity(r.fullName()))
	case !r.noAuth && !c.info.authed && c.needsAuth():
		c.refuse(r.stats, msgNoAuth)
	case c.restricted() && !r.subscribed:
		c.refuse(r.stats, msgRestricted(r.fullName()))
	case c.listens(&r.cmd, args):
		c.refuse(r.stats, msgMonitorData)
	case c.multi != nil && r.noMulti:
		c.refuse(r.stats, "ERR Command not allowed inside a transaction")
	case c.denied(args, r.stats):
	case c.refusedElsewhere(&r.cmd, args, r.stats):
	case c.multi != nil && !r.inMulti:
		c.enqueue(queued{row: r, args: args}, r.stats)
	default:
		c.flush()
		c.doing.Store(&r.stats.name)
		c.waitPauseBefore(r)
		c.answer(r, args)
	}
}

// tooNew refuses a command that the feature version of the cluster does not include.
// It must not get into the log, at which members with an older program would stop.
func (c *conn) tooNew(cmd *fsm.Command, args [][]byte, stats *series) bool {
	need := cmd.Needs(args)
	if need == 0 {
		return false
	}
	present := c.srv.cluster.FeatureVersion(need)
	if present < need {
		c.refuse(stats, fsm.NeedsFeature(cmd, args, present))
	}
	return present < need
}

// refusedElsewhere refuses a command that another node has to run.
func (c *conn) refusedElsewhere(cmd *fsm.Command, args [][]byte, stats *series) bool {
	text := c.elsewhere(cmd, args)
	if text != "" {
		c.refuse(stats, text)
	}
	return text != ""
}

// answer runs a session command and writes its reply.
func (c *conn) answer(r *row, args [][]byte) {
	c.exec.begin()
	reply := c.run(r, args).Append(nil, c.proto)
	c.heard = cause{} // the command has one reply: see writeGroup
	c.show(&r.cmd, c.db, args)
	if c.info.monitor { // its own line comes next
		defer c.out.drain()
	}
	if r.loud {
		c.sent += len(reply)
		c.rc.WriteRaw(reply)
		return
	}
	c.write(reply)
	if r.cmd.Name == "exec" { // what the transaction caused comes behind it
		c.out.drain()
	}
}

// run runs a session command and measures it.
func (c *conn) run(r *row, args [][]byte) fsm.Reply {
	start := time.Now()
	reply := r.run(c, args)
	d := time.Since(start)
	c.srv.metrics.session(r, d, reply)
	if r.cmd.Flags&fsm.SkipSlowlog == 0 {
		c.slow(args, 0, r.cmd.Flags&fsm.Fast != 0, d)
	}
	return reply
}

// refuse answers a command that is not run. That spoils a transaction being
// queued, and if it is EXEC the transaction is over: none ends halfway. stats are
// those of the command, nil if it is not known.
func (c *conn) refuse(stats *series, text string) {
	if stats != nil && stats.name == "exec" {
		c.setMulti(nil)
		c.watch = nil
		text = "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
	}
	if c.multi != nil {
		c.multi.dirty = true
	}
	if stats != nil {
		stats.rejected.Add(1)
	}
	c.srv.metrics.errors.add(text)
	c.reply(fsm.Error(text))
}

// flush runs the group and writes its replies.
func (c *conn) flush() {
	if c.group.Ops() == 0 {
		return
	}
	if c.ended() { // killed meanwhile: nobody would hear of it
		c.reset()
		return
	}
	c.doing.Store(&c.srv.metrics.byCommand[c.cmds[len(c.cmds)-1].ID()].name)
	c.exec.begin()
	start := time.Now()
	tracked := c.track()
	// What is read while keys are watched is what a transaction will be made from.
	out, err := c.do(c.local && len(c.watch) == 0)
	out = c.tracked(tracked, out, err)
	c.answerGroup(out, err, time.Since(start))
}

// answerGroup writes the replies of the group, which took d, or the error in
// place of each of them, and empties it.
func (c *conn) answerGroup(out []byte, err error, d time.Duration) {
	if err != nil {
		text := errorText(err)
		line := fsm.Error(text).Append(nil, c.proto)
		for range c.cmds {
			c.write(line)
		}
		c.srv.metrics.failed(c.cmds, d, text)
	} else {
		c.writeGroup(c.early.rest(out))
		c.srv.metrics.group(c.cmds, d, out)
	}
	if len(c.cmds) > 0 {
		c.slow(c.first, len(c.cmds)-1, c.cmds[0].Flags&fsm.Fast != 0, d)
	}
	c.reset()
	c.out.drain()
}

// reset empties the group.
func (c *conn) reset() {
	c.group.Reset(c.proto, c.id)
	c.cmds, c.first, c.reads = c.cmds[:0], nil, c.reads[:0]
}

// do runs the group, once clients are not paused.
func (c *conn) do(local bool) ([]byte, error) {
	c.waitPause(c.group.Write)
	if !c.group.Write || !c.hears() {
		return c.exec.Do(&c.group, local, c.early.now())
	}
	out, err := c.exec.Do(&c.group, local, nil) // never early: see own.go
	if err == nil {
		c.hear()
	}
	return out, err
}

// reply writes one reply, after those of the group that came before it.
func (c *conn) reply(r fsm.Reply) {
	c.flush()
	c.write(r.Append(nil, c.proto))
}

// write hands encoded replies to redcon's writer, which sends them when the
// pipeline has been served.
func (c *conn) write(b []byte) {
	if c.silent() {
		return
	}
	c.sent += len(b)
	c.rc.WriteRaw(b)
}

// setProto changes the RESP version for what follows.
func (c *conn) setProto(proto int) {
	c.proto = proto
	c.group.Reset(proto, c.id)
	c.out.setProto(proto)
	c.edit(func(i *clientInfo) { i.proto = proto })
}

// setDB selects a database.
func (c *conn) setDB(db int) {
	c.db = db
	c.edit(func(i *clientInfo) { i.db = db })
}

// setLocal says whether reads may be stale.
func (c *conn) setLocal(local bool) {
	c.local = local
	c.edit(func(i *clientInfo) { i.local = local })
	if local && c.tracking.on {
		c.srv.hub.readsBehind(c.id)
	}
}

// setMulti starts or ends a transaction being queued.
func (c *conn) setMulti(m *multi) {
	c.multi = m
	c.edit(func(i *clientInfo) { i.multi = m.len() })
}

// hangUp closes the connection once what has been written is sent.
func (c *conn) hangUp() {
	c.done = true
	if err := c.out.hangUp(); err != nil {
		c.srv.log.Debug("close connection", "client", c.id, "error", err)
	}
}

// recover keeps a mistake in serving one connection from ending the process:
// the connection is closed, the state machine is not involved.
func (c *conn) recover() {
	if r := recover(); r != nil {
		c.srv.metrics.Panics.Inc()
		c.srv.log.Error("connection failed", "client", c.id, "panic", r, "stack", string(debug.Stack()))
		c.hangUp()
	}
}
