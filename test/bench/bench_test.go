package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
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
