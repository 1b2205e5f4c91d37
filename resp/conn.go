package resp

import (
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

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
	exec Executor
	id   uint64

	proto int
	db    int
	local bool // READONLY: reads may be stale
	multi *multi
	watch []fsm.Watch

	group  fsm.Group
	cmds   []*fsm.Command // of the group's operations, for metrics
	replay int            // CLIENT REPLY: see client.go
	done   bool           // no further command is read

	created time.Time
	// info is what other connections may see of this one (CLIENT LIST).
	mu   sync.Mutex
	info clientInfo
	last atomic.Int64 // unix nanoseconds of the last command
}

func newConn(s *Server, rc redcon.Conn) *conn {
	now := time.Now()
	c := &conn{srv: s, rc: rc, net: rc.NetConn(), exec: s.cluster.NewExecutor(), id: s.nextID.Add(1), proto: 2, created: now}
	c.last.Store(now.UnixNano())
	c.info = clientInfo{user: "default", proto: 2, authed: s.password() == ""}
	if g, ok := c.net.(*Guard); ok {
		g.SetAuthenticated(c.info.authed)
	}
	c.group.Reset(2, c.id)
	return c
}

// serve runs a pipeline.
func (c *conn) serve(first [][]byte, rest []redcon.Command) {
	c.last.Store(time.Now().UnixNano())
	c.command(first)
	for i := range rest {
		if c.done {
			return // what follows QUIT is dropped, as Redis does
		}
		c.command(rest[i].Args)
	}
	c.flush()
	c.group.Release(2 * maxGroupBytes)
}

// command takes one command: data commands join the group, the rest are done
// at once, after the group.
func (c *conn) command(args [][]byte) {
	if len(args) == 0 {
		return
	}
	cmd := c.srv.table.Find(args[0])
	if cmd == nil || cmd.Flags&fsm.Internal != 0 {
		c.session(args)
		return
	}
	switch {
	case !c.info.authed:
		c.reply(fsm.Error(msgNoAuth))
	case !cmd.ArityOK(len(args)):
		c.refuse(fsm.WrongArity(cmd.Name))
	case cmd.Sub != nil && !c.knownSub(cmd, args):
	case c.multi != nil:
		c.multi.queue(queued{cmd: cmd, db: c.multi.db, args: args})
		c.reply(fsm.Simple("QUEUED"))
	default:
		if c.group.Ops() > 0 && (c.group.Ops() >= maxGroupOps || c.group.Size() >= maxGroupBytes) {
			c.flush()
		}
		c.group.Command(cmd, c.db, args)
		c.cmds = append(c.cmds, cmd)
	}
}

// knownSub checks the subcommand of a container such as OBJECT.
func (c *conn) knownSub(cmd *fsm.Command, args [][]byte) bool {
	sub := cmd.FindSub(args[1])
	switch {
	case sub == nil:
		c.refuse(fsm.UnknownSubcommand(args[1], upper(cmd.Name)))
	case !sub.ArityOK(len(args)):
		c.refuse(fsm.WrongArity(cmd.Name + "|" + sub.Name))
	default:
		return true
	}
	return false
}

// session runs a command that concerns the connection.
func (c *conn) session(args [][]byte) {
	r := c.srv.findRow(args[0])
	switch {
	case r == nil && !c.info.authed:
		c.reply(fsm.Error(msgNoAuth))
	case r == nil:
		c.refuse(fsm.UnknownCommand(args))
	case !c.info.authed && !r.noAuth:
		c.reply(fsm.Error(msgNoAuth))
	case !r.cmd.ArityOK(len(args)):
		c.refuse(fsm.WrongArity(r.cmd.Name))
	case r.cmd.Sub != nil && !c.knownSub(&r.cmd, args):
	case c.multi != nil && !r.inMulti:
		c.multi.queue(queued{row: r, args: args})
		c.reply(fsm.Simple("QUEUED"))
	default:
		c.flush()
		start := time.Now()
		c.reply(r.run(c, args))
		c.srv.metrics.session(r.cmd.Name, time.Since(start))
	}
}

// refuse answers an error that also spoils a transaction being queued.
func (c *conn) refuse(text string) {
	if c.multi != nil {
		c.multi.dirty = true
	}
	c.reply(fsm.Error(text))
}

// flush runs the group and writes its replies.
func (c *conn) flush() {
	if c.group.Ops() == 0 {
		return
	}
	start := time.Now()
	out, err := c.exec.Do(&c.group, c.local)
	if err != nil {
		line := fsm.Error(errorText(err)).Append(nil, c.proto)
		for range c.group.Ops() {
			c.write(line)
		}
	} else {
		c.write(out)
	}
	c.srv.metrics.group(c.cmds, time.Since(start))
	c.group.Reset(c.proto, c.id)
	c.cmds = c.cmds[:0]
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
	c.rc.WriteRaw(b)
}

// setProto changes the RESP version for what follows.
func (c *conn) setProto(proto int) {
	c.proto = proto
	c.group.Reset(proto, c.id)
	c.mu.Lock()
	c.info.proto = proto
	c.mu.Unlock()
}

// setAuthenticated notes whether the connection may run commands.
func (c *conn) setAuthenticated(ok bool) {
	c.mu.Lock()
	c.info.authed = ok
	c.mu.Unlock()
	if g, isGuard := c.net.(*Guard); isGuard {
		g.SetAuthenticated(ok)
	}
}

// hangUp closes the connection once what has been written is sent.
func (c *conn) hangUp() {
	c.done = true
	if err := c.rc.Close(); err != nil {
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
