package resp

import (
	"errors"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// admit checks whether the connection may run or queue a command now. It
// returns the error for the client, or "". admit makes all checks that do not
// depend on the meaning of a command, in the order of Redis (processCommand).
// The checks are the same for commands on data and for connection commands:
//
//  1. The number of arguments.
//  2. Authentication.
//  3. Inside MULTI, the flags fsm.NoMulti and fsm.RefusedInMulti.
//  4. The rules of the connection's user (ACL).
//  5. The feature version of the cluster: members with an older program would
//     stop at the entry of a command that they do not know.
//  6. In Clustered mode, the slots of the keys and the node that serves them.
//  7. In RESP2 with subscriptions, only commands with the flag fsm.Subscribed.
//  8. In MONITOR mode, no command on data.
//
// CLIENT PAUSE refuses nothing. It delays the group that a command on data
// joins, or a connection command: see waitPause.
func (c *conn) admit(r *row, args [][]byte) (refusal string) {
	if refusal = r.wrongArity(args); refusal != "" {
		return refusal
	}
	if !c.info.authed && !r.has(fsm.NoAuth) {
		if refusal = c.authError(r, args); refusal != "" {
			return refusal
		}
	}
	if c.tx.multi != nil && r.has(fsm.NoMulti|fsm.RefusedInMulti) {
		return msgNoMulti
	}
	if refusal = c.permissionError(args); refusal != "" {
		return refusal
	}
	if refusal = c.featureError(r.cmd, args); refusal != "" {
		return refusal
	}
	if refusal = c.commandRedirect(r.cmd, args); refusal != "" {
		return refusal
	}
	if c.restricted() && !r.has(fsm.Subscribed) {
		return msgRestricted(r.fullName())
	}
	if c.monitorForbids(r.cmd, args) {
		return msgMonitorData
	}
	return ""
}

// featureError returns the error for a command that the cluster's feature version does
// not include, or "".
func (c *conn) featureError(cmd *fsm.Command, args [][]byte) string {
	need := cmd.Needs(args)
	if need == 0 {
		return ""
	}
	if present := c.srv.cluster.FeatureVersion(need); present < need {
		return fsm.NeedsFeature(cmd, args, need, present)
	}
	return ""
}

// permissionError returns the error for a command that the rules of the connection's
// user do not allow, or "". For a user with all permissions, the check is one
// atomic load of a pointer.
func (c *conn) permissionError(args [][]byte) string {
	if c.user.limits.Load() == nil {
		return ""
	}
	v := c.verdict(args)
	if v.Reason == acl.Allowed {
		if c.user.limits.Load() != nil {
			c.setGroupUser(c.info.user)
		}
		return ""
	}
	c.activity.doing.Store(&v.Command.Full)
	c.srv.accounts.log.denied(c, v, c.context())
	return "NOPERM " + v.Denial()
}

// verdict returns whether the connection's user may run a command. A user with
// all permissions is not checked; the verdict then names no command.
func (c *conn) verdict(args [][]byte) acl.Verdict {
	u := c.user.limits.Load()
	if u == nil {
		return acl.Verdict{}
	}
	v := c.checkACL(u, args)
	if v.Reason != acl.Allowed && !c.local && c.users().refresh() == nil {
		// A permission that another node granted is valid here as soon as that
		// node has replied, even if this node has not applied the change yet.
		// So this node reads the current users before it refuses.
		if u = c.user.limits.Load(); u == nil {
			return acl.Verdict{}
		}
		v = c.checkACL(u, args)
	}
	return v
}

// setGroupUser sets the name of the user on the group that the next command
// joins. While a script runs, the state machine checks the commands that the
// script calls, so it needs the name.
func (c *conn) setGroupUser(user string) {
	if c.group.User() == user {
		return
	}
	if c.group.Ops() > 0 { // the commands in the group were added while the user had all permissions
		c.flush()
	}
	c.reset()
	c.group.As(user)
}

func (c *conn) checkACL(u *acl.User, args [][]byte) acl.Verdict {
	cmd := c.srv.cmds.catalog.Resolve(args)
	if cmd == nil { // cannot happen: the caller has found the command in the tables
		unknown := &acl.Command{Command: &fsm.Command{}, Full: string(args[0])}
		return acl.Verdict{Reason: acl.DeniedCommand, Command: unknown}
	}
	return u.Check(cmd, args)
}

// checkLockList implements hooks.check for LOCK. It returns the error for a LOCK
// LIST of a user who may not read all keys.
func checkLockList(c *conn, args [][]byte) (refusal string) {
	if u := c.user.limits.Load(); u != nil {
		return u.CheckPatterns(c.srv.cmds.catalog.Resolve(args), args)
	}
	return ""
}

// checkSortPattern implements hooks.check for SORT and SORT_RO. It returns the error
// if a pattern after BY or GET is not allowed: in Clustered mode, or for a user
// who may not read all keys.
func checkSortPattern(c *conn, args [][]byte) (refusal string) {
	cmd := c.srv.cmds.catalog.Resolve(args)
	if c.srv.cfg.Mode == Clustered {
		if option := cmd.KeyPattern(args); option != "" {
			return "ERR " + option + " option of SORT denied in Cluster mode."
		}
	}
	if u := c.user.limits.Load(); u != nil {
		return u.CheckPatterns(cmd, args)
	}
	return ""
}

// context returns the context of the connection's commands, as ACL LOG reports
// it.
func (c *conn) context() string {
	if c.tx.multi != nil {
		return "multi"
	}
	return "toplevel"
}

// recheck checks the commands of a transaction again at EXEC, because the rules may
// have changed since the commands were queued. A command that is no longer allowed
// gets an error as its reply; the other commands are executed.
func (c *conn) recheck(m *multi) {
	u := c.user.limits.Load()
	if u == nil {
		return
	}
	c.setGroupUser(c.info.user)
	for i := range m.cmds {
		q := &m.cmds[i]
		v := c.checkACL(u, q.args)
		if v.Reason == acl.Allowed {
			continue
		}
		reason := "no permission to execute the command or subcommand"
		switch v.Reason {
		case acl.DeniedKey:
			reason = "no permission to touch the specified keys"
		case acl.DeniedChannel:
			reason = "no permission to access one of the channels used as arguments"
		case acl.DeniedSteps:
			reason = "the patterns of the user take too many steps to match"
		}
		q.refused = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
			"This command is no longer allowed for the following reason: " + reason
		c.srv.accounts.log.denied(c, v, "multi")
	}
}

// pause is the CLIENT PAUSE that is in force. It concerns the clients of this
// node only. To pause all writes of a cluster, an operator sends CLIENT PAUSE to
// every node.
type pause struct {
	until time.Time
	all   bool          // all commands, not only writes
	over  chan struct{} // closed when this pause is replaced or ended
}

// setPause pauses clients until the given time. As in Redis, a new pause neither
// shortens nor relaxes the pause in force.
func (s *Server) setPause(until time.Time, all bool) {
	next := &pause{until: until, all: all, over: make(chan struct{})}
	for {
		old := s.pause.Load()
		if old != nil && time.Now().Before(old.until) {
			next.all = all || old.all
			if old.until.After(until) {
				next.until = old.until
			}
		}
		if s.pause.CompareAndSwap(old, next) {
			if old != nil {
				close(old.over)
			}
			return
		}
		next.until, next.all = until, all
	}
}

// endPause ends the pause in force.
func (s *Server) endPause() {
	if old := s.pause.Swap(nil); old != nil {
		close(old.over)
	}
}

// errKilled is the error of a command whose connection was closed before the
// command ran. No client receives it.
var errKilled = errors.New("the connection was closed before the command ran")

// waitPause waits while a CLIENT PAUSE delays the next command of the
// connection. write says whether the command writes. waitPause returns nil when
// the command may run, and errKilled when the connection has been closed.
// Without errKilled, a write whose client is gone would run during the pause.
func (c *conn) waitPause(write bool) error {
	if c.srv.pause.Load() == nil {
		return nil
	}
	closed := make(chan struct{})
	c.wait.paused.Store(&closed) // paused must be stored before killed is read: see kill
	defer c.wait.paused.Store(nil)
	for {
		if c.killed.Load() {
			return errKilled
		}
		p := c.srv.pause.Load()
		if p == nil || !p.all && !write {
			return nil
		}
		d := time.Until(p.until)
		if d <= 0 {
			if c.srv.pause.CompareAndSwap(p, nil) {
				close(p.over)
			}
			continue
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-p.over:
		case <-closed:
		case <-c.srv.life.stopping:
			t.Stop()
			return nil
		}
		t.Stop()
	}
}
