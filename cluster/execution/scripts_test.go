package execution

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/platform"
)

func counter() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "c"}) }

func histogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"})
}

func scriptMetrics() ScriptMetrics {
	return ScriptMetrics{Scripts: counter(), Seconds: histogram(), Refused: counter(), WritesRefused: counter()}
}

// The scripts of a group share one time limit, in addition to the limit of each
// script. Before a dry run, the common limit is that of one script.
func TestScriptHost_Allowance(t *testing.T) {
	h := &Scripts{cfg: ScriptConfig{Limit: 500 * time.Millisecond}, brief: 2 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		scriptBudget fsm.ScriptBudget
		since        time.Duration // time since the group began
		limit        time.Duration
		shared       bool
	}{
		{fsm.Briefly, 0, ms(2), false},
		{fsm.Briefly, ms(1), ms(1), true},
		{fsm.Briefly, ms(2), 0, true},
		{fsm.Briefly, ms(10), ms(-8), true},
		{fsm.DryRun, ms(4000), ms(500), false},
		{fsm.DryRunPassed, ms(4600), ms(400), true},
		{fsm.GivenUp, ms(4000), ms(2), false},
		{fsm.GivenUp, ms(5000), 0, true},
	} {
		begun := int64(time.Second)
		limit, shared := h.allowance(&fsm.ScriptCall{ScriptBudget: c.scriptBudget, Group: &begun}, time.Second+c.since)
		if limit != c.limit || shared != c.shared {
			t.Errorf("script budget %d, %v into the group: limit %v, shared %v, want %v, %v",
				c.scriptBudget, c.since, limit, shared, c.limit, c.shared)
		}
	}
	var begun int64
	if h.allowance(&fsm.ScriptCall{Group: &begun}, time.Second); begun != int64(time.Second) {
		t.Errorf("the group began at %d, want 1 s in nanoseconds", begun)
	}
	if limit, shared := h.allowance(&fsm.ScriptCall{ScriptBudget: fsm.DryRun}, time.Hour); limit != h.cfg.Limit || shared {
		t.Errorf("a read has limit %v, shared %v, want 500ms, false", limit, shared)
	}
}

// still is a runner whose scripts do nothing.
type still struct{}

func (still) CompileScript([]byte) string        { return "" }
func (still) RunScript(fsm.ScriptCall) fsm.Reply { return fsm.OK }

// The number of read-only scripts that run at a time is limited, and slow ones
// cannot take all slots. Scripts that go through the log need no slot.
func TestScriptHost_Slots(t *testing.T) {
	done := make(chan struct{})
	metrics := scriptMetrics()
	h := &Scripts{
		cfg:   ScriptConfig{Interpreter: still{}, Mono: platform.Elapsed, Limit: time.Millisecond, Metrics: metrics},
		brief: time.Hour, reads: fairshare.New(2, math.MaxInt64, platform.Elapsed),
		slowSlots: fairshare.New(1, math.MaxInt64, platform.Elapsed), slow: map[string]time.Duration{"slow": time.Hour},
	}
	enter := func(name, want string) (leave func()) {
		t.Helper()
		leave, refusal := h.enter(name, fairshare.Worker{}, done)
		if refusal != want {
			t.Errorf("%s: refused with %q, want %q", name, refusal, want)
		}
		return leave
	}
	slow := enter("slow", "")
	enter("slow", msgScriptRoom)
	quick := enter("quick", "")
	enter("quick", msgScriptRoom)
	run := func(runner fsm.ScriptRunner, p fsm.ScriptBudget) string {
		reply := runner.RunScript(fsm.ScriptCall{SHA: "quick", ScriptBudget: p})
		return reply.Text()
	}
	if got := run(h.Runner(done), fsm.DryRun); got != msgScriptRoom {
		t.Errorf("a read without a slot: %q, want msgScriptRoom", got)
	}
	for _, p := range []fsm.ScriptBudget{fsm.Briefly, fsm.DryRunPassed, fsm.GivenUp} {
		if got := run(h.Runner(done), p); got != "OK" {
			t.Errorf("speculative execution with script budget %d: %q, want OK", p, got)
		}
	}
	if got := run(h.DryRunner(done, &DryRun{begun: h.cfg.Mono(), limit: time.Hour}), fsm.DryRun); got != "OK" {
		t.Errorf("a dry run: %q, want OK", got)
	}
	quick()
	if got := run(h.Runner(done), fsm.DryRun); got != "OK" {
		t.Errorf("a read with a slot: %q, want OK", got)
	}
	enter("slow", msgScriptRoom) // the only slot for slow scripts is still occupied
	slow()
	enter("slow", "")()
	if h.reads.Free() != 2 || h.slowSlots.Free() != 1 {
		t.Errorf("%d slots for reads and %d for slow scripts are free, want 2 and 1", h.reads.Free(), h.slowSlots.Free())
	}
	h.cfg.Limit = time.Hour
	enter("slow", "")
	close(done)
	enter("slow", msgScriptLost)
}
