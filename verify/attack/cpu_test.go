package attack

import (
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/platform"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestHogs_KeepOthersFromTheProcessor checks that hogs make a process on the
// same processor wait, as measured by the kernel, and that stop ends the hogs.
func TestHogs_KeepOthersFromTheProcessor(t *testing.T) {
	if why := canStarve(Config{}); why != "" {
		t.Skip(why)
	}
	var one platform.Processors
	all, err := platform.Affinity()
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(all) * 64 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	victim, err := startHogs(1, all)
	defer victim.stop()
	if err != nil {
		t.Fatal(err)
	}
	pid := victim[0].Process.Pid
	if err := pin(pid, one); err != nil {
		t.Fatal(err)
	}
	before, err := turnsOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	others, err := startHogs(2, one)
	if err != nil {
		others.stop()
		t.Fatal(err)
	}
	wait, stop := withLimit(t.Context(), 20*time.Second, "wait")
	defer stop()
	err = process.Poll(wait, "the victim to wait for the processor", func() bool {
		now, err := turnsOf(pid)
		return err == nil && now.since(before).waited > 50*time.Millisecond
	})
	others.stop()
	if err != nil {
		t.Error(err)
	}
	for _, h := range others {
		if _, err := turnsOf(h.Process.Pid); err == nil {
			t.Errorf("hog %d still lives", h.Process.Pid)
		}
	}
}
