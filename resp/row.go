package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// row is a command that concerns the connection or the node, not data. The
// embedded fsm.Command carries what COMMAND prints; its Run stays nil.
type row struct {
	cmd fsm.Command
	// run answers. A reply of kind none writes nothing. A container without run
	// needs a subcommand.
	run func(c *conn, args [][]byte) fsm.Reply
	// sub are the subcommands of a container, each with its own run.
	sub []row

	// words, acl and tips become Flags, Categories and Tips of cmd; each is
	// separated by blanks, as COMMAND prints them.
	words, acl, tips string
	// inMulti rows are run at once inside MULTI instead of being queued.
	inMulti bool
	// noMulti rows are refused inside MULTI.
	noMulti bool
	// loud rows are answered on a connection that wants no replies, too.
	loud bool
	// subscribed rows may be run in RESP2 by a connection that has subscribed.
	subscribed bool
	// hidden rows only say why the server does not do such a thing: COMMAND
	// does not list them.
	hidden bool

	// What follows is filled in by sessionTable.

	parent *row
	subs   map[string]*row
	noAuth bool // may be used before the connection has authenticated
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
		feedRows,
		lifecycleRows,
		aclRows,
		pubsubRows,
		clusterRows,
		absentRows,
		adminRows,
	}
}

// fullName is the name as COMMAND prints it: "client|list".
func (r *row) fullName() string {
	if r.parent != nil {
		return r.parent.cmd.Name + "|" + r.cmd.Name
	}
	return r.cmd.Name
}

// wordFlags are the words that rows use.
var wordFlags = map[string]fsm.Flags{
	"readonly": fsm.ReadOnly, "admin": fsm.Admin, "noscript": fsm.NoScript, "loading": fsm.Loading, "stale": fsm.Stale, "fast": fsm.Fast,
	"no_auth": fsm.NoAuth, "no_async_loading": fsm.NoAsyncLoading, "no_multi": fsm.NoMulti, "pubsub": fsm.PubSub, "allow_busy": fsm.AllowBusy, "skip_slowlog": fsm.SkipSlowlog,
}

// prepare fills in what follows from the rest of the row.
func (r *row) prepare() {
	for _, word := range strings.Fields(r.words) {
		flag := wordFlags[word]
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

// sessionTable indexes the session rows of a client port.
func sessionTable(table *fsm.Table) map[string]*row { return indexRows(table, sessionFamilies()) }

// indexRows indexes the rows of families. It panics on a name that stands twice
// or in the machine's table too: a mistake in the program.
func indexRows(table *fsm.Table, families [][]row) map[string]*row {
	rows := make(map[string]*row)
	for _, family := range families {
		for i := range family {
			r := family[i] // a copy: the rows in the families stay constant
			if rows[r.cmd.Name] != nil || table.Find([]byte(r.cmd.Name)) != nil {
				panic(fmt.Sprintf("resp: command %q stands in the tables twice", r.cmd.Name))
			}
			r.prepare()
			rows[r.cmd.Name] = &r
		}
	}
	return rows
}

// lookup finds name in any case without allocating.
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

func (s *Server) findRow(name []byte) *row { return lookup(s.rows, name) }

func upper(s string) string { return strings.ToUpper(s) }

// SessionRows returns the rows of the commands that resp answers, for the
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

// helpRow is the HELP of a container: it prints the other subcommands from
// their rows.
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
