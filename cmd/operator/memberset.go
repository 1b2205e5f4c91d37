package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
)

// memberChange is one change that "member set" makes.
type memberChange struct {
	words []string // arguments of the command HOLDFAST
}

// memberSetCommand returns the command that adds and removes members until the
// cluster has the members that its argument lists. addr and login are the flags
// of its parent.
func memberSetCommand(addr *string, login *client.LoginFlags) *cobra.Command {
	var remove bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "set NODE=PEER-ADDR,…", Short: "Add and remove nodes until the cluster has the listed members",
		Long: `Add and remove nodes until the cluster has the listed members. The command is for
programs that change the size of a cluster, such as the Helm chart: it does
nothing if the cluster already has these members.

The command first adds nodes. If a member is not listed, the command fails, or
removes the member if --remove is set. The leader checks each removal as it does
for "member remove". The command also fails if the address of a member differs
from the listed one: remove that member first. If another change of the members
is under way, the command tries again until --timeout.`,
		Example: `  holdfast member set n1=10.0.0.1:7379,n2=10.0.0.2:7379,n3=10.0.0.3:7379 \
    --remove --addr 10.0.0.1:6379`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := cluster.ParsePeers(args[0])
			if err != nil {
				return errors.New(strings.Replace(err.Error(), "--peers", "the list of members", 1))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			nodes, err := login.Status(ctx, *addr)
			if err != nil {
				return err
			}
			changes, err := memberChanges(nodes, want, remove)
			if err != nil {
				return err
			}
			for _, c := range changes {
				done, err := c.apply(ctx, *addr, login)
				if err != nil {
					return fmt.Errorf("%s %s: %w", strings.ToLower(c.words[0]), c.words[1], err)
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), done); err != nil {
					return err
				}
			}
			if len(changes) == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the cluster already has these %d members\n", len(want))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the members that are not listed")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "time limit of the command")
	return cmd
}

// memberChanges returns the changes after which the cluster has the listed members:
// first the additions, in the order of the list, and then the removals.
func memberChanges(nodes []cluster.NodeStatus, want []cluster.Peer, remove bool) ([]memberChange, error) {
	if len(want) == 0 {
		return nil, errors.New("no members are listed: a cluster has at least one")
	}
	var changes []memberChange
	var errs []error
	for _, p := range want {
		i := slices.IndexFunc(nodes, func(n cluster.NodeStatus) bool { return n.ID == p.ID })
		switch {
		case i < 0:
			changes = append(changes, memberChange{[]string{"ADD", p.ID, p.Addr}})
		case nodes[i].PeerAddr != p.Addr:
			errs = append(errs, fmt.Errorf("%s is a member with the address %s, not %s: remove it first",
				p.ID, nodes[i].PeerAddr, p.Addr))
		}
	}
	extra := slices.DeleteFunc(slices.Clone(nodes), func(n cluster.NodeStatus) bool {
		return slices.ContainsFunc(want, func(p cluster.Peer) bool { return p.ID == n.ID })
	})
	// Remove the leader last, so that leadership is transferred at most once.
	leads := client.LeaderOf(nodes)
	slices.SortFunc(extra, func(a, b cluster.NodeStatus) int {
		switch {
		case a.ID == leads:
			return 1
		case b.ID == leads:
			return -1
		}
		return strings.Compare(b.ID, a.ID)
	})
	for _, n := range extra {
		changes = append(changes, memberChange{[]string{"REMOVE", n.ID}})
		if !remove {
			errs = append(errs,
				fmt.Errorf("%s is a member and is not listed: list it, or remove it with --remove", n.ID))
		}
	}
	return changes, errors.Join(errs...)
}

// apply makes the change. If the error is CLUSTERDOWN, apply tries again,
// because the change was not executed: another change of the members is under
// way, or the cluster has no leader.
func (c memberChange) apply(ctx context.Context, addr string, login *client.LoginFlags) (string, error) {
	l, err := login.Login()
	if err != nil {
		return "", err
	}
	wait := time.NewTicker(time.Second)
	defer wait.Stop()
	for {
		node, err := client.Dial(ctx, addr, l)
		if err != nil {
			return "", err
		}
		done, err := node.Change(ctx, append([]string{"HOLDFAST"}, c.words...)...)
		closed := node.Close()
		if err == nil || !strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
			return done, errors.Join(err, closed)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", fmt.Errorf("not done within --timeout: %w", err)
			}
			return "", fmt.Errorf("interrupted: %w", err)
		case <-wait.C:
		}
	}
}
