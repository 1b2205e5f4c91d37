package operator

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/backup"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/offline"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// inspection is the output of inspect.
type inspection struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // "backup" or "data directory"
	Node string `json:"node"`
	backup.Content
	Created    string `json:"created,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	TokenEpoch uint64 `json:"token_epoch"`
	*offlineInspection
}

// offlineInspection is the part of an inspection for a data directory.
type offlineInspection struct {
	LastIndex     uint64          `json:"last_index"`
	LastTerm      uint64          `json:"last_term"`
	SnapshotIndex uint64          `json:"snapshot_index"`
	Known         uint64          `json:"known_committed_index"`
	LogStore      string          `json:"log_store"`
	Members       []member.Member `json:"members"`
}

// shownLocks is the maximum number of locks that inspect prints without --json.
const shownLocks = 20

// inspectCommand returns the command that shows the content of a backup or a data
// directory.
func inspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect FILE|DATA-DIR",
		Short: "Show the content of a backup or of the data directory of a stopped node",
		Long: `Show the content of a backup or of the data directory of a stopped node: the cluster,
the node, the log index, the term and the time, the number of keys by type, and the
keys with a time to live that may be locks.

inspect reads everything and compares all checksums. If the backup or the
directory is damaged, it reports where and why, and exits with code 1. It reads a
copy of the data directory, which it makes in the directory for temporary files
(TMPDIR).`,
		Example: `  holdfast inspect cluster.hfb
  holdfast inspect /var/lib/holdfast --json | jq .keys_by_type`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			var i inspection
			if info.IsDir() {
				i, err = inspectDir(args[0])
			} else {
				i, err = inspectFile(args[0], info.Size())
			}
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.PrintJSON(cmd.OutOrStdout(), i)
			}
			return i.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func inspectFile(path string, size int64) (i inspection, err error) {
	f, err := os.Open(path)
	if err != nil {
		return i, err
	}
	defer f.Close()
	r, err := backup.NewReader(f)
	if err != nil {
		return i, fmt.Errorf("%s: %w", path, err)
	}
	content, err := backup.CheckFile(r, command.NewTable())
	if err != nil {
		return i, fmt.Errorf("%s: %w", path, err)
	}
	return inspection{
		Path: path, Kind: "backup", Node: r.Header().Node, Content: content, Created: r.Header().Created, Bytes: size,
		TokenEpoch: fsm.TokenEpoch(content.Token),
	}, nil
}

func inspectDir(path string) (i inspection, err error) {
	if _, err := os.Stat(filepath.Join(path, "node.json")); err != nil {
		return i, fmt.Errorf("%s is neither a backup nor the data directory of a node: %w", path, err)
	}
	o, err := offline.Read(path, "")
	if err != nil {
		return i, err
	}
	var c backup.Content
	o.Machine.InspectKeys(c.Add)
	c.Sort()
	c.SnapshotHead = o.Machine.Head()
	return inspection{
		Path: path, Kind: "data directory", Node: o.NodeID, Content: c, TokenEpoch: fsm.TokenEpoch(c.Token),
		offlineInspection: &offlineInspection{
			LastIndex: o.LastIndex, LastTerm: o.LastTerm, SnapshotIndex: o.SnapshotIndex, Known: o.Known,
			LogStore: o.LogKind, Members: o.Members,
		},
	}, nil
}

func (i *inspection) print(out io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("file", "%s (%s)", i.Path, i.Kind)
	line("state", "whole: all checksums match")
	line("cluster", "%s", i.ClusterID)
	line("node", "%s", i.Node)
	line("log index", "%d", i.Index)
	line("term", "%d", i.Term)
	line("time", "%s (wall clock of the last entry)", time.UnixMicro(i.Wall).UTC().Format(time.RFC3339))
	if i.Created != "" {
		line("written", "%s, %s", i.Created, units.BytesSize(float64(i.Bytes)))
	}
	line("lease clock", "%v", time.Duration(i.Lease).Round(time.Millisecond))
	line("feature version", "%d", i.Features)
	line("token epoch", "%d (highest fencing token %d)", i.TokenEpoch, i.Token)
	if i.Quarantine != 0 {
		line("quarantine", "for another %v", time.Duration(i.Quarantine-i.Lease).Round(time.Second))
	}
	if o := i.offlineInspection; o != nil {
		line("log", "ends at index %d, term %d; snapshot at index %d; store %s", o.LastIndex, o.LastTerm,
			o.SnapshotIndex, o.LogStore)
		line("committed", "up to index %d at least", o.Known)
		line("members", "%s", memberNames(o.Members))
	}
	line("keys", "%d%s", i.Keys, typeCounts(i.Types))
	line("with TTL", "%d, longest %v", i.WithTTL, time.Duration(i.LongestTTL).Round(time.Millisecond))
	line("users", "%d", i.Users)
	line("functions", "%d", i.Functions)
	if len(i.Locks) > 0 {
		fmt.Fprintf(&b, "\nKeys that may be locks (strings, hashes and lock keys with a TTL, longest first):\n")
		t := terminal.NewTable("DB", "KEY", "TYPE", "TTL", "TOKEN")
		for _, l := range i.Locks[:min(len(i.Locks), shownLocks)] {
			ttl := time.Duration(l.TTL * float64(time.Second)).Round(time.Millisecond)
			t.AppendRow(terminal.Row(terminal.Plain, fmt.Sprint(l.DB), fmt.Sprintf("%.80q", l.Key), l.Type,
				ttl.String(), fmt.Sprint(l.Token)))
		}
		b.WriteString(t.Render() + "\n")
		if more := len(i.Locks) - shownLocks; more > 0 {
			fmt.Fprintf(&b, "and %d more with --json\n", more)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func memberNames(members []member.Member) string {
	var names []string
	for _, m := range members {
		name := m.ID + "=" + m.Addr
		if !m.Voter {
			name += " (non-voter)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func typeCounts(types map[string]int) string {
	var parts []string
	for t, n := range types {
		parts = append(parts, fmt.Sprintf("%d %s", n, t))
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return ": " + strings.Join(parts, ", ")
}
