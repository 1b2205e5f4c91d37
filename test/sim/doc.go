// Package sim attacks simulated clusters. A history is a cluster of three or
// five nodes in one testing/synctest bubble: the product's own raft library, rpc,
// cluster and fsm code, over a network, disks and clocks in memory, in virtual
// time, of which a slow processor makes more than a hundred seconds a second.
// Clients write, read, and take locks while faults come in combinations that a
// seed decides; then the oracles of verify/oracle and verify/replay judge.
//
// What is real: elections, replication, snapshots and their installation through
// raft.NetworkTransport, the port of package rpc with its handshakes and streams,
// gateways, sessions, read rounds, offices, the machine. What is not: TCP and the
// kernel, the files of cluster/storage (a disk here keeps what was synced and may
// lose the rest), and processes: a crash ends a node between two of its
// steps, and a node that is stalled hears nothing and writes nothing, but its
// timers go on. In one history of three clients outside the nodes speak the Redis
// protocol to package resp, over the same network: see workloads. Scripts are those
// of a stand-in, because an interpreter takes no virtual time.
//
// A schedule repeats exactly, the order of ready goroutines does not: see
// Schedule. make sim runs it; docs/testing.md says what it proves.
package sim
