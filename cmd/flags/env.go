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

// FromEnv sets flags from their environment variables. It does not change flags
// that the command line has set.
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

// foreignVariables matches variables that begin with HOLDFAST_ and do not set a
// flag. It has alternatives for the following kinds, in this order: variables that
// Kubernetes sets in every pod of a namespace with a service named "holdfast",
// variables of deploy/compose.yml, variables of this project's tests and CI, and
// variables that "holdfast lock" sets for the command that it runs.
var foreignVariables = regexp.MustCompile(`^HOLDFAST_(` +
	`([A-Z0-9_]+_)?SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?|([A-Z0-9_]+_)?PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?|` +
	`BIND|IMAGE|(SENTINEL_)?PORT_N[0-9]+|COMPOSE_[A-Z_]+|` +
	`(CI|REQUIRE|FSM|SIM|STORAGE|RANDOM)_[A-Z_]+|LOCK_(KEY|TOKEN))$`)

// CheckEnv returns an error about each environment variable that begins with
// HOLDFAST_ and sets no flag of any command, except for foreignVariables.
// Without this check, a mistyped variable would be ignored silently.
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
