// Package attack runs a cluster of real node processes on this machine, puts
// load on it, injects faults, and checks the results. A run consists of
// episodes. Each episode has its own cluster, its own load (package load), a
// plan of faults, and the verdict of the checkers (packages checker and
// replay). Live instead checks a cluster that is already running, without
// faults.
//
// # Faults
//
// A fault is a row in one of the files faults*.go. The row names the class of
// the fault, the conditions that the fault needs, and a function. The function
// injects the fault, waits, removes the fault, and returns the proof that the
// fault took effect. Examples of a proof are bytes that a proxy blocked, a
// process in state T, and an error that a node printed. A fault without such a
// proof counts as NOT RUN.
//
// Proxies (net.go) carry all traffic between nodes, and between the clients of
// the load and the nodes. A proxy can block, delay, slow down and corrupt the
// traffic, in each direction independently, and it can reset connections. The
// proxies can distinguish the nodes because every connection between nodes
// begins with the id of the node that opens it.
//
// A disk is a file that contains an ext4 file system. The disks are mounted in
// a separate mount namespace, which disappears when this process ends.
//
// # Randomness
//
// One seed determines the plan of each episode, and the random choices of the
// faults and of the clients. The seed does not determine how the machine
// schedules the processes. Therefore a second run with the same seed repeats
// the plan of an episode, but not its exact course.
package attack
