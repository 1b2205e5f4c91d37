package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// fakeSweep returns a sweep with four points. The second point cannot be
// measured on this machine, and the third fails. If end is not nil, the third
// point also calls end.
func fakeSweep(end context.CancelFunc) sweep {
	return sweep{"fake", []int64{1, 2, 3, 4}, func(_ *growth, ctx context.Context, at int64) ([]record.Series, error) {
		switch at {
		case 2:
			return nil, fmt.Errorf("node: %w", unavailable("too few files"))
		case 3:
			if end != nil {
				end()
			}
			return nil, errors.New("a node has ended")
		}
		return []record.Series{{What: "GET" + record.Rate, System: record.Redis, Samples: []float64{float64(at)}}}, nil
	}}
}

// TestGrowth_PointsFail checks that a failed point is recorded with its reason and
// does not end the sweep.
func TestGrowth_PointsFail(t *testing.T) {
	var out bytes.Buffer
	g := &growth{m: machine{out: &out, o: options{growth: growthOptions{out: t.TempDir(), maxKeys: defaultMaxKeys}}}}
	if err := g.sweep(t.Context(), fakeSweep(nil)); err != nil {
		t.Fatal(err)
	}
	got, err := record.Read[record.Sweep](g.file("fake"))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, p := range got.Points {
		points = append(points, fmt.Sprintf("%d %v %s", p.At, p.Samples("GET"+record.Rate, record.Redis), p.Missing))
	}
	want := []string{"1 [1] ", "2 [] node: too few files", "3 [] a node has ended", "4 [4] "}
	if !reflect.DeepEqual(points, want) {
		t.Errorf("points %q, want %q", points, want)
	}
	if g.failed != 1 {
		t.Errorf("%d points failed, want only the third", g.failed)
	}
	if !strings.Contains(out.String(), "fake 2: not measured: node: too few files") {
		t.Errorf("output %q", &out)
	}
}

// TestGrowth_Interrupted checks that an interrupted sweep keeps the old file.
func TestGrowth_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &growth{m: machine{out: io.Discard, o: options{growth: growthOptions{out: t.TempDir()}}}}
	old := &record.Sweep{Axis: "old"}
	if err := record.Write(g.file("fake"), old); err != nil {
		t.Fatal(err)
	}
	if err := g.sweep(ctx, fakeSweep(cancel)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got, err := record.Read[record.Sweep](g.file("fake")); err != nil || got.Axis != old.Axis {
		t.Errorf("file %+v, %v", got, err)
	}
}

func TestForGrowth(t *testing.T) {
	for _, tt := range []struct {
		args    string
		seconds float64
		fails   bool
	}{
		{"", 3, false},
		{"-growth all", growthSeconds, false},
		{"-growth keys, -seconds 3", 0, true}, // invalid: the list contains an empty name
		{"-growth keys,cost -seconds 3", 3, false},
		{"-growth key", 0, true},
	} {
		var o options
		fs := flag.NewFlagSet("bench", flag.ContinueOnError)
		fs.Float64Var(&o.seconds, "seconds", 3, "")
		o.growth.define(fs)
		if err := fs.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		err := o.forGrowth(fs)
		if (err != nil) != tt.fails || err == nil && o.seconds != tt.seconds {
			t.Errorf("%q: %v s, %v", tt.args, o.seconds, err)
		}
	}
	o := options{growth: growthOptions{sweeps: "keys, cost"}}
	for _, name := range sweepNames() {
		if o.growth.wants(name) != (name == "keys" || name == "cost") {
			t.Errorf("wants(%s) is %v", name, o.growth.wants(name))
		}
	}
}

// TestKeyLoads checks the commands of the loads of the keys sweep, and the replies
// that these loads expect.
func TestKeyLoads(t *testing.T) {
	const key = keyFormat
	c := &renewer{socket: 7}
	want := [][]string{
		{"SET " + fmt.Sprintf(key, 0) + ":7 " + keyValue + " NX PX " + lockTTL, "+OK\r\n"},
		{"DEL " + fmt.Sprintf(key, 0) + ":7", ":1\r\n"},
		{"GET " + fmt.Sprintf(key, 0), "$16\r\nholder-012345678\r\n"},
	}
	var got [][]string
	for _, load := range keyLoads(1) {
		for _, e := range load.cycle {
			got = append(got, []string{strings.Join(e.words(c), " "), e.reply})
			if done, err := e.complete(e.reply); !done || err != nil {
				t.Errorf("reply %q: %v, %v", e.reply, done, err)
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("commands %q, want %q", got, want)
	}
}

func TestProfiled_Files(t *testing.T) {
	g := &growth{m: machine{o: options{pprofDir: t.TempDir(), growth: growthOptions{out: t.TempDir()}}}}
	p := &profiled{files: make(map[string][]byte)}
	p.add("cost", record.Profile{Row: "GET, 50 connections", System: record.Redis, Count: 2, Total: 1}, nil)
	p.add("cost", record.Profile{Row: "GET, 50 connections", System: record.Leader, Count: 4, Total: 1}, []byte("x"))
	if err := g.writeProfiles("cost", p); err != nil {
		t.Fatal(err)
	}
	got, err := record.Read[record.Profiles](g.file("cost"))
	if err != nil || len(got.Rows) != 2 || got.Rows[0].File != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	b, err := os.ReadFile(g.m.o.pprofDir + "/" + got.Rows[1].File)
	if err != nil || string(b) != "x" || got.Rows[1].File != "cost-GET-50-connections-leader.pprof" {
		t.Errorf("file %s: %q, %v", got.Rows[1].File, b, err)
	}
	if us := p.perCommand(-1); us != 250_000 {
		t.Errorf("%v µs per command", us)
	}
}
