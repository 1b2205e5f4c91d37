package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// series returns the samples of a load on both systems.
func series(load string, leader, redis []float64) []record.Series {
	return []record.Series{
		{What: load + record.Rate, System: record.Leader, Samples: leader},
		{What: load + record.Rate, System: record.Redis, Samples: redis},
	}
}

// axisOf returns the axis with the given name.
func axisOf(t *testing.T, name string) axis {
	t.Helper()
	for _, a := range axes {
		if a.name == name {
			return a
		}
	}
	t.Fatalf("no axis %s", name)
	return axis{}
}

var clientsSweep = &record.Sweep{Axis: "clients", Points: []record.Point{
	{At: 1, Series: append(series("SET NX PX", []float64{50}, []float64{100}),
		series("GET", []float64{20, 30, 60}, []float64{100, 100, 100})...)},
	{At: 5000, Missing: "clients needs 6000 open files | the limit is 1024\nand a second line"},
}}

func TestTable_Sweep(t *testing.T) {
	want := `| clients | SET NX PX, rate | SET NX PX, p99 | GET, rate | GET, p99 |
|---|---|---|---|---|
| 1 | 0.50 | | 0.30 (0.20–0.60) | |
| 5,000 | not measured: clients needs 6000 open files / the limit is 1024 | | | |
`
	if got := axisOf(t, "clients").table(clientsSweep); got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}

func memoryPoint(at int64, perKey float64) record.Point {
	p := record.Point{At: at}
	for _, system := range []string{record.Redis, record.Leader, record.Follower} {
		p.Series = append(p.Series, record.Series{What: record.Empty, System: system, Samples: []float64{5e6}},
			record.Series{What: record.Resident, System: system, Samples: []float64{5e6 + perKey*float64(at)}})
	}
	return p
}

func TestTable_Memory(t *testing.T) {
	s := &record.Sweep{Points: []record.Point{memoryPoint(1000, 9000), memoryPoint(1e6, 450)}}
	lines := strings.Split(axisOf(t, "keys").table(s), "\n")
	for i, want := range map[int]string{2: "| 10³ | | | | | | | | |", 3: "| 10⁶ | | | | | | 450 | 450 | 450 |"} {
		if lines[i] != want {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

func TestLabels(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{thousands(1), "1"}, {thousands(999), "999"}, {thousands(1000), "1,000"}, {thousands(1234567), "1,234,567"},
		{binarySize(16), "16 B"}, {binarySize(64 << 10), "64 KiB"}, {powerOfTen(1000), "10³"},
		{powerOfTen(10_000_000_000), "10¹⁰"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

func TestReplaceBlock(t *testing.T) {
	const begin = "before\n\n<!-- growth-keys: begin (written by make plots) -->\n"
	const end = "<!-- growth-keys: end -->\n\nafter\n"
	page, want := begin+"old\n"+end, begin+"\nnew\n\n"+end
	for range 2 { // the second time, nothing changes
		var err error
		if page, err = replaceBlock(page, "growth-keys", "new\n"); err != nil || page != want {
			t.Fatalf("page %q, %v, want %q", page, err, want)
		}
	}
	for _, bad := range []string{"", strings.Replace(page, "end", "eof", 1)} {
		if got, err := replaceBlock(bad, "growth-keys", "new\n"); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestWrap(t *testing.T) {
	code := "`make growth GROWTH=keys BENCH='-max-keys 100'`"
	text := wrap(strings.Repeat("word ", 13) + code + " and more")
	if want := strings.Repeat("word ", 12) + "word\n" + code + " and more\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestProvenance(t *testing.T) {
	h := record.Header{Command: "make growth GROWTH=keys", Conditions: [][2]string{
		{"date", "2026-11-27T21:32:42Z"}, {"machine", "2 CPUs"}, {"kernel", "6.18"},
		{"load average at the start", "1.5 1.0 0.2 (other work)"}}}
	want := "Measured with `make growth GROWTH=keys` on 2026-11-27 at 21:32:42Z. Machine: 2\n" +
		"CPUs. Load average at the start: 1.5 1.0 0.2.\n"
	if got := provenance(h); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if h.Preliminary = true; !strings.HasPrefix(provenance(h), "**Preliminary") {
		t.Errorf("%q", provenance(h))
	}
}

// TestRun checks that two runs write the same page: one with the profiles, and then
// one without them. It also checks the plots.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	p := &artist{data: filepath.Join(dir, "data"), images: filepath.Join(dir, "images"),
		profiles: filepath.Join(dir, "profiles"), blocks: make(map[string]string)}
	write := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
	}
	keys := &record.Sweep{Axis: "keys", Points: []record.Point{memoryPoint(1e5, 300), memoryPoint(1e6, 200)}}
	write("keys", record.Write(filepath.Join(p.data, "growth-keys.json"), keys))
	write("clients", record.Write(filepath.Join(p.data, "growth-clients.json"), clientsSweep))
	write("cost", record.Write(filepath.Join(p.data, "growth-cost.json"), &record.Profiles{
		Rows: []record.Profile{{Row: "GET", System: record.Leader, Count: 10, Total: 1, File: "get.pprof"}}}))
	write("profiles", os.Mkdir(p.profiles, 0o755))
	testProfile(t, filepath.Join(p.profiles, "get.pprof"))
	page := filepath.Join(dir, "page.md")
	text := ""
	for _, name := range []string{"keys", "clients", "cost"} {
		text += "<!-- growth-" + name + ": begin (written by make plots) -->\n<!-- growth-" + name + ": end -->\n"
	}
	write("page", os.WriteFile(page, []byte(text), 0o600))
	var pages [2]string
	for i := range pages {
		if err := p.run(page); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = string(b)
		write("profiles", os.RemoveAll(p.profiles))
	}
	if pages[0] != pages[1] || !strings.Contains(pages[0], "| apply: state machine | 75000.0 µs (75 %) |") {
		t.Errorf("with profiles:\n%s\nwithout:\n%s", pages[0], pages[1])
	}
	for _, name := range []string{"growth-keys", "growth-clients", "growth-memory"} {
		checkSVG(t, filepath.Join(p.images, name+".svg"))
	}
}

// TestRun_NoProfiles checks that divide fails if there are neither profiles nor
// shares.
func TestRun_NoProfiles(t *testing.T) {
	p := &artist{data: t.TempDir(), profiles: t.TempDir(), blocks: make(map[string]string)}
	if err := record.Write(filepath.Join(p.data, "growth-cost.json"), &record.Profiles{
		Rows: []record.Profile{{Row: "GET", System: record.Leader, Count: 1, File: "missing.pprof"}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.divide(divisions[0]); err == nil {
		t.Errorf("no error, blocks %v", p.blocks)
	}
}

// checkSVG checks that a file is well-formed XML and has a white background and
// fallback fonts.
func checkSVG(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
	}
	for _, part := range []string{"fill:#FFFFFF", "sans-serif;"} {
		if !bytes.Contains(b, []byte(part)) {
			t.Errorf("%s does not contain %q", path, part)
		}
	}
}
