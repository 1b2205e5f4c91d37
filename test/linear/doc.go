// Package linear attacks a cluster of real node processes while clients write,
// read and lock through every node, and checks what they saw: with porcupine,
// that the history of every key is linearizable, and with a checker of its own,
// that two clients never held one lock at the same time.
//
// An outcome that a client could not learn counts as "perhaps, and perhaps
// later". What porcupine cannot decide in time is a failure, not a pass.
package linear
