package operator

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/offline"
)

type recoverOptions struct {
	dir, to, peerAddr string
	quarantine        time.Duration
	set               bool // --quarantine is set
	yes               bool
}

// recoverCommand returns the command that makes a new cluster from the data of one
// node.
func recoverCommand() *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use:   "recover --data-dir DIR --to NEW-DIR",
		Short: "Make a new cluster from the data of one node, after the loss of a majority",
		Long: `Make a new cluster of one node from the data directory of a stopped node, after
the loss of a majority of the voters. Without --yes, recover only prints what it
would do and what may be lost.

Use recover only if the lost nodes will never come back. If you have several data
directories, compare them with "holdfast inspect" and choose the one with the highest
last term. If several have that term, choose the one with the highest last index.

recover reads the newest snapshot and the whole log, and writes the result to a new
data directory. It does not change the old directory. The new cluster has another
id, so nodes of the old cluster cannot join it by mistake. Its fencing
tokens are higher than all tokens that the old cluster can have given. As after
"holdfast restore", the cluster begins with a quarantine, in which it grants no lock.

Then start the node with --data-dir NEW-DIR and with --peers naming only itself,
and add the other nodes with "holdfast member add" and empty data directories.`,
		Example: `  holdfast recover --data-dir /var/lib/holdfast --to /var/lib/holdfast-new
  holdfast recover --data-dir /var/lib/holdfast --to /var/lib/holdfast-new --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.set = cmd.Flags().Changed("quarantine")
			return o.run(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "data-dir", "", "data directory of the stopped node")
	f.StringVar(&o.to, "to", "", "new data directory, which must not exist")
	f.StringVar(&o.peerAddr, "peer-addr", "", "peer address of the node in the new cluster (default: as before)")
	f.DurationVar(&o.quarantine, "quarantine", 0,
		"how long no lock is granted; 0 for no quarantine (default: the longest TTL in the data, at most 1h)")
	f.BoolVar(&o.yes, "yes", false, "write the new data directory")
	return cmd
}

func (o *recoverOptions) run(out io.Writer) error {
	if o.dir == "" || o.to == "" {
		return errors.New("set --data-dir to the directory of the stopped node, and --to to a new directory")
	}
	if err := quarantineOption(o.quarantine); err != nil {
		return err
	}
	if !o.set {
		o.quarantine = -1
	}
	if o.peerAddr != "" {
		if err := cluster.CheckPeerAddr(o.peerAddr); err != nil {
			return fmt.Errorf("--peer-addr: %w", err)
		}
	}
	if err := offline.CheckNew(o.to); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	state, err := offline.Read(o.dir, filepath.Dir(filepath.Clean(o.to)))
	if err != nil {
		return err
	}
	if err := o.describe(out, &state); err != nil {
		return err
	}
	if !o.yes {
		_, err := fmt.Fprintf(out, "\nNothing was written. To write %s, run the command again with --yes.\n", o.to)
		return err
	}
	rec, err := state.Recover(offline.RecoverConfig{
		To: o.to, PeerAddr: o.peerAddr, Quarantine: o.quarantine, Wall: time.Now(),
	})
	if err != nil {
		return err
	}
	text := "none"
	if rec.Quarantine > 0 {
		text = rec.Quarantine.Round(time.Second).String() + ", from the start of the node"
	}
	_, err = fmt.Fprintf(out, `
Wrote %s: cluster %s with the only member %s.
Token epoch:  %d
Quarantine:   %s

Start the node with
  holdfast serve --node-id %s --data-dir %s --peers %s=%s …
and then add the other nodes, with empty data directories:
  holdfast member add NODE PEER-ADDR
`, o.to, rec.ClusterID, state.NodeID, rec.TokenEpoch, text, state.NodeID, o.to, state.NodeID, rec.PeerAddr)
	return err
}

// describe prints the content of the directory and the losses that are
// possible.
func (o *recoverOptions) describe(out io.Writer, s *offline.State) error {
	wall := time.UnixMicro(s.Machine.Clock().Wall).UTC().Format(time.RFC3339)
	var others []string
	for _, m := range s.Members {
		if m.ID != s.NodeID {
			others = append(others, m.ID)
		}
	}
	tail := "none"
	switch n := s.LastIndex - s.Known; n {
	case 0:
	case 1:
		tail = fmt.Sprintf("1 entry after index %d: it is kept, although the cluster may never have acknowledged it",
			s.Known)
	default:
		tail = fmt.Sprintf("%d entries after index %d: they are kept, although the cluster may never have "+
			"acknowledged them", n, s.Known)
	}
	_, err := fmt.Fprintf(out, `Node:         %s of cluster %s
Members:      %s
Last entry:   index %d, term %d, at %s
Snapshot:     index %d
In doubt:     %s
Keys:         %d, %d of them with a TTL
May be lost:  every write after the last entry: the other nodes (%s)
              may have acknowledged writes without this node
`, s.NodeID, s.ClusterID, memberNames(s.Members), s.LastIndex, s.LastTerm, wall, s.SnapshotIndex, tail,
		s.Machine.Len(), s.Machine.Volatile(), strings.Join(others, ", "))
	return err
}
