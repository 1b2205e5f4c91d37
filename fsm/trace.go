package fsm

// Trace is a set of functions that Apply calls for what an entry does, command
// by command. Package verify uses it to execute the same commands on a real
// Redis. A trace does not affect the state or the replies.
//
// The arguments and the reply are valid only during the call.
type Trace struct {
	// Ran is called for a command that was executed: alone, in a transaction,
	// or as an effect of a script. A script that the machine executes natively
	// is one command. proto is the RESP version of the connection that sent the
	// command.
	Ran func(db int, args [][]byte, reply Reply, proto int)
	// Served is called for a blocking command that was given its reply.
	Served func(db int, args [][]byte, reply Reply)
	// Expired is called for a key whose deadline has passed, before the
	// commands that find the key absent. It may be called more than once for a
	// key.
	Expired func(db int, key string)
}

// Trace sets the trace for further calls of Apply, nil for none. Clones are not
// traced.
func (m *Machine) Trace(t *Trace) { m.trace = t }

// ran reports a command to the trace.
func (c *Ctx) ran(db int, args [][]byte, reply Reply) {
	if t := c.m.trace; t != nil && !c.readOnly {
		t.Ran(db, args, reply, c.proto)
	}
}

// tracedServe reports a served waiter to the trace.
func (c *Ctx) tracedServe(n *waiter, reply Reply) {
	if t := c.m.trace; t != nil {
		t.Served(n.db, n.args, reply)
	}
}

// tracedExpiry reports a key whose deadline has passed to the trace.
func (c *Ctx) tracedExpiry(db int, key string) {
	if t := c.m.trace; t != nil {
		t.Expired(db, key)
	}
}

// tracedPendingExpiry reports to the trace the keys whose deadline has passed
// and that only a later entry removes: see expireDue.
func (c *Ctx) tracedPendingExpiry() {
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
