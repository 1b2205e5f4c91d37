package migrate

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestState_CountsUpToThePosition checks that an interrupted import does not count the
// keys after its position, because it reads them again, and that another import does
// not take over its state file.
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
		t.Fatalf("%v, %+v", err, j.res)
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
		t.Errorf("with other options: %v, %+v", err, j.res)
	}
	j, err = begin(false)
	if err != nil || !j.res.Begun || !j.res.Continued || j.state.Counts.Keys != 100 {
		t.Errorf("continued: %v, %+v with %+v", err, j.res, j.state)
	}
}
