package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy copies the data directory of a stopped node to a directory that does not
// exist. It fails with ErrLocked if a process uses dir. It changes nothing in
// dir except the lock file.
func Copy(dir, to string) (err error) {
	if _, err := os.Stat(nodePath(dir)); err != nil {
		return fmt.Errorf("%s is not the data directory of a node: %w", dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	// WalkDir does not follow a link.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.Mkdir(target, 0o700)
		case rel == "LOCK" || !d.Type().IsRegular():
			return nil
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// Owner returns the identity of the node that owns a data directory, and the
// kind of its log, from node.json.
func Owner(dir string) (id Identity, logKind string, err error) {
	n, found, err := loadNode(dir, corrupter{dir: dir})
	if err == nil && !found {
		err = fmt.Errorf("%s is not the data directory of a node", dir)
	}
	return n.identity(), n.LogKind, err
}
