package platform_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/platform"
)

func TestElapsed(t *testing.T) {
	before, begun := platform.Elapsed(), time.Now()
	for time.Since(begun) < 20*time.Millisecond {
	}
	after := platform.Elapsed()
	if d := after - before; d < 20*time.Millisecond {
		t.Errorf("Elapsed advanced by %v in %v, want at least 20ms", d, time.Since(begun))
	}
}

// TestMemory compares the size of the memory with /proc/meminfo.
func TestMemory(t *testing.T) {
	got, err := platform.Memory()
	if err != nil || got == 0 {
		t.Fatal(got, err)
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Skip("this system has no /proc/meminfo")
	}
	f := strings.Fields(string(b)) // MemTotal: n kB
	want, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if want *= 1024; got != want {
		t.Errorf("Memory returns %d bytes, want %d as in /proc/meminfo", got, want)
	}
}

func TestKernel(t *testing.T) {
	want, err := exec.Command("uname", "-srm").Output()
	if err != nil {
		t.Skip(err)
	}
	if got := platform.Kernel(); got != strings.TrimSpace(string(want)) {
		t.Errorf("Kernel returns %q, want %q as uname prints it", got, want)
	}
}
