package storage

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"
)

// aheadBytes is how much of a segment is zeroed at a time. More makes the fsync of
// that append longer, less makes them more.
const aheadBytes = 256 << 10

// zeros is only read.
var zeros [aheadBytes]byte

// aheadFile is a segment that is written with zeros ahead of its appends. Its
// blocks are allocated but were never written, and the file system has to note of
// such a block that it has been, in its journal: that is a second write to the
// disk within each fsync. Of a block that holds zeros already there is nothing to
// note. (Databases use old log files again for the same reason: PostgreSQL's
// min_wal_size, RocksDB's recycle_log_file_num. Those then hold old records; ours
// holds what it held before.)
//
// What a crash leaves is read as without it: unwritten blocks are zeros as well.
type aheadFile struct {
	types.WritableFile
	size   int64 // of the file
	zeroed int64 // what lies before is data or zeros
}

func newAheadFile(w types.WritableFile, dir, name string) (*aheadFile, error) {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &aheadFile{WritableFile: w, size: info.Size()}, nil
}

// WriteAt implements types.WritableFile. raft-wal writes a segment from its front
// to its end, from one goroutine, and what is behind its last append has been
// checked and is zeros (see tailScan).
func (f *aheadFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(b, at)
	if err != nil {
		return n, err
	}
	if end := at + int64(n); end > f.zeroed {
		upTo := max(end, min(end+aheadBytes, f.size))
		if _, err := f.WritableFile.WriteAt(zeros[:upTo-end], end); err != nil {
			return n, fmt.Errorf("zero what is ahead: %w", err)
		}
		f.zeroed = upTo
	}
	return n, nil
}
