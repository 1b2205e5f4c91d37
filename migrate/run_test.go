package migrate

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestState_CountsUpToThePosition checks that the state of an interrupted
// import does not count the keys after its position, because the import reads
// these keys again when it continues. It also checks that a different import
// does not take over the state file.
func TestState_CountsUpToThePosition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	begin := func(replace bool) (*job, error) {
		j := &job{
			cfg: Config{State: path, Replace: replace, Note: func(string) {}}, to: &target{cluster: "c"},
			state: &state{Version: stateVersion, Databases: make(map[int]position)},
		}
		return j, j.begin("source", "run 1")
	}
	j, err := begin(false)
	if err != nil || !j.res.Begun || j.res.Continued {
		t.Fatalf("the first import: got %v and the result %+v, want a new state file", err, j.res)
	}
	j.state.Counts.Keys = 100
	j.state.Databases[0] = position{Cursor: "7"}
	if err := j.advance(); err != nil {
		t.Fatal(err)
	}
	j.state.Counts.Keys = 356
	interrupted := errors.New("interrupted")
	if err := j.end(interrupted); !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	if j, err = begin(true); err == nil || !strings.Contains(err.Error(), "belongs to another import") || j.res.Begun {
		t.Errorf("import with other options: got %v, %+v, want an error", err, j.res)
	}
	j, err = begin(false)
	if err != nil || !j.res.Begun || !j.res.Continued || j.state.Counts.Keys != 100 {
		t.Errorf("import that continues: got %v, the result %+v and the state %+v", err, j.res, j.state)
	}
}

// TestState_KeepsDevices checks that writing the state does not replace a file that
// is not a regular one, such as a device.
func TestState_KeepsDevices(t *testing.T) {
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	path := socket.Addr().String()
	err = (&state{Version: stateVersion}).write(path)
	if err == nil || !strings.Contains(err.Error(), "is not a regular file: name another one with --state") {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the socket was replaced: %v, %v", info, err)
	}
}
