// Package locking contains the commands about locks: "holdfast lock" runs a
// command while it holds a lock, and "holdfast locks" shows locks and breaks them.
package locking
