package testutil

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// init makes process.FreePorts reserve the ports that it returns until this
// process ends. go test runs the tests of several packages at the same time. A
// node that restarts in a test must find its ports free, so the tests of other
// packages must not choose these ports in the meantime.
func init() {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-test-ports-%d", os.Getuid()))
	if err := process.LockPorts(name); err != nil {
		panic(err)
	}
}
