package storage

import "time"

// NoteEvery returns cfg with another pace of the acked file.
func NoteEvery(cfg Config, d time.Duration) Config {
	cfg.noteEvery = d
	return cfg
}

// NoteNever returns cfg with the acked file written only where it is written
// at once, so that a test decides what a crash leaves in it.
func NoteNever(cfg Config) Config { return NoteEvery(cfg, time.Hour) }

// FlushAcked brings the acked file up to date, as its goroutine does.
func FlushAcked(s *Stores) error { return s.acked.flush() }
