package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/backup"
	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// backupPiece is the number of bytes that backup asks for at a time.
const backupPiece = 1 << 20

// backupCommand returns the command that writes a backup.
func backupCommand() *cobra.Command {
	var addr, file string
	var login client.LoginFlags
	cmd := &cobra.Command{
		Use:   "backup -o FILE",
		Short: "Write a backup of the cluster's data to a file",
		Long: `Write a backup of the cluster's data to a file, while the cluster is running. Any
live node can answer.

The backup contains the data at one log index, with every write that was
acknowledged before the command began: all databases, functions, users and
settings. The node streams a copy-on-write clone of its data, so no client waits.
The file has checksums, and backup checks it completely. It is written under a
temporary name and then renamed. With -o -, backup writes to standard output.

The file contains the rules of the users with the hashes of their passwords, so
only its owner can read it.`,
		Example: `  holdfast backup --addr 10.0.0.1:6379 -o cluster.hfb
  holdfast backup -o - | ssh vault 'cat > cluster.hfb'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return errors.New("use -o FILE to name the file to write, or -o - for standard output")
			}
			if err := checkOutput(file); err != nil {
				return err
			}
			l, err := login.Login()
			if err != nil {
				return err
			}
			c, err := client.Dial(cmd.Context(), addr, l)
			if err != nil {
				return err
			}
			err = takeBackup(cmd, c, file)
			return errors.Join(err, c.Close())
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:6379", "client address of any live node")
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; - for standard output")
	login.Define(cmd.Flags())
	return cmd
}

// checkOutput returns an error if file exists and is not a regular file. The backup
// would replace that file. If the file is a device such as /dev/null, no program on
// the machine could use the device afterward.
func checkOutput(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil || info.Mode().IsRegular(): // no such file, or writing reports the error
		return nil
	case info.IsDir():
		return fmt.Errorf("-o %s is a directory: name a file in this directory", file)
	}
	return fmt.Errorf("-o %s is not a regular file: name another file, or use -o - to write to standard output", file)
}

// takeBackup writes a backup of the node's cluster to a file, under a temporary
// name until it is complete.
func takeBackup(cmd *cobra.Command, c *client.Client, file string) (err error) {
	if file == "-" {
		_, err := streamBackup(cmd, c, cmd.OutOrStdout())
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	content, err := streamBackup(cmd, c, f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	info, err := os.Stat(f.Name())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d keys at log index %d of cluster %s, %s\n",
		file, content.Keys, content.Index, content.ClusterID, units.BytesSize(float64(info.Size())))
	return err
}

// streamBackup writes a backup to w, and checks the snapshot in it completely.
func streamBackup(cmd *cobra.Command, c *client.Client, w io.Writer) (content backup.Content, err error) {
	ctx := cmd.Context()
	text, err := c.Do(ctx, "HOLDFAST", "BACKUP", "BEGIN")
	if err != nil {
		return content, err
	}
	var info cluster.BackupInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return content, fmt.Errorf("answer to HOLDFAST BACKUP: %w", err)
	}
	defer func() {
		// If this request fails, the node ends the backup after a minute without
		// reads.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = c.Do(ctx, "HOLDFAST", "BACKUP", "END", info.ID)
	}()
	out, err := backup.NewWriter(w, backup.Header{
		SnapshotHead: info.SnapshotHead, Node: info.Node,
		Created: time.Now().UTC().Format(time.RFC3339), Program: cmd.Root().Version,
	})
	if err != nil {
		return content, err
	}
	pr, pw := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		var err error
		content, err = backup.Check(pr, command.NewTable())
		pr.CloseWithError(err)
		checked <- err
	}()
	n, err := pullBackup(ctx, c, info.ID, io.MultiWriter(out, pw), terminal.NewProgress(cmd.ErrOrStderr(), "backup", 0))
	if err == nil && n == 0 {
		err = errors.New("the node sent no data")
	}
	pw.CloseWithError(err)
	if cerr := <-checked; err == nil && cerr != nil {
		err = fmt.Errorf("the node sent a damaged backup: %w", cerr)
	}
	if err != nil {
		return content, err
	}
	return content, out.Close(backup.Trailer{Keys: content.Keys, LongestTTL: content.LongestTTL})
}

// pullBackup reads the bytes of a backup from the node until its end.
func pullBackup(ctx context.Context, c *client.Client, id string, w io.Writer,
	p *terminal.Progress) (n int64, err error) {
	for {
		piece, err := c.Do(ctx, "HOLDFAST", "BACKUP", "READ", id, strconv.Itoa(backupPiece))
		if err != nil {
			return n, fmt.Errorf("the backup broke off after %s: %w", units.BytesSize(float64(n)), err)
		}
		if piece == "" {
			p.Done(n)
			return n, nil
		}
		if _, err := io.WriteString(w, piece); err != nil {
			return n, err
		}
		n += int64(len(piece))
		p.At(n)
	}
}
