package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// debugCommand returns the commands that help to find a problem.
func debugCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Collect data for a bug report"}
	cmd.AddCommand(bundleCommand())
	return cmd
}

type bundleOptions struct {
	addr      string
	login     client.LoginFlags
	output    string
	tokenFile string
	plainHTTP bool
	logs      []string
	data      bool
	profile   time.Duration
}

func bundleCommand() *cobra.Command {
	var o bundleOptions
	cmd := &cobra.Command{
		Use:   "bundle [ADDR]",
		Short: "Write an archive with data from all nodes for a bug report",
		Long: `Write an archive with the data that a bug report needs: the status of the cluster,
and for each node that answers, the output of INFO, the configuration, the metrics,
the slow log, latencies, clients, refused commands and logins, and the latest events.
For a node with --pprof, the archive also has the goroutines and profiles. The file
manifest.json lists the files of the archive, and the missing ones with the reason.

The archive does not contain passwords, tokens or secrets of the nodes. Without
--include-data it does not contain keys, values and owners of locks either: the
slow log contains only the names of commands. The archive does contain the names
and addresses of nodes, users and clients. Log files are copied without texts
that look like passwords: read the copies before you send the archive.`,
		Example: `  holdfast debug bundle 127.0.0.1:6380
  holdfast debug bundle --password-file password --http-token-file token --log /var/log/holdfast.log`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := flags.AddrArg(cmd, args)
			if err != nil {
				return err
			}
			o.addr = cmp.Or(addr, o.addr)
			if o.profile < 0 || o.profile > time.Minute {
				return errors.New("--profile must be between 0 and 1m")
			}
			return writeBundle(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.addr, "addr", "127.0.0.1:6379", "client address of any node")
	o.login.Define(f)
	f.StringVarP(&o.output, "output", "o", "", "file to write (default: holdfast-debug-TIME.tar.gz)")
	f.StringVar(&o.tokenFile, "http-token-file", "", "file with the token of the nodes' HTTP ports, if they have one")
	f.BoolVar(&o.plainHTTP, "http-no-tls", false,
		"the HTTP ports have no TLS, although the client ports do: send the token in plain text")
	f.StringArrayVar(&o.logs, "log", nil, "log file of which the last MiB is added; may be repeated")
	f.BoolVar(&o.data, "include-data", false,
		"add locks with their owners, the audit log, and the arguments of commands in the slow log")
	f.DurationVar(&o.profile, "profile", 5*time.Second,
		"with nodes that have --pprof: length of the CPU profile; 0 for none")
	return cmd
}

// writeBundle collects and writes the archive.
func writeBundle(ctx context.Context, o bundleOptions, out, errOut io.Writer) error {
	login, err := o.login.Login()
	if err != nil {
		return err
	}
	b := newBundle(o, login)
	if o.tokenFile != "" {
		if b.token, err = flags.ReadSecret("http-token-file", o.tokenFile); err != nil {
			return err
		}
	}
	nodes, err := client.Status(ctx, o.addr, login)
	if err != nil {
		fmt.Fprintf(errOut, "holdfast: no status from %s: %v\n", o.addr, err)
		return exitUnreachable
	}
	name := "holdfast-debug-" + b.begun.Format("20060102T150405Z")
	if o.output == "" {
		o.output = name + ".tar.gz"
	}
	file, err := os.OpenFile(o.output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	b.collect(ctx, nodes, verdict.Assess(nodes))
	// An interrupted command must not leave an archive that looks complete and is not.
	err = errors.Join(context.Cause(ctx), b.write(file, name), file.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", o.output, err), os.Remove(o.output))
	}
	for _, f := range b.failed {
		fmt.Fprintf(errOut, "holdfast: the archive does not contain %s: %s\n",
			terminal.Shown(f.Name), terminal.Shown(f.Error))
	}
	_, err = fmt.Fprintf(out, "%s: %d files; %d of %d nodes answered\n", o.output, len(b.files), b.answered, len(nodes))
	return err
}
