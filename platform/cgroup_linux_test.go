package platform

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCgroupMemory checks that cgroupMemory returns the lowest limit among the
// control groups of a process and the ancestors of these groups.
func TestCgroupMemory(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"none", nil, 0},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/\n"}, 0},
		{"max", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		{"own", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "900\n",
			"sys/fs/cgroup/a/b/memory.max": "500\n"}, 500},
		{"ancestor", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "300\n",
			"sys/fs/cgroup/a/b/memory.max": "500\n"}, 300},
		{"container", map[string]string{"proc/self/cgroup": "0::/docker/1234\n", "sys/fs/cgroup/memory.max": "700\n"}, 700},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/m\n",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "800\n", "sys/fs/cgroup/memory.max": "1\n"}, 800},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, limited := cgroupMemory(root); got != tt.want || limited != (tt.want > 0) {
				t.Errorf("limit %d, %v, want %d", got, limited, tt.want)
			}
		})
	}
}
