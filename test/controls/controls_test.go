package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/sim"
)

const root = "../.."

// TestPatches_Apply fails as soon as a patch no longer applies because the
// source has changed. It also checks that test/sim/controls.go has schedules for
// exactly the patches that sim must find. make controls is the long test: it builds
// the programs with each patch and runs them.
func TestPatches_Apply(t *testing.T) {
	all, err := patches(root)
	if err != nil {
		t.Fatal(err)
	}
	has := make(map[string]bool)
	for _, p := range all {
		has[p.name] = slices.ContainsFunc(p.demands, func(d demand) bool { return d.program == simulator })
		if err := p.check(t.Context(), root); err != nil {
			t.Error(err)
		}
		if has[p.name] && len(sim.Drill(p.name)) == 0 {
			t.Errorf("%s: test/sim/controls.go has no schedules for this patch", p.name)
		}
	}
	for _, name := range sim.Drills() {
		if !has[name] {
			t.Errorf("test/sim/controls.go has schedules for %s, and there is no such patch", name)
		}
	}
}

// testPatch writes a patch and the file that it changes, and returns both.
func testPatch(t *testing.T, header, content string) (p patch, file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "a.go")
	path := filepath.Join(t.TempDir(), "mistake.patch")
	diff := "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -2,3 +2,3 @@\n one\n-two\n+2\n three\n"
	err := errors.Join(
		os.WriteFile(file, []byte(content), 0o600),
		os.WriteFile(path, []byte(header+diff), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = readPatch(path); err != nil {
		t.Fatal(err)
	}
	return p, file
}

const testHeader = "# Two is wrong: the counter must find it.\n# sim: ^counter\n"

func TestPatch_AppliesAndReverts(t *testing.T) {
	// Lines above the change do not matter.
	before := "more\nlines\none\ntwo\nthree\n"
	p, file := testPatch(t, testHeader, before)
	wantFile := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("the file is %q, want %q (%v)", got, want, err)
		}
	}
	dir := filepath.Dir(file)
	if err := p.check(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	wantFile(before)
	if err := p.apply(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	wantFile("more\nlines\none\n2\nthree\n")
	if err := p.revert(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	wantFile(before)
}

func TestPatch_NoLongerApplies(t *testing.T) {
	p, file := testPatch(t, testHeader, "zero\none\nTWO\nthree\n")
	for _, try := range []func(context.Context, string) error{p.check, p.apply} {
		err := try(t.Context(), filepath.Dir(file))
		if !errors.Is(err, errStale) || !strings.Contains(err.Error(), "test/controls/mistake.patch") ||
			!strings.Contains(err.Error(), "-refresh") {
			t.Errorf("a patch that does not fit: %v", err)
		}
	}
}

func TestReadPatch_Refuses(t *testing.T) {
	const first = "# What it breaks.\n"
	for _, header := range []string{"", first, first + "# nobody: x\n", first + "# sim: (\n", first + "# sim\n",
		first + "# sim TestSim: x\n", first + "# chaos: x\n", first + "# fsm: x\n"} {
		path := filepath.Join(t.TempDir(), "mistake.patch")
		if err := os.WriteFile(path, []byte(header+"diff --git a/a.go b/a.go\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := readPatch(path); err == nil {
			t.Errorf("%q is read as %+v", header, p)
		}
	}
}

// reports is a runner whose histories all end with the same violations.
type reports []string

func (v reports) Run(plans []*sim.Schedule, each func(*sim.Result) bool) error {
	for _, p := range plans {
		if each(&sim.Result{Schedule: p, Violations: v}) {
			break
		}
	}
	return nil
}

// TestChosen_First checks that the list of patches can begin at each of its
// indices, and at indices beyond its end.
func TestChosen_First(t *testing.T) {
	all, err := chosen(options{root: root, programs: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	for first := range len(all) + 2 {
		list, err := chosen(options{root: root, programs: "sim", first: first})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != len(all) {
			t.Fatalf("first %d: %d patches, want %d", first, len(list), len(all))
		}
		for i, p := range list {
			if want := all[(first+i)%len(all)]; p.name != want.name {
				t.Errorf("first %d: patch %d is %s, want %s", first, i, p.name, want.name)
			}
		}
	}
	if _, err := chosen(options{root: root, first: -1}); err == nil {
		t.Error("a negative index was accepted")
	}
}

func TestSimulate(t *testing.T) {
	plans := []*sim.Schedule{{Seed: 1}, {Seed: 2}}
	want := regexp.MustCompile("^queue")
	for _, c := range []struct {
		name       string
		plans      []*sim.Schedule
		bug, clean reports
		err        string // part of the error, empty if the control passes
	}{
		{"found", plans, reports{"fencing: x", "queue: y"}, nil, ""},
		{"not found", plans, nil, nil, "NOT FOUND in 2 histories"},
		{"found by another checker", plans, reports{"fencing: x"}, nil, "the reported ones are: fencing: x"},
		{"found without the bug too", plans, reports{"queue: y"}, reports{"queue: y"},
			"the schedule of seed 1 fails too"},
		{"no schedules", nil, reports{"queue: y"}, nil, "no schedules"},
	} {
		o, err := simulate(t.Context(), c.plans, want, c.bug, c.clean)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		case c.err == "" && (err != nil || o != outcome{1, 1, "queue: y"}):
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
	}
}

func TestRefresh(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		who := []string{"-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"}
		cmd := exec.Command("git", append(who, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(folder)), 0o755); err != nil {
		t.Fatal(err)
	}
	patch := folder + "/mistake.patch"
	write("a.go", "one\nTWO\nthree\n")
	write(patch, testHeader+"of an older source\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "a change that made the patch useless")
	if err := refresh(t.Context(), dir, "mistake"); err == nil {
		t.Error("a working tree without a change is accepted as a bug")
	}
	write("a.go", "one\n2\nthree\n")
	if err := refresh(t.Context(), dir, "mistake"); err != nil {
		t.Fatal(err)
	}
	git("checkout", "a.go")
	p, err := readPatch(filepath.Join(dir, filepath.FromSlash(patch)))
	if err != nil || p.header != testHeader {
		t.Errorf("the comment is %q, %v", p.header, err)
	}
	if err := p.apply(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a.go")); err != nil || string(got) != "one\n2\nthree\n" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "tree")
	for _, name := range []string{".git", "bin/holdfast", "data/n1", "a.go", "test/data/b.go"} {
		path := filepath.Join(from, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	copied := map[string]bool{".git": false, "bin": false, "data": false, "a.go": true, "test/data/b.go": true}
	for name, want := range copied {
		if _, err := os.Stat(filepath.Join(to, filepath.FromSlash(name))); (err == nil) != want {
			t.Errorf("%s in the copy: %v", name, err)
		}
	}
}
