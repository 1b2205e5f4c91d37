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
	{"cluster", "Cluster", "`READONLY` and `READWRITE` choose the freshness of reads. The others are for clients of Redis Cluster and want nodes with `--cluster-mode`; without it every node takes every key, and they answer as a Redis does that is no cluster."},
	{"server", "Server", "Answered by the node that holds the connection, save what reads or changes keys."},
	{"hash", "Hashes", ""},
	{"list", "Lists", "What waits (`BLPOP` and its kin) waits in one queue for each key, for the clients of all nodes."},
	{"set", "Sets", ""},
	{"sorted-set", "Sorted sets", ""},
	{"stream", "Streams", ""},
	{"bitmap", "Bitmaps", ""},
	{"pubsub", "Pub/sub", "Messages reach the subscribers of every node in the order of the log. The numbers are those of the node that is asked."},
	{"scripting", "Scripts and functions", "What may write is run once, by the leader, all or nothing; the read-only forms (`EVAL_RO` and its kin) are reads."},
	{"hyperloglog", "HyperLogLog", "Values are those of Redis to the byte, and so are counts. One thing is different: `PFCOUNT` is a read and leaves the value alone, where Redis notes the count in bytes 8 to 15 of it. So it wakes no `WATCH` and no cache, `CLIENT PAUSE WRITE` does not hold it up, and a script that may not write may call it."},
	{"geo", "Geo", "Scores, places and the order of results are those of Redis. Distances are the same to the bit on every machine here, and those of Redis but for the last bit of about one in 600, which `STOREDIST` stores; of those that are answered, with four decimals, about one in a million is one unit off. (The C library below Redis rounds its sines not quite correctly, and differently from processor to processor.) Of members that are equally far, `COUNT` takes the first in the order of results. A search looks at 4194304 members at the most."},
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
			title, text = docFamilies[i].title, docFamilies[i].text
		}
		if text != "" {
			text += "\n\n"
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
			// Redis' own words, in which ! marks the name of an argument.
			doc += ": " + strings.ReplaceAll(cmd.ReplacedBy, "`!", "`")
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
