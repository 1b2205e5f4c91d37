package cluster_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// heldDisk lets a test keep the appends of a node waiting.
type heldDisk struct {
	sync.RWMutex // locked for writing while appends wait

	key     string       // key of raft's stable store; its writes wait, too
	waiting atomic.Int32 // writes of the key that have begun and not ended
}

// open implements cluster.Config.OpenStores.
func (h *heldDisk) open(cfg storage.Config) (cluster.Stores, error) {
	s, err := storage.Open(cfg)
	if err != nil {
		return nil, err
	}
	return heldStores{s, h}, nil
}

type heldStores struct {
	*storage.Stores
	disk *heldDisk
}

func (s heldStores) Log() raft.LogStore { return heldLog{s.Stores.Log(), s.disk} }

func (s heldStores) Stable() raft.StableStore { return heldStable{s.Stores.Stable(), s.disk} }

type heldStable struct {
	raft.StableStore
	disk *heldDisk
}

func (s heldStable) SetUint64(key []byte, v uint64) error {
	if string(key) == s.disk.key {
		s.disk.waiting.Add(1)
		defer s.disk.waiting.Add(-1)
		s.disk.RLock()
		defer s.disk.RUnlock()
	}
	return s.StableStore.SetUint64(key, v)
}

type heldLog struct {
	raft.LogStore
	disk *heldDisk
}

func (l heldLog) IsMonotonic() bool { return l.LogStore.(raft.MonotonicLogStore).IsMonotonic() }

func (l heldLog) StoreLogs(logs []*raft.Log) error {
	l.disk.RLock()
	defer l.disk.RUnlock()
	return l.LogStore.StoreLogs(logs)
}

// slowLeader starts a cluster that n1 leads. The appends of n1 wait until letGo
// is called. The value of k is "old".
func slowLeader(t *testing.T, options ...func(*cluster.Options)) (c *testCluster, letGo func()) {
	t.Helper()
	disk := &heldDisk{}
	c = prepare(t, 3, options...)
	c.change = func(cfg *cluster.Config) {
		if cfg.NodeID == "n1" {
			cfg.OpenStores = disk.open
		}
	}
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.transfer("n1")
	c.client("n1").want(t, ok, "SET", "k", "old")
	c.mended()
	c.caughtUp(c.ids()...)
	disk.Lock()
	return c, sync.OnceFunc(disk.Unlock)
}

// TestOwnDisk_Slow checks that no client sees an entry that is not on the
// leader's disk, even if both followers have it. raft counts the leader's copy
// before it is on disk, so an entry that raft considers committed may be on the
// disk of only one follower. A power failure of the leader could then destroy the
// entry.
func TestOwnDisk_Slow(t *testing.T) {
	t.Parallel()
	c, letGo := slowLeader(t)
	defer letGo()
	before := c.node("n1").Status()
	writes := map[string]<-chan result{"n1": c.client("n1").start("SET", "k", "new"), "n2": c.client("n2").start("SET", "k", "new")}
	eventually(t, "both followers to have the entries", func() bool {
		return c.node("n2").Status().LastIndex > before.LastIndex && c.node("n3").Status().LastIndex > before.LastIndex
	})
	during(300 * time.Millisecond)
	for _, id := range c.ids() {
		if st := c.node(id).Status(); st.Commit > before.LastIndex || st.Applied > before.LastIndex {
			t.Errorf("%s has committed up to %d and applied %d, but the leader's disk ends at %d", id, st.Commit, st.Applied, before.LastIndex)
		}
		c.client(id).want(t, "$3\r\nold\r\n", "GET", "k")
	}
	for id, r := range writes {
		select {
		case res := <-r:
			t.Errorf("write through %s was answered before it was on the leader's disk: %q, %v", id, res.reply, res.err)
		default:
		}
	}
	letGo()
	for id, r := range writes {
		if res := awaitResult(t, "write through "+id, r); res.err != nil || res.reply != ok {
			t.Errorf("write through %s: %q, %v, want OK", id, res.reply, res.err)
		}
	}
	for _, id := range c.ids() {
		c.client(id).want(t, "$3\r\nnew\r\n", "GET", "k")
	}
}

// TestOwnDisk_SlowAndDeposed deposes a leader while its disk is slow. Such a leader
// may follow the next leader only when every entry that it treated as stored is on
// disk or has been removed from its log. The test checks that all nodes reach the
// same state, and that no log ends before the commit index.
func TestOwnDisk_SlowAndDeposed(t *testing.T) {
	t.Parallel()
	var c *testCluster
	var letGo func()
	var lost <-chan result
	// On a busy machine, LeaseTimeout may be over before the leader accepts the
	// entry. If so, the test tries again.
	for took := false; !took; {
		c, letGo = slowLeader(t)
		defer letGo()
		c.isolate("n1")
		before := c.node("n1").Status()
		lost = c.client("n1").start("SET", "lost", "v")
		eventually(t, "the old leader to have the entry, or to lose its leadership before", func() bool {
			st := c.node("n1").Status()
			took = st.LastIndex > before.LastIndex
			return took || st.Role != "leader"
		})
	}
	c.leader("n2", "n3")
	c.client("n2").want(t, ok, "SET", "k", "new")
	c.net.heal()
	during(100 * time.Millisecond) // n1 learns of the next term while it cannot store it
	letGo()
	c.caughtUp(c.ids()...)
	c.client("n1").want(t, "$3\r\nnew\r\n", "GET", "k")
	// Either the node has sent the write to the next leader, or the write has
	// failed.
	if res := awaitResult(t, "write that was lost with the leadership", lost); res.err == nil && res.reply != ok {
		t.Errorf("write that was lost with the leadership: %q, want OK or an error", res.reply)
	}
	for _, id := range c.ids() {
		if st := c.node(id).Status(); st.LastIndex < st.Commit {
			t.Errorf("%s: the log ends at %d, before the commit index %d", id, st.LastIndex, st.Commit)
		}
	}
}
