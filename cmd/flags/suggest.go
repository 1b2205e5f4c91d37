package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// didYouMean returns a question that names the word of a list that is most
// similar to a mistyped one, or "" if none is similar. Less than half of the
// letters may differ.
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

// flagNames returns the names of all flags that help shows.
func flagNames(flags *pflag.FlagSet) []string {
	var out []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			out = append(out, f.Name)
		}
	})
	return out
}

// Suggest adds the most similar flag to the error about an unknown one.
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
