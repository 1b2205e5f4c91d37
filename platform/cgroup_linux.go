package platform

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// cgroupMemory returns the lowest memory limit, in bytes, among the control
// groups of this process and the ancestors of these groups. It returns false if
// no such group has a limit. root is the root of the file system, / except in
// tests.
func cgroupMemory(root string) (limit uint64, limited bool) {
	self, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false // the kernel has no control groups
	}
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" { // version 1
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container, the path might not exist below the mount point, because
		// the mount point is the group itself.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if n, ok := readLimit(path.Join(root, mount, dir, file)); ok && (!limited || n < limit) {
				limit, limited = n, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, limited
}

// readLimit reads a limit from a file of a control group. It returns false if
// there is no such file, or if it contains no limit.
func readLimit(name string) (uint64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil // the text is "max" if the group has no limit
}
