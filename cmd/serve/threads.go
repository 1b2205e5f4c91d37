package serve

import (
	"os"
	"runtime"
)

// useThreads lets Go code run on n processors at a time. For 0, and without
// GOMAXPROCS, it leaves one of the machine's processors to the kernel's network
// stack, the disk and other programs.
//
// A node works as a pipeline (socket, log, disk, state machine, socket). A
// second processor speeds the node up by less than it slows the clients down.
// Measured on two cores, with clients and all nodes on them, one processor made
// linearizable reads a fifth faster and pipelined writes a tenth slower.
func useThreads(n int) {
	if n == 0 {
		if os.Getenv("GOMAXPROCS") != "" {
			return
		}
		n = max(1, runtime.GOMAXPROCS(0)-1)
	}
	runtime.GOMAXPROCS(n)
}
