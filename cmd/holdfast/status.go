package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// Exit codes of status, for scripts.
const (
	exitUnreachable = exitCode(3) // the node does not answer
	exitNoLeader    = exitCode(4) // the cluster has no leader
)

func statusCommand() *cobra.Command {
	var addr string
	var login load.Login
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of every node",
		Long: `Show every member: id, role, term, commit index and applied index, lag,
addresses, feature version of the cluster, version of the program, uptime. Any
node can answer.

Exit codes: 0 the node answered and there is a leader; 3 the node cannot be
reached; 4 there is no leader.`,
		Example: `  holdfast status --addr 127.0.0.1:6380
  holdfast status --json | jq '.[] | select(.role=="leader").id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := askStatus(cmd.Context(), addr, login, "STATUS")
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: no status from %s: %v\n", addr, err)
				return exitUnreachable
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(nodes)
			} else {
				err = printStatus(cmd.OutOrStdout(), nodes)
			}
			if err != nil {
				return err
			}
			if leaderOf(nodes) == "" {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"holdfast: the cluster has no leader: writes wait until a majority of the voters is up and "+
						"connected")
				return exitNoLeader
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:6379", "client address of any node")
	loginFlags(cmd.Flags(), &login)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// loginFlags defines the flags for the user and the password of a command.
func loginFlags(f *pflag.FlagSet, login *load.Login) {
	f.StringVar(&login.User, "user", "",
		"user at the client port, if not the default user; the user needs the command HOLDFAST, or @admin")
	f.StringVar(&login.Password, "password", "", "password at the client port")
}

// askStatus asks a node for the status of all nodes, or, with the arguments
// STATUS LOCAL, for its own.
func askStatus(ctx context.Context, addr string, login load.Login, words ...string) ([]cluster.NodeStatus, error) {
	c, err := dialNode(ctx, addr, login)
	if err != nil {
		return nil, err
	}
	defer c.close()
	text, err := c.do(ctx, append([]string{"HOLDFAST"}, words...)...)
	if err != nil {
		return nil, err
	}
	var nodes []cluster.NodeStatus
	if err := json.Unmarshal([]byte(text), &nodes); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return nodes, nil
}

// leaderOf returns the id of the leader with the highest term, or "" if there
// is none. A deposed leader that has not noticed has a lower term.
func leaderOf(nodes []cluster.NodeStatus) string {
	leader, term := "", uint64(0)
	for _, n := range nodes {
		if n.Role == "leader" && n.Term >= term {
			leader, term = n.ID, n.Term
		}
	}
	return leader
}

func printStatus(out io.Writer, nodes []cluster.NodeStatus) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tROLE\tTERM\tCOMMIT\tAPPLIED\tLAG\tFEATURES\tCLIENTS\tPEERS\tHTTP\tVERSION\tUPTIME\tDETAIL")
	for _, n := range nodes {
		if !n.Reachable {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\t-\t%s\t-\t-\t-\t%s\n", n.ID, n.Role, n.PeerAddr, n.Detail)
			continue
		}
		detail := n.Detail
		if n.SnapshotError != "" {
			detail = strings.TrimPrefix(detail+"; "+n.SnapshotError, "; ")
		}
		role := n.Role
		if !n.Voter && role == "follower" {
			role = "non-voter"
		}
		if detail == "" && n.FeaturesBlocked != "" {
			detail = "feature version not raised: " + n.FeaturesBlocked
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", n.ID, role, n.Term, n.Commit, n.Applied,
			n.Lag, n.FeatureVersion,
			n.ClientAddr, n.PeerAddr, n.HTTPAddr, n.Version,
			time.Duration(n.Uptime*float64(time.Second)).Round(time.Second), detail)
	}
	return w.Flush()
}

func memberCommand() *cobra.Command {
	var addr string
	var login load.Login
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Change the members or the leader of the cluster",
		Long: `Change the members of the cluster, or transfer leadership. Any live node accepts
these commands.

To add a node, run "member add", and start the node with an empty data directory
and with --peers naming itself and at least one member. The order does not
matter. The node becomes a voter when it has caught up.`,
		Example: `  holdfast member add n4 10.0.0.4:7379 --addr 10.0.0.1:6379
  holdfast member remove n2 --addr 10.0.0.1:6379`,
		Args: cobra.NoArgs, // a word that is no subcommand is a mistake, not a request for help
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&addr, "addr", "127.0.0.1:6379", "client address of any live node")
	loginFlags(cmd.PersistentFlags(), &login)
	// admin sends a HOLDFAST command to the node and prints the reply.
	admin := func(cmd *cobra.Command, args ...string) error {
		c, err := dialNode(cmd.Context(), addr, login)
		if err != nil {
			return err
		}
		defer c.close()
		done, err := c.do(cmd.Context(), append([]string{"HOLDFAST"}, args...)...)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
		return err
	}
	add := &cobra.Command{
		Use: "add NODE PEER-ADDR", Short: "Permit a node to join the cluster, with this id and peer address",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return admin(cmd, "ADD", args[0], args[1]) },
	}
	var force bool
	remove := &cobra.Command{
		Use: "remove NODE", Short: "Remove a node that will not come back, or whose data is lost",
		Args: cobra.ExactArgs(1),
		Long: `Remove a node that will not come back, or whose data is lost. If the node leads,
it transfers leadership first.

The leader asks the remaining voters before it removes the node. If fewer than a
majority of them answer, it refuses, because the cluster could not write
afterwards. --force removes the node anyway.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words := []string{"REMOVE", args[0]}
			if force {
				words = append(words, "FORCE")
			}
			return admin(cmd, words...)
		},
	}
	remove.Flags().BoolVar(&force, "force", false,
		"remove the node even if the remaining voters that answer are no majority")
	cmd.AddCommand(add, remove, &cobra.Command{
		Use: "transfer [NODE]", Short: "Transfer leadership", Args: cobra.MaximumNArgs(1),
		Long: `Transfer leadership to NODE, or to the most up-to-date voter that answers. If
the node does not answer, is not a voter, or is too far behind, the transfer is
refused and the leader continues to lead.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return admin(cmd, append([]string{"TRANSFER"}, args...)...)
		},
	})
	return cmd
}

// healthCommand returns the health check for containers that have no shell and
// no curl.
func healthCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Exit 0 if the node answers its health check (for container health checks)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				text, err := io.ReadAll(io.LimitReader(res.Body, 512))
				return errors.Join(fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text)), err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8379/readyz", "address of the health check of the node")
	return cmd
}
