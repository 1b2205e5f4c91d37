// Package execution executes reads and scripts on a node, and stops those that
// exceed their budget of time or memory:
//
//   - Reads runs groups that only read. A group that takes long runs on a clone
//     of the state machine, once it has a slot.
//   - Scripts connects the state machine with the interpreter of scripts.
//   - Scripts.RunDry runs a group with scripts outside of the log, to see
//     whether the scripts end. A dry run waits for its slot in one of two lanes.
package execution
