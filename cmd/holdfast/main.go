// Command holdfast runs and operates Holdfast, a Raft-replicated key-value
// cluster that speaks the Redis protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the linker: see the Makefile.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		var code exitCode
		if !errors.As(err, &code) {
			fmt.Fprintln(os.Stderr, "holdfast:", err)
			os.Exit(1)
		}
		os.Exit(int(code))
	}
}

// exitCode is an error that has already been explained to the user.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// run executes one invocation of the program; ctx ends when it should stop.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Redis-protocol locks that survive failover",
		Long: `Holdfast is a Raft-replicated key-value cluster that speaks the Redis protocol.
Any Redis client can talk to any node; a lock taken with SET NX EX stays taken,
with its owner and its remaining time, whichever node dies.

Every flag can also be set by an environment variable: --data-dir is
HOLDFAST_DATA_DIR. A flag on the command line wins.`,
		Example: `  holdfast dev                        three nodes on this machine, ready for redis-cli
  holdfast status                     what every node is doing
  holdfast verify                     test a cluster's promises
  holdfast serve --node-id n1 …       one node of a cluster`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			return flagsFromEnv(cmd.Flags())
		},
	}
	root.AddCommand(serveCommand(), devCommand(), statusCommand(), memberCommand(), versionCommand(), commandsDocCommand(), settingsDocCommand(), healthCommand(), verifyCommand())
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	return root.ExecuteContext(ctx)
}

// flagsFromEnv sets the flags that the command line has not, from HOLDFAST_….
func flagsFromEnv(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		value, ok := os.LookupEnv(name)
		if f.Changed || !ok {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

func envName(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}
