package storage

import "time"

// NoteEvery returns cfg with another interval for writing the acked file.
func NoteEvery(cfg Config, d time.Duration) Config {
	cfg.noteEvery = d
	return cfg
}

// NoteNever returns cfg with a setting by which the acked file is written only
// where it is written immediately. So a test decides what a crash leaves in it.
func NoteNever(cfg Config) Config { return NoteEvery(cfg, time.Hour) }

// FlushAcked writes the acked file, as its goroutine does.
func FlushAcked(s *Stores) error { return s.acked.flush() }
