// Package fsm is the deterministic machine that every node runs over the same
// log: a pure function of (state, entry). It has no clock, no randomness, no
// I/O and no goroutine of its own, and it never ranges over a Go map where the
// order could be seen. Two machines fed the same entries hold the same state
// and give the same replies, byte for byte.
//
// # What a caller owes the machine
//
//   - Apply gets committed entries in index order, each once, from one
//     goroutine. Read may run beside other Reads but not beside Apply, Fork or
//     Restore: the caller holds the lock (cluster does, with a RWMutex).
//   - The entry's bytes may be dropped after Apply; what the machine keeps, it
//     copies. The reply bytes in a Result stay valid for ever.
//   - Time comes in entries. Header.Stamp moves the lease clock, the only
//     source of expiry; Header.Wall is the leader's wall clock and serves TIME
//     and the absolute forms (EXPIREAT, PXAT, EXPIRETIME), nothing else.
//
// # Entries
//
// An entry is either a TermStart (a leader opens its office: the fence for
// everything stamped in older terms) or a Batch. A batch is a header, the
// sessions that speak in it, and their groups; a group is what one connection
// sent in one go, and holds operations: a command, or a transaction with its
// watched keys. Layout: entry.go.
//
// # Exactly once
//
// A session is one start of one node (node id, boot count). Its groups carry
// consecutive numbers. The machine runs a group only if its number is the next
// one, answers a repeated number with the reply it kept, and refuses a number
// that would leave a gap (Ongaro's dissertation, 6.3, with the node that holds
// the client's connection as the client).
//
// # Commands
//
// A command is one row and one function in its family's file (string.go,
// generic.go, …). Everything that is to be known about a command is in its row:
// arity, flags, key positions, documentation. Routing, MULTI, COMMAND, metrics
// and docs/commands.md read the row.
//
// # Floats
//
// Nodes need not have the same kind of processor, and what a command computes is
// stored or answered, and answers are part of the hash chain: so it must not depend on
// the processor. Sums, quotients and square roots do not. A product is converted,
// float64(a * b), or else Go may leave out its rounding where something is added to it.
// Sines and the like are in trig.go; those of package math differ in the last bit. What
// may not fit the integer that it is made is looked at before (unsigned in geohash.go).
// TestPurity looks for most of this.
//
// # Values
//
// An object, a key with its value, is replaced and never changed once others can
// see it. Hashes, lists, sets and sorted sets are too large for that: they are
// sequences in counted B-trees (seq.go) whose nodes belong to an owner, the
// machine since its last fork, which alone changes them in place. Forks,
// snapshots and COPY cost O(1), a change O(log n) and, after a fork, a copy of
// the nodes on its way.
//
// Small hashes and sorted sets and sets of integers keep the order that Redis
// gives them, by its limits; larger ones are in the order of hashes, as keys are.
package fsm
