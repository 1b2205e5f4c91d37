package attack

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestProcessors_Others checks that the processor time of another process
// counts as the time of others, unless the process belongs to the run.
func TestProcessors_Others(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		busy.Process.Kill()
		busy.Wait()
	}()
	pids := []int{os.Getpid(), busy.Process.Pid}
	began, err := processors(pids)
	if err != nil {
		t.Fatal(err)
	}
	for { // until the process has used half a second of processor time
		time.Sleep(50 * time.Millisecond) // polls the counters of the kernel
		ended, err := processors(pids)
		if err != nil {
			t.Fatal(err)
		}
		used := ended.known[pids[1]] - began.known[pids[1]]
		if used < 0.5 {
			continue
		}
		with := ended.others(began)
		delete(ended.known, pids[1])
		without := ended.others(began)
		scale := ended.at.Sub(began.at).Seconds() * float64(runtime.NumCPU())
		if without*scale < used/2 {
			t.Fatalf("the process used %.2f s, but the time of all others is only %.2f s", used, without*scale)
		}
		// The kernel counts in units of 0.01 s.
		if got := (without - with) * scale; with > 0 && math.Abs(got-used) > 0.05 {
			t.Fatalf("the process used %.2f s, but the time of others grew by %.2f s because of it", used, got)
		}
		return
	}
}
