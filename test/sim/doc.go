// Package sim attacks simulated clusters. A history is one run of a cluster of
// three or five nodes in a testing/synctest bubble. The nodes run the raft
// library that the product uses, and the product's own rpc, cluster and fsm
// code, over a network, disks and clocks in memory. Time is virtual: even a
// slow processor simulates more than a hundred seconds in one second of real
// time. Clients write, read and take locks. Meanwhile, the simulator injects
// combinations of faults that a seed determines. Afterwards the checkers of
// verify/checker and verify/replay examine the history.
//
// The following parts are real: elections, replication, snapshots and their
// installation through raft.NetworkTransport, the port of package rpc with its
// handshakes and streams, forwarders, sessions, ReadIndex rounds, leaderships
// and the state machine.
//
// The following parts are simulated:
//
//   - TCP and the kernel.
//   - The files of cluster/storage. A simulated disk keeps the data that was
//     synced and may lose the rest.
//   - Processes. A crash ends a node between two of its steps. A stalled node
//     sends, receives and writes nothing, but its timers run.
//   - Scripts. A stand-in runs them, because an interpreter takes no virtual
//     time.
//
// In one of three histories, there are also clients outside the nodes. They
// speak the Redis protocol to package resp over the same network: see the
// variable workloads.
//
// The same seed gives the same schedule, but the goroutines may run in another
// order: see Schedule. The command "make sim" runs the simulator, and
// docs/testing.md says what it proves.
package sim
