package cluster_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
)

// compareAndDeleteScript releases a lock.
const compareAndDeleteScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// fullDisks are disks of 10 GiB whose free space a test sets, by data directory.
type fullDisks struct {
	mu   sync.Mutex
	free map[string]int64
}

func (d *fullDisks) space(dir string) (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if free, ok := d.free[dir]; ok {
		return free, 10 << 30, nil
	}
	return 9 << 30, 10 << 30, nil
}

func (d *fullDisks) set(c *testCluster, id string, free int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free[c.members[id].dir] = free
}

func startOnDisks(t *testing.T) (*testCluster, *fullDisks) {
	d := &fullDisks{free: make(map[string]int64)}
	c := prepare(t, 3)
	c.change = func(cfg *cluster.Config) { cfg.DiskSpace = d.space }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.quiet()
	return c, d
}

// TestDisk_Reserve checks that commands that add data, and restores, are refused on
// every node while all disks are below the reserve. Reads, deletions, new TTLs and
// releases of locks must work. The refusal must end when the disks have room.
func TestDisk_Reserve(t *testing.T) {
	t.Parallel()
	c, d := startOnDisks(t)
	c.client("n1").want(t, ok, "SET", "k", "v")
	c.client("n1").want(t, ok, "SET", "l", "v")
	for _, id := range c.ids() {
		d.set(c, id, 100<<20)
	}
	for _, id := range c.ids() {
		eventually(t, "a refusal on "+id, func() bool {
			got, err := c.client(id).do("SET", "p", "w")
			return err == nil && strings.HasPrefix(got, "-MISCONF commands that add data are refused") &&
				strings.Contains(got, "100MiB free and a reserve of 512MiB")
		})
		c.client(id).want(t, bulk("v"), "GET", "k")
		// A script that releases a lock is not refused.
		if got, err := c.client(id).do("EVAL", compareAndDeleteScript, "1", "absent", "token"); err != nil || got != ":0\r\n" {
			t.Errorf("script that releases a lock through %s: %q, %v, want 0", id, got, err)
		}
	}
	for _, id := range c.ids() {
		eventually(t, "a restore to be refused on "+id, func() bool {
			begin := [][]byte{[]byte("begin"), []byte("r"), []byte("1000"), []byte("1")}
			err := c.node(id).Restore(t.Context(), begin)
			return err != nil && strings.Contains(err.Error(), "the restore is refused: commands that add data are "+
				"refused because the disk is almost full")
		})
	}
	c.client("n2").want(t, ":1\r\n", "PEXPIRE", "k", "1000000")
	c.client("n3").want(t, ":1\r\n", "DEL", "l")
	st := c.node(c.leader()).Status()
	if !st.DiskLow || st.WritesRefused == "" || st.DiskReserve != 512<<20 {
		t.Errorf("status of the leader: %+v, want a low disk, refused writes and a reserve of 512 MiB", st.DiskStatus)
	}
	for _, id := range c.ids() {
		d.set(c, id, 8<<30)
	}
	for _, id := range c.ids() {
		eventually(t, "the end of the refusal on "+id, func() bool {
			got, err := c.client(id).do("SET", "p", "w")
			return err == nil && got == ok
		})
	}
}

// TestDisk_LeaderHandsOver checks that a leader with an almost full disk gives
// its leadership to a node with room, and that writes work then. Until then, the
// old leader may refuse commands that add data.
func TestDisk_LeaderHandsOver(t *testing.T) {
	t.Parallel()
	c, d := startOnDisks(t)
	old := c.leader()
	d.set(c, old, 100<<20)
	eventually(t, "another leader", func() bool {
		got, err := c.client(c.others(old)[0]).do("SET", "k", "v")
		id, known := c.node(c.others(old)[0]).Leader()
		return known && id != old && err == nil && got == ok
	})
}

// TestDisk_FullFollower checks that a follower without room accepts no entries,
// keeps running, and catches up when there is room, while the cluster accepts
// writes.
func TestDisk_FullFollower(t *testing.T) {
	t.Parallel()
	c, d := startOnDisks(t)
	c.transfer("n1")
	d.set(c, "n3", 1<<20)
	eventually(t, "n3 to be full", func() bool { return c.node("n3").Status().DiskFull })
	before := c.node("n3").Status().LastIndex
	c.fill("n1", 50)
	if st := c.node("n3").Status(); st.LastIndex > before+5 { // a few entries may have been on their way
		t.Errorf("a follower with a full disk has stored %d entries, want at most 5", st.LastIndex-before)
	}
	d.set(c, "n3", 8<<30)
	last := c.node("n1").Status().LastIndex
	eventually(t, "n3 to catch up", func() bool { return c.node("n3").Status().LastIndex >= last })
}
