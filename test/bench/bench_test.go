package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

func TestParse(t *testing.T) {
	text := `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SETNX lock:0001:__rand_int__ holder-0123456789","21087.03","2.255","0.968","2.143","3.199","4.591","9.783"
`
	got, err := parse(text)
	if want := (sample{21087.03, 2.143, 4.591}); err != nil || got != want {
		t.Errorf("parse: %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "ERR\n", `"test","rps"` + "\n" + `"SET","fast"` + "\n"} {
		if s, err := parse(bad); err == nil {
			t.Errorf("parse(%q): %v, want an error", bad, s)
		}
	}
}

func TestPrintResults_Floors(t *testing.T) {
	at := func(rps ...float64) (s []sample) {
		for _, r := range rps {
			s = append(s, sample{rps: r})
		}
		return s
	}
	r := row{name: "SETNX c50", leaderFloor: 0.33, ownFloor: 0.7}
	for _, tt := range []struct {
		name             string
		leader, follower []sample
		missed           bool
	}{
		{"all reached", at(10, 40, 90), at(30), false},
		{"leader too slow", at(10, 32, 90), at(30), true},
		{"follower too slow", at(40), at(27, 27, 90), true},
		{"no follower measured", at(40), nil, false},
	} {
		var out bytes.Buffer
		missed, err := printResults(&out,
			[]result{{row: r, redis: at(80, 100, 500), leader: tt.leader, follower: tt.follower}})
		if err != nil || missed != tt.missed || strings.Contains(out.String(), "MISSED") != missed {
			t.Errorf("%s: missed %v, %v, want %v\n%s", tt.name, missed, err, tt.missed, &out)
		}
	}
}

func TestMedian(t *testing.T) {
	if got := median([]time.Duration{1, 2, 9}); got != 2 {
		t.Errorf("of three: %v", got)
	}
	if got := median([]float64{1, 2, 4, 9}); got != 3 {
		t.Errorf("of four: %v", got)
	}
}

func TestRun_WrongArguments(t *testing.T) {
	for _, args := range [][]string{{"-reps", "0"}, {"-only", "nothing of that name"}, {"fast"}} {
		if err := run(context.Background(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// TestRunLoad runs a load as its process does, until its input ends.
func TestRunLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node")
	}
	dir := t.TempDir()
	program, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	const password = "of-the-test"
	c, err := process.New(process.Config{Program: program, Dir: dir, Nodes: 1, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	leader, err := c.Settled(ctx)
	if err != nil {
		t.Fatal(err)
	}
	order, err := json.Marshal(loadOrder{"scripts that log", leader.Clients, password, "test:"})
	if err != nil {
		t.Fatal(err)
	}
	in, finish := io.Pipe()
	reports, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- runLoad(ctx, string(order), in, out) }()
	from := json.NewDecoder(reports)
	begun := false
	if err := from.Decode(&begun); err != nil || !begun {
		t.Fatalf("the load has not begun: %v, %v", begun, err)
	}
	time.AfterFunc(500*time.Millisecond, func() { finish.Close() })
	var effect neighbor.Effect
	if err := from.Decode(&effect); err != nil || effect.Rounds+effect.Closed == 0 {
		t.Errorf("effect of the load: %v, %v", effect, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunLoad_Refused(t *testing.T) {
	for _, order := range []string{"", "{}", `{"Load": "no such load"}`} {
		if err := runLoad(t.Context(), order, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%q: no error", order)
		}
	}
}
