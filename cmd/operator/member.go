package operator

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// memberCommand returns the command that lists and changes the members.
func memberCommand() *cobra.Command {
	var addr string
	var login client.LoginFlags
	cmd := &cobra.Command{
		Use:   "member",
		Short: "List or change the members of the cluster, or change its leader",
		Long: `List or change the members of the cluster, or transfer leadership. Any live node
accepts these commands.

To add a node, run "member add", and start the node with an empty data directory
and with --peers naming itself and at least one member. The order does not
matter. The node becomes a voter when it has caught up.`,
		Example: `  holdfast member add n4 10.0.0.4:7379 --addr 10.0.0.1:6379
  holdfast member remove n2 --addr 10.0.0.1:6379`,
	}
	cmd.PersistentFlags().StringVar(&addr, "addr", "127.0.0.1:6379", "client address of any live node")
	login.Define(cmd.PersistentFlags())
	// admin sends a HOLDFAST command to the node and prints the reply.
	admin := func(cmd *cobra.Command, args ...string) error {
		l, err := login.Login()
		if err != nil {
			return err
		}
		c, err := client.Dial(cmd.Context(), addr, l)
		if err != nil {
			return err
		}
		done, err := c.Change(cmd.Context(), append([]string{"HOLDFAST"}, args...)...)
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
		return err
	}
	var learner bool
	add := &cobra.Command{
		Use: "add NODE PEER-ADDR", Short: "Permit a node to join the cluster, with this id and peer address",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("give the id of the node and its peer address: holdfast member add n4 10.0.0.4:7379")
			}
			return nil
		},
		Long: `Permit a node to join the cluster, with this id and peer address. No member may
use the id or the address. The node becomes a voter when it has caught up.
With --learner, it receives all data and does not vote until "member promote".`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words := []string{"ADD", args[0], args[1]}
			if learner {
				words = append(words, "LEARNER")
			}
			return admin(cmd, words...)
		},
	}
	add.Flags().BoolVar(&learner, "learner", false, "do not make the node a voter until \"member promote\"")
	promote := &cobra.Command{
		Use: "promote NODE", Short: "Make a learner a voter", Args: cobra.ExactArgs(1),
		Long: `Make a voter of a learner, which is a node that was added with --learner. If the
node has not caught up yet, it becomes a voter when it has.`,
		RunE: func(cmd *cobra.Command, args []string) error { return admin(cmd, "PROMOTE", args[0]) },
	}
	var force bool
	remove := &cobra.Command{
		Use: "remove NODE", Short: "Remove a node that will not come back, or whose data is lost",
		Args: cobra.ExactArgs(1), SuggestFor: []string{"delete", "rm"},
		Long: `Remove a node that will not come back, or whose data is lost. If the node leads,
it transfers leadership first.

The leader asks the remaining voters before it removes the node. If fewer than a
majority of them answer, it refuses the removal, because the cluster could not
execute writes afterward. --force removes the node anyway.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words := []string{"REMOVE", args[0]}
			if force {
				words = append(words, "FORCE")
			}
			return admin(cmd, words...)
		},
	}
	remove.Flags().BoolVar(&force, "force", false,
		"remove the node even if the remaining voters that answer are not a majority")
	cmd.AddCommand(memberListCommand(&addr, &login), memberSetCommand(&addr, &login), add, promote, remove)
	cmd.AddCommand(&cobra.Command{
		Use: "transfer [NODE]", Short: "Transfer leadership", Args: cobra.MaximumNArgs(1),
		Long: `Transfer leadership to NODE, or to the most up-to-date voter that answers. If
the node does not answer, is not a voter, or is too far behind, the transfer is
refused and the leader continues to lead.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "" { // perhaps from a shell variable that is not set
				return errors.New("the id of the node is empty: leave it out to let the leader choose the node")
			}
			return admin(cmd, append([]string{"TRANSFER"}, args...)...)
		},
	})
	return cmd
}

// memberListCommand returns the command that lists the members. addr and login
// are the flags of its parent.
func memberListCommand(addr *string, login *client.LoginFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the members of the cluster", Args: cobra.NoArgs,
		Long: `List the members of the cluster: role, whether the member votes and whether it is
reachable, the number of entries by which it is behind the leader, the version of
its program, and, for a member that is away, when it last answered the node of
--addr.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := login.Status(cmd.Context(), *addr)
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.PrintJSON(cmd.OutOrStdout(), nodes)
			}
			return printMembers(cmd.OutOrStdout(), nodes)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as \"holdfast status --json\" does")
	return cmd
}

func printMembers(out io.Writer, nodes []cluster.NodeStatus) error {
	t := terminal.NewTable("NODE", "ROLE", "VOTER", "REACHABLE", "LAG", "VERSION", "PEERS", "AWAY SINCE")
	for _, n := range nodes {
		lag, version, away := fmt.Sprint(n.Lag), n.Version, ""
		if !n.Reachable {
			lag, version, away = "-", "-", awaySince(n)
		}
		t.AppendRow(terminal.Row(roleColor(n),
			n.ID, role(n), flags.YesNoText(n.Voter), flags.YesNoText(n.Reachable), lag, version, n.PeerAddr, away))
	}
	_, err := fmt.Fprintln(out, t.Render())
	return err
}
