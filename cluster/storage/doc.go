// Package storage owns the data directory of a node. It answers three
// questions: what is on disk, is it whole, and how do we notice when the disk
// fails.
//
// # What is on disk
//
//	LOCK          flock: one process a directory
//	node.json     who owns the directory: node, instance, boot, cluster, log kind
//	acked         how far the log was acknowledged, as a lower bound
//	stable.db     raft-boltdb: term and vote as one record, raft-wal's segment list
//	wal/*.wal     the log as raft-wal segments   (Config.LogKind "wal")
//	log.db        the log in raft-boltdb         (Config.LogKind "boltdb")
//	snapshots/    raft.FileSnapshotStore, with a seal.json beside each meta.json
//
// The log, the stable store and the snapshot store are raft-wal, raft-boltdb
// and hashicorp/raft. What they leave open is fenced off around them, each in
// one file that says why: no checksum on an entry (trailer.go, checkedlog.go), a bad
// frame taken for a torn write (walscan.go), a segment that the list names but
// that does not exist yet (walmeta.go), a sealed tail that can never be
// appended to again (walopen.go), a vote written in two steps (stable.go),
// pages without a checksum (boltcheck.go), a corrupt snapshot that is passed over in
// silence (snapshots.go), a write that hangs (watchdog.go).
//
// # Is it whole
//
// Open first makes durable what it finds: an earlier process may have been killed
// between a write and its fsync. Then it reads everything that it is going to rely on
// before it changes anything, and refuses with a *CorruptError that names the file and the
// remedy. Damage is never repaired by truncation: an entry that this node
// acknowledged may be the one that made a majority.
//
// One state is not damage: the last append, cut short by a crash before its
// fsync returned. Nobody was told about it, so its remains are wiped. What
// lies beyond the last whole batch is taken for such a torn append unless
// one of these proves that it was acknowledged:
//
//   - an entry of a later batch lies beyond it. Appends are serial, so a later
//     batch exists only if the fsync of the one before had returned. Every
//     entry carries the first index of its batch for this purpose.
//   - the file acked says that the log reached further. It is written behind
//     the append path, at most half a second late, and exactly at Close, when
//     a snapshot is completed, and before the log is cut back.
//   - the segment is sealed, the segment is shorter than it was made, or a
//     file of the list is missing.
//
// What cannot be told apart: damage inside the very last batch, or the loss
// of the last batches as a whole, when it happened within half a second after
// they were written and the process did not live to note them. And a data
// directory that was replaced as a whole by an older copy of itself is whole:
// only the other nodes can notice, by Identity.Boot.
//
// # How do we notice
//
// Every failure of a write to the log, to stable.db or to acked is final: the
// first error is kept, every later write returns it, and Config.Fatal is called
// once. (A snapshot that fails is deleted and only reported to raft, which then
// keeps the log that it would have replaced.) A failed fsync is never
// retried, because the kernel may have dropped the pages and the retry would
// succeed. A write that hangs is noticed by the watchdog goroutine, which calls
// Config.Fatal while the write still hangs: hashicorp/raft goes on sending
// heartbeats from other goroutines, so that a leader with a dead disk keeps
// its office for ever (hashicorp/raft issues 503 and 666). A write that
// returns after that is still answered with the error.
//
// # Duties of the caller
//
// Config.Fatal ends the process. Close is called after raft has shut down.
// Log entries start at index 1 or right behind the newest snapshot, without
// gaps and with terms that do not fall, and no entry or snapshot carries a
// term above the stored CurrentTerm: hashicorp/raft keeps all of this, and
// Open relies on it.
package storage
