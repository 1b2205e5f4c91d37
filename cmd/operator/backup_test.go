package operator

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackup_KeepsDevices checks that a backup does not replace a file that is not
// a regular one. The test checks a socket, the null device and a directory.
func TestBackup_KeepsDevices(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		socket.Addr().String(): "is not a regular file: name another file, or use -o - to write to standard output",
		os.DevNull:             "is not a regular file",
		dir:                    "is a directory: name a file in this directory",
		regular:                "", dir + "/none": "", dir + "/none/none": "",
	} {
		err := checkOutput(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
