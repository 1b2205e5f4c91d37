//go:debug randseednop=0

package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	mathrand "math/rand"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run the schedule of this seed alone, and shrink it if it fails")
	seedsFlag   = flag.Int("seeds", 8, "number of seeds to run")
	firstFlag   = flag.Uint64("first", 1, "first seed")
	virtualFlag = flag.Duration("virtual", 60*time.Second, "length of a history, in virtual time")
	budgetFlag  = flag.Duration("budget", 0,
		"real time after which no further seed is started; seeds not started are reported as not run; 0 means no limit")
	repeatFlag = flag.Int("repeat", 3,
		"number of runs of the schedule of -seed; each smaller schedule gets at most 2 runs more")
	workersFlag = flag.Int("workers", runtime.NumCPU(), "processes at a time")
	jsonFlag    = flag.String("json", "", "file for the result as JSON")
	workFlag    = flag.String("work", "",
		"workloads of remote clients, separated by commas, in place of those that seeds draw")
	drillFlag = flag.String("drill", "", "run the schedules that are made for this injected bug")
	serveFlag = flag.Bool("serve", false,
		"run the schedules from standard input, as the processes of a fleet do")
)

// limit is the real time that one history may take on a slow and busy machine.
const limit = 5 * time.Minute

func fleet() *Fleet {
	return &Fleet{
		Program: os.Args[0], Args: []string{"-test.run=^TestServe$", "-test.timeout=0", "-serve"},
		Workers: *workersFlag, Limit: limit,
	}
}

// TestServe is the worker side of a Fleet.
func TestServe(t *testing.T) {
	if !*serveFlag {
		t.Skip("only for the processes of a fleet")
	}
	if err := Serve(os.Stdin, os.NewFile(3, "results"),
		func(plan *Schedule) *Result { return inBubble(t, plan) }); err != nil {
		t.Fatal(err)
	}
}

// inBubble runs a schedule in a bubble of its own. If goroutines are left after
// everything has been closed, the process ends and prints their stacks.
func inBubble(t *testing.T, plan *Schedule) (r *Result) {
	history := run
	switch plan.Scenario {
	case powerCutScenario:
		return powerCuts(plan) // real files need real time, so there is no bubble
	case lateSnapshotScenario:
		history = lateSnapshots
	case mixedScenario:
		history = mixedRequests
	case swappedScenario:
		history = swappedAddresses
	}
	// raft draws its timeouts from math/rand. With the same seed, they are the
	// same if the goroutines draw them in the same order.
	//lint:ignore SA1019 there is no other way to seed a library's use of it
	mathrand.Seed(int64(plan.Seed))
	begun := time.Now()
	synctest.Test(t, func(*testing.T) { r = history(plan) })
	r.replayOnRedis()
	r.Real = time.Since(begun)
	return r
}

// TestSim runs many seeds, or one.
func TestSim(t *testing.T) {
	if *serveFlag {
		t.Skip("this is a process of a fleet")
	}
	if *seedFlag != 0 {
		plan := Plan(*seedFlag, *virtualFlag)
		if *workFlag != "" {
			plan.Work = strings.Split(*workFlag, ",")
		}
		again(t, plan)
		return
	}
	plans := make([]*Schedule, *seedsFlag)
	for i := range plans {
		plans[i] = Plan(*firstFlag+uint64(i), *virtualFlag)
	}
	if *drillFlag != "" {
		if plans = Drill(*drillFlag); plans == nil {
			t.Fatalf("there are no schedules for %q, only for %q", *drillFlag, Drills())
		}
	}
	if *workFlag != "" {
		for _, p := range plans {
			p.Work = strings.Split(*workFlag, ",")
		}
	}
	report := NewReport()
	begun := time.Now()
	printed := begun
	err := fleet().Run(plans, func(r *Result) bool {
		report.Add(r)
		if time.Since(printed) > time.Minute {
			printed = time.Now()
			fmt.Printf("%d of %d seeds, %d failed\n", report.Histories, len(plans), len(report.Failed))
		}
		if len(r.Violations) > 0 {
			// Print the failure at once, because a run may take a
			// night.
			fmt.Printf("seed %d fails; to repeat and shrink it: make sim SEED=%d\n%v\n%s\n", r.Schedule.Seed,
				r.Schedule.Seed, r.Schedule, strings.Join(r.Violations, "\n"))
			t.Errorf("seed %d fails", r.Schedule.Seed)
		}
		late := *budgetFlag > 0 && time.Since(begun) > *budgetFlag
		return late || len(report.Failed) >= 5 // five failures are enough to examine
	})
	report.Real = time.Since(begun)
	if err != nil {
		t.Fatal(err)
	}
	report.Print(os.Stdout)
	if n := report.Histories; n < len(plans) && len(report.Failed) == 0 {
		fmt.Printf("NOT RUN: %d of %d seeds: the machine was too slow for them in %v\n", len(plans)-n, len(plans),
			*budgetFlag)
	}
	if *jsonFlag != "" {
		writeJSON(t, *jsonFlag, report)
	}
	if report.Ops < 500*report.Histories {
		t.Errorf("%d operations in %d histories: too few to prove anything", report.Ops, report.Histories)
	}
}

// again runs one schedule several times. If a run fails, again shrinks the
// schedule.
func again(t *testing.T, plan *Schedule) {
	fmt.Println(plan)
	plans := make([]*Schedule, *repeatFlag)
	for i := range plans {
		plans[i] = plan
	}
	failed := 0
	report := NewReport()
	err := fleet().Run(plans, func(r *Result) bool {
		report.Add(r)
		if len(r.Violations) > 0 {
			failed++
			t.Errorf("violations:\n%s", strings.Join(r.Violations, "\n"))
			if r.Log != "" {
				fmt.Println(r.Log)
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	report.Print(os.Stdout)
	fmt.Printf("%d of %d runs of seed %d failed\n", failed, len(plans), plan.Seed)
	if failed > 0 {
		small := Shrink(fleet(), plan, *repeatFlag+2, 5*time.Minute, func(s string) { fmt.Println(s) })
		fmt.Printf("smallest schedule that fails:\n%v\n", small)
	}
}

func writeJSON(t *testing.T, path string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}
