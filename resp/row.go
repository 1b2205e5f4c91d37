package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// row is a command that concerns the connection or the node, not data. cmd
// carries what COMMAND prints; its Run stays nil.
type row struct {
	cmd fsm.Command
	// run executes the command. A reply of kind none writes nothing. A
	// container without run requires a subcommand.
	run func(c *conn, args [][]byte) fsm.Reply
	// sub lists the subcommands of a container, each with its own run.
	sub []row

	// words, acl and tips become Flags, Categories and Tips of cmd. Each is a
	// list separated by blanks, in the names that COMMAND prints.
	words, acl, tips string
	// inMulti rows run at once inside MULTI; they are not queued.
	inMulti bool
	// noMulti rows are refused inside MULTI.
	noMulti bool
	// loud rows are answered even on a connection that has turned replies off.
	loud bool
	// subscribed rows may run in RESP2 on a connection that has subscribed.
	subscribed bool
	// hidden rows only explain why the server does not support a command.
	// COMMAND does not list them.
	hidden bool

	// prepare fills in the fields below.

	parent *row
	subs   map[string]*row
	noAuth bool // may run before the connection has authenticated
	stats  *series
}

// sessionFamilies lists the families of session commands.
func sessionFamilies() [][]row {
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

// namedFlags maps the names in row.words to flags.
var namedFlags = map[string]fsm.Flags{
	"readonly": fsm.ReadOnly, "admin": fsm.Admin, "noscript": fsm.NoScript, "loading": fsm.Loading, "stale": fsm.Stale, "fast": fsm.Fast,
	"no_auth": fsm.NoAuth, "no_async_loading": fsm.NoAsyncLoading, "no_multi": fsm.NoMulti, "pubsub": fsm.PubSub, "allow_busy": fsm.AllowBusy, "skip_slowlog": fsm.SkipSlowlog,
}

// prepare computes the fields that follow from the rest of the row.
func (r *row) prepare() {
	for _, word := range strings.Fields(r.words) {
		flag := namedFlags[word]
		if flag == 0 {
			panic(fmt.Sprintf("resp: command %q has the flag %q, which is none", r.cmd.Name, word))
		}
		r.cmd.Flags |= flag
	}
	r.cmd.Categories, r.cmd.Tips = strings.Fields(r.acl), strings.Fields(r.tips)
	r.noAuth = r.cmd.Flags&fsm.NoAuth != 0
	r.noMulti = r.noMulti || r.cmd.Flags&fsm.NoMulti != 0
	if len(r.sub) == 0 {
		return
	}
	r.subs = make(map[string]*row, len(r.sub))
	r.cmd.Sub = make([]fsm.Command, len(r.sub))
	r.sub = slices.Clone(r.sub)
	for i := range r.sub {
		s := &r.sub[i]
		s.parent = r
		s.prepare()
		if s.cmd.Group == "" {
			s.cmd.Group = r.cmd.Group
		}
		r.subs[s.cmd.Name] = s
		r.cmd.Sub[i] = s.cmd
	}
}

// sessionTable indexes the rows of a client port.
func sessionTable(table *fsm.Table) map[string]*row { return indexRows(table, sessionFamilies()) }

// indexRows indexes the rows of families. It panics if a name occurs twice, or
// also in the state machine's table: that is a mistake in the program.
func indexRows(table *fsm.Table, families [][]row) map[string]*row {
	rows := make(map[string]*row)
	for _, family := range families {
		for i := range family {
			r := family[i] // a copy: the rows of the families stay unchanged
			if rows[r.cmd.Name] != nil || table.Find([]byte(r.cmd.Name)) != nil {
				panic(fmt.Sprintf("resp: command %q stands in the tables twice", r.cmd.Name))
			}
			r.prepare()
			rows[r.cmd.Name] = &r
		}
	}
	return rows
}

// commands are the tables in which the server finds commands.
type commands struct {
	table *fsm.Table
	rows  map[string]*row
	// machine is the state machine's table, on a Sentinel port too: for the
	// internal commands.
	machine *fsm.Table
	catalog *acl.Catalog

	// Rows of table that the server itself uses: see forLog and position.
	publish, spublish, publishRow, spublishRow, positionRow, sort, sortRO *fsm.Command
}

// newCommands returns the tables of a client port or, if sentinel is set, of a
// Sentinel port. machine is the state machine's table.
func newCommands(machine *fsm.Table, sentinel bool) commands {
	c := commands{table: machine, machine: machine, catalog: NewCatalog(machine)}
	if sentinel {
		c.table = &fsm.Table{}
		c.rows = indexRows(c.table, sentinelFamilies())
	} else {
		c.rows = sessionTable(c.table)
	}
	find := func(name string) *fsm.Command { return c.table.Find([]byte(name)) }
	c.publish, c.spublish = find("publish"), find("spublish")
	c.publishRow, c.spublishRow = find(fsm.PublishCommand), find(fsm.SpublishCommand)
	c.positionRow = find(fsm.PositionCommand)
	c.sort, c.sortRO = find("sort"), find("sort_ro")
	return c
}

// lookup finds the row of a name in any case. It does not allocate.
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

func (s *Server) findRow(name []byte) *row { return lookup(s.cmds.rows, name) }

func upper(s string) string { return strings.ToUpper(s) }

// SessionRows returns the commands that package resp executes, for the
// documentation.
func SessionRows() []fsm.Command {
	var out []fsm.Command
	for _, family := range sessionFamilies() {
		for _, r := range family {
			if r.hidden {
				continue
			}
			r.prepare()
			out = append(out, r.cmd)
		}
	}
	return out
}

// helpRow returns the HELP subcommand of a container. It prints the other
// subcommands from their rows.
func helpRow(since string) row {
	return row{cmd: fsm.Command{Name: "help", Arity: 2, Since: since, Complexity: "O(1)", Doc: "Print the subcommands"}, words: "loading stale", run: help}
}

func help(c *conn, args [][]byte) fsm.Reply {
	r := c.srv.findRow(args[0])
	lines := []fsm.Reply{fsm.Simple(upper(r.cmd.Name) + " <subcommand> [<arg> ...]. Subcommands are:")}
	for i := range r.sub {
		s := &r.sub[i]
		lines = append(lines, fsm.Simple(strings.TrimSpace(upper(s.cmd.Name)+" "+s.cmd.Syntax)), fsm.Simple("    "+s.cmd.Doc+"."))
	}
	return fsm.Array(lines)
}
