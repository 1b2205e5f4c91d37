// Command holdfast runs and operates Holdfast, a Raft-replicated key-value store
// that speaks the Redis protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cmd/dev"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/locking"
	"github.com/holdfast-kv/holdfast/cmd/operator"
	"github.com/holdfast-kv/holdfast/cmd/serve"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/cmd/top"
	"github.com/holdfast-kv/holdfast/cmd/verify"
)

// version is the version of the program. The linker sets it: see the Makefile.
// If the linker does not set it, main sets it.
var version = unversioned

const unversioned = "dev"

// builtVersion returns the version of a program that go install or go build has
// built without the Makefile: the version of the module, or unversioned if the
// build does not record one (go build -buildvcs=false).
func builtVersion(info *debug.BuildInfo, ok bool) string {
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return unversioned
	}
	return info.Main.Version
}

func main() {
	if version == unversioned {
		version = builtVersion(debug.ReadBuildInfo())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		var code terminal.ExitCode
		if !errors.As(err, &code) {
			fmt.Fprintln(os.Stderr, "holdfast:", err)
			os.Exit(1)
		}
		os.Exit(int(code))
	}
}

// run runs the program with the given arguments, until it ends or ctx is
// canceled.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Redis-protocol locks that survive failover",
		Long: `Holdfast is a key-value store that speaks the Redis protocol and replicates
all data with Raft. Redis clients can use any node. A lock that a client takes
with SET NX EX remains taken, with its owner and its remaining time, when any
one of three nodes fails.

An environment variable can set each flag: HOLDFAST_DATA_DIR sets --data-dir. A
flag on the command line takes precedence. A variable that begins with HOLDFAST_
and sets no flag is an error.`,
		Example: `  holdfast dev                        run three nodes on this machine, for redis-cli
  holdfast status                     show the state of every node
  holdfast verify                     test the guarantees of a cluster
  holdfast serve --node-id n1 …       run one node of a cluster`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			return setFlags(cmd)
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flags.Suggest)
	root.AddCommand(serve.Command(), serve.ConfigCommand(), dev.Command(), verify.Command(),
		versionCommand(), commandsDocCommand(), settingsDocCommand(), manCommand())
	root.AddCommand(operator.Commands()...)
	root.AddCommand(locking.Commands()...)
	root.AddCommand(top.Command())
	completeFlags(root)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	root.InitDefaultCompletionCmd(args...) // cobra would add this command later, without suggestions
	flags.SuggestCommands(root)
	explainArgs(root)
	flags.SuggestTopics(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err = explainExclusion(err); err != nil && cmd.CommandPath() == "holdfast verify" {
		return verify.Undecided(errOut, err)
	}
	return err
}

// exclusion matches the error of cobra about two flags that exclude each other.
var exclusion = regexp.MustCompile(`^if any flags .* none of the others can be; \[(\S+) (\S+)\] were all set$`)

// explainExclusion replaces cobra's error about two flags that exclude each other
// with a clearer one.
func explainExclusion(err error) error {
	if err == nil {
		return nil
	}
	if m := exclusion.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s and --%s exclude each other: set only one of them", m[1], m[2])
	}
	return err
}

// explainArgs makes cmd and all its subcommands add their usage to the errors that
// they return for wrong arguments. It does not change the root command.
func explainArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil && cmd.HasParent() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil &&
				(strings.HasPrefix(err.Error(), "accepts ") || strings.HasPrefix(err.Error(), "requires ")) {
				err = fmt.Errorf("%w: usage: %s (see \"%s --help\")", err, cmd.UseLine(), cmd.CommandPath())
			}
			if err != nil && !cmd.HasSubCommands() && strings.HasPrefix(err.Error(), "unknown command ") {
				err = fmt.Errorf("unexpected argument %q: usage: %s (see \"%s --help\")", args[0], cmd.UseLine(),
					cmd.CommandPath())
			}
			return err
		}
	}
	for _, sub := range cmd.Commands() {
		explainArgs(sub)
	}
}

// setFlags sets the flags that the command line has not set: first from their
// environment variables, and then from the configuration file.
func setFlags(cmd *cobra.Command) error {
	if err := flags.CheckEnv(cmd.Root()); err != nil {
		return err
	}
	if err := flags.FromEnv(cmd.Flags()); err != nil {
		return err
	}
	if f := cmd.Flags().Lookup(flags.ConfigName); f != nil && f.Value.String() != "" {
		return flags.FromFile(cmd.Flags(), f.Value.String())
	}
	return nil
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
