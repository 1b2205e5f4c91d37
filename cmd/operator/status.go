package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/fatih/color"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// Exit codes of status, for scripts.
const (
	exitUnreachable = terminal.ExitCode(3) // the node does not answer
	exitNoLeader    = terminal.ExitCode(4) // the node reaches no leader
	exitDegraded    = terminal.ExitCode(5) // there is a leader, and something needs attention
)

type statusOptions struct {
	addr   string
	login  client.LoginFlags
	asJSON bool
	watch  bool
	every  time.Duration
}

// statusCommand returns the command that shows the state of every node.
func statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [ADDR]",
		Short: "Show the state of every node",
		Long: `Show whether the cluster is healthy and how many more failures it tolerates. Then
show every member: id, role, term, commit index and applied index, lag,
addresses, feature version of the cluster, version of the program, uptime. Any
node can answer.

Exit codes: 0 the cluster is healthy; 3 the node cannot be reached; 4 the node
reaches no leader; 5 the cluster is degraded: it has a leader, but a member is
unreachable, starting or far behind, cannot take snapshots, or has an almost
full disk.`,
		Example: `  holdfast status 127.0.0.1:6380
  holdfast status --watch
  holdfast status --json | jq '.[] | select(.role=="leader").id'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := flags.AddrArg(cmd, args)
			if err != nil {
				return err
			}
			o.addr = cmp.Or(addr, o.addr)
			if o.watch {
				if err := terminal.CheckInterval(o.every); err != nil {
					return err
				}
			}
			login, err := o.login.Login()
			if err != nil {
				return err
			}
			if o.watch {
				return watchStatus(cmd.Context(), o, login, cmd.OutOrStdout())
			}
			return showStatus(cmd.Context(), o, login, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.addr, "addr", "127.0.0.1:6379", "client address of any node")
	o.login.Define(cmd.Flags())
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "refresh the status until Ctrl-C")
	cmd.Flags().DurationVar(&o.every, "interval", time.Second, "with --watch: time between two requests")
	cmd.MarkFlagsMutuallyExclusive("json", "watch")
	return cmd
}

// showStatus prints the status once and returns an exit code.
func showStatus(ctx context.Context, o statusOptions, login load.Login, out, errOut io.Writer) error {
	nodes, err := client.Status(ctx, o.addr, login)
	if err != nil {
		fmt.Fprintf(errOut, "holdfast: no status from %s: %v\n", o.addr, err)
		return exitUnreachable
	}
	v := verdict.Assess(nodes)
	if o.asJSON {
		err = terminal.PrintJSON(out, nodes)
	} else {
		err = printStatus(out, nodes, v)
	}
	if code := exitCode(v); err == nil && code != 0 {
		return code
	}
	return err
}

// watchStatus prints the status repeatedly until ctx ends. On a terminal, each
// output replaces the previous one.
func watchStatus(ctx context.Context, o statusOptions, login load.Login, out io.Writer) error {
	return terminal.Repeat(ctx, out, o.every, func(page io.Writer) error {
		nodes, err := client.Status(ctx, o.addr, login)
		fmt.Fprintf(page, "%s  %s\n", time.Now().Format(time.DateTime), o.addr)
		if err != nil {
			fmt.Fprintf(page, "no status: %v\n", err)
			return nil
		}
		return printStatus(page, nodes, verdict.Assess(nodes))
	})
}

func printStatus(out io.Writer, nodes []cluster.NodeStatus, v verdict.Verdict) error {
	headline := color.New(color.FgGreen, color.Bold)
	if exitCode(v) != 0 {
		headline = color.New(color.FgRed, color.Bold)
	}
	fmt.Fprintf(out, "%s\n\n", headline.Sprint(v.Sentence))
	t := terminal.NewTable("NODE", "ROLE", "TERM", "COMMIT", "APPLIED", "LAG", "FEATURES", "CLIENTS", "PEERS",
		"HTTP", "VERSION", "UPTIME", "DETAIL")
	for _, n := range nodes {
		c := roleColor(n)
		if !n.Reachable {
			detail := n.Detail
			if since := awaySince(n); since != "" {
				detail += "; last answer " + since
			}
			t.AppendRow(terminal.Row(c, n.ID, role(n), "-", "-", "-", "-", "-", "-", n.PeerAddr, "-", "-", "-", detail))
			continue
		}
		number := func(n uint64) string { return fmt.Sprint(n) }
		t.AppendRow(terminal.Row(c, n.ID, role(n), number(n.Term), number(n.Commit), number(n.Applied), number(n.Lag),
			fmt.Sprint(n.FeatureVersion), n.ClientAddr, n.PeerAddr, n.HTTPAddr, n.Version,
			time.Duration(n.Uptime*float64(time.Second)).Round(time.Second).String(), detail(n)))
	}
	if _, err := fmt.Fprintln(out, t.Render()); err != nil {
		return err
	}
	if line := memoryLine(nodes); line != "" {
		if _, err := fmt.Fprintf(out, "\n%s\n", line); err != nil {
			return err
		}
	}
	for _, line := range v.Advice {
		if _, err := fmt.Fprintf(out, "\nnote: %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// memoryLine returns the size of the data set and its limit, as the leader counts
// them, or "" if there is no leader.
func memoryLine(nodes []cluster.NodeStatus) string {
	for _, n := range nodes {
		if n.Role != "leader" || !n.Reachable {
			continue
		}
		limit := "without a limit"
		if n.MaxMemory > 0 {
			limit = "of " + units.BytesSize(float64(n.MaxMemory)) + " (maxmemory)"
		}
		return fmt.Sprintf("data set: %s %s", units.BytesSize(float64(n.DatasetBytes)), limit)
	}
	return ""
}

// role returns the role of a node as status shows it.
func role(n cluster.NodeStatus) string {
	if !n.Voter && n.Role == "follower" {
		return "learner"
	}
	return n.Role
}

// roleColor returns the color of a node's row.
func roleColor(n cluster.NodeStatus) *color.Color {
	switch {
	case !n.Reachable:
		return color.New(color.FgRed)
	case n.Role == "leader":
		return color.New(color.FgGreen)
	case n.Role != "follower" || n.SnapshotError != "":
		return color.New(color.FgYellow)
	}
	return terminal.Plain
}

// detail returns the reports of a reachable node that need attention.
func detail(n cluster.NodeStatus) string {
	var all []string
	for _, s := range []string{n.Detail, n.SnapshotError} {
		if s != "" {
			all = append(all, s)
		}
	}
	if n.FeaturesBlocked != "" {
		all = append(all, "feature version not raised: "+n.FeaturesBlocked)
	}
	return strings.Join(all, "; ")
}

// awaySince says when an unreachable node last answered, or "" if the node that
// was asked does not know.
func awaySince(n cluster.NodeStatus) string {
	if n.LastAnswer.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", n.LastAnswer.Local().Format(time.DateTime),
		time.Since(n.LastAnswer).Round(time.Second))
}
