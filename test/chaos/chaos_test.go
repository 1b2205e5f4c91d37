package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/process"
	"github.com/holdfast-kv/holdfast/verify/attack"
)

// A short attack, so that every run of the tests has one: make chaos is the long
// one. The controls have to be caught, or the rest proves nothing.
func TestAttack(t *testing.T) {
	dir, err := os.MkdirTemp("", "holdfast-chaos-test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := attack.DefaultConfig()
	if cfg.Program, err = process.Build(dir); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cfg.Dir, cfg.Seed, cfg.Episodes, cfg.Controls, cfg.Out = dir, 1, 1, true, &said
	cfg.Faults = []string{"kill -9 leader", "pause leader", "isolate leader", "forwarder cut", "wall clock jumps"}
	r, err := attack.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Table(&said); err != nil {
		t.Error(err)
	}
	t.Log(said.String())
	if !r.Held() {
		t.Errorf("%d violations, %d failures, %d of %d controls caught; see %s", r.Violations, r.Failures, r.Caught, r.Controls, dir)
		return
	}
	if r.Faults < 4 || r.Histories != 1 || r.Failovers == 0 || r.Grants == 0 || r.Checked < 1000 {
		t.Errorf("%d faults seen, %d failovers, %d grants, %d checks: too little", r.Faults, r.Failovers, r.Grants, r.Checked)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// A run with another build proves nothing if no cluster was upgraded.
func TestUpgraded(t *testing.T) {
	for _, tt := range []struct {
		seen int
		ok   bool
	}{{0, false}, {1, true}} {
		r := &attack.Report{Classes: []attack.ClassTally{{Class: "kill -9 leader", Seen: 3}, {Class: "rolling upgrade", Injected: 2, Seen: tt.seen}}}
		if err := upgraded(r); (err == nil) != tt.ok {
			t.Errorf("seen %d times: %v", tt.seen, err)
		}
	}
}

// What a run of CI has to reach is missed by a run that reached nothing.
func TestFigures(t *testing.T) {
	if err := figures(&attack.Report{}); err == nil || len(strings.Split(err.Error(), "\n")) != 7 {
		t.Errorf("figures of an empty run: %v", err)
	}
	full := &attack.Report{Histories: 20, Faults: 80, Failovers: 30, PowerCuts: 4, Checked: 100_000, Grants: 3_000, Expired: 300}
	if err := figures(full); err != nil {
		t.Errorf("figures that are reached: %v", err)
	}
}
