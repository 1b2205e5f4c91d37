// Package replay reads the log that a cluster leaves behind. It runs the log
// again, in linear time, through a second model of the commands. That model
// follows the documentation of the commands and shares no code with the nodes'
// state machine.
//
// The replay then checks that the log explains what the clients saw:
//
//   - Every acknowledged write is in the log once, with the reply that the
//     client received.
//   - A refused write is not in the log.
//   - A write of unknown outcome is in the log at most once.
//   - The order of the log agrees with real time.
//   - Every read returned a value that its key held at some moment between the
//     call and the return of the read.
//
// The replay checks histories of any length, but relies on the order of the
// log. porcupine limits the length of a history, but does not need the log. The
// tests therefore use both.
//
// The replay also accepts a log whose beginning was compacted. The value of a
// key is then unknown until an entry of the log shows it.
//
// OnRedis runs the log on a real redis-server and compares the data with that of
// the nodes' state machine.
package replay
