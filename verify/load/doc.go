// Package load runs clients against a cluster and records their history for
// package checker. The clients speak the Redis protocol with package respwire,
// which never repeats a command on its own. A client library that sends a
// command again after an error would hide whether the command was executed once
// or twice.
//
// Clients of up to seven kinds work at the same time, each kind on its own keys:
//
//   - keys: reads, writes, conditions, counters and times to live on a few
//     keys, as single commands and in pipelines;
//   - locks: SET NX PX with a fencing token, renewal, compare-and-delete, and
//     locks that are left to expire;
//   - lists: unique ids that are appended and counted at the end;
//   - counters: pipelines of INCR, whose replies must be consecutive numbers;
//   - queues: unique elements that are pushed, and taken by commands that
//     block;
//   - channels: unique messages that are published, and subscribers that come
//     and go;
//   - locks with a queue: clients that wait for a few locks with LOCK ACQUIRE,
//     or take the same locks with SET NX PX.
//
// All keys begin with Config.Prefix. For the first three kinds and for most
// queues, the load changes to new keys before the history of the old ones has
// too many commands, or too many unknown outcomes, to be checked.
//
// Families is another load, whose replies are not checked.
package load
