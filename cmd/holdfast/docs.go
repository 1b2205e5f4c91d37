package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
)

// commandsDocCommand returns the command that prints docs/commands.md: see the
// Makefile.
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

// publicRows returns the commands that clients may call: those of the state
// machine, and those that the client port executes itself.
func publicRows() []fsm.Command {
	var rows []fsm.Command
	for _, cmd := range command.NewTable().Rows() {
		rows = append(rows, *cmd)
	}
	rows = append(rows, resp.ConnectionCommands()...)
	rows = slices.DeleteFunc(rows, func(cmd fsm.Command) bool { return cmd.Flags&fsm.Internal != 0 })
	slices.SortFunc(rows, func(a, b fsm.Command) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// docFamilies are the families in the order of the page, each with an
// introduction. A family that is missing here follows at the end.
var docFamilies = []struct{ name, title, text string }{
	{"string", "Strings", "`SET key token NX PX milliseconds` takes a lock; `DELIFEQ` or `DELEX key IFEQ token` " +
		"releases it."},
	{"lock", "Locks", "A lock is a string whose value is its owner and whose time to live is its lease, so these " +
		"commands and `SET key owner NX PX milliseconds` use the same locks: see [locks.md](locks.md)."},
	{"generic", "Keys", "Commands for keys of any type, including their times to live."},
	{"transactions", "Transactions",
		"The connection queues the commands. `EXEC` sends the commands on data as one operation. The operation goes " +
			"through the log if any of them writes, and is a read otherwise. The node executes the connection " +
			"commands itself. `WATCH` reads the versions of its keys, and the operation checks them."},
	{"connection", "Connection", "The node that holds the connection answers these commands."},
	{"cluster", "Cluster", "`READONLY` and `READWRITE` choose the freshness of reads. The other commands are for " +
		"clients of Redis Cluster and require nodes with `--cluster-mode`. Without that flag, every node accepts " +
		"every key, and these commands reply like a Redis without cluster support."},
	{"server", "Server", "The node that holds the connection answers these commands, except those that read or " +
		"change keys."},
	{"hash", "Hashes", ""},
	{"list", "Lists", "Each key has one queue, shared by all nodes, for clients that wait in blocking commands such " +
		"as `BLPOP`."},
	{"set", "Sets", ""},
	{"sorted-set", "Sorted sets", ""},
	{"stream", "Streams", ""},
	{"bitmap", "Bitmaps", ""},
	{"pubsub", "Pub/sub", "Messages reach the subscribers of every node in the order of the log. Numbers of " +
		"subscribers and receivers are those of the node that answers."},
	{"scripting", "Scripts and functions",
		"A script that may write runs once, on the leader, and either completely or not at all. The read-only forms, " +
			"such as `EVAL_RO`, are reads."},
	{"hyperloglog", "HyperLogLog",
		"Values and counts are those of Redis, to the byte. There is one difference: `PFCOUNT` is a read and does " +
			"not change the value, while Redis stores the count in bytes 8 to 15 of the value. So `PFCOUNT` makes no " +
			"`WATCH` fail and invalidates no cache, `CLIENT PAUSE WRITE` does not delay `PFCOUNT`, and a read-only " +
			"script may call it."},
	{"geo", "Geo", "Scores, coordinates and the order of results are those of Redis. Distances are the same to the " +
		"bit on every machine. About one distance in 600 differs from Redis in its last bit, because the C library " +
		"that Redis uses does not always round sines correctly, and rounds differently on different processors. " +
		"`STOREDIST` stores the whole distance. Replies have four decimals, and about one in a million differs from " +
		"Redis by one in the last digit. If members are equally far away, `COUNT` takes the first members in the " +
		"order of results. A search looks at no more than 4194304 members."},
}

const commandsDocHead = `# Commands

<!-- Made by "make docs" from the command table. Do not edit: change the row. -->

These commands have the replies, errors, arity and options of Redis %s,
unless the column *since* names a later version or another project. A command
that is not on this page gets Redis' own "unknown command" error. PSYNC,
REPLICAOF, SLAVEOF and SYNC get an error that gives the reason.

*Since* is the first version of Redis that has the command. "valkey …" names a
version of Valkey, and "holdfast" marks our own commands. *Arity* counts the
name of the command; a negative number means "at least". *Kind* says which path
a command takes:

| kind | meaning |
|---|---|
| write | goes through the log, and is acknowledged when a majority has it on disk |
| read | linearizable on every node; local, and possibly old, after ` + "`READONLY`" + ` on the connection |
| node | the node that holds the connection answers it from its own state |

`

// docWidth is the width of the text in the pages under docs, in characters.
const docWidth = 80

// docWord matches a word of a page. Code in backquotes is one word.
var docWord = regexp.MustCompile("(?:`[^`]*`|[^\\s`])+")

// wrapText breaks a paragraph into lines of at most docWidth characters.
func wrapText(text string) string {
	var b strings.Builder
	width := 0
	for _, word := range docWord.FindAllString(text, -1) {
		n := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+n > docWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String()
}

// writeCommandsDoc prints the page: one table per family, with one line per
// command and subcommand.
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
			text = wrapText(text) + "\n\n"
		}
		fmt.Fprintf(&b, "## %s\n\n%s| command | arguments | arity | since | kind | what it does |\n"+
			"|---|---|---|---|---|---|\n", title, text)
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
			// The text comes from Redis, where ! marks the name of an argument.
			doc += ": " + strings.ReplaceAll(cmd.ReplacedBy, "`!", "`")
		}
		doc += ")"
	}
	since := cmd.Since
	if since == "" {
		since = container.Since
	}
	cells := []string{strings.ToUpper(name), codeCell(cmd.Syntax), strconv.Itoa(cmd.Arity), since,
		route(cmd, container), doc}
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

// route returns the kind of a command. Rows without a function belong to the
// client port.
func route(cmd, container *fsm.Command) string {
	switch {
	case cmd.IsWrite() || container.IsWrite():
		return "write"
	case cmd.Run == nil && container.Run == nil:
		return "node"
	}
	return "read"
}
