package diskspace

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

// testDisks is the disk of the node n1, and the reports of the other nodes
// about their disks.
type testDisks struct {
	free  int64
	peers map[string]Peer
	Config
}

func newTestDisks(free int64) *testDisks {
	d := &testDisks{free: free, peers: make(map[string]Peer)}
	d.Config = Config{
		NodeID: "n1", Reserve: -1, Logger: hclog.NewNullLogger(),
		Space: func(string) (int64, int64, error) { return d.free, 10 << 30, nil },
		Mono:  func() time.Duration { return 0 },
		Peer:  func(id string) Peer { return d.peers[id] },
	}
	return d
}

func voters(ids ...string) (all []member.Member) {
	for _, id := range ids {
		all = append(all, member.Member{ID: id, Voter: true})
	}
	return all
}

// A leader refuses commands before it hands over leadership, and after a failed
// attempt it chooses another voter.
func TestDisk_HandOver(t *testing.T) {
	disks := newTestDisks(100 << 20)
	all := voters("n1", "n2", "n3", "n4", "n5")
	for i, id := range []string{"n2", "n3", "n4", "n5"} {
		disks.peers[id] = Peer{Alive: true, Applied: uint64(90 - i)}
	}
	var asked []string
	var d *Monitor
	disks.Transfer = func(_ context.Context, next string) error {
		if d.Full() == "" {
			t.Error("Full returns no error during a hand-over, want an error")
		}
		asked = append(asked, next)
		return errors.New("no votes")
	}
	d = New(disks.Config)
	for range 5 {
		d.handOver = -1
		d.lead(t.Context(), d.measure(), all)
	}
	if got := strings.Join(asked, " "); got != "n2 n3 n4 n5 n2" {
		t.Errorf("hand-overs to %s, want n2 n3 n4 n5 n2", got)
	}
}

// The refusal says that deletions wait if a majority can store no entries.
func TestDisk_RefusalText(t *testing.T) {
	disks := newTestDisks(100 << 20)
	d := New(disks.Config)
	for full, want := range map[bool]string{false: "Reads and deletions work.", true: "Deletions and releases of locks wait"} {
		for _, id := range []string{"n2", "n3"} {
			disks.peers[id] = Peer{Alive: true, Applied: 1, Disk: Status{DiskLow: true, DiskFull: full}}
		}
		if text, _ := d.decide(d.measure(), voters("n1", "n2", "n3")); !strings.Contains(text, want) {
			t.Errorf("followers full: %v: the refusal is %q, want a text with %q", full, text, want)
		}
	}
}

// While the free space of a low disk grows, the refusal names the free space at
// which the refusal ends. That is more than the reserve.
func TestDisk_LowHysteresis(t *testing.T) {
	disks := newTestDisks(100 << 20)
	d := New(disks.Config)
	reserve := d.measure().DiskReserve
	for _, c := range []struct {
		free int64
		says string // "" if the disk is not low
	}{
		{reserve, ", and needs " + size(reserve+reserve/16)}, {reserve + reserve/16 - 1, "needs"},
		{reserve + reserve/16, ""}, {reserve, ""}, {reserve - 1, "reserve of " + size(reserve) + " ("},
	} {
		disks.free = c.free
		st := d.measure()
		if st.DiskLow != (c.says != "") {
			t.Errorf("%s free: DiskLow is %t, want the other value", size(c.free), st.DiskLow)
		}
		for _, id := range []string{"n2", "n3"} {
			disks.peers[id] = Peer{Alive: true, Applied: 1, Disk: st}
		}
		if text, _ := d.decide(st, voters("n1", "n2", "n3")); !strings.Contains(text, c.says) {
			t.Errorf("%s free: the refusal is %q, want a text with %q", size(c.free), text, c.says)
		}
	}
}

// DiskFull must not alternate while the free space is near the floor.
func TestDisk_FullHysteresis(t *testing.T) {
	disks := newTestDisks(72<<20 - 1)
	d := New(disks.Config)
	for _, c := range []struct {
		free int64
		full bool
	}{{72<<20 - 1, true}, {72 << 20, true}, {107 << 20, true}, {108 << 20, false}, {72 << 20, false}} {
		disks.free = c.free
		if got := d.measure().DiskFull; got != c.full {
			t.Errorf("%s free: DiskFull is %v, want the other value", size(c.free), got)
		}
	}
}
