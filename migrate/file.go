package migrate

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// fileSummary is the result of the check of a file.
type fileSummary struct {
	size  int64
	sum   uint64
	sizes map[int]int64 // number of keys to import of each database
}

// checkFile reads an RDB file completely, so that the import refuses a damaged file
// before it has changed anything.
func (j *job) checkFile(f *os.File) (sum fileSummary, err error) {
	info, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if !info.Mode().IsRegular() {
		return sum, fmt.Errorf("%s is not a regular file", j.cfg.File)
	}
	s, err := newScanner(f, 0)
	if err != nil {
		return sum, err
	}
	sum.sizes = make(map[int]int64)
	_, err = s.scan(visitor{
		key: func(it item) error {
			if j.cfg.DB < 0 || j.cfg.DB == it.db {
				sum.sizes[it.db]++
			}
			return nil
		},
		function: func(string) error { return nil },
	})
	sum.size, sum.sum = s.offset, s.sum
	if err != nil {
		return sum, err
	}
	return sum, checkDatabases(sum.sizes)
}

// fromFile imports an RDB file.
func (j *job) fromFile(ctx context.Context) error {
	if j.cfg.Match != "" {
		return fmt.Errorf("--match applies to a running server only")
	}
	f, err := os.Open(j.cfg.File)
	if err != nil {
		return err
	}
	defer f.Close() // the file is only read
	sum, err := j.checkFile(f)
	if err != nil {
		return fmt.Errorf("%s: nothing was imported: %w", j.cfg.File, err)
	}
	if err := j.to.open(ctx); err != nil {
		return err
	}
	path, err := filepath.Abs(j.cfg.File)
	if err != nil {
		return err
	}
	if err := j.begin(path, fmt.Sprintf("%d bytes, checksum %016x", sum.size, sum.sum)); err != nil {
		return err
	}
	for _, n := range sum.sizes {
		j.state.Counts.Total += n
	}
	err = j.fileData(ctx, f)
	if err == nil {
		err = j.verifyFile(ctx, f)
	}
	return j.end(err)
}

// fileData imports the functions of a file, and the keys after the offset in the
// state. It skips functions that an earlier import has imported.
func (j *job) fileData(ctx context.Context, f *os.File) error {
	var batch []item
	bytes, done := 0, j.state.Offset
	flush := func(offset int64) error {
		if err := j.write(ctx, batch); err != nil {
			return err
		}
		batch, bytes, j.state.Offset = nil, 0, offset
		j.cfg.Progress(j.state.Counts)
		return j.advance()
	}
	s, err := j.rewind(f, max(j.to.maxBulk, largestValue))
	if err != nil {
		return err
	}
	before := s.offset
	_, err = s.scan(visitor{
		function: func(code string) error {
			if j.state.Functions {
				return nil
			}
			err := j.functions(ctx, []string{code})
			j.state.Functions = false // there may be more libraries
			return err
		},
		key: func(it item) error {
			begin := before
			before = s.offset
			if s.offset <= done || j.cfg.DB >= 0 && j.cfg.DB != it.db {
				return ctx.Err()
			}
			// In an RDB file, all functions come before the keys.
			if !j.state.Functions {
				j.state.Functions, j.reached = true, j.state.Counts
			}
			if full := len(batch) >= batchKeys || bytes+len(it.payload) > batchBytes; len(batch) > 0 &&
				(full || batch[0].db != it.db) {
				if err := flush(begin); err != nil {
					return err
				}
			}
			batch, bytes = append(batch, it), bytes+len(it.payload)
			return nil
		},
	})
	if err != nil {
		return err
	}
	return flush(s.offset)
}

func (j *job) rewind(f *os.File, keepLimit int) (*scanner, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return newScanner(f, keepLimit)
}

// verifyFile checks that the cluster has the keys of the file.
func (j *job) verifyFile(ctx context.Context, f *os.File) error {
	s, err := j.rewind(f, 0)
	if err != nil {
		return err
	}
	clock, err := j.to.clock(ctx)
	if err != nil {
		return err
	}
	var keys []string
	var ends []lifetime
	db := 0
	flush := func() error {
		lost, err := j.to.missing(ctx, db, keys)
		if err != nil {
			return err
		}
		now := clock.now()
		var gone []string
		for i, k := range keys {
			if ends[i].volatile && ends[i].unixMs <= now {
				gone = append(gone, k)
			}
		}
		expired := intersection(lost, gone)
		j.verified(len(keys)-len(lost), lost, expired)
		keys, ends = nil, nil
		return nil
	}
	_, err = s.scan(visitor{
		function: func(string) error { return nil },
		key: func(it item) error {
			if j.cfg.DB >= 0 && j.cfg.DB != it.db {
				return ctx.Err()
			}
			if len(keys) >= scanCount || len(keys) > 0 && it.db != db {
				if err := flush(); err != nil {
					return err
				}
			}
			db = it.db
			keys, ends = append(keys, it.key), append(ends, it.life)
			return nil
		},
	})
	if err != nil {
		return err
	}
	return flush()
}

func intersection(a, b []string) (both []string) {
	in := make(map[string]bool, len(b))
	for _, k := range b {
		in[k] = true
	}
	for _, k := range a {
		if in[k] {
			both = append(both, k)
		}
	}
	return both
}
