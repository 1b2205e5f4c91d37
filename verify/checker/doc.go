// Package checker decides whether a history satisfies the guarantees of
// Holdfast. It does not use the product's code, and it does not depend on how
// the history was recorded. The simulator, the attack on real processes, and
// holdfast verify record the same types and use the same checkers.
//
// Times are durations since the start of the history. The program that records
// the history reads them from one monotonic clock. A checker never assumes that
// an operation took less time than was measured.
//
//   - Linear: each key by itself is linearizable (porcupine), with values,
//     conditions, counters and times to live. A check that exceeds its time
//     limit proves nothing, so it counts as a violation too.
//   - Locks: a lock never has two owners at once. Before the time to live of a
//     lock ends, its owner loses the lock only by releasing it. Some time after
//     the end of the time to live, the lock can be taken again. Fencing tokens
//     grow.
//   - Once: an acknowledged command was executed once, a refused one never, and
//     one of unknown outcome at most once. The order of execution agrees with
//     the order of the acknowledgements.
//   - Replies: no reply belongs to another request.
//   - Chains: replicas at the same log index hold the same state.
//   - Recoveries: after the faults, every node serves a client again in time.
//   - LockQueues and LockPasts: locks with a queue of waiters are granted in
//     order, and the nodes' histories of these locks agree with what clients
//     saw.
//   - Queues, Groups and Messages: no element, entry or message is lost or,
//     except by a claim, delivered twice. Their order is kept.
//   - Caches: client-side caches receive every invalidation.
//   - Batches: pipelines of INCR return consecutive numbers.
//
// Package replay runs the log again through a second model of the commands.
package checker
