package testutil

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// go test runs the tests of several packages at a time. A node that a test has
// stopped must find its ports free when it starts again, so the tests of another
// package must not choose them.
func init() {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-test-ports-%d", os.Getuid()))
	if err := process.LockPorts(name); err != nil {
		panic(err)
	}
}
