// Command images builds data directories in states that a loss of power may leave,
// and starts the program on each of them. make images runs it. See docs/testing.md.
//
// A cluster of the shipped binary runs under strace. strace records, in one
// order, every change of the data directories, every fsync, and every reply to
// a client (record.go, trace.go). This command plays the recording into a model
// of a disk (disk.go). The model knows which changes are durable and which are
// not. At moments that the seed selects, the command draws an image from the
// model. The image contains all durable changes, and some of the other changes,
// which the seed also selects (draw.go). The command starts the nodes on their
// images. The cluster must serve every write that a node had acknowledged at that
// moment, and must not serve a write that no client sent (checker.go).
//
// # What a disk may do
//
// The model gives only the guarantees that the file systems for servers on Linux
// (ext4 in its ordered mode, xfs, btrfs) have in common:
//
//   - fsync of a file makes its content, its size and its path durable. The path
//     is its name and the names of the directories above. fdatasync makes only
//     the content and the size durable.
//   - fsync of a directory makes the names in it durable, as they are at that
//     time.
//   - A write after the last fsync may be on disk or not, sector by sector (512
//     bytes) and in any order. A sector has the content that it had in the file at
//     some moment since the fsync: the kernel writes pages, not calls.
//   - A file that grew by a write may have its new size without the content.
//     The content is then zeros. Changes of size alone (truncation, allocation)
//     happen in order: if one is lost, all changes after it are lost too.
//   - Names in one directory change in order, and a prefix of the changes is on
//     disk. The directories are independent of each other. ext4 keeps one order
//     for all directories, so the model permits more states than ext4.
//
// The death of a process does not change the disk in the model. Data that the
// process wrote and did not sync is still in the memory of the kernel, and the
// next process reads it. A later loss of power may then remove it.
package main
