package tidy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFiles_AreSmall finds large files, such as programs and dumps, before they
// are committed: a file that was committed by mistake stays in the history
// forever.
func TestFiles_AreSmall(t *testing.T) {
	const limit = 1 << 20
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Skipf("the tree is not a git checkout: %v", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimRight(list, "\x00"), []byte{0}) {
		info, err := os.Stat(filepath.Join(root, string(name)))
		if os.IsNotExist(err) {
			continue // the file was removed in the working tree
		}
		if err != nil {
			t.Error(err)
		} else if info.Size() > limit {
			t.Errorf("%s has %d bytes, at most %d are allowed", name, info.Size(), limit)
		}
	}
}
