package serve

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// ConfigCommand returns the command that checks a configuration file.
func ConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file",
	}
	cmd.AddCommand(configCheckCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file without starting a node",
		Long: `Check the file that "holdfast serve --config FILE" reads, and print the settings
that differ from their defaults. The environment and the flags of serve apply, as
they do to serve. The command opens no port and no data directory.`,
		Example: `  holdfast config check /etc/holdfast/holdfast.yml
  holdfast config check /etc/holdfast/holdfast.yml --node-id n1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.configFile != "" {
				return errors.New("the argument already names the file: leave out --config (or unset HOLDFAST_CONFIG)")
			}
			if err := flags.FromFile(cmd.Flags(), args[0]); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return printSettings(cmd.OutOrStdout(), args[0], cmd.Flags())
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// check checks the flags, and the files that they name, as serve does. Unlike
// serve, it does not check the file of the audit log, and does not create the file
// of the cluster secret.
func (o *options) check() error {
	_, err := newNodeLog(o.logging.level, o.logging.format)
	if err != nil {
		return err
	}
	_, err = o.prepare(hclog.NewNullLogger(), hclog.NewNullLogger(), false, func(error) {})
	return err
}

// printSettings prints the settings that differ from their defaults. It does
// not print the value of --requirepass.
func printSettings(out io.Writer, path string, flags *pflag.FlagSet) error {
	t := terminal.NewTable("SETTING", "VALUE")
	flags.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if !f.Changed || f.Hidden || value == f.DefValue {
			return
		}
		if f.Name == "requirepass" {
			value = "(set)"
		}
		t.AppendRow(terminal.Row(terminal.Plain, f.Name, value))
	})
	_, err := fmt.Fprintf(out, "%s: no error\n\n%s\n", path, t.Render())
	return err
}
