// Package load runs clients against a cluster and keeps the history of what they
// saw, for package oracle to judge. It speaks the Redis protocol itself and
// repeats nothing on its own: a client library that sends a command again after
// an error would blur what happened once and what twice.
//
// Clients of four kinds work at the same time, each on keys of its kind:
//
//   - keys: reads, writes, conditions, counters and times to live on a few keys,
//     alone and in pipelines;
//   - locks: SET NX PX with a fencing token, renewal, compare-and-delete, and
//     locks that are left to run out;
//   - lists: unique ids appended, to be counted at the end;
//   - counters: pipelines of INCR, whose replies must follow each other.
//
// All keys begin with Config.Prefix. They are exchanged for new ones before
// their history grows too long to be checked, or too uncertain.
package load
