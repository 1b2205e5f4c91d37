package resp

import (
	"bytes"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/guard"
)

// blocking is the state of a connection that waits in a blocking command or for
// the end of a CLIENT PAUSE.
type blocking struct {
	// blocked is nil while no command waits. A goroutine that wants to end the
	// wait takes the value by replacing it with nil: see wakeBlocked.
	blocked atomic.Pointer[blocked]
	pos     fsm.Pos // identifies the command that waits
	lock    bool    // the command waits for a lock
	// paused is nil while the connection does not wait for the end of a CLIENT
	// PAUSE. A goroutine that wants to end the wait replaces the channel with
	// nil and then closes it.
	paused atomic.Pointer[chan struct{}]
}

// blocked is the state of a connection whose blocking command waits. Other
// goroutines use it to end the wait.
type blocked struct {
	// wake has capacity 1. Only the goroutine that has taken this value out of
	// conn.wait.blocked may send, so the send never waits.
	wake chan wakeUp
	// rules signals that the rules of the connection's user have changed. It has
	// capacity 1: a signal that has not been received yet covers later changes
	// too.
	rules chan struct{}
	// busy means that the command must not wait, because too many connections
	// wait already (guard.Limits.MaxBlocked).
	busy bool
}

// wakeUp is the reason why another goroutine ends a wait.
type wakeUp int

const (
	wakeTimeout wakeUp = iota // CLIENT UNBLOCK: like the end of the timeout
	wakeError                 // CLIENT UNBLOCK … ERROR
	wakeKilled                // the connection is closed, for example by CLIENT KILL
)

const msgUnblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// block runs a blocking command. It returns when the command is answered or the
// connection ends. The command is a group of its own: the commands before it
// are answered first, and the commands after it in the pipeline wait.
func (c *conn) block(r *row, args [][]byte) {
	c.flush()
	if c.ended() {
		return
	}
	c.show(r, c.db, args)
	c.setGroupUser(c.info.user) // so that the state machine can end the wait when the user's rules change
	cmd, logged := c.waitForm(r, args)
	c.group.Command(cmd, c.db, logged)
	c.batch.rows, c.batch.first = append(c.batch.rows, r), args
	c.activity.doing.Store(&r.stats.Name)
	if c.waitPause(true) != nil {
		c.done = true
		return
	}
	c.exec.begin()
	start := time.Now()
	c.batch.ownEvents = c.mayCauseOwnEvents()
	c.wait.pos, c.wait.lock, c.pieces = 0, r.granted != nil, nil
	if c.wait.lock && len(args) > 3 {
		c.exec.WaitsFor(c.db, string(args[2]), string(args[3]))
	} else {
		c.exec.WaitsFor(0, "", "")
	}
	out, err := c.exec.Block(&c.group, c.id, c.batch.ownEvents)
	ran := time.Since(start)
	if pos, ms, waits := fsm.Waiting(out); err == nil && waits {
		c.wait.pos = pos
		if resume, changed := fsm.ResumeArgs(args, out); changed {
			c.group.Reset(c.proto, c.id)
			c.group.As(c.info.user)
			cmd, logged := c.waitForm(r, resume)
			c.group.Command(cmd, c.db, logged)
		}
		var over <-chan time.Time
		if ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
			t := time.NewTimer(time.Duration(ms) * time.Millisecond)
			defer t.Stop()
			over = t.C
		}
		// Store b before awaitAll counts the client as blocked: as soon as INFO
		// and CLIENT LIST show this, other clients must be able to end the wait.
		b := &blocked{wake: make(chan wakeUp, 1), rules: make(chan struct{}, 1)}
		c.wait.blocked.Store(b)
		out, err = c.awaitAll(b, args, over)
		c.wait.blocked.Store(nil)
	}
	if c.batch.ownEvents && err == nil && !c.done {
		c.awaitOwnEvents()
		if c.wait.pos != 0 { // the group that served the command is not the last group that was sent
			c.pieces = nil
		}
	}
	c.answerGroup(out, err, ran)
	if r.granted != nil && err == nil {
		r.granted(c, args, out)
	}
}

// awaitAll calls await until the command has a reply or has failed, or until the
// connection has ended.
func (c *conn) awaitAll(b *blocked, args [][]byte, over <-chan time.Time) (reply []byte, err error) {
	if b.busy = !c.srv.mayBlock(); !b.busy {
		c.edit(func(i *clientInfo) { i.blocked = true })
		defer func() { // also after a panic, which only ends the connection
			c.srv.blocked.Add(-1)
			c.edit(func(i *clientInfo) { i.blocked = false })
		}()
	}
	for err == nil && reply == nil && !c.done {
		reply, err = c.await(b, args, over)
	}
	return reply, err
}

// mayBlock counts a connection whose blocking command waits. It returns false, and
// does not count the connection, if Limits.MaxBlocked connections wait already.
// Connections that are refused must not count: otherwise clients that try again
// and again would occupy the places of clients that may wait.
func (s *Server) mayBlock() bool {
	most := int64(s.cfg.Limits.MaxBlocked)
	for {
		n := s.blocked.Load()
		if most > 0 && n >= most {
			return false
		}
		if s.blocked.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// waitForm returns the command and the arguments with which a blocking command
// joins a group.
func (c *conn) waitForm(r *row, args [][]byte) (*fsm.Command, [][]byte) {
	if r.logged != nil {
		return r.logged(c, r.cmd, args)
	}
	return c.srv.cmds.machine.Waits(r.cmd, args), args
}

// await waits until the state machine has served a blocking command, until its
// timeout, or until something else ends the wait. The result is nil if the
// caller must call await again, or if the connection has ended. In the latter
// case, c.done is set.
func (c *conn) await(b *blocked, args [][]byte, over <-chan time.Time) (reply []byte, err error) {
	// Replies of earlier commands in the pipeline are sent before the
	// connection waits. While the connection waits, messages may be sent to it
	// too. The error of EndBefore can be ignored: redcon keeps the error and
	// then ends the connection.
	_ = c.out.EndBefore(c.wait.pos)
	defer c.out.Resume()
	if c.killed.Load() { // kill was called before c.wait.blocked was set, so it could not wake the connection
		c.abandon()
		return nil, nil
	}
	var gone <-chan struct{}
	if g, ok := c.net.(*guard.Conn); ok {
		left, stop, err := g.ReadAheadWaiting()
		if err != nil {
			c.abandon()
			return nil, nil
		}
		defer stop()
		gone = left
	}
	instead := fsm.NullArray
	if c.wait.lock { // the reply is the same as without a wait
		instead = fsm.Null
	}
	if b.busy {
		c.srv.metrics.Refused.WithLabelValues("blocked_clients").Inc()
		return c.endWait(fsm.Error("BUSY too many clients of this node wait in blocking commands, use another node " +
			"(--max-blocked-clients)"))
	}
	if refusal := c.waitRefused(args); refusal != "" { // the rules changed before c.wait.blocked was set
		return c.endWait(fsm.Error(refusal))
	}
	select {
	case reply = <-c.exec.Waited():
		switch {
		case reply != nil && c.wait.lock:
			// A grant is provisional until this node claims it with Unblock. An
			// empty reply from Waited means that the owner has got the lock by
			// another command. The command is then executed again.
			if reply, err = c.exec.Unblock(); err != nil || reply != nil {
				return reply, err
			}
		case reply != nil:
			return reply, nil
		}
		// Here, the command is executed again. A nil reply has one of three
		// causes. The cluster has dropped this node's waiters, because the node
		// was not connected to the leader for too long; the client need not know
		// that. Or this node was removed from the cluster, so the command fails
		// now. Or the cluster has ended the waits of this user because the user's
		// rules have changed. This node may not have applied that change yet, so
		// it reads the current users before it checks the rules.
		if err := c.users().refresh(); err != nil {
			c.srv.log.Debug("cannot read users before a blocking command waits again", "client", c.id, "error", err)
		}
		if refusal := c.waitRefused(args); refusal != "" {
			return fsm.Error(refusal).Append(nil, c.proto), nil
		}
		if reply, err = c.exec.Block(&c.group, c.id, c.batch.ownEvents); err != nil {
			return nil, err
		}
		if pos, _, waits := fsm.Waiting(reply); waits {
			c.wait.pos = pos
			return nil, nil
		}
		return reply, nil
	case <-gone:
		c.abandon()
		return nil, nil
	case <-b.rules:
		if refusal := c.waitRefused(args); refusal != "" {
			return c.endWait(fsm.Error(refusal))
		}
		return nil, nil
	case <-over:
	case why := <-b.wake:
		switch why {
		case wakeKilled:
			c.abandon()
			return nil, nil
		case wakeError:
			instead = fsm.Error(msgUnblocked)
		}
	case <-c.srv.life.stopping:
		c.done = true // if the command was served nevertheless, the client gets its reply first
		reply, err := c.exec.Unblock()
		if err != nil {
			c.srv.log.Debug("cannot end blocking command", "client", c.id, "error", err)
		}
		return reply, nil
	}
	return c.endWait(instead)
}

// endWait ends the current wait. If the state machine has already served the
// command, endWait returns the reply of the command. Otherwise, it returns the
// encoded form of the given reply.
func (c *conn) endWait(instead fsm.Reply) (reply []byte, err error) {
	if reply, err = c.exec.Unblock(); err != nil || reply != nil {
		return reply, err
	}
	return instead.Append(nil, c.proto), nil
}

// waitRefused returns the error for a connection whose user may no longer run
// the command that waits, or "" if the user may.
func (c *conn) waitRefused(args [][]byte) (refusal string) {
	v := c.verdict(args)
	if v.Reason == acl.Allowed {
		return ""
	}
	c.srv.accounts.log.denied(c, v, c.context())
	return "NOPERM " + v.Denial()
}

// recheckWait makes a connection that waits check its user's rules again. Any
// goroutine may call it.
func (c *conn) recheckWait() {
	b := c.wait.blocked.Load()
	if b == nil {
		return
	}
	select {
	case b.rules <- struct{}{}:
	default:
	}
}

// abandon ends the wait of a client whose connection is closed.
func (c *conn) abandon() {
	c.exec.Abandon()
	c.done = true
}

// kill marks the connection as closed and ends its waits. The caller closes the
// socket. Any goroutine may call it.
func (c *conn) kill() {
	c.killed.Store(true)
	c.wakeBlocked(wakeKilled)
	if paused := c.wait.paused.Swap(nil); paused != nil {
		close(*paused)
	}
}

// wakeBlocked ends the connection's wait, and reports whether the connection
// was waiting. Any goroutine may call wakeBlocked.
func (c *conn) wakeBlocked(why wakeUp) bool {
	b := c.wait.blocked.Swap(nil)
	if b == nil {
		return false
	}
	b.wake <- why
	return true
}

// logLock implements hooks.logged for LOCK. It adds the address and the name of the
// client to LOCK ACQUIRE, so that LOCK INFO can show them.
func logLock(c *conn, lock *fsm.Command, args [][]byte) (*fsm.Command, [][]byte) {
	sub := lock.Routed(args)
	if sub.Name != "acquire" || !sub.ArityOK(len(args)) {
		return lock, args
	}
	if _, fail := sub.Wait.Block(args); fail.IsError() {
		return lock, args // the error comes from the state machine
	}
	addr, name := []byte(c.net.RemoteAddr().String()), []byte(c.info.name)
	acquire := c.srv.cmds.acquire
	logged := append([][]byte{[]byte(acquire.Name)}, args[1:]...)
	return acquire, append(logged, []byte("CLIENT"), addr, name)
}

// deliverGrant implements hooks.granted for LOCK. It sends the reply to LOCK
// ACQUIRE with WAIT. If the socket does not accept the reply, deliverGrant releases
// the lock, because the client does not know that it has the lock.
func deliverGrant(c *conn, args [][]byte, reply []byte) {
	if len(reply) == 0 || reply[0] != ':' || c.w.Silent() {
		return
	}
	c.w.Send()
	if !c.w.Failed() {
		return
	}
	token := bytes.TrimSuffix(reply[1:], []byte("\r\n"))
	c.group.Reset(c.proto, c.id)
	if c.srv.cluster.FeatureVersion(fsm.FeatureShared) >= fsm.FeatureShared {
		c.group.Command(c.srv.cmds.internal(fsm.UndeliveredCommand), c.db, [][]byte{
			[]byte(fsm.UndeliveredCommand), args[2], token,
		})
	} else {
		c.group.Command(c.srv.cmds.internal("lock"), c.db, [][]byte{
			[]byte("lock"), []byte("release"), args[2], args[3], token,
		})
	}
	if _, err := c.exec.Do(&c.group, false, nil); err != nil {
		c.srv.log.Debug("cannot release a lock whose client has left", "client", c.id, "error", err)
	}
	c.reset()
}
