package flags

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FromEnv sets each flag that the command line does not set from its
// environment variable, if that exists.
func FromEnv(flags *pflag.FlagSet) error {
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

// envPrefix begins the name of every environment variable of the program.
const envPrefix = "HOLDFAST_"

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// foreignVariables matches the variables that begin with HOLDFAST_ and belong
// to other programs: Kubernetes sets the first form in every pod of a namespace
// that has a service named "holdfast"; deploy/compose.yml reads the second; the
// tests and the CI of this project read the third. "holdfast lock" sets the
// fourth for the command that it runs.
var foreignVariables = regexp.MustCompile(`^HOLDFAST_(` +
	`([A-Z0-9_]+_)?SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?|([A-Z0-9_]+_)?PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?|` +
	`BIND|IMAGE|(SENTINEL_)?PORT_N[0-9]+|COMPOSE_[A-Z_]+|` +
	`(CI|REQUIRE|FSM|SIM|STORAGE|RANDOM)_[A-Z_]+|LOCK_(KEY|TOKEN))$`)

// CheckEnv returns an error about each environment variable that begins
// with HOLDFAST_ and sets no flag of any command. A mistyped variable would
// otherwise have no effect and cause no message.
func CheckEnv(root *cobra.Command) error {
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
