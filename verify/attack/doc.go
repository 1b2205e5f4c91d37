// Package attack runs a cluster of real node processes on this machine, loads
// it, breaks it in every way that the machine allows, and judges what came of
// it: episodes, each with a cluster of its own, a load (package load), a plan of
// faults, and the verdict of the oracles (packages oracle and replay).
//
// # Faults
//
// A fault is a row in one of the files faults*.go: a class, what it needs, and a
// function that injects it, lets it last, takes it back, and says what proves
// that it took effect: bytes that were held up, a process in state T, an error
// that a node printed. A fault without such a proof counts as NOT RUN.
//
// Between nodes, and between clients and nodes, stand proxies (net.go): they
// hold up, delay, cut and spoil what goes over them, in each direction by
// itself, since every connection between nodes begins with the name of who opens
// it. Disks are files with an ext4 in them, in a mount namespace of their own,
// which goes with this process.
//
// # Chance
//
// Everything that is drawn comes from one seed: the plan of each episode, and
// the clients' choices. What the machine makes of it does not: an episode
// repeats its plan, not its course.
package attack
