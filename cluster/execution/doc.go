// Package execution executes reads and scripts on a node, and stops those that
// exceed their budget of time or memory:
//
//   - Reads runs groups that only read. A group that takes long runs on a clone
//     of the state machine, once it has a slot.
//   - Scripts connects the state machine with the interpreter of scripts.
//   - RunDry runs a group of scripts to see whether it ends, in one of two lanes.
package execution
