// Package storage owns the data directory of a node. It stores the data, checks
// that the directory is complete and undamaged, and detects a failing disk.
//
// # Files
//
//	LOCK          flock: one process per directory
//	node.json     owner of the directory: node, instance, boot, cluster, log kind
//	acked         lower bounds: the last acknowledged log index, and the number of
//	              the last record of term and vote
//	stable.db     raft-boltdb: term and vote as one record, the longest promise of
//	              the node, raft-wal's segment list
//	wal/*.wal     the log as raft-wal segments   (Config.LogKind "wal")
//	log.db        the log in raft-boltdb         (Config.LogKind "boltdb")
//	snapshots/    raft.FileSnapshotStore, with a seal.json beside each meta.json
//	history/      the history of locks (package cluster/history writes it)
//
// The log, the stable store and the snapshot store are raft-wal, raft-boltdb
// and hashicorp/raft. Where they do not guarantee something that Holdfast
// needs, a wrapper does, in one file for each problem:
//
//   - an entry has no checksum (trailer.go, checkedlog.go)
//   - a damaged frame is treated as a torn write (walscan.go)
//   - the segment list names a segment that does not exist yet (walmeta.go)
//   - a sealed tail refuses all appends (walopen.go)
//   - a vote is written in two steps (stable.go)
//   - pages have no checksum (boltcheck.go)
//   - a corrupt snapshot is skipped without an error (snapshots.go)
//   - a write does not return (watchdog.go)
//
// # Checks at start
//
// Open first syncs the files that it finds, because an earlier process may have
// been killed between a write and its fsync. Then it reads everything that the
// node will rely on, before it changes anything. If it finds damage, it fails
// with a *CorruptError that names the file and the remedy. It never repairs
// damage by truncation: an entry that this node acknowledged may be the one
// that completed a majority.
//
// One state is not damage: the last append, torn by a crash before its fsync
// returned. It was not acknowledged, so its remains are wiped. Everything after
// the last complete batch is treated as such a torn append, unless one of these
// facts shows that it is damage:
//
//   - An entry of a later batch follows. Appends are serial, so a later batch
//     exists only if the fsync of the batch before had returned. For this
//     purpose every entry carries the first index of its batch.
//   - The file acked says that the log reached further. It follows the appends
//     by at most half a second. It is exact after Close, after a snapshot is
//     completed, and before the log is truncated.
//   - The segment is sealed, the segment is shorter than when it was created,
//     or a file that the segment list names is missing.
//
// Open cannot detect two kinds of damage. The first is damage inside the very
// last batch, or the loss of the last batches as a whole. Such damage goes
// undetected only if the process ended within half a second after it had written
// these batches, before it recorded them in acked. The second is a data
// directory that was replaced as a whole by an older copy of itself. Only the
// other nodes can detect that, by Identity.Boot.
//
// # Failing disks
//
// Every failure of a write to the log, to stable.db or to acked is final. The
// first error is kept, every later write returns it, and Config.Fatal is called
// once. (A snapshot that fails is deleted and only reported to raft, which then
// keeps the log that the snapshot would have replaced.) A failed fsync is never
// retried, because the kernel may have dropped the pages, and the retry would
// then succeed although the data is lost.
//
// The watchdog goroutine detects a write that does not return, and calls
// Config.Fatal while the write is still blocked. Without it, a leader with a
// dead disk would keep its leadership forever, because hashicorp/raft sends
// heartbeats from other goroutines (hashicorp/raft issues 503 and 666). A write
// that returns later still fails with the error.
//
// # Requirements on the caller
//
// Config.Fatal must end the process. Close must be called after raft has shut
// down. Log entries must start at index 1 or directly after the newest
// snapshot, without gaps and with terms that never decrease. No entry or
// snapshot may have a term above the stored CurrentTerm. hashicorp/raft keeps
// the rules about the log, and Open relies on them.
package storage
