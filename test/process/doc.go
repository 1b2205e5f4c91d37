// Package process runs the shipped program as real processes: it builds the
// binary, starts clusters of it on loopback ports that are free, kills, pauses
// and restarts single nodes. Its tests are those of the program as an operator
// meets it, from kill -9 under load to the texts of its errors; test/bench
// measures with it.
//
// No process outlives the one that started it, however that one ends: see
// Starter. Nothing but what was started here is ever signalled.
package process
