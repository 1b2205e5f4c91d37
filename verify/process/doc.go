// Package process runs the released program as real processes. It builds the
// binary, starts clusters on free loopback ports, and kills, pauses and
// restarts single nodes. The tests, holdfast verify --local, and holdfast dev
// use it.
//
// On Linux, the kernel ends a started process when this process ends for any
// reason: see Starter. The package sends signals only to processes that it has
// started.
package process
