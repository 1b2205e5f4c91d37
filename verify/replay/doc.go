// Package replay reads the log that a cluster leaves behind and runs it once more,
// in linear time, against a second model of the commands: one that was written
// from what the commands mean and shares no code with the machine of the nodes.
// Then it asks whether the log can explain what the clients saw: every
// acknowledged write is in it once, with the reply that was given; what was
// refused is not; what is unknown is there at most once; the order of the log
// agrees with real time; and every read returned what its key held at some
// moment while it was under way.
//
// It has no limit on the length of a history, where porcupine has; but it trusts
// the log's own order, which porcupine does not. So both are asked.
//
// A log whose beginning was compacted is replayed too: keys are unknown until
// something says what they hold.
package replay
