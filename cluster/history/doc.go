// Package history keeps the history of locks on a node: which client held which
// lock, from when to when, and how the grant ended. The state machine reports
// the events of locks when it applies an entry (fsm.LockEvent). A Store writes
// them into files. When the files would exceed their maximum size, the store
// removes the oldest file.
//
// The history is not a part of the state. A separate goroutine writes it after
// the entry has been applied, and a failure to write it never delays an entry.
// If events could not be written, the store records a gap, and answers to
// queries report the gap. Except for gaps and removed files, the stores of all
// nodes contain the same events. An answer also contains the holders of the lock in
// the state, because the beginning of their grants may be missing.
//
// # Files
//
// The directory contains segments, which are named by consecutive numbers. A
// segment begins with a header of eight bytes. Frames follow:
//
//	length of the payload   4 bytes, little endian
//	CRC-32C of the payload  4 bytes, little endian
//	payload
//
// A payload begins with the log index of an entry, and with the clocks as the
// entry has set them. The events of the entry follow, except for those of keys
// that are longer than MaxKey. So the events of an entry are on disk together
// or not at all. A frame without events is a checkpoint: the store contains all
// events up to its index.
//
// # Restarts
//
// When a node starts, raft applies the entries after the last snapshot again.
// The store ignores the entries that its files already cover. After a snapshot,
// the node may delete the log before it. Therefore the files are synced before
// the snapshot is complete (Store.Sync), and after a crash the log has the
// entries that the files lack. If a snapshot covers more entries than the
// files, the node got the snapshot from the leader, or its history was turned
// off for a time, or could not be written. The store records the missing
// entries as a gap.
package history
