package serve

import (
	"fmt"
	"syscall"
)

// ownDescriptors is the number of file descriptors that a node needs besides
// those of its clients: the log and snapshots, connections to the other nodes,
// Sentinel clients, and 256 connections at the HTTP port, which is the default
// of --max-http-connections.
const ownDescriptors = 512

// checkDescriptors returns an error if the process may not open enough file
// descriptors for --max-clients connections. The Go runtime has already raised
// the soft limit of the process to its hard limit.
func checkDescriptors(maxClients int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit on file descriptors: %w", err)
	}
	return enoughDescriptors(maxClients, limit.Max)
}

func enoughDescriptors(maxClients int, limit uint64) error {
	need := uint64(maxClients) + ownDescriptors
	if limit >= need {
		return nil
	}
	remedy := fmt.Sprintf("raise this limit to %d "+
		"(LimitNOFILE= of systemd, --ulimit nofile= of Docker, ulimit -Hn)", need)
	if limit > ownDescriptors {
		remedy += fmt.Sprintf(", or set --max-clients to %d or less", limit-ownDescriptors)
	}
	return fmt.Errorf("--max-clients is %d, which needs %d file descriptors, but the process may open only %d: %s",
		maxClients, need, limit, remedy)
}
