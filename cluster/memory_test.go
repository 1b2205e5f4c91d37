package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

const oom = "-" + fsm.MsgOOM + "\r\n"

// refreshScript renews a lock.
const refreshScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`

// TestMaxMemory checks that commands that add data are refused on every node
// while the data set is larger than the leader's limit. Reads, deletions, and
// renewals and releases of locks must work. The next command after a deletion must
// be executed, on every node.
func TestMaxMemory(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.change = func(cfg *cluster.Config) { cfg.Options.MaxMemory = 1 << 20 }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.quiet()
	big := strings.Repeat("v", 600<<10)
	c.client("n1").want(t, ok, "SET", "lock", "token")
	for round, id := range c.ids() {
		n := c.client(id)
		n.want(t, ok, "SET", "a", big)
		n.want(t, ok, "SET", "b", big)
		for _, id := range c.ids() {
			n := c.client(id)
			n.want(t, oom, "SET", "c", "v")
			n.want(t, oom, "INCR", "n")
			n.want(t, bulk("token"), "GET", "lock")
			n.want(t, ":1\r\n", "PEXPIRE", "lock", "1000000")
			n.want(t, ":1\r\n", "EVAL", refreshScript, "1", "lock", "token", "1000000")
			n.want(t, ":0\r\n", "EVAL", compareAndDeleteScript, "1", "lock", "other")
		}
		n.want(t, ":1\r\n", "DEL", "a")
		n.want(t, ok, "SET", "c", "v")
		n.want(t, ":2\r\n", "UNLINK", "b", "c")
		if st := c.node(c.leader()).Memory(); st.MemoryRefused || st.MaxMemory != 1<<20 || st.DatasetBytes > 1024 {
			t.Errorf("round %d: the leader reports %+v, want no refusal, a limit of 1 MiB and at most 1 KiB of data", round, st)
		}
	}
}

// TestMaxMemory_Setting checks that the setting of the cluster takes precedence
// over the nodes' own limits, on the leader and after a change of leader.
func TestMaxMemory_Setting(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.change = func(cfg *cluster.Config) { cfg.Options.MaxMemory = 1 }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.quiet()
	n := c.client("n2")
	n.want(t, ok, "SET", "k", "v")
	n.want(t, oom, "SET", "k", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "1000000")
	n.want(t, ok, "SET", "k", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "10")
	n.want(t, oom, "SET", "k", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "0") // no limit
	n.want(t, ok, "SET", "k", "v")
	old := c.leader()
	next := c.others(old)[0]
	if _, err := c.node(old).Transfer(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	n.want(t, ok, "SET", "k", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "10")
	n.want(t, oom, "SET", "k", "v")
}

// TestMaxMemory_Mixed checks a cluster in which one node runs a program of an older
// feature version. Whichever node leads, its own limit applies. The cluster refuses
// the setting maxmemory until that node is upgraded. An empty setting makes the
// limit of the leader apply again.
func TestMaxMemory_Mixed(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n3": older}
	c := mixed(t, 3, claims)
	features := c.change
	c.change = func(cfg *cluster.Config) {
		features(cfg)
		cfg.Options.MaxMemory = 1 << 20
	}
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.transfer("n3")
	c.transfer("n1")
	c.features(older)
	c.client("n2").want(t, ok, "SET", "big", strings.Repeat("v", 1100<<10))
	for _, leader := range []string{"n3", "n2"} {
		c.transfer(leader)
		for _, id := range c.ids() {
			n := c.client(id)
			n.want(t, oom, "SET", "c", "v")
			n.want(t, ":0\r\n", "DEL", "c")
		}
	}
	if _, err := c.client("n1").do(fsm.SetSettingsCommand, fsm.SettingMaxMemory, "0"); !errors.Is(err, outcome.ErrFeature) {
		t.Errorf("maxmemory was set below feature version %d: %v, want ErrFeature", fsm.FeatureMend, err)
	}
	c.stop("n3")
	delete(claims, "n3")
	c.open("n3")
	c.ready("n3")
	c.features(fsm.MaxFeatures)
	n := c.client("n3")
	n.want(t, oom, "SET", "c", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "10000000")
	n.want(t, ok, "SET", "c", "v")
	n.want(t, ok, fsm.SetSettingsCommand, fsm.SettingMaxMemory, "")
	n.want(t, oom, "SET", "c", "v")
}
