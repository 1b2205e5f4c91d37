package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/backup"
	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// restorePiece is the number of bytes of a backup in one log entry.
const restorePiece = 240 << 10

type restoreOptions struct {
	addr       string
	login      client.LoginFlags
	replace    bool
	quarantine time.Duration
	set        bool // --quarantine is set
}

// restoreCommand returns the command that replaces the data of a cluster with a
// backup.
func restoreCommand() *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the data of a cluster with that of a backup",
		Long: `Replace the data of a cluster with the data of a backup. The cluster must be empty,
or --replace must be set.

restore first checks the file completely. Then it sends the file through the log
into a staging area, which does not affect the data yet. One last log entry replaces
the data on all nodes at once; a node that is down applies this entry when it is back.
Clients wait while the nodes apply the entry: about a second for a million keys. Every
node needs free memory for the file and for its data during the restore. If restore is
interrupted before the last entry, the cluster keeps its data.

Fencing tokens never repeat: the cluster continues with tokens that are higher
than all tokens that the lost cluster can have given.

Locks that were granted after the backup are unknown. So during the quarantine the
cluster grants no lock: SET with NX and similar commands fail with the error
QUARANTINE, which names the end of the quarantine. By default the quarantine lasts as
long as the longest time to live in the backup, at most 1 hour.

The users of the backup replace those of the cluster, and the connections of the old
users are closed. The settings of the backup replace those of the cluster. A setting
that the backup does not contain is reset. restore prints each setting that has
changed.`,
		Example: `  holdfast restore cluster.hfb --addr 10.0.0.1:6379
  holdfast restore cluster.hfb --replace --quarantine 30s`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.set = cmd.Flags().Changed("quarantine")
			return o.run(cmd, args[0])
		},
	}
	cmd.Flags().StringVar(&o.addr, "addr", "127.0.0.1:6379", "client address of any live node")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "replace the data of a cluster that is not empty")
	cmd.Flags().DurationVar(&o.quarantine, "quarantine", 0,
		"how long no lock is granted afterward; 0 for no quarantine "+
			"(default: the longest TTL in the backup, at most 1h)")
	o.login.Define(cmd.Flags())
	return cmd
}

// quarantineOption checks a quarantine that an operator has set.
func quarantineOption(d time.Duration) error {
	if d < 0 || int64(d) > fsm.MaxQuarantine {
		return fmt.Errorf("--quarantine %v: choose 0 to %v", d, time.Duration(fsm.MaxQuarantine))
	}
	return nil
}

func (o *restoreOptions) run(cmd *cobra.Command, file string) error {
	if err := quarantineOption(o.quarantine); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory, not a backup", file)
	}
	r, err := backup.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	content, err := backup.CheckFile(r, command.NewTable())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !o.set {
		inForce := content.Quarantine - content.Lease // at most 0 if no quarantine is in force
		o.quarantine = time.Duration(max(fsm.DefaultQuarantine(content.LongestTTL), inForce))
	}
	size := r.Trailer().Bytes
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if r, err = backup.NewReader(f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	l, err := o.login.Login()
	if err != nil {
		return err
	}
	members, err := client.Status(cmd.Context(), o.addr, l)
	if err != nil {
		return err
	}
	for _, m := range members {
		if err := cluster.RoomForRestore(m, size, content.Types); err != nil {
			return err
		}
	}
	c, err := client.Dial(cmd.Context(), o.addr, l)
	if err != nil {
		return err
	}
	before, unknown := settings(cmd.Context(), c)
	if err := o.send(cmd, c, r, size); err != nil {
		return errors.Join(err, c.Close())
	}
	// The cluster now has the users of the backup, and the node has closed c.
	after, err := o.settingsOf(cmd.Context(), l)
	unknown = errors.Join(unknown, err, c.Close())
	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"restored %d keys from the backup of cluster %s at log index %d (%s); %s\n%s",
		content.Keys, content.ClusterID, content.Index, r.Header().Created, o.quarantineText(),
		changedSettings(before, after))
	if unknown != nil { // not an error of the restore: the data was replaced
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: the settings of the backup are in force, but restore cannot list "+
			"what has changed: %v (see CONFIG GET)\n", unknown)
	}
	return err
}

// settingsOf connects to the node and returns the settings of its cluster.
func (o *restoreOptions) settingsOf(ctx context.Context, l load.Login) ([]string, error) {
	c, err := client.Dial(ctx, o.addr, l)
	if err != nil {
		return nil, err
	}
	pairs, err := settings(ctx, c)
	return pairs, errors.Join(err, c.Close())
}

// settings returns the settings of the cluster that have an effect, in pairs of a name
// and a value.
func settings(ctx context.Context, c *client.Client) ([]string, error) {
	reply, err := c.Reply(ctx, "CONFIG", "GET", fsm.SettingDelay, fsm.SettingIdempotent, fsm.SettingMaxMemory,
		fsm.SettingNotify)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	list, ok := reply.([]any)
	pairs := make([]string, 0, len(list))
	for _, word := range list {
		pairs = append(pairs, fmt.Sprint(word))
	}
	if !ok || len(pairs)%2 != 0 {
		return nil, fmt.Errorf("read the settings: unexpected reply %v", reply)
	}
	return pairs, nil
}

// changedSettings returns a line for each setting that the restore has changed. Both
// lists have the same names in the same order.
func changedSettings(before, after []string) string {
	var b strings.Builder
	for i := 1; i < min(len(before), len(after)); i += 2 {
		if name := after[i-1]; name == before[i-1] && before[i] != after[i] {
			fmt.Fprintf(&b, "setting %s is now %q, it was %q: the settings of the backup replace those of the "+
				"cluster\n", name, after[i], before[i])
		}
	}
	return b.String()
}

func (o *restoreOptions) quarantineText() string {
	if o.quarantine == 0 {
		return "no quarantine: locks are granted at once"
	}
	return fmt.Sprintf("quarantine: no lock is granted for %v", o.quarantine.Round(time.Second))
}

// send sends the backup into the log, and then replaces the data.
func (o *restoreOptions) send(cmd *cobra.Command, c *client.Client, r *backup.Reader, size int64) (err error) {
	ctx, id := cmd.Context(), rand.Text()
	step := func(args ...string) error {
		_, err := c.Do(ctx, append([]string{"HOLDFAST", "RESTORE"}, args...)...)
		return err
	}
	if !o.replace { // the step APPLY checks this too
		if err := step("CHECK"); err != nil {
			return err
		}
	}
	if err := step("BEGIN", id, strconv.FormatInt(size, 10), strconv.Itoa(r.Header().Features)); err != nil {
		return err
	}
	applied := false
	defer func() {
		if err != nil && !applied {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			// If this fails, the cluster drops the staging area after ten minutes.
			_, _ = c.Do(ctx, "HOLDFAST", "RESTORE", "DROP", id)
		}
	}()
	p := terminal.NewProgress(cmd.ErrOrStderr(), "restore", size)
	buf := make([]byte, restorePiece)
	for offset := int64(0); ; {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := step("DATA", id, strconv.FormatInt(offset, 10), string(buf[:n])); err != nil {
				return fmt.Errorf("nothing was changed: %w", err)
			}
			offset += int64(n)
			p.At(offset)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			p.Done(offset)
			break
		}
		if err != nil {
			return err
		}
	}
	// From here on, the data may have been replaced.
	applied = true
	epoch := fsm.TokenEpochAt(max(time.Now().Unix(), r.Header().Wall/1e6))
	replace := "0"
	if o.replace {
		replace = "1"
	}
	err = step("APPLY", id, strconv.FormatUint(epoch, 10), strconv.FormatInt(int64(o.quarantine), 10), replace)
	if answered := redis.Error(nil); err != nil && !errors.As(err, &answered) {
		return fmt.Errorf("the data may have been replaced or not: see the token epoch in \"holdfast status --json\", "+
			"and run the restore again with --replace if the epoch did not change: %w", err)
	}
	return err
}
