package record

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestReadWrite_Sweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "growth-keys.json")
	want := &Sweep{Axis: "keys", Header: Header{"make growth GROWTH=keys", [][2]string{{"redis", "v=7"}}, true},
		Points: []Point{
			{At: 1000, Series: []Series{{"GET" + Rate, Redis, []float64{1, 2.5}}}},
			{At: 1 << 40, Missing: "not enough memory"},
		}}
	for range 2 { // the second time, the file exists
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read[Sweep](path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) != 1 {
		t.Errorf("the directory contains %v, %v", left, err)
	}
}

func TestReadWrite_Profiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.json")
	want := &Profiles{Rows: []Profile{
		{Row: "GET", System: Leader, Count: 7, Total: 1.5, File: "a.pprof", Shares: []Share{{"raft", 3}, {"other", 4}}},
		{Row: "GET", System: Redis, Count: 7, Total: 0.5},
	}}
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read[Profiles](path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	if sum := got.Rows[0].Sum(); sum != 7 {
		t.Errorf("sum %v", sum)
	}
}

func TestRead_Fails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.json")
	if _, err := Read[Profiles](path); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"rows": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read[Profiles](path); err == nil {
		t.Errorf("torn file: %v", got)
	}
}

func TestFigureOf(t *testing.T) {
	if got := FigureOf([]float64{9, 1, 2}); got != (Figure{2, 1, 9}) {
		t.Errorf("of three: %v", got)
	}
	if got := FigureOf([]float64{4, 1, 2, 9}); got != (Figure{3, 1, 9}) {
		t.Errorf("of four: %v", got)
	}
}

func TestRatioOf(t *testing.T) {
	// The machine was slow in the second repetition: the ratios hardly differ.
	got, ok := RatioOf([]float64{50, 10, 60}, []float64{100, 20, 100})
	if !ok || got != (Figure{0.5, 0.5, 0.6}) {
		t.Errorf("%v, %v", got, ok)
	}
	for _, base := range [][]float64{nil, {1}} {
		if got, ok := RatioOf([]float64{1, 2}, base); ok {
			t.Errorf("base %v: %v", base, got)
		}
	}
}

func TestPoint_Samples(t *testing.T) {
	p := Point{Series: []Series{{"GET" + Rate, Redis, []float64{1}}, {"GET" + Rate, Leader, []float64{2}}}}
	if got := p.Samples("GET"+Rate, Leader); !reflect.DeepEqual(got, []float64{2}) {
		t.Errorf("leader: %v", got)
	}
	if got := p.Samples("GET"+P99, Leader); got != nil {
		t.Errorf("not measured: %v", got)
	}
}
