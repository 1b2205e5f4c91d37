package resp

import (
	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// denied refuses a command that the rules of the connection's user do not
// allow, and reports whether it did. For a user with all permissions, the check
// is one atomic load of a pointer.
func (c *conn) denied(args [][]byte, stats *series) bool {
	if c.limits.Load() == nil {
		return false
	}
	v := c.verdict(args)
	if v.Reason == acl.Allowed {
		if c.limits.Load() != nil {
			c.claim(c.info.user)
		}
		return false
	}
	c.doing.Store(&v.Command.Full)
	c.srv.acllog.denied(c, v, c.context())
	c.refuse(stats, "NOPERM "+v.Denial())
	return true
}

// verdict returns whether the connection's user may run a command. A user with
// all permissions is not checked; the verdict then names no command.
func (c *conn) verdict(args [][]byte) acl.Verdict {
	u := c.limits.Load()
	if u == nil {
		return acl.Verdict{}
	}
	v := c.checkACL(u, args)
	if v.Reason != acl.Allowed && !c.local && c.refreshUsers() == nil {
		// A permission that another node granted is valid here as soon as that
		// node has replied, even if this node has not applied the change yet.
		// So this node reads the current users before it refuses.
		if u = c.limits.Load(); u == nil {
			return acl.Verdict{}
		}
		v = c.checkACL(u, args)
	}
	return v
}

// claim sets the user's name on the group that the next command joins. The
// state machine needs it, because it checks the commands that a script calls
// while the script runs.
func (c *conn) claim(user string) {
	if c.group.User() == user {
		return
	}
	if c.group.Ops() > 0 { // these commands were queued while the user had no rules
		c.flush()
	}
	c.reset()
	c.group.As(user)
}

func (c *conn) checkACL(u *acl.User, args [][]byte) acl.Verdict {
	cmd := c.srv.catalog.Resolve(args)
	if cmd == nil { // cannot happen: the caller has found the command in the tables
		unknown := &acl.Command{Command: &fsm.Command{}, Full: string(args[0])}
		return acl.Verdict{Reason: acl.DeniedCommand, Command: unknown}
	}
	return u.Check(cmd, args)
}

// patternRefused returns the error for a SORT command that may not read the
// keys that its patterns name. It returns "" for every other command.
func (c *conn) patternRefused(cmd *fsm.Command, args [][]byte) string {
	if cmd != c.srv.sort && cmd != c.srv.sortRO {
		return ""
	}
	if c.srv.cfg.Mode == Clustered {
		if option := fsm.SortPattern(args); option != "" {
			return "ERR " + option + " option of SORT denied in Cluster mode."
		}
	}
	if u := c.limits.Load(); u != nil {
		return u.CheckPatterns(c.srv.catalog.Resolve(args), args)
	}
	return ""
}

// context returns the context of the connection's commands, as ACL LOG reports
// it.
func (c *conn) context() string {
	if c.multi != nil {
		return "multi"
	}
	return "toplevel"
}

// recheck checks the commands of a transaction again at EXEC, because the rules
// may have changed since the commands were queued. A command that is no longer
// allowed gets an error as its reply; the others are executed.
func (c *conn) recheck(m *multi) {
	u := c.limits.Load()
	if u == nil {
		return
	}
	c.claim(c.info.user)
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
		}
		q.refused = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
			"This command is no longer allowed for the following reason: " + reason
		c.srv.acllog.denied(c, v, "multi")
	}
}
