package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// state contains the position of an import. The import writes it to a file, so
// that it can continue after an interruption.
type state struct {
	Version int    `json:"version"`
	Source  string `json:"source"` // without a password
	Target  string `json:"target"` // id of the cluster
	Options string `json:"options"`
	// Identity identifies the source: it is the run id of a server, or the checksum
	// and the size of a file. If it has changed, the import begins again, because
	// the cursors of SCAN are valid only until the server restarts.
	Identity string `json:"identity"`
	// Databases are the positions in a server's databases.
	Databases map[int]position `json:"databases,omitempty"`
	// Offset is the position in a file. The import has written all keys before it.
	Offset    int64  `json:"offset,omitempty"`
	Functions bool   `json:"functions"` // the functions have been imported
	Counts    Counts `json:"counts"`
}

// position is the position of an import in one database of a server.
type position struct {
	Cursor string `json:"cursor"`
	Done   bool   `json:"done"`
}

// Counts contains the numbers of keys, libraries and bytes that an import has
// processed.
type Counts struct {
	Keys      int64 `json:"keys"`      // keys that were read from the source
	Imported  int64 `json:"imported"`  // keys that the target has now
	Expired   int64 `json:"expired"`   // keys whose time to live had passed
	Gone      int64 `json:"gone"`      // keys that were deleted or expired between SCAN and DUMP
	Existing  int64 `json:"existing"`  // keys and libraries that the target has with another value
	Skipped   int64 `json:"skipped"`   // keys and libraries that the target cannot store
	Functions int64 `json:"functions"` // libraries of functions that were imported
	Bytes     int64 `json:"bytes"`     // size of the values that were read
	Total     int64 `json:"-"`         // expected keys, 0 if unknown
	Earlier   int64 `json:"-"`         // the part of Keys that earlier, interrupted imports had read
}

// readState reads a state file. It returns nil if the file does not exist.
func readState(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil || s.Version != stateVersion {
		return nil, fmt.Errorf("%s is not the state file of an import of this version: "+
			"use --restart to begin again, or --state to name another file", path)
	}
	return &s, nil
}

// write writes the state file. If write is interrupted, the old file remains
// unchanged. write does not replace a device such as /dev/null.
func (s *state) write(path string) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("state file: %s is not a regular file: name another one with --state", path)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("state file: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// continues reports whether an import can continue from the state of an earlier
// import. If the state belongs to a different import, the error tells the
// operator which options to use.
func (s *state) continues(old *state, path string) (bool, error) {
	switch {
	case old == nil:
		return false, nil
	case old.Source != s.Source || old.Target != s.Target || old.Options != s.Options:
		return false, fmt.Errorf("%s belongs to another import (from %s into cluster %s, %s): use --restart to begin "+
			"again, or --state to name another file", path, old.Source, old.Target, old.Options)
	}
	return old.Identity == s.Identity, nil
}
