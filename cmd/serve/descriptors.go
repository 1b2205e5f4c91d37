package serve

import (
	"fmt"
	"syscall"
)

// ownDescriptors is the number of file descriptors that a node needs besides
// those of its clients and of the connections at the HTTP port: the log and
// snapshots, connections to the other nodes, and Sentinel clients.
const ownDescriptors = 256

// checkDescriptors returns an error if the process may not open enough file
// descriptors for --max-clients and --max-http-connections connections. The Go
// runtime has already raised the soft limit of the process to its hard limit.
func checkDescriptors(maxClients, maxHTTP int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit on file descriptors: %w", err)
	}
	return enoughDescriptors(maxClients, maxHTTP, limit.Max)
}

func enoughDescriptors(maxClients, maxHTTP int, limit uint64) error {
	others := uint64(maxHTTP) + ownDescriptors
	need := uint64(maxClients) + others
	if limit >= need {
		return nil
	}
	remedy := fmt.Sprintf("raise this limit to %d "+
		"(LimitNOFILE= of systemd, --ulimit nofile= of Docker, ulimit -Hn)", need)
	if limit > others {
		remedy += fmt.Sprintf(", or set --max-clients to %d or less", limit-others)
	}
	return fmt.Errorf("--max-clients is %d and --max-http-connections is %d, which needs %d file descriptors, "+
		"but the process may open only %d: %s", maxClients, maxHTTP, need, limit, remedy)
}
