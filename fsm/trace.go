package fsm

// Trace is told what entries do while they are applied, command by command: for
// verify, which runs the same commands on a real Redis. It has no influence on
// state and replies.
//
// The arguments and the reply are valid during the call only.
type Trace struct {
	// Ran is told of a command that ran, alone, in a transaction, or as an effect of a
	// script. A script that the machine runs itself is one command. proto is the RESP
	// version of the connection that sent it.
	Ran func(db int, args [][]byte, reply Reply, proto int)
	// Served is told of a suspended command that was given its reply.
	Served func(db int, args [][]byte, reply Reply)
	// Expired is told of a key whose time is over, before the commands that find it
	// absent. It may be told more than once.
	Expired func(db int, key string)
}

// Trace sets who is told of what Apply does from now on, nil for nobody. Forks are
// not traced.
func (m *Machine) Trace(t *Trace) { m.trace = t }

// ran tells the trace of a command.
func (c *Ctx) ran(db int, args [][]byte, reply Reply) {
	if t := c.m.trace; t != nil && !c.readOnly {
		t.Ran(db, args, reply, c.proto)
	}
}

// tracedServe tells the trace of a waiter.
func (c *Ctx) tracedServe(n *waiter, reply Reply) {
	if t := c.m.trace; t != nil {
		t.Served(n.db, n.args, reply)
	}
}

// tracedExpiry tells the trace of a key whose time is over.
func (c *Ctx) tracedExpiry(db int, key string) {
	if t := c.m.trace; t != nil {
		t.Expired(db, key)
	}
}

// tracedOverdue tells the trace of the keys whose time is over and that stay for
// the next entry: see expireDue.
func (c *Ctx) tracedOverdue() {
	if c.m.trace == nil {
		return
	}
	c.m.expiry.tree.Scan(func(d due) bool {
		if d.deadline <= c.now {
			c.tracedExpiry(d.db, d.obj.key)
		}
		return d.deadline <= c.now
	})
}

// ScriptText returns the text of a script in the cache.
func (m *Machine) ScriptText(sha string) (text string, known bool) { return m.scripts.get(sha) }
