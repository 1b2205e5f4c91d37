// Package cluster decides who may run a client's commands, where, and how fresh
// an answer is. It joins raft, the peer port (package rpc), the data directory
// (package storage) and the state machine (package fsm) into a Node.
//
// # Life of a write
//
// A connection's Session hands a group to the node's gateway. The gateway is
// the raft session of this node: it gives the group the next number and sends
// it over its link to the leader's office: directly when this node leads
// (localLink), over a write stream otherwise (remoteLink, served by
// writeStream). The office's one proposer stamps everything that has arrived
// and appends it as one entry, which the backlog writes to the leader's disk while
// raft sends it to the others. When the machine of the leader has applied the
// entry, the office hands each session's results to its sink: the gateway, or
// the stream back to the node they came from. The gateway keeps every group
// until its reply is there; at a new leader it asks what that has got and sends
// the rest again. The machine runs nothing twice.
//
// # Life of a read
//
// A group without a write goes to the office's read rounds, over the read
// stream from other nodes. A round notes the commit index, has a majority
// confirm the leader's term, waits until the machine has applied that index,
// and answers every read that waited. A read that meets a key whose time is over
// by the office's clock, but not yet by the log's, commits a tick first.
//
// # Time
//
// An office is one term of leadership. Its clock starts at the lease clock of
// its TermStart entry and advances with the time that really passes, a little
// slowed; see office.now. Nothing else moves the lease clock.
//
// # Goroutines
//
// Node.run forms or joins the cluster and starts raft, then ends. The node owns
// and waits for: sweepCalls (ends calls that waited too long), watchLeadership
// (opens and closes offices), watchLeader (pokes the link on a new leader),
// keepLinked (the link and, under it, a goroutine per stream of a remoteLink),
// keepSnapshots, keepMembers (lets caught-up members vote, learns addresses), and the
// backlog's write, which ends after raft. An
// office owns propose and keepTime. The mux owns a goroutine per stream served.
//
// # What a caller owes
//
// A Session is used by one goroutine at a time. Config.Fatal must end the
// process: the node that called it may hold a disk that no longer writes.
// HandOver comes before Close.
package cluster
