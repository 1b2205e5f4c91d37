package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// didYouMean returns a question that suggests a word of the list: the one that
// is most similar to the mistyped word. It returns "" if no word is similar.
// Two letters may differ, or a quarter of the letters if that is more, but
// always fewer than half.
func didYouMean(typed string, words []string) string {
	best, distance := "", min(max(2, len(typed)/4), (len(typed)-1)/2)+1
	normal := strings.ToLower(strings.ReplaceAll(typed, "_", "-"))
	for _, w := range words {
		if d := levenshtein.ComputeDistance(normal, w); d < distance {
			best, distance = w, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// flagNames returns the names of all flags that are not hidden, except --help.
func flagNames(flags *pflag.FlagSet) []string {
	var out []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			out = append(out, f.Name)
		}
	})
	return out
}

// Suggest adds the name of the most similar flag to the error about an unknown
// flag.
func Suggest(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	name := unknown.GetSpecifiedName()
	if hint := didYouMean(name, flagNames(cmd.Flags())); hint != "" {
		return fmt.Errorf("unknown flag --%s%s", name, strings.Replace(hint, `"`, `"--`, 1))
	}
	return fmt.Errorf("unknown flag --%s (see \"%s --help\")", name, cmd.CommandPath())
}

// SuggestCommands makes cmd, and each command below it that has subcommands, refuse
// an unknown subcommand and suggest the most similar one. If such a command has an
// Args check, words that resemble no subcommand are passed to that check.
func SuggestCommands(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error { return knownCommand(cmd, args, check) }
		if !cmd.Runnable() { // cobra checks the arguments only of a command that runs
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return cmd.Help() }
		}
	}
	for _, sub := range cmd.Commands() {
		SuggestCommands(sub)
	}
}

// SuggestTopics makes the help command of root refuse an unknown command as root does.
func SuggestTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err != nil || !topic.HasSubCommands() {
					return err
				}
				return knownCommand(topic, rest, nil)
			}
		}
	}
}

// knownCommand returns an error if the arguments of a command that has
// subcommands begin with an unknown subcommand, or do not pass check. check may be
// nil.
func knownCommand(cmd *cobra.Command, args []string, check cobra.PositionalArgs) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		hint := similarCommand(cmd, args[0])
		if hint == "" && check == nil {
			hint = fmt.Sprintf(" (see \"%s --help\")", cmd.CommandPath())
		}
		if hint != "" {
			return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
		}
	}
	if check == nil {
		check = cobra.NoArgs
	}
	return check(cmd, args)
}

// similarCommand returns a question that names the subcommand of cmd that a word
// probably means, or "".
func similarCommand(cmd *cobra.Command, word string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if hint := didYouMean(word, names); hint != "" || word == "" {
		return hint
	}
	if like := cmd.SuggestionsFor(word); len(like) > 0 { // a prefix, or a word in SuggestFor
		return fmt.Sprintf("; did you mean %q?", like[0])
	}
	return ""
}
