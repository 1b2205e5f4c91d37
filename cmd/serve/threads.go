package serve

import (
	"os"
	"runtime"
)

// useThreads lets Go code run on n processors at a time. For 0, and without
// GOMAXPROCS, it leaves one of the machine's processors to the kernel's network
// stack, the disk and other programs.
//
// A node works as a pipeline (socket, log, disk, state machine, socket). If it uses
// all processors, it gains less than its clients on the same machine lose. On two
// cores that all nodes and the clients shared, a node that used one processor
// executed linearizable reads a fifth faster and pipelined writes a tenth slower
// than a node that used two.
func useThreads(n int) {
	if n == 0 {
		if os.Getenv("GOMAXPROCS") != "" {
			return
		}
		n = max(1, runtime.GOMAXPROCS(0)-1)
	}
	runtime.GOMAXPROCS(n)
}
