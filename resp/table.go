package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp/locks"
	"github.com/holdfast-kv/holdfast/resp/metrics"
)

// row is a row of the command table. A command on data is executed by the
// cluster. A connection command is a command about the connection or the node;
// the connection executes it itself.
type row struct {
	// run executes a connection command. If it returns fsm.None, the client gets
	// no reply. run is nil for a command on data, and for a container that
	// requires a subcommand.
	run func(c *conn, args [][]byte) fsm.Reply
	hooks
	// cmd contains the properties of the command that all layers use. For a
	// command on data it is the row of the state machine's table.
	cmd *fsm.Command
	// sub lists the subcommands of a container, each with its own run. For a
	// command on data, it lists only the subcommands that the connection executes
	// itself; the rows of all its subcommands are in cmd.
	sub []row
	// final is set if the command ends the node. The audit log then contains a
	// line for the start of the command, and a second line only if the command
	// fails.
	final bool

	// The following fields are computed when the table is built.

	data    bool // the command is a command on data
	audited bool // some calls of the command appear in the audit log
	parent  *row
	subs    map[string]*row
	stats   *metrics.Series
}

// hooks are functions of a command that connections call at certain points
// while they handle the command. A hook that is nil does nothing.
type hooks struct {
	// check returns the error for a command on data that must not run with these
	// arguments, or "". It is called directly before the command joins a group.
	// For the commands of a transaction, that is at EXEC.
	check func(c *conn, args [][]byte) (refusal string)
	// logged returns the command and the arguments with which a command on data
	// joins a group. It is called after check.
	logged func(c *conn, cmd *fsm.Command, args [][]byte) (*fsm.Command, [][]byte)
	// queued is called when MULTI queues the command. It may set q.refused.
	queued func(c *conn, q *queued)
	// refused is called when the command is refused. It returns the error text
	// for the client.
	refused func(c *conn, text string) string
	// granted is set for a blocking command that takes a lock. A grant to a waiter
	// is provisional until the connection claims it. granted is called with the
	// encoded reply, after the reply was passed to the writer.
	granted func(c *conn, args [][]byte, reply []byte)
	// answered is called after the reply has been written.
	answered func(c *conn)
	// tracks returns the effect of the command on the connection's tracking.
	tracks func(args [][]byte) trackingChange
	// secrets calls hide with the index of each argument that may be a
	// password. MONITOR, the slow log and the audit log do not show these
	// arguments.
	secrets func(args [][]byte, hide func(i int))
}

// dataHooks contains the hooks of commands on data, by name. Rows of the other
// commands contain their hooks themselves.
var dataHooks = map[string]hooks{
	"lock":     {check: checkLockList, logged: logLock, granted: deliverGrant},
	"publish":  {logged: logPublish},
	"spublish": {logged: logSpublish},
	"sort":     {check: checkSortPattern, logged: logSort},
	"sort_ro":  {check: checkSortPattern},
}

// ownSubs contains the subcommands of commands on data that connections execute
// themselves. Their properties are in the row of the state machine's table.
var ownSubs = map[string][]row{
	"lock": {
		// The state machine has a HELP too, for scripts and for log entries that
		// older programs have written. Its text is fixed for each feature version.
		{run: help, cmd: &fsm.Command{Name: "help"}},
		{run: lockHistory, cmd: &fsm.Command{Name: "history"}},
	},
}

// lockHistory executes LOCK HISTORY. This node answers from its own files, so the
// command also works while the cluster has no leader.
func lockHistory(c *conn, args [][]byte) fsm.Reply {
	q, fail := locks.ParseHistory(c.db, args)
	if fail.IsError() {
		return fail
	}
	a, err := c.srv.cluster.LockHistory(c.srv.life.ctx, q, c.local)
	if err != nil {
		return fsm.Error("ERR " + err.Error())
	}
	return locks.History(q.Key, a)
}

// dataRows returns the rows of the commands on data.
func dataRows(machine *fsm.Table) []row {
	var rows []row
	for _, cmd := range machine.Rows() {
		if cmd.Flags&fsm.Internal == 0 {
			sub := slices.Clone(ownSubs[cmd.Name])
			for i := range sub {
				sub[i].cmd = cmd.FindSub([]byte(sub[i].cmd.Name))
			}
			rows = append(rows, row{cmd: cmd, hooks: dataHooks[cmd.Name], data: true, sub: sub})
		}
	}
	return rows
}

// connectionFamilies lists the families of connection commands.
func connectionFamilies() [][]row {
	return [][]row{
		connectionRows,
		clientRows,
		transactionRows,
		commandRows,
		configRows,
		infoRows,
		replicationRows,
		persistenceRows,
		debugRows,
		diagnosticRows,
		memoryRows,
		slowlogRows,
		latencyRows,
		monitorRows,
		lifecycleRows,
		aclRows,
		pubsubRows,
		clusterRows,
		absentRows,
		adminRows,
	}
}

// fullName returns the name as COMMAND prints it: "client|list".
func (r *row) fullName() string {
	if r.parent != nil {
		return r.parent.cmd.Name + "|" + r.cmd.Name
	}
	return r.cmd.Name
}

// has reports whether the row has one of the flags.
func (r *row) has(flags fsm.Flags) bool { return r.cmd.Flags&flags != 0 }

// prepare computes the fields that follow from the rest of the row. It works on
// copies, because the families and the state machine's table must not change.
func (r *row) prepare() {
	if len(r.sub) == 0 {
		return
	}
	r.subs = make(map[string]*row, len(r.sub))
	if r.data {
		for i := range r.sub {
			r.sub[i].parent = r
			r.subs[r.sub[i].cmd.Name] = &r.sub[i]
		}
		return
	}
	cmd := *r.cmd
	cmd.Sub = make([]fsm.Command, len(r.sub))
	r.cmd, r.sub = &cmd, slices.Clone(r.sub)
	for i := range r.sub {
		s := &r.sub[i]
		sub := *s.cmd
		if sub.Group == "" {
			sub.Group = cmd.Group
		}
		sub.Flags |= cmd.Flags & fsm.KeepsCaching
		s.parent, s.cmd = r, &sub
		r.subs[sub.Name] = s
		cmd.Sub[i] = sub
	}
}

// indexRows indexes the rows of families by name. It panics if a name occurs
// twice: that is a mistake in the program.
func indexRows(families ...[]row) map[string]*row {
	rows := make(map[string]*row)
	for _, family := range families {
		for i := range family {
			r := family[i] // a copy: the rows of the families stay unchanged
			if rows[r.cmd.Name] != nil {
				panic(fmt.Sprintf("resp: the command table contains %q twice", r.cmd.Name))
			}
			r.prepare()
			r.setAudited()
			for i := range r.sub {
				r.sub[i].setAudited()
			}
			rows[r.cmd.Name] = &r
		}
	}
	return rows
}

// clientPortRows indexes the rows of a client port.
func clientPortRows(machine *fsm.Table) map[string]*row {
	return indexRows(append(connectionFamilies(), dataRows(machine))...)
}

// commandTable contains all commands of a port. It does not change while the
// port is open, so any goroutine may read it.
type commandTable struct {
	rows map[string]*row // by name, in lower case
	// machine is the state machine's table. It also contains the internal
	// commands, which clients cannot call.
	machine *fsm.Table
	catalog *acl.Catalog

	// These rows of machine replace commands that clients send (see withReceivers,
	// logSort and logLock), or are added to a group (see conn.position and track).
	publish, spublish, position, sortRO, acquire *fsm.Command
}

// newCommandTable returns the commands of a client port or, if sentinel is set,
// of a Sentinel port.
func newCommandTable(machine *fsm.Table, sentinel bool) commandTable {
	t := commandTable{machine: machine, catalog: NewCatalog(machine)}
	if sentinel {
		t.rows = indexRows(sentinelFamilies()...)
	} else {
		t.rows = clientPortRows(machine)
	}
	t.publish, t.spublish = t.internal(fsm.PublishCommand), t.internal(fsm.SpublishCommand)
	t.position, t.sortRO = t.internal(fsm.PositionCommand), t.internal("sort_ro")
	t.acquire = t.internal(command.AcquireCommand)
	return t
}

// internal returns the row of a command that the server itself uses.
func (t *commandTable) internal(name string) *fsm.Command { return t.machine.Find([]byte(name)) }

// find returns the row of the command that args call, or of its subcommand. If the
// command is unknown, find returns the error for the client. If only the subcommand
// is unknown, find returns the error and the row of the container. For a subcommand
// that the cluster executes, find returns the row of the container.
func (t *commandTable) find(args [][]byte) (r *row, refusal string) {
	r = lookup(t.rows, args[0])
	switch {
	case r == nil:
		return nil, fsm.UnknownCommand(args)
	case len(args) < 2:
	case r.subs != nil:
		sub := lookup(r.subs, args[1])
		if sub == nil && !r.data {
			return r, fsm.UnknownSubcommand(args[1], upper(r.cmd.Name))
		}
		if sub != nil {
			return sub, ""
		}
	}
	switch {
	case len(args) < 2:
	case r.data && r.cmd.Sub != nil && r.cmd.FindSub(args[1]) == nil:
		return r, fsm.UnknownSubcommand(args[1], upper(r.cmd.Name))
	}
	return r, ""
}

// wrongArity returns the error for a wrong number of arguments, or "".
func (r *row) wrongArity(args [][]byte) string {
	switch {
	case !r.cmd.ArityOK(len(args)):
		return fsm.WrongArity(r.fullName())
	case !r.data || r.cmd.Sub == nil || len(args) < 2:
		return ""
	}
	if sub := r.cmd.FindSub(args[1]); !sub.ArityOK(len(args)) {
		return fsm.WrongArity(r.cmd.Name + "|" + sub.Name)
	}
	return ""
}

// lookup finds the row of a name. The case of the letters does not matter.
// lookup does not allocate.
func lookup(rows map[string]*row, name []byte) *row {
	if r := rows[string(name)]; r != nil {
		return r
	}
	var low [32]byte
	if len(name) > len(low) {
		return nil
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	return rows[string(low[:len(name)])]
}

func upper(s string) string { return strings.ToUpper(s) }

// ConnectionCommands returns the commands that connections execute themselves, for
// the documentation. It leaves out the commands that only reply that they are not
// supported.
func ConnectionCommands() []fsm.Command {
	var out []fsm.Command
	for _, family := range connectionFamilies() {
		for _, r := range family {
			if !r.has(fsm.Hidden) {
				r.prepare()
				out = append(out, *r.cmd)
			}
		}
	}
	return out
}

// NewCatalog returns the catalog of all commands: the commands of the state
// machine's table that clients may send, the commands that this package executes,
// including those of a Sentinel port, and the commands in onlyInRules.
func NewCatalog(machine *fsm.Table) *acl.Catalog {
	rows := clientPortRows(machine)
	for name, r := range indexRows(sentinelFamilies()...) {
		if rows[name] == nil {
			rows[name] = r
		}
	}
	var all []*fsm.Command
	for _, r := range rows {
		all = append(all, r.cmd)
	}
	slices.SortFunc(all, func(a, b *fsm.Command) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range onlyInRules {
		all = append(all, &fsm.Command{Name: name, Arity: -1})
	}
	return acl.NewCatalog(all)
}

// onlyInRules are the commands of Redis 7.0 that this server does not have. ACL
// rules may name them, without effect, so that the ACL file of a Redis server
// can be used unchanged.
var onlyInRules = []string{"migrate", "replconf"}

// helpRow returns the HELP subcommand of a container. It prints the subcommands
// from their rows.
func helpRow(since string, categories ...string) row {
	return row{run: help, cmd: &fsm.Command{
		Name: "help", Arity: 2,
		Flags:      fsm.Loading | fsm.Stale,
		Since:      since,
		Complexity: "O(1)",
		Doc:        "Print the subcommands",
		Categories: categories,
	}}
}

func help(c *conn, args [][]byte) fsm.Reply {
	r := lookup(c.srv.cmds.rows, args[0])
	lines := []fsm.Reply{fsm.Simple(upper(r.cmd.Name) + " <subcommand> [<arg> ...]. Subcommands are:")}
	for i := range r.cmd.Sub {
		s := &r.cmd.Sub[i]
		lines = append(lines,
			fsm.Simple(strings.TrimSpace(upper(s.Name)+" "+s.Syntax)), fsm.Simple("    "+s.Doc+"."))
	}
	return fsm.Array(lines)
}
