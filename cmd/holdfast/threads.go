package main

import (
	"os"
	"runtime"
)

// useThreads lets Go code run on n processors at a time. For 0 it leaves one of
// the machine's to the kernel's network, the disk and whoever else runs there,
// unless GOMAXPROCS says what is wanted. A node is a pipeline (socket, log, disk,
// machine, socket) that a second processor speeds up less than the clients, who are
// kept off it: on two cores, with clients and all nodes on them, linearizable reads
// were a fifth faster with one, and pipelined writes a tenth slower.
func useThreads(n int) {
	if n == 0 {
		if os.Getenv("GOMAXPROCS") != "" {
			return
		}
		n = max(1, runtime.GOMAXPROCS(0)-1)
	}
	runtime.GOMAXPROCS(n)
}
