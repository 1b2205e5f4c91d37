package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestAttack makes a short attack in every run of the tests; make chaos makes
// the long one. The checkers must catch the negative controls; otherwise the
// other results of the attack prove nothing.
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
	if !r.Passed() {
		t.Errorf("%d violations, %d failures, %d of %d controls caught; see %s", r.Violations, r.Failures, r.Caught,
			r.Controls, dir)
		return
	}
	if r.Faults < 4 || r.Histories != 1 || r.Failovers == 0 || r.Grants == 0 || r.Checked < 1000 {
		t.Errorf("%d faults seen, %d failovers, %d grants, %d checks: too little", r.Faults, r.Failovers, r.Grants,
			r.Checked)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// TestPlan checks the plan that CI runs. The seed in .ci/run must plan more
// faults than wantFaults, more power cuts than wantPowerCuts, and at least one
// fault of the class "isolate follower for long".
func TestPlan(t *testing.T) {
	ci, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`make chaos SEED=(\d+) EPISODES=(\d+)`).FindSubmatch(ci)
	if m == nil {
		t.Fatal(".ci/run has no make chaos with a seed")
	}
	var cfg attack.Config
	if _, err := fmt.Sscan(string(m[1])+" "+string(m[2]), &cfg.Seed, &cfg.Episodes); err != nil {
		t.Fatal(err)
	}
	plans, err := attack.Planned(cfg)
	if err != nil {
		t.Fatal(err)
	}
	faults, cuts, long := 0, 0, 0
	for _, p := range plans {
		faults += p.Faults()
		cuts += p.PowerCuts()
		long += strings.Count(p.String(), "isolate follower for long")
	}
	if faults <= wantFaults || cuts <= wantPowerCuts || long == 0 {
		t.Errorf("seed %d: %d faults, %d power cuts, %d long isolations planned; want more than %d, more than %d, "+
			"and at least one",
			cfg.Seed, faults, cuts, long, wantFaults, wantPowerCuts)
	}
}

// TestUpgraded checks that a run with another build fails if no cluster was
// upgraded, because such a run proves nothing about the other build.
func TestUpgraded(t *testing.T) {
	for _, tt := range []struct {
		seen int
		ok   bool
	}{{0, false}, {1, true}} {
		r := &attack.Report{Classes: []attack.ClassTally{{Class: "kill -9 leader", Seen: 3},
			{Class: "rolling upgrade", Injected: 2, Seen: tt.seen}}}
		if err := upgraded(r); (err == nil) != tt.ok {
			t.Errorf("seen %d times: %v", tt.seen, err)
		}
	}
}

// TestFigures checks that an empty run misses every figure, and that a run that
// just reaches every figure passes.
func TestFigures(t *testing.T) {
	if err := figures(&attack.Report{}); err == nil || len(strings.Split(err.Error(), "\n")) != 7 {
		t.Errorf("figures of an empty run: %v", err)
	}
	full := &attack.Report{Histories: 20, Faults: 80, Failovers: 30, PowerCuts: 4, Checked: 100_000, Grants: 3_000,
		Expired: 300}
	if err := figures(full); err != nil {
		t.Errorf("figures that are reached: %v", err)
	}
}
