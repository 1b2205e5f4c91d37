package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// TestBegin_Limit checks that Begin refuses one backup too many without waiting for
// the lock of the state machine, and that it accepts another backup when one has
// ended.
func TestBegin_Limit(t *testing.T) {
	m := machine.New(machine.Config{Table: fsm.NewTable()})
	b := NewBackups("n1", m, hclog.NewNullLogger())
	begin := func() (BackupInfo, error) { return b.Begin(t.Context(), func(f func()) { go f() }) }
	for range maxBackups {
		info, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(info.ID)
	}
	refused := make(chan error, 1)
	m.View(func(*fsm.Machine) { // a clone waits until View returns
		go func() {
			_, err := begin()
			refused <- err
		}()
		select {
		case err := <-refused:
			refused <- err
		case <-time.After(10 * time.Second):
			t.Error("Begin waits for the lock of the state machine")
		}
	})
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "already streaming 4 backups") {
		t.Errorf("one backup too many: error %v, want that the node already streams 4", err)
	}
	b.Close("1")
	info, err := begin()
	if err != nil {
		t.Fatalf("after the end of a backup: %v", err)
	}
	b.Close(info.ID)
}
