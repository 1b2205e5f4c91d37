// Program images builds what a loss of power may leave of a data directory, and
// starts the program on it: see make images and docs/testing.md.
//
// A cluster of the shipped binary works under strace, which writes down, in one
// order, every change of the data directories, every fsync, and every reply to a
// client (record.go, trace.go). The recording is played into a model of a disk
// (disk.go) that knows what is durable and what is not. At chosen moments an
// image is drawn from it: all that is durable, and of the rest what the seed says
// (draw.go). A node is started on the image and has to serve every write that had
// been answered at that moment, and nothing that was never asked for (judge.go).
//
// # What a disk may do
//
// The model is what the file systems for servers on Linux (ext4 in its ordered
// mode, xfs, btrfs) have in common at their worst:
//
//   - fsync of a file makes durable its content, its size, and the name by which it
//     is reached, with the names of the directories above; fdatasync the first two.
//   - fsync of a directory makes the names in it durable, as they are.
//   - What was written to a file since then may be on disk or not, sector by sector
//     (512 bytes) and in any order. A sector holds what the file held there at some
//     moment since the fsync: the kernel writes pages, not calls.
//   - A file that grew by a write may have its new size without the content, which
//     is zeros then. Changes of size by themselves (truncation, allocation) happen in
//     order: what came after one that is lost is lost too.
//   - Names in one directory change in order, and a part from the front of the
//     changes is on disk. The directories know nothing of each other: where ext4 keeps one
//     order for all, this is stricter.
//
// That a process died has no part in this: what it wrote and did not sync is still
// in memory, the next process reads it, and a loss of power then takes it away.
package main
