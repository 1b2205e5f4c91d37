package testutil

import (
	"os"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
)

// memoryDir is a file system in memory, and memoryNeeded the number of bytes
// that must be free in it.
const (
	memoryDir    = "/dev/shm"
	memoryNeeded = 8 << 30
)

// Dir returns a directory for the data of a test's nodes and deletes it when the
// test ends. The directory is in memory if the machine has enough of it: on a
// disk, other work of the machine can delay an fsync for seconds, and then a
// leader with the short timeouts of a test loses its leadership.
func Dir(t testing.TB) string {
	t.Helper()
	if free, _, err := diskspace.Of(memoryDir); err != nil || free < memoryNeeded {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memoryDir, "holdfast-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("delete the data of the test: %v", err)
		}
	})
	return dir
}
