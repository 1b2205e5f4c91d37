package testutil

import (
	"os"
	"syscall"
	"testing"
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
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < memoryNeeded {
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
