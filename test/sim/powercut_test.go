package sim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft-wal/fs"
)

func TestPowerCuts(t *testing.T) {
	r := powerCuts(&Schedule{Seed: 1})
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	if r.Checks["durability"] < 100 {
		t.Errorf("%d entries were read after a power cut, want at least 100", r.Checks["durability"])
	}
}

// TestPowerFS_TakesBack checks that a power cut reverts the writes that were not
// synced, and no others. A cut that reverts no writes would prove nothing.
func TestPowerFS_TakesBack(t *testing.T) {
	dir := t.TempDir()
	p := &powerFS{FS: fs.New()}
	f, err := p.Create(dir, "f", 8)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, step := range []func() error{
		func() error { _, err := f.WriteAt([]byte("abcd"), 0); return err },
		f.Sync,
		func() error { _, err := f.WriteAt([]byte("xy"), 1); return err },
		func() error { _, err := f.WriteAt([]byte("z"), 2); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := p.cut(); n != 2 || err != nil {
		t.Fatalf("cut reverted %d writes, want 2: %v", n, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got[:4]) != "abcd" {
		t.Errorf("file begins with %q, want %q", got[:4], "abcd")
	}
}
