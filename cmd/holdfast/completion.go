package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
)

// flagValues lists, by flag, the values that a shell completes. Flags that name
// files need no row, because shells complete file names by default.
var flagValues = map[string][]string{
	"color":            {"auto", "always", "never"},
	"log-format":       {"text", "json"},
	"log-level":        {"trace", "debug", "info", "warn", "error"},
	"log-store":        {"wal", "boltdb"},
	"protected-mode":   {"yes", "no"},
	"tls-auth-clients": {"no", "optional", "yes"},
	"tls-ports":        {"clients", "sentinel", "peers", "http"},
}

// namesFile reports whether the value of a flag is the name of a file.
func namesFile(flag string) bool {
	return strings.HasSuffix(flag, "-file") || flag == "report" || flag == "state" || flag == "json" || flag == "output"
}

// completeFlags registers the completion of flag values for cmd and all commands
// below it. It panics if a flag has a completion already, because only a bug in
// this program can cause that.
func completeFlags(cmd *cobra.Command) {
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			var complete cobra.CompletionFunc
			switch {
			case flagValues[f.Name] != nil:
				complete = cobra.FixedCompletions(flagValues[f.Name], cobra.ShellCompDirectiveNoFileComp)
			case f.Name == "dir" || strings.HasSuffix(f.Name, "-dir"):
				complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
			case f.Name == flags.ConfigName:
				complete = cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
			case f.Value.Type() == "string" && namesFile(f.Name):
				return
			default:
				complete = cobra.NoFileCompletions
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err)
			}
		})
	}
	for _, c := range cmd.Commands() {
		completeFlags(c)
	}
}
