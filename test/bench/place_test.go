package main

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMove(t *testing.T) {
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // Wait reports the kill
	})
	var all, one, got unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, to := range []*unix.CPUSet{&one, &all} {
		if err := move(c.Process.Pid, to); err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedGetaffinity(c.Process.Pid, &got); err != nil || got != *to {
			t.Errorf("process runs on %v, %v, want %v", got, err, *to)
		}
	}
	if err := move(1<<30, &one); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("move of a process that is not there: %v", err)
	}
}

// TestPlacement_None checks that without a placement no process is moved.
func TestPlacement_None(t *testing.T) {
	p, err := newPlacement(false)
	if p != nil || err != nil {
		t.Fatalf("placement %v, %v", p, err)
	}
	if err := p.place(1<<30, 1<<30); err != nil {
		t.Error(err)
	}
	if err := p.free(); err != nil {
		t.Error(err)
	}
}
