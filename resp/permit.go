package resp

import (
	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// denied refuses a command that the rules of the connection's user do not allow.
// For a user who may do everything that is one look at a pointer.
func (c *conn) denied(args [][]byte, stats *series) bool {
	u := c.limits.Load()
	if u == nil {
		return false
	}
	v := c.judge(u, args)
	if v.Reason != acl.Allowed && !c.local && c.refreshUsers() == nil {
		// What was granted on another node is good here from its reply on, not
		// from when this node hears of it.
		if u = c.limits.Load(); u == nil {
			return false
		}
		v = c.judge(u, args)
	}
	if v.Reason == acl.Allowed {
		c.claim(c.info.user)
		return false
	}
	c.doing.Store(&v.Command.Full)
	c.srv.acllog.denied(c, v, c.context())
	c.refuse(stats, "NOPERM "+v.Denial())
	return true
}

// claim puts the name of a user with rules on the group that the next command
// joins: what scripts call is checked where they run.
func (c *conn) claim(user string) {
	if c.group.User() == user {
		return
	}
	if c.group.Ops() > 0 { // came when the user had no rules yet
		c.flush()
	}
	c.reset()
	c.group.As(user)
}

func (c *conn) judge(u *acl.User, args [][]byte) acl.Verdict {
	cmd := c.srv.catalog.Resolve(args)
	if cmd == nil { // excluded by the caller, which has found it in the tables
		return acl.Verdict{Reason: acl.DeniedCommand, Command: &acl.Command{Command: &fsm.Command{}, Full: string(args[0])}}
	}
	return u.Check(cmd, args)
}

// patternRefused says why a SORT may not look at keys that its patterns name, ""
// for every other command.
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

// context is where the connection's commands come from, as ACL LOG has it.
func (c *conn) context() string {
	if c.multi != nil {
		return "multi"
	}
	return "toplevel"
}

// allowsChannel reports whether the connection's user may use a channel, or
// subscribe to a pattern of channels, as the users are now.
func (c *conn) allowsChannel(channel string, pattern bool) bool {
	u := c.limits.Load()
	return u == nil || u.AllowsChannel(channel, pattern)
}

// forbidden returns the connections that have subscribed to something that their
// users may not use.
func (h *hub) forbidden() []*conn {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var out []*conn
	for kind, topics := range h.topics {
		for name, t := range topics {
			for _, s := range t.subs {
				if !s.c.allowsChannel(name, topicKind(kind) == patterns) {
					out = append(out, s.c)
				}
			}
		}
	}
	return out
}

// recheck judges the commands of a transaction again, because the rules may have
// changed since they were queued. Those that are no longer allowed get an error
// in their place, and the rest is run.
func (c *conn) recheck(m *multi) {
	u := c.limits.Load()
	if u == nil {
		return
	}
	c.claim(c.info.user)
	for i := range m.cmds {
		q := &m.cmds[i]
		v := c.judge(u, q.args)
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
