package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// commandsDocCommand is how docs/commands.md is made: see the Makefile.
func commandsDocCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "commands",
		Short:  "Print docs/commands.md, made from the command table",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeCommandsDoc(cmd.OutOrStdout(), publicRows())
		},
	}
}

// publicRows are the rows that clients may call: those of the machine and those
// that the client port answers by itself.
func publicRows() []fsm.Command {
	var rows []fsm.Command
	for _, cmd := range fsm.NewTable().Rows() {
		rows = append(rows, *cmd)
	}
	rows = append(rows, resp.SessionRows()...)
	rows = slices.DeleteFunc(rows, func(cmd fsm.Command) bool { return cmd.Flags&fsm.Internal != 0 })
	slices.SortFunc(rows, func(a, b fsm.Command) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// docFamilies are the families in the order in which a reader wants them, with
// what is to be said of each. A family that is missing here follows at the end.
var docFamilies = []struct{ name, title, text string }{
	{"string", "Strings", "Locks live here: `SET key token NX PX milliseconds` takes one, `DELIFEQ` or `DELEX key IFEQ token` gives it back."},
	{"generic", "Keys", "What concerns keys of any type, times to live among it."},
	{"transactions", "Transactions", "The connection queues; `EXEC` sends all of it as one operation, which goes through the log whole if anything in it writes, and is a read otherwise. `WATCH` reads the versions of its keys; the operation checks them."},
	{"connection", "Connection", "Answered by the node that holds the connection."},
	{"cluster", "Cluster", "Holdfast does not answer as a Redis Cluster: every node takes every key. These two choose the freshness of reads."},
	{"server", "Server", "Answered by the node that holds the connection, save what reads or changes keys."},
}

const commandsDocHead = `# Commands

<!-- Made by "make docs" from the command table. Do not edit: change the row. -->

Replies, errors, arity and options are those of Redis %s, for these commands; every other name gets Redis' own
"unknown command" error. *Since* is the first Redis version with the command ("valkey …" where it is Valkey's, "holdfast" where it
is ours). *Arity* counts the name; a negative one means "at least". Where a command goes:

| word | what it means |
|---|---|
| write | goes through the log: acknowledged once it is on disk on a majority |
| read | linearizable on every node; local, and possibly old, after ` + "`READONLY`" + ` on the connection |
| node | answered by the node that holds the connection, from its own state |

`

// writeCommandsDoc prints the page: one table a family, one line a command and
// one a subcommand.
func writeCommandsDoc(out io.Writer, rows []fsm.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, commandsDocHead, resp.RedisVersion)
	byFamily := make(map[string][]fsm.Command)
	var order []string
	for _, f := range docFamilies {
		order = append(order, f.name)
	}
	for _, cmd := range rows {
		byFamily[cmd.Group] = append(byFamily[cmd.Group], cmd)
		if !slices.Contains(order, cmd.Group) {
			order = append(order, cmd.Group)
		}
	}
	for i, family := range order {
		if len(byFamily[family]) == 0 {
			continue
		}
		title, text := family, ""
		if i < len(docFamilies) {
			title, text = docFamilies[i].title, docFamilies[i].text+"\n\n"
		}
		fmt.Fprintf(&b, "## %s\n\n%s| command | arguments | arity | since | goes | what it does |\n|---|---|---|---|---|---|\n", title, text)
		for i := range byFamily[family] {
			cmd := &byFamily[family][i]
			writeCommandDoc(&b, cmd.Name, cmd, cmd)
			for i := range cmd.Sub {
				writeCommandDoc(&b, cmd.Name+" "+cmd.Sub[i].Name, &cmd.Sub[i], cmd)
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d commands.\n", len(rows))
	_, err := io.WriteString(out, b.String())
	return err
}

func writeCommandDoc(b *strings.Builder, name string, cmd, container *fsm.Command) {
	doc := cmd.Doc
	if cmd.DeprecatedSince != "" {
		doc += " (deprecated since " + cmd.DeprecatedSince
		if cmd.ReplacedBy != "" {
			doc += ": " + cmd.ReplacedBy
		}
		doc += ")"
	}
	since := cmd.Since
	if since == "" {
		since = container.Since
	}
	cells := []string{strings.ToUpper(name), codeCell(cmd.Syntax), strconv.Itoa(cmd.Arity), since, route(cmd, container), doc}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func codeCell(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// route says where a command is carried out. Rows without a function belong to
// the client port.
func route(cmd, container *fsm.Command) string {
	switch {
	case cmd.IsWrite() || container.IsWrite():
		return "write"
	case cmd.Run == nil && container.Run == nil:
		return "node"
	}
	return "read"
}
