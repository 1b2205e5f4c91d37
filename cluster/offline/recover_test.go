package offline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestRecover_KeepsOtherDirectories checks that Recover refuses to write if the
// new directory or its temporary name exists, that it changes nothing in either
// of them, and that it writes the new directory otherwise.
func TestRecover_KeepsOtherDirectories(t *testing.T) {
	for _, test := range []struct {
		name, dir, says string // says is a part of the error, "" for none
	}{
		{"new directory", "new", "name a directory that does not exist"},
		{"temporary directory", "new.tmp", "if an interrupted recovery left it, remove it"},
		{"another directory", "new.old", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "new")
			kept := filepath.Join(filepath.Dir(to), test.dir, "file")
			if err := os.Mkdir(filepath.Dir(kept), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(kept, []byte("of another program"), 0o600); err != nil {
				t.Fatal(err)
			}
			o := State{Machine: fsm.New(command.NewTable()), NodeID: "n1", LogKind: storage.LogKindWAL, LastIndex: 7,
				LastTerm: 2}
			_, err := o.Recover(RecoverConfig{To: to, PeerAddr: "127.0.0.1:7000", Wall: time.Unix(1_800_000_000, 0)})
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got the error %v, want one with %q", err, test.says)
			}
			if text, err := os.ReadFile(kept); err != nil || string(text) != "of another program" {
				t.Errorf("%s has the content %q and the error %v, want it unchanged", kept, text, err)
			}
			if test.says != "" {
				return
			}
			id, _, err := storage.Owner(to)
			if err != nil || id.NodeID != "n1" {
				t.Errorf("the new directory belongs to %q, error %v; want n1", id.NodeID, err)
			}
			if _, err := os.Lstat(to + ".tmp"); !os.IsNotExist(err) {
				t.Errorf("the temporary directory: error %v, want that it does not exist", err)
			}
		})
	}
}
