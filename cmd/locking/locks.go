package locking

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/lock"
	"github.com/holdfast-kv/holdfast/lock/listing"
)

// requestLimit bounds the requests for one page of output, and the requests
// that break a lock. It is longer than the time that a node waits for a leader,
// so that the node's own error arrives first.
const requestLimit = 10 * time.Second

// locksOptions holds the flags of locks and of its subcommands.
type locksOptions struct {
	endpoint
	match, owner  string
	waited        bool
	asJSON, watch bool
	every         time.Duration
	yes           bool
	token         int64
	origins       listing.Origins
	noHistory     bool // the user may not read the history
}

func locksCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "locks",
		Short: "Show locks, their history and the clients that wait for them, and break locks",
		Long: `Show the locks that are held, the clients that wait for them, and who held a lock in
the past, or take a lock away from its owner. Any node can answer. Without a
subcommand, locks lists the locks, like "locks list".`,
		Example: `  holdfast locks list
  holdfast locks list --waited --watch
  holdfast locks info deploy --json
  holdfast locks history deploy --at 14:03:07
  holdfast locks break deploy`,
	}
	listInto(root)
	root.AddCommand(listCommand(), infoCommand(), historyCommand(), breakCommand())
	return root
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Args:  cobra.NoArgs,
		Short: "List the locks that are held, oldest grant first",
		Long: `List the locks that are held, whichever command took them, oldest grant first.
For locks that commands other than LOCK ACQUIRE have taken, the client and the time
of the grant come from the history of the node that answers. The command reads this
history for at most a second. If there are thousands of such locks, it shows the
client and the time only for the first ones. "holdfast locks history" shows them for
each lock.`,
		Example: `  holdfast locks list --match 'deploy:*'
  holdfast locks list --waited --watch`,
	}
	listInto(cmd)
	return cmd
}

// listInto makes cmd list locks.
func listInto(cmd *cobra.Command) {
	var o locksOptions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.show(cmd, func(ctx context.Context, nodes *lock.Nodes, out io.Writer) error {
			all, err := o.list(ctx, nodes)
			if err != nil {
				return err
			}
			if err := o.addHistory(ctx, nodes, all); err != nil {
				return err
			}
			if o.asJSON {
				return terminal.PrintJSON(out, all)
			}
			return printLocks(out, all, o.match != "" || o.owner != "" || o.waited)
		})
	}
	f := cmd.Flags()
	f.StringVar(&o.match, "match", "", "list only the keys that match this pattern, as in SCAN")
	f.StringVar(&o.owner, "owner", "", "list only the locks of this owner")
	f.BoolVar(&o.waited, "waited", false, "list only the locks for which clients wait")
	o.defineOutput(cmd)
}

func infoCommand() *cobra.Command {
	var o locksOptions
	cmd := &cobra.Command{
		Use:     "info KEY",
		Short:   "Describe a lock: its owner, its lease, and the clients that wait, in order",
		Example: `  holdfast locks info deploy`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.show(cmd, func(ctx context.Context, nodes *lock.Nodes, out io.Writer) error {
				d, err := infoOf(ctx, nodes, args[0])
				if err == nil {
					err = o.addHistory(ctx, nodes, []listing.Lock{d})
				}
				switch {
				case err != nil:
					return err
				case o.asJSON:
					return terminal.PrintJSON(out, d)
				case d == nil:
					_, err := fmt.Fprintf(out, "%s is free, and no client waits for it\n", terminal.Shown(args[0]))
					return err
				}
				return printInfo(out, d)
			})
		},
	}
	o.defineOutput(cmd)
	return cmd
}

func breakCommand() *cobra.Command {
	var o locksOptions
	cmd := &cobra.Command{
		Use:   "break KEY",
		Short: "Take a lock away from its owner and give it to the next waiter",
		Long: `Take a lock away from its owner. The next client that waits gets the lock at once. The
owner learns of the loss only at its next renewal, so first make sure that the owner
has stopped, or that the resource checks fencing tokens.

break shows the owner of the lock and asks for confirmation. It breaks only the grant
that it has shown: if another owner gets the lock in the meantime, that owner keeps it.
If several owners share the lock, break takes it away from all the owners that it has
shown, or only from the owner with the token of --token.`,
		Example: `  holdfast locks break deploy
  holdfast locks break deploy --token 41 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := o.open()
			if err != nil {
				return err
			}
			return errors.Join(o.breakLock(cmd, nodes, args[0]), nodes.Close())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	f.Int64Var(&o.token, "token", 0, "break only the grant with this token (default: any)")
	o.define(f)
	return cmd
}

func (o *locksOptions) defineOutput(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.BoolVar(&o.watch, "watch", false, "refresh the output until Ctrl-C")
	f.DurationVar(&o.every, "interval", time.Second, "with --watch: time between two requests")
	cmd.MarkFlagsMutuallyExclusive("json", "watch")
	o.define(f)
}

// show prints a page once or, with --watch, repeatedly until the context ends. On
// a terminal, each page then replaces the previous one.
func (o *locksOptions) show(cmd *cobra.Command, page func(context.Context, *lock.Nodes, io.Writer) error) (err error) {
	if o.watch {
		if err := terminal.CheckInterval(o.every); err != nil {
			return err
		}
	}
	nodes, err := o.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	ask := func(out io.Writer) error {
		ctx, stop := context.WithTimeout(cmd.Context(), requestLimit)
		defer stop()
		return page(ctx, nodes, out)
	}
	if !o.watch {
		return ask(cmd.OutOrStdout())
	}
	return terminal.Repeat(cmd.Context(), cmd.OutOrStdout(), o.every, func(text io.Writer) error {
		if err := ask(text); err != nil {
			fmt.Fprintf(text, "holdfast: %v\n", err)
		}
		return nil
	})
}

// list asks for all locks that match the options.
func (o *locksOptions) list(ctx context.Context, nodes *lock.Nodes) ([]listing.Lock, error) {
	all := []listing.Lock{}
	q := listing.Query{Match: o.match, Owner: o.owner, Waited: o.waited, Count: 10_000}
	for cursor := "0"; ; {
		found, next, err := listing.List(ctx, nodes, q, cursor)
		if err != nil {
			return nil, explain(err)
		}
		all = append(all, found...)
		if cursor = next; cursor == "0" {
			return all, nil
		}
	}
}

// historyLimit bounds the time for which addHistory reads the history of locks.
const historyLimit = time.Second

// addHistory adds fields from the history of a node to the locks that were not
// acquired with LOCK ACQUIRE. If the node refuses or does not answer in time,
// addHistory leaves the remaining ones of these locks without the fields,
// because the list is useful without them too. Once the node has refused with
// NOPERM, addHistory does not ask again.
func (o *locksOptions) addHistory(ctx context.Context, nodes *lock.Nodes, all []listing.Lock) error {
	if o.noHistory {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, historyLimit)
	defer stop()
	for more := true; more; {
		more = false
		if err := o.origins.Add(listing.Scope{}, all, func(keys []string) ([]any, error) {
			replies, err := listing.AskHistory(ctx, nodes, keys)
			o.noHistory = err != nil && strings.HasPrefix(err.Error(), "NOPERM")
			more = err == nil && len(keys) == listing.MaxOriginAsks
			return replies, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// infoOf asks for one lock, as listing.Info does.
func infoOf(ctx context.Context, nodes *lock.Nodes, key string) (listing.Lock, error) {
	l, err := listing.Info(ctx, nodes, key)
	if err != nil {
		return nil, explain(err)
	}
	return l, nil
}

func (o *locksOptions) breakLock(cmd *cobra.Command, nodes *lock.Nodes, key string) error {
	ctx, stop := context.WithTimeout(cmd.Context(), requestLimit)
	d, err := infoOf(ctx, nodes, key)
	stop()
	if err != nil {
		return err
	}
	tokens := d.Tokens()
	switch {
	case len(tokens) == 0:
		return fmt.Errorf("the lock %q is free", key)
	case o.token != 0 && !slices.Contains(tokens, o.token):
		return fmt.Errorf("the current grant of the lock %q has token %s, not %d: nothing was broken", key,
			joined(tokens), o.token)
	case o.token != 0:
		tokens = []int64{o.token}
	}
	if err := printInfo(cmd.OutOrStdout(), d); err != nil {
		return err
	}
	if !o.yes {
		ok, err := confirm(cmd, "Take the lock away from its owner?")
		if err != nil || !ok {
			return err
		}
	}
	ctx, stop = context.WithTimeout(cmd.Context(), requestLimit)
	defer stop()
	broken := 0
	for _, token := range tokens {
		n, err := nodes.Do(ctx, "LOCK", "BREAK", key, token).Int64()
		if err != nil {
			return explain(err)
		}
		if n == 0 {
			continue
		}
		broken++
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "the grant with token %d was broken\n", token); err != nil {
			return err
		}
	}
	if broken == 0 {
		return fmt.Errorf("each grant (token %s) has ended in the meantime: nothing was broken", joined(tokens))
	}
	return nil
}

// joined returns tokens for a message.
func joined(tokens []int64) string {
	var all []string
	for _, t := range tokens {
		all = append(all, strconv.FormatInt(t, 10))
	}
	return strings.Join(all, ", ")
}

// confirm asks a question on the terminal.
func confirm(cmd *cobra.Command, question string) (bool, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false, errors.New("standard input is not a terminal, so break cannot ask for confirmation: set --yes")
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s [y/N] ", question); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing was broken")
	return false, err
}

// explain adds a remedy to some errors of a node.
func explain(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("%w (set --password-file, and --user if it is not the default user)", err)
	case strings.HasPrefix(text, "ERR unknown command"):
		return fmt.Errorf("%w (is this a node of Holdfast?)", err)
	}
	return err
}

// ms returns a field in milliseconds as the text of a duration, rounded for a
// reader, or "-" if there is no such field.
func ms(d listing.Lock, name string) string {
	n, ok := d[name].(int64)
	if !ok || n < 0 {
		return "-"
	}
	t := time.Duration(n) * time.Millisecond
	if t > 10*time.Second {
		t = t.Round(time.Second)
	}
	return t.String()
}

// clientOf describes the client of a lock: its address (or its id if the
// address is not known), its name, and the node that it is connected to.
func clientOf(d listing.Lock) string {
	var all []string
	for _, name := range []string{"addr", "name"} {
		if s := d.Text(name); s != "" {
			all = append(all, terminal.Shown(s))
		}
	}
	if id := d.Int("client-id"); id != 0 && d.Text("addr") == "" {
		all = append([]string{fmt.Sprintf("client %d", id)}, all...)
	}
	if node := d.Text("node"); node != "" {
		all = append(all, "at "+node)
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, " ")
}

// printLocks prints locks. If filtered is true, the request had a filter, and
// the cluster may have locks that are not in the list.
func printLocks(out io.Writer, all []listing.Lock, filtered bool) error {
	if len(all) == 0 {
		text := "no lock is held"
		if filtered {
			text += " that matches"
		}
		_, err := fmt.Fprintln(out, text)
		return err
	}
	t := terminal.NewTable("KEY", "OWNER", "MODE", "TOKEN", "HELD", "TTL", "WAITING", "CLIENT")
	for _, d := range all {
		held, client := "-", "-" // not known if the history does not contain the grant
		if d.Int("acquired-ms") > 0 {
			held, client = ms(d, "held-ms"), clientOf(d)
		}
		t.AppendRow(table.Row{terminal.Shown(d.Text("key")), terminal.Shown(d.Text("owner")), d.Mode(), d.Int("token"),
			held, ms(d, "ttl-ms"), d.Int("waiting"), client})
	}
	_, err := fmt.Fprintln(out, t.Render())
	return err
}

func printInfo(out io.Writer, d listing.Lock) error {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-10s %s\n", name+":", value) }
	line("key", terminal.Shown(d.Text("key")))
	if delay := d.Int("delay-ms"); delay > 0 {
		line("delay", ms(d, "delay-ms")+" left, because an owner has lost the lock: no client gets it")
	}
	if d.Int("token") == 0 {
		line("owner", "none (the lock is free)")
	} else {
		owner, ok := d["owner"].(string)
		switch {
		case ok:
			line("owner", terminal.Shown(owner))
		case len(d.Holders()) > 0:
			line("owners", strconv.Itoa(len(d.Holders())))
		default:
			line("owner", "unknown (the key is not a string)")
		}
		line("token", strconv.FormatInt(d.Int("token"), 10))
		if mode := d.Mode(); mode != "" {
			line("mode", mode)
		}
		if d.Int("ttl-ms") < 0 {
			line("lease", "never ends")
		} else {
			line("lease", ms(d, "ttl-ms")+" left")
		}
		if at := d.Int("acquired-ms"); at > 0 {
			text := fmt.Sprintf("%s, %s ago", time.UnixMilli(at).Format(time.RFC3339), ms(d, "held-ms"))
			if _, known := d["waited-ms"]; known { // only for locks that were acquired with LOCK ACQUIRE
				text += ", after a wait of " + ms(d, "waited-ms")
			}
			line("acquired", text)
			if _, known := d["renewals"]; known {
				line("renewals", strconv.FormatInt(d.Int("renewals"), 10))
			}
			line("client", clientOf(d))
		}
		if text := meta(d); text != "" {
			line("meta", text)
		}
	}
	if len(d.Holders()) > 0 {
		t := terminal.NewTable("TOKEN", "OWNER", "HELD", "TTL", "CLIENT", "META")
		for _, h := range d.Holders() {
			t.AppendRow(table.Row{h.Int("token"), terminal.Shown(h.Text("owner")), ms(h, "held-ms"), ms(h, "ttl-ms"),
				clientOf(h), meta(h)})
		}
		b.WriteString(t.Render() + "\n")
	}
	waiters := d.Waiters()
	line("waiting", strconv.Itoa(len(waiters)))
	if len(waiters) > 0 {
		t := terminal.NewTable("", "OWNER", "MODE", "WAITED", "CLIENT", "META")
		for i, w := range waiters {
			t.AppendRow(table.Row{i + 1, terminal.Shown(w.Text("owner")), w.Mode(), ms(w, "waited-ms"), clientOf(w),
				meta(w)})
		}
		b.WriteString(t.Render() + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// meta returns the text that a client has given to a lock, for a terminal.
func meta(d listing.Lock) string {
	if text := d.Text("meta"); text != "" {
		return terminal.Shown(text)
	}
	return ""
}
