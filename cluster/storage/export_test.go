package storage

import "time"

// NoteEvery returns cfg with another interval for writing the acked file.
func NoteEvery(cfg Config, d time.Duration) Config {
	cfg.noteEvery = d
	return cfg
}

// NoteNever returns cfg without the periodic writes of the acked file, so that
// a test decides which content a crash leaves in the file.
func NoteNever(cfg Config) Config { return NoteEvery(cfg, time.Hour) }

// FlushAcked writes the acked file, as its goroutine does.
func FlushAcked(s *Stores) error { return s.acked.flush() }
