package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFreePorts_OtherProcess checks that lockPort refuses a port that another
// process has reserved, even if no program listens on it. When that process has
// ended, lockPort must accept the port.
func TestFreePorts_OtherProcess(t *testing.T) {
	const child = "HOLDFAST_TEST_RESERVE"
	if os.Getenv(child) != "" {
		base, err := FreePorts(1, 1, 0)
		fmt.Println("port", base, err)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFreePorts_OtherProcess$")
	t.Setenv(PortsVariable, filepath.Join(t.TempDir(), "ports"))
	cmd.Env = append(os.Environ(), child+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 || words[2] != "<nil>" {
		t.Fatalf("the other process printed %q, %v", line, err)
	}
	port, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	portsMu.Lock()
	defer portsMu.Unlock()
	if err := lockPorts(os.Getenv(PortsVariable)); err != nil {
		t.Fatal(err)
	}
	if free, err := lockPort(port); free || err != nil {
		t.Errorf("while the other process runs: %v, %v", free, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if free, err := lockPort(port); !free || err != nil {
		t.Errorf("after the other process: %v, %v", free, err)
	}
	if err := unlockPort(port); err != nil {
		t.Error(err)
	}
}
