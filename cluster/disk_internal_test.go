package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

func testMonitor(free *int64) *diskMonitor {
	e := &environment{ctx: context.Background(), clock: systemClock{}, log: hclog.NewNullLogger()}
	e.cfg = &Config{NodeID: "n1"}
	e.cfg.Options.DiskReserve = -1
	e.cfg.DiskSpace = func(string) (int64, int64, error) { return *free, 10 << 30, nil }
	d := newDiskMonitor(e, nil)
	d.health = newHealthBook(time.Now, func() {})
	return d
}

func voters(ids ...string) (all []member.Member) {
	for _, id := range ids {
		all = append(all, member.Member{ID: id, Voter: true})
	}
	return all
}

func (d *diskMonitor) hear(id string, applied uint64, disk DiskStatus) {
	st := NodeStatus{ID: id, Reachable: true, DiskStatus: disk}
	st.Applied = applied
	d.health.learn([]NodeStatus{st})
}

// A leader refuses commands before it hands over leadership, and after a failed
// attempt it chooses another voter.
func TestDisk_HandOver(t *testing.T) {
	free := int64(100 << 20)
	d := testMonitor(&free)
	all := voters("n1", "n2", "n3", "n4", "n5")
	for i, id := range []string{"n2", "n3", "n4", "n5"} {
		d.hear(id, uint64(90-i), DiskStatus{})
	}
	var asked []string
	d.transfer = func(_ context.Context, next string, _ *adminReply) error {
		if d.full() == "" {
			t.Error("commands that add data are accepted during a hand-over")
		}
		asked = append(asked, next)
		return errors.New("no votes")
	}
	for range 5 {
		d.handOver = -1
		d.lead(d.measure(), all)
	}
	if got := strings.Join(asked, " "); got != "n2 n3 n4 n5 n2" {
		t.Errorf("hand-overs to %s, want n2 n3 n4 n5 n2", got)
	}
}

// The refusal says that deletions wait if a majority can store no entries.
func TestDisk_RefusalText(t *testing.T) {
	free := int64(100 << 20)
	d := testMonitor(&free)
	for full, want := range map[bool]string{false: "Reads and deletions work.", true: "Deletions and releases of locks wait"} {
		for _, id := range []string{"n2", "n3"} {
			d.hear(id, 1, DiskStatus{DiskLow: true, DiskFull: full})
		}
		if text, _ := d.decide(d.measure(), voters("n1", "n2", "n3")); !strings.Contains(text, want) {
			t.Errorf("followers full: %v: %q does not contain %q", full, text, want)
		}
	}
}

// DiskFull must not alternate while the free space is near the floor.
func TestDisk_FullHysteresis(t *testing.T) {
	free := int64(72<<20 - 1)
	d := testMonitor(&free)
	for _, c := range []struct {
		free int64
		full bool
	}{{72<<20 - 1, true}, {72 << 20, true}, {107 << 20, true}, {108 << 20, false}, {72 << 20, false}} {
		free = c.free
		if got := d.measure().DiskFull; got != c.full {
			t.Errorf("%s free: full is %v", size(c.free), got)
		}
	}
}

// A removal counts when the same leader has committed its log as of its first
// answer.
func TestRemoved_NeedsCommit(t *testing.T) {
	var u unlisted
	for i, c := range []struct {
		r    adminReply
		want bool
	}{
		{adminReply{Leader: "n1", Term: 2, Last: 7, Commit: 6}, false},
		{adminReply{Leader: "n1", Term: 2, Last: 8, Commit: 6}, false},
		{adminReply{Leader: "n2", Term: 3, Last: 9, Commit: 9}, false},
		{adminReply{Leader: "n2", Term: 3, Last: 12, Commit: 9}, true},
	} {
		if got := u.confirmed(c.r); got != c.want {
			t.Errorf("answer %d: %v, want %v", i, got, c.want)
		}
	}
}
