package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the program of this source tree as it is released, statically
// linked, into dir. It returns the path of the program.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "holdfast")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
		"github.com/holdfast-kv/holdfast/cmd/holdfast")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build holdfast: %w\n%s", err, out)
	}
	return path, nil
}
