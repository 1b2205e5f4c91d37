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
		if s, err := parse(bad); err == nil || strings.Contains(err.Error(), "%!") {
			t.Errorf("parse(%q): %v and the error %v, want a well-formed error", bad, s, err)
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

// TestOptions_Wants checks that a word of -only must contain "tmpfs" to select
// the rows with all data in memory.
func TestOptions_Wants(t *testing.T) {
	for _, tt := range []struct {
		only string
		want string // names of the selected rows of SETNX
	}{
		{"", "SETNX c1, SETNX c50, SETNX c256, SETNX c50 P16, tmpfs: SETNX c1, tmpfs: SETNX c50, tmpfs: SETNX c256, " +
			"tmpfs: SETNX c50 P16"},
		{"setnx c50", "SETNX c50, SETNX c50 P16"},
		{"tmpfs: SETNX c1, GET", "tmpfs: SETNX c1"},
		{"idle", ""},
	} {
		o := options{only: tt.only}
		var got []string
		for _, name := range rowNames() {
			if o.wants(name) && strings.Contains(name, "SETNX") {
				got = append(got, name)
			}
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("-only %q: %v", tt.only, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "4711 (a ) b) S 1 4711 4711 0 -1 4194560 1 0 0 0 123 45 0 0 20 0 7 0 100 1 2"
	if got, err := parseStat(line); err != nil || got != 1680*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 (x) S 1", strings.Replace(line, "123", "x", 1)} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// TestRunLoad runs a load as a load process does, until its input ends.
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

func TestExchange_Complete(t *testing.T) {
	for _, tc := range []struct {
		reply, got string
		complete   bool
		fails      bool
	}{
		{"+OK\r\n", "+OK\r\n", true, false}, {"+OK\r\n", "+O", false, false}, {"+OK\r\n", "$-1\r\n", false, true},
		{"", ":4194305\r\n", true, false}, {"", ":41", false, false}, {"", ":41\r", false, false},
		{"", ":0\r\n", false, true}, {"", "$-1\r\n", false, true}, {"", "-ERR no\r\n", false, true},
	} {
		got, err := exchange{reply: tc.reply}.complete(tc.got)
		if got != tc.complete || (err != nil) != tc.fails {
			t.Errorf("reply %q to a command that wants %q: %v, %v", tc.got, tc.reply, got, err)
		}
	}
}
