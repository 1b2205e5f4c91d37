package flags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFromFile_Config checks that a configuration file cannot name another one, and
// that the error does not suggest the setting that it refuses.
func TestFromFile_Config(t *testing.T) {
	for _, setting := range []string{"config", "confg"} {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		fs.String(ConfigName, "", "")
		fs.String("node-id", "", "")
		path := filepath.Join(t.TempDir(), "holdfast.yaml")
		if err := os.WriteFile(path, []byte(setting+": other.yaml\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := FromFile(fs, path)
		if err == nil || !strings.Contains(err.Error(), "unknown setting") || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: error %v, want an unknown setting without a suggestion", setting, err)
		}
	}
}
