package storage

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"
)

// aheadBytes is how many bytes of a segment are zeroed at a time. A larger
// value makes the fsync of the append that zeroes them longer. A smaller value
// makes such appends more frequent.
const aheadBytes = 256 << 10

// zeros is never written to.
var zeros [aheadBytes]byte

// aheadFile is a segment file in which zeros are written ahead of the appends.
//
// The blocks of a new segment are allocated but were never written. When such a
// block is written, the file system must record that in its journal, which
// costs a second disk write within each fsync. A block that already contains
// zeros needs no such record. (Databases reuse old log files for the same
// reason: PostgreSQL's min_wal_size, RocksDB's recycle_log_file_num. Their
// reused files contain old records; ours contain only zeros.)
//
// After a crash, the segment is read in the same way as without aheadFile,
// because blocks that were never written also read as zeros.
type aheadFile struct {
	types.WritableFile
	size   int64 // size of the file in bytes
	zeroed int64 // everything before this offset is data or zeros
}

func newAheadFile(w types.WritableFile, dir, name string) (*aheadFile, error) {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &aheadFile{WritableFile: w, size: info.Size()}, nil
}

// WriteAt implements types.WritableFile. raft-wal writes a segment from its
// start to its end, from one goroutine. The bytes after the last append are
// zeros: at a start, checkTail has checked them, and wipe has zeroed the remains
// of a torn append.
func (f *aheadFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(b, at)
	if err != nil {
		return n, err
	}
	if end := at + int64(n); end > f.zeroed {
		upTo := max(end, min(end+aheadBytes, f.size))
		if _, err := f.WritableFile.WriteAt(zeros[:upTo-end], end); err != nil {
			return n, fmt.Errorf("write zeros ahead of the log: %w", err)
		}
		f.zeroed = upTo
	}
	return n, nil
}
