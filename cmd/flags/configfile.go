package flags

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// ConfigName is the name of the flag that names the configuration file.
const ConfigName = "config"

// maxConfigFile is the maximum size of a configuration file in bytes.
const maxConfigFile = 1 << 20

// FromFile sets flags from the configuration file. It does not change flags
// that the command line or the environment has set. If the file is a list of
// settings, FromFile reports all settings that are wrong, each with its line.
func FromFile(flags *pflag.FlagSet, path string) error {
	settings, err := readConfigFile(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range settings {
		if err := s.apply(flags); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, s.line, err))
		}
	}
	return errors.Join(errs...)
}

// fileSetting is one setting of a configuration file.
type fileSetting struct {
	name, value string
	line        int
	err         error // set if the value cannot be the value of a flag
}

// apply sets the flag, unless it is set already. It returns an error if there
// is no such flag, or if the value is wrong, even if the flag is set already.
func (s fileSetting) apply(flags *pflag.FlagSet) error {
	f := flags.Lookup(s.name)
	if f == nil || f.Name == ConfigName || f.Name == "help" {
		names := slices.DeleteFunc(flagNames(flags), func(name string) bool { return name == ConfigName })
		return fmt.Errorf("unknown setting %q%s (the settings are the flags of \"holdfast serve\", without --)",
			s.name, didYouMean(s.name, names))
	}
	if s.err != nil {
		return fmt.Errorf("%s: %w", s.name, s.err)
	}
	changed, before := f.Changed, f.Value.String()
	err := flags.Set(f.Name, s.value)
	if err != nil {
		// The text of pflag's error names the flag with --, as on the command line.
		// So use only the error of the value, which pflag's error wraps.
		return fmt.Errorf("%s: %w", s.name, errors.Unwrap(err))
	}
	if !changed {
		return nil
	}
	return flags.Set(f.Name, before)
}

// readConfigFile reads a YAML file that maps names to values. The value of
// "peers" may also be a list or a map.
func readConfigFile(path string) ([]fileSetting, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if info.Size() > maxConfigFile {
		return nil, fmt.Errorf("--config: %s has %d bytes, more than %d: is it a configuration file?",
			path, info.Size(), maxConfigFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("--config: %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil // an empty file, or only comments
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: the file is not a list of lines \"name: value\"", path, root.Line)
	}
	var out []fileSetting
	lines := make(map[string]int)
	for i := 0; i < len(root.Content); i += 2 {
		name, value := root.Content[i], root.Content[i+1]
		if first, twice := lines[name.Value]; twice {
			return nil, fmt.Errorf("%s:%d: %q is already set in line %d", path, name.Line, name.Value, first)
		}
		lines[name.Value] = name.Line
		s := fileSetting{name: name.Value, line: name.Line}
		s.value, s.err = flagValue(name.Value, value)
		out = append(out, s)
	}
	return out, nil
}

// flagValue returns a value of the file as it would be written on the command
// line.
func flagValue(name string, n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return flagValue(name, n.Alias)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New(`no value (write "" for an empty one)`)
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case name != "peers":
		return "", errors.New("must be a single value")
	}
	var words []string
	for i := 0; i < len(n.Content); i++ {
		c := n.Content[i]
		if n.Kind == yaml.MappingNode {
			i++
			if n.Content[i].Kind != yaml.ScalarNode {
				return "", fmt.Errorf("the address of %s is not a single value", c.Value)
			}
			words = append(words, c.Value+"="+n.Content[i].Value)
			continue
		}
		if c.Kind != yaml.ScalarNode {
			return "", errors.New("each item must be one line \"- id=host:port\"")
		}
		words = append(words, c.Value)
	}
	return strings.Join(words, ","), nil
}
