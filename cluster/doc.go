// Package cluster replicates the state machine and routes clients' commands to
// the leader. It decides which node executes a command and how fresh the answer
// must be. It joins raft, the peer port (package rpc), the data directory
// (package storage) and the state machine (package fsm) into a Node.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// Each package below this one can be understood by itself, for example raftlog
// (the log, the vote and the snapshots), transport (raft's messages), machine
// (the state machine of a node), execution (reads and scripts within their
// budgets), readindex (confirmation of reads), fairshare (slots for work that
// takes long), features (the feature version of the cluster), health (what
// nodes report), diskspace, events and clientid. The files of this package are
// named after what they do:
//
//   - leadership*.go: the objects that only a leader has. They stamp and propose
//     entries. leadership_term.go opens and closes the leadership.
//   - session.go, forwarder.go, link.go, streams.go: the path of a client's
//     group to the leader, and the path of its replies back.
//   - blocking.go: the waits of clients in blocking commands.
//   - script_dryrun.go: dry runs of scripts, and pipelines that are executed in
//     pieces because they are costly.
//   - leaseclock.go: the lease clock of a leadership.
//   - member_*.go: forming a cluster, joining one, and adding and removing
//     members.
//   - transfer.go, leader.go: transfers of leadership, and which node leads.
//   - admin.go, peers.go, status.go: requests between nodes.
//   - backup.go: backups and restores.
//   - node.go, raft.go, events.go, config.go, errors.go: the node itself.
//
// # Parts and locks
//
// A Node consists of parts (see the type parts). Each part lists in its fields
// the other parts that it uses, and Open makes a part after the parts that it
// uses. (Only the log, the state machine, the monitor of the disk and the
// statusReporter call parts that are made later, but not before raft starts.)
// Each part has its own lock, and no part takes the lock of another. While a
// part holds its own lock, it may call a method of another part only if that
// method does not call the first part. For example, leaderships.termStarted
// runs with the lock of the machine held, so nothing that it calls may read the
// state machine.
//
// # Life of a write
//
// A client connection's Session passes a group to the node's forwarder. In the
// log, the groups of one forwarder form one session. The forwarder gives the
// group the next number of the session and sends it to the leader's leadership
// over its link: directly when this node leads (localLink), otherwise over a
// write stream (remoteLink, served by writeStream). The leadership's proposer
// puts the groups that have arrived into one entry, stamps the entry with the
// clocks, and passes it to raft. The asynchronous log writer writes the entry
// to the leader's disk while raft sends it to the followers. When the leader's
// state machine has applied the entry, the leadership delivers each session's
// results to the session's result receivers. For the groups of clients, a result
// receiver is the link of the leader's own forwarder, or the stream to the node
// that sent the groups. The forwarder keeps every group until it has the reply.
// After a change of leader, it asks the new leader which groups have arrived, and
// sends the missing groups again. The state machine executes no group twice.
//
// # Life of a read
//
// A group without a write goes to the leadership's ReadIndex rounds, unless it
// is a local read. A node that does not lead sends the group to the leader over
// the read stream. A round notes the commit index, asks a majority to confirm the
// leader's term, waits until the state machine has applied that index, and then
// answers every read that joined the round. A leader that has a lease answers most
// reads without a round: see RaftOptions.LeaderLease. If a read meets a key that
// has expired by the leadership's clock, but whose expiry is not committed yet,
// the leader commits a clock entry first.
//
// # Time
//
// A leadership belongs to one term. Its clock starts at the lease clock of its
// TermStart entry and advances with real elapsed time, minus an allowance for
// drift: see leadership.now. Apart from this, only a restore advances the lease
// clock: see leadership.rebase.
//
// # Goroutines
//
// Node.run forms or joins the cluster, starts raft, and returns. The node owns
// and waits for these goroutines:
//
//   - Node.sweep ends calls that have waited too long,
//   - leaderships.keep opens and closes leaderships,
//   - leaderships.watchLeader wakes the linker when the leader changes,
//   - linker.keep links the forwarder to the leader, and owns two goroutines
//     for each remoteLink, one per stream,
//   - membership.keep promotes non-voters that have caught up, except learners,
//     removes members that have been away for too long, and raises the feature
//     version,
//   - removalWatch.keep finds out whether this node was removed,
//   - snapshot.Taker.Keep takes snapshots,
//   - diskspace.Monitor.Keep watches the free space of the disk,
//   - health.Book.Keep asks the members for their status,
//   - events.Queue.Deliver passes events to the listener,
//   - transport.Silent.Run passes requests to raft if the node is settling when
//     it starts,
//   - one goroutine writes each backup that a client reads.
//
// raftlog owns the asynchronous log writer, which ends after raft. A leadership
// owns propose and keepTime. The rpc.Mux owns one goroutine for each stream that
// it serves. The forwarder owns the goroutines that answer the clients of a large
// entry.
//
// # Requirements on the caller
//
// A Session must be used by one goroutine at a time. Config.Fatal must end the
// process, because the node that calls it may have a disk that no longer
// writes. HandOver must be called before Close.
package cluster
