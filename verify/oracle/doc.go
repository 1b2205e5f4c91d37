// Package oracle judges what clients saw of a cluster under attack. It knows
// nothing of Holdfast's code, nor of how a history came about: the simulator,
// the attack on real processes and holdfast verify record the same types and
// ask the same questions.
//
// Times are durations since the start of the history, read from one monotonic
// clock: that of whoever recorded it. An oracle never assumes that anything
// took less time than was measured.
//
//   - Linear: every key by itself is linearizable (porcupine), with values,
//     conditions, counters and times to live. A checker that ran out of time has
//     proved nothing, which is a violation too.
//   - Locks: no two owners at once, no lock lost or given away before its time,
//     none kept long after it, fencing tokens that grow.
//   - Once: what was acknowledged happened once, what was refused never, what is
//     unknown at most once; and in the order in which it was acknowledged.
//   - Replies: no reply belongs to another request.
//   - Chains: replicas at the same place of the log hold the same state.
//   - Recoveries: after the last fault every client is served again in time.
//
// The replay of the log against a second model of the commands is package replay.
package oracle
