package testutil

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// init makes process.FreePorts reserve the ports that it returns, in this process
// and in the programs that it starts, until the process ends.
func init() {
	if os.Getenv(process.PortsVariable) != "" {
		return
	}
	name := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-test-ports-%d", os.Getuid()))
	if err := os.Setenv(process.PortsVariable, name); err != nil {
		panic(err)
	}
}
