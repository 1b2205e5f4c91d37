// Package process runs the released program as real processes. It builds the
// binary, starts clusters of it on free loopback ports, and kills, pauses and
// restarts single nodes. The tests, holdfast verify --local, and holdfast dev
// use it.
//
// On Linux, a process ends when the process that started it ends, however that
// happens: see Starter. The package sends signals only to processes that it has
// started.
package process
