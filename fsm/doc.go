// Package fsm is the deterministic state machine of Holdfast. Every node runs
// it over the same log. The state after an entry and the replies to it are a
// pure function of the state before it and of the entry. The package reads no
// clock, has no randomness of its own, does no I/O except through a reader or
// writer of the caller, starts no goroutine, and never ranges over a Go map
// where the order could affect a result. Two machines that apply the same
// entries have the same state and give the same replies, byte for byte.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// # What the caller must guarantee
//
//   - Apply receives committed entries in the order of their log indices, each
//     once, from one goroutine. Several Reads may run at the same time, but no
//     Read may run during Apply or Clone. A lock of the caller must ensure
//     this: package cluster/machine uses an RWMutex.
//   - The caller may drop the bytes of an entry after Apply. The machine copies
//     what it keeps. The reply bytes in a Result stay valid forever.
//   - Time comes from entries. Header.Stamp advances the lease clock, which is
//     the only source of expiry. Header.Wall is the leader's wall clock. It is
//     used for TIME, for absolute times (EXPIREAT, PXAT, EXPIRETIME), for the
//     IDs of XADD, and for times that replies show.
//
// # Entries
//
// An entry is either a TermStart or a batch. A TermStart is the first entry of
// a leadership. After it, machines execute no entry that was built in an older
// term. A batch is a header, a list of sessions, and groups of these sessions.
// A group contains commands of one pipeline of a connection. It consists of
// operations. An operation is a command, a transaction with its watched keys,
// or the effects and the reply of an operation that the leader has already
// executed or refused. entry.go and group.go describe the layout.
//
// # Exactly once
//
// A session is one start of one node: see SessionID. Its groups have consecutive
// numbers. The machine executes a group only if its number is the next one. It
// answers a repeated number with the reply that it has kept, if any, and refuses
// a number that would leave a gap. This is the client session of Ongaro's
// dissertation, 6.3. In the terms of the dissertation, the node to which a Redis
// client is connected is the client.
//
// # Commands
//
// The commands on keys are in package command. They read and change the state
// through Ctx. This package has the type of the command table, and the commands
// that belong to the state machine itself, such as those about scripts,
// functions, messages, settings, users and waiters.
//
// The packages that this one imports do not depend on commands. Some of them
// are keyspace (the databases and their values), container (the containers of
// collections), stream (streams and their groups), rdb (the format of DUMP), and
// library (the libraries of functions).
//
// # Floats
//
// The nodes of a cluster may have different kinds of processors. Results of
// commands are stored or sent to clients, and replies are part of the hash
// chain. So a result must not depend on the processor. Sums, quotients and
// square roots do not depend on it. A product must be converted explicitly, as
// in float64(a * b). Otherwise, Go may fuse the product with an addition and
// omit the rounding of the product. Sines and similar functions are in package
// geo, because the results of package math may differ between processors in the
// last bit. Before a float is converted to an integer type, its range must be
// checked (see unsigned in package geo). TestPurity checks most of these rules.
//
// # Values
//
// An object is a key with its value. Once an object is in a database, it is
// replaced and never changed. Hashes, lists, sets, sorted sets and streams are
// too large to be copied at every change. They are sequences in counted B-trees
// (package container). Each node of such a tree has an owner, which belongs to
// one machine and is replaced when the machine is cloned. Only the machine that
// has the owner may change the node in place. Cloning a machine and copying one
// of these collections take O(1). A change of an element takes O(log n). After a
// clone, it also copies the tree nodes between the root and the element.
//
// Small hashes, small sorted sets and small sets of integers keep their
// elements in the same order as Redis, and are small up to the limits of Redis.
// All other hashes and sets are ordered by the hashes of their elements, as the
// keys of a database are.
package fsm
