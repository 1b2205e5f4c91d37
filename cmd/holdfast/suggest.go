package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// didYouMean returns a question that names the word of a list that is most
// similar to a mistyped one, or "" if none is similar.
func didYouMean(typed string, words []string) string {
	best, distance := "", max(2, len(typed)/4)+1
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

// suggestFlag adds the most similar flag to the error about an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
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

// foreignVariables matches the variables that begin with HOLDFAST_ and belong
// to other programs: Kubernetes sets the first form in every pod of a namespace
// that has a service named "holdfast"; deploy/compose.yml reads the second; the
// tests and the CI of this project read the third.
var foreignVariables = regexp.MustCompile(`^HOLDFAST_(` +
	`([A-Z0-9_]+_)?SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?|([A-Z0-9_]+_)?PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?|` +
	`BIND|IMAGE|(SENTINEL_)?PORT_N[0-9]+|COMPOSE_[A-Z_]+|` +
	`(CI|REQUIRE|FSM|SIM|STORAGE|RANDOM)_[A-Z_]+)$`)

// checkVariables returns an error about each environment variable that begins
// with HOLDFAST_ and sets no flag of any command. A mistyped variable would
// otherwise have no effect and cause no message.
func checkVariables(root *cobra.Command) error {
	known := make(map[string]bool)
	var names []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
			names = append(names, flagNames(flags)...)
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	var errs []error
	for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || known[name] || foreignVariables.MatchString(name) {
			continue
		}
		typed := strings.TrimPrefix(name, envPrefix)
		hint := didYouMean(typed, names)
		if _, flag, ok := strings.Cut(hint, `"`); ok {
			hint = fmt.Sprintf("; did you mean %s?", envName(strings.TrimSuffix(flag, `"?`)))
		}
		errs = append(errs, fmt.Errorf("environment variable %s sets no flag of holdfast%s", name, hint))
	}
	return errors.Join(errs...)
}
