package storage

import "time"

// NoteNever returns cfg with the acked file written only where it is written
// at once, so that a test decides what a crash leaves in it.
func NoteNever(cfg Config) Config {
	cfg.noteEvery = time.Hour
	return cfg
}

// FlushAcked brings the acked file up to date, as its goroutine does.
func FlushAcked(s *Stores) error { return s.acked.flush() }
