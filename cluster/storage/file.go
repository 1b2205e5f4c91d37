package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// castagnoli is the table for every CRC-32C checksum of this package.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// syncPath syncs a file, or the names in a directory.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncTree syncs all files below dir, and the directories that contain their
// names.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || d.Type().IsRegular() {
			return syncPath(path)
		}
		return nil
	})
}

// writeFile writes and syncs a file. Its name becomes durable only when the
// caller syncs the directory.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile replaces a file atomically: after a crash, the file has either
// the old or the new content. When replaceFile has returned nil, the new
// content is durable.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := writeFile(tmp, data); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	failpoint.Hit(failpoint.FileUnnamed)
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// exists reports whether a file or directory exists at path.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
