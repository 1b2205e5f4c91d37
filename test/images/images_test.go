package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// needStrace skips the test if this machine cannot record processes. If
// HOLDFAST_REQUIRE_STRACE is 1, the test fails instead.
func needStrace(t *testing.T) {
	t.Helper()
	if reason := why(); reason != "" {
		if testutil.Required(testutil.RequireStrace) {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
}

// TestImages makes a short run of this command in every run of the tests; make
// images makes the long one.
func TestImages(t *testing.T) {
	needStrace(t)
	dir := t.TempDir()
	program, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := plan{program: program, dir: dir, seed: 1, images: 24, controls: 30, checkers: 2, specs: specs[:1]}
	r, err := perform(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Violations {
		t.Errorf("%s (%v): %s", v.About, v.Marks, strings.Join(v.What, "\n"))
	}
	if r.Started < 20 || r.Checks < 1000 || r.Acked < 1000 {
		t.Errorf("%d images started, %d checks, %d acknowledged commands: too little", r.Started, r.Checks, r.Acked)
	}
	if r.Caught == 0 {
		t.Errorf("no check failed on %d images of disks that ignore fsync", r.Controls)
	}
}

// TestKilledDuringSync kills a node while it syncs its log. At the next start
// the node finds the complete append, because the kernel still has the data in
// memory. The node must make the append durable before it acknowledges anything
// that depends on the append. Otherwise a loss of power would remove the append
// although the node has acknowledged later writes.
func TestKilledDuringSync(t *testing.T) {
	needStrace(t)
	dir := t.TempDir()
	program, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"wal", "boltdb"} {
		t.Run(kind, func(t *testing.T) {
			play := func(ctx context.Context, r *recorder) error {
				for range 4 {
					if err := r.cluster.Start(); err != nil {
						return err
					}
					if _, err := r.cluster.Leader(ctx); err != nil {
						return err
					}
					r.enter(0, 2)
					load.Sleep(ctx, 300*time.Millisecond)
					if err := r.end(ctx, 0, syscall.SIGKILL); err != nil {
						return err
					}
					r.clientLoad.leave()
				}
				return nil
			}
			killed := spec{name: kind, nodes: 1, share: 1, args: []string{"--log-store", kind}, groups: 30,
				delay: 40_000, play: play}
			p := plan{program: program, dir: filepath.Join(dir, kind), seed: 1, images: 30, checkers: 2,
				specs: []spec{killed}}
			r, err := perform(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range r.Violations {
				t.Errorf("%s (%v): %s", v.About, v.Marks, strings.Join(v.What, "\n"))
			}
		})
	}
}

// TestFigures checks that an empty run misses every figure, and that a run that
// just reaches every figure passes.
func TestFigures(t *testing.T) {
	if err := figures(&report{}); err == nil || len(strings.Split(err.Error(), "\n")) != 4 {
		t.Errorf("figures of an empty run: %v", err)
	}
	full := &report{Distinct: 500, Started: 500, Checks: 50_000, Mutations: make(map[string]int)}
	for _, m := range mutations {
		full.Mutations[m] = 1
	}
	if err := figures(full); err != nil {
		t.Errorf("figures that are reached: %v", err)
	}
}

func TestParseCall(t *testing.T) {
	c, err := parseCall(`accept4(13<\x73\x6f>, {sa_family=AF_INET, sin_port=htons(4711), sin_addr=inet_addr("\x31")}, [112 => 16], SOCK_CLOEXEC) = 15<\x73> <0.000038>`)
	if err != nil || c.name != "accept4" || len(c.args) != 4 || c.ret != `15<\x73>` {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parseCall(`pwrite64(9<\x2f\x61>, "\x28\x29\x22", 3, 4096) = 3 (DELAYED) <0.1>`)
	if err != nil || c.ret != "3" || len(c.args) != 4 {
		t.Fatalf("%+v, %v", c, err)
	}
	if b, err := c.text(1); err != nil || string(b) != `()"` {
		t.Errorf("text %q, %v", b, err)
	}
	if n, p := fd(c.arg(0)); n != "9" || p != "/a" {
		t.Errorf("descriptor %s of %s", n, p)
	}
	if c, err = parseCall(`fsync(9<\x2f\x61>`); err != nil || c.ret != "" {
		t.Errorf("unfinished: %+v, %v", c, err)
	}
	if c, err = parseCall(`write(1, "\x61"..., 3) = 3`); err != nil {
		t.Error(err)
	} else if _, err := c.text(1); err == nil {
		t.Error("a string that was cut short is accepted as complete")
	}
	if c, err = parseCall(`fsync(9<\x2f\x61>) = -1 EIO (Input/output error)`); err != nil || !c.failed() {
		t.Errorf("failed: %+v, %v", c, err)
	}
}

// TestReadTrace_Killed checks that readTrace drops the wrong lines that strace
// prints after the process has been killed: see phantom.
func TestReadTrace_Killed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	const reply, file = `write(13<\x73\x6f>, "\x2b\x4f\x4b", 3`, `pwrite64(9<\x2f\x61>, "\x61\x62", 2, 4096`
	lines := []string{
		"7 100.000001 " + reply + ") = 3 <0.000010>",
		"7 100.000100 " + reply + ") = 3 <0.000010>", // the same reply, to the next command
		"8 100.000200 " + file + " <unfinished ...>",
		"8 100.000300 <... pwrite64 resumed>) = 2 <0.000100>",
		"8 100.000400 " + file + " <unfinished ...>",
		"7 100.000500 " + reply + " <unfinished ...>",
		// the process was killed here
		"9 100.000600 " + reply + " <unfinished ...>",
		"6 100.000610 " + reply + " <unfinished ...>",
		"8 100.000620 <... pwrite64 resumed>) = 3 <0.000220>",
		`5 100.000630 unlinkat(0<\x2f\x6e>, 0x24c9ad5f0e48, 0x7 /* AT_??? */ <unfinished ...>`,
		"4 100.000640 ???( <unfinished ...>",
		"7 100.000650 <... write resumed>) = ?",
		"4 100.000660 <... ??? resumed>) = ?",
		"6 100.000670 +++ killed by SIGKILL +++", "9 100.000670 +++ killed by SIGKILL +++",
		"8 100.000670 +++ killed by SIGKILL +++",
		"5 100.000670 +++ killed by SIGKILL +++", "4 100.000670 +++ killed by SIGKILL +++",
		"7 100.000680 +++ killed by SIGKILL +++",
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	steps, ended, err := readTrace(path, 100*time.Second+550*time.Microsecond)
	if err != nil || !ended {
		t.Fatalf("ended: %v, %v", ended, err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%s %t%s", s.call.name, s.end, s.call.ret))
	}
	want := []string{"write false3", "write true3", "write false3", "write true3", "pwrite64 false2", "pwrite64 true2",
		"pwrite64 false", "write false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c, err := parseCall(`write(13<\x73\x6f>, "\x61", 1) = -1 (errno 18446744073709551598)`)
	if err != nil || c.ret != "" || c.failed() {
		t.Errorf("a phantom error: %+v, %v", c, err)
	}
}

// script plays calls, one after the other, into a new disk model.
func script(t *testing.T, lines ...string) *disk {
	t.Helper()
	d := newDisk("/m/n1")
	for _, line := range lines {
		c, err := parseCall(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []bool{false, true} {
			if end && c.ret == "" {
				continue
			}
			if err := d.play(step{call: c, end: end}); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return d
}

func hexed(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}

func mkdir(p string) string { return fmt.Sprintf(`mkdirat(AT_FDCWD<>, "%s", 0700) = 0`, hexed(p)) }
func create(p string) string {
	return fmt.Sprintf(`openat(AT_FDCWD<>, "%s", O_RDWR|O_CREAT) = 7<%s>`, hexed(p), hexed(p))
}
func fsync(p string) string { return fmt.Sprintf(`fsync(7<%s>) = 0`, hexed(p)) }
func rename(a, b string) string {
	return fmt.Sprintf(`renameat(AT_FDCWD<>, "%s", AT_FDCWD<>, "%s") = 0`, hexed(a), hexed(b))
}
func pwrite(p, data string, at int) string {
	return fmt.Sprintf(`pwrite64(7<%s>, "%s", %d, %d) = %d`, hexed(p), hexed(data), len(data), at, len(data))
}

// seen draws many images of a disk and counts the contents of the file at a
// path. The key "" counts the images without this file.
func seen(d *disk, path ...string) map[string]int {
	found := make(map[string]int)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		n := draw(rng, []*disk{d}).dirs[0]
		for _, name := range path {
			if n != nil {
				n = n.names[name]
			}
		}
		text := ""
		if n != nil && n.content != nil {
			b := make([]byte, n.content.size)
			for i, block := range n.content.blocks {
				if i*blockSize < n.content.size {
					copy(b[i*blockSize:], block)
				}
			}
			text = "=" + strings.Trim(strings.ReplaceAll(string(b), "\x00", "0"), "\n")
		}
		found[text]++
	}
	return found
}

func wantSeen(t *testing.T, d *disk, path string, want ...string) {
	t.Helper()
	found := seen(d, strings.Split(path, "/")...)
	for _, w := range want {
		if found[w] == 0 {
			t.Errorf("%s is never %q: %v", path, w, found)
		}
		delete(found, w)
	}
	for w, n := range found {
		t.Errorf("%s is %q (%d times)", path, w, n)
	}
}

func TestDisk_WhatIsSyncedStays(t *testing.T) {
	d := script(t, mkdir("/m/n1"), create("/m/n1/f"), pwrite("/m/n1/f", "old", 0), fsync("/m/n1/f"))
	wantSeen(t, d, "f", "=old")
}

func TestDisk_WhatIsNotSyncedMayBeThere(t *testing.T) {
	d := script(t, mkdir("/m/n1"), create("/m/n1/f"), pwrite("/m/n1/f", "old", 0), fsync("/m/n1/f"),
		pwrite("/m/n1/f", "new", 0))
	wantSeen(t, d, "f", "=old", "=new")
}

// TestDisk_Sectors checks the order of writes. Of two writes to one sector, the
// second never appears without the first. Of two writes to two sectors, either
// may appear without the other. A missing write may leave zeros.
func TestDisk_Sectors(t *testing.T) {
	start := []string{mkdir("/m/n1"), create("/m/n1/f"), fsync("/m/n1/f")}
	d := script(t, append(start, pwrite("/m/n1/f", "a", 0), pwrite("/m/n1/f", "b", 1))...)
	wantSeen(t, d, "f", "=", "=a", "=ab", "=a0", "=00")

	far := strings.Repeat("0", 512)
	d = script(t, append(start, pwrite("/m/n1/f", "a", 0), pwrite("/m/n1/f", "b", 512))...)
	wantSeen(t, d, "f", "=", "=a", "=a"+far[1:]+"b", "="+far+"b", "=a"+far, "="+far+"0")
}

func TestDisk_Names(t *testing.T) {
	start := []string{mkdir("/m/n1"), create("/m/n1/f"), pwrite("/m/n1/f", "old", 0), fsync("/m/n1/f"),
		create("/m/n1/f.tmp"), pwrite("/m/n1/f.tmp", "new", 0), fsync("/m/n1/f.tmp"), rename("/m/n1/f.tmp", "/m/n1/f")}
	wantSeen(t, script(t, start...), "f", "=old", "=new")
	wantSeen(t, script(t, append(start, fsync("/m/n1"))...), "f", "=new")
	// A name that was never synced may be lost, and with it the content of the
	// directory. An fsync of a file makes the names above it durable too.
	wantSeen(t, script(t, mkdir("/m/n1"), fsync("/m"), mkdir("/m/n1/d"), create("/m/n1/d/f")), "d/f", "", "=")
	wantSeen(t, script(t, mkdir("/m/n1"), mkdir("/m/n1/d"), create("/m/n1/d/f"), fsync("/m/n1/d/f")), "d/f", "=")
}

// TestDisk_WriteDuringSync checks that fsync covers only the writes that had
// returned when it began. A write that returns during the fsync may be lost.
func TestDisk_WriteDuringSync(t *testing.T) {
	d := script(t, mkdir("/m/n1"), create("/m/n1/f"), fsync("/m/n1/f"))
	parse := func(line string) *call {
		c, err := parseCall(line)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	w, s := parse(pwrite("/m/n1/f", "new", 0)), parse(fsync("/m/n1/f"))
	for _, st := range []step{{call: w}, {call: s}, {call: w, end: true}, {call: s, end: true}} {
		if err := d.play(st); err != nil {
			t.Fatal(err)
		}
	}
	wantSeen(t, d, "f", "=", "=new", "=000")
}

func TestStates(t *testing.T) {
	s := &connection{name: "s1", cmds: []command{
		{[]string{"SET", "s1:a", "x"}, 1},
		{[]string{"INCR", "s1:n"}, 3}, {[]string{"RPUSH", "s1:l", "e"}, 3},
		{[]string{"MULTI"}, 7}, {[]string{"SET", "s1:lock", "me", "NX", "PX", "9"}, 7}, {[]string{"INCR", fenceKey}, 7},
		{[]string{"EXEC"}, 7},
	}}
	all, acked := s.states(0)
	if acked != 0 || len(all) != 2 || len(all[0]) != 0 || all[1]["s1:a"] != "x" {
		t.Errorf("before the first reply: %v", all)
	}
	s.answers = []answer{{step: 5}, {step: 6}, {step: 6, reply: respwire.Value{Err: "CLUSTERDOWN"}}, {step: 9}}
	if all, acked := s.states(6); acked != 3 || all[0]["s1:n"] != "1" || all[0]["s1:l"] != "" {
		t.Errorf("after a refusal: %d, %v", acked, all)
	}
	all, acked = s.states(9)
	if last := all[len(all)-1]; acked != 4 || all[0]["s1:lock"] != "" || last["s1:lock"] != "me" {
		t.Errorf("in a transaction: %d, %v", acked, all)
	}
	v := &verdict{}
	promised{s, all}.compare(state{"s1:a": "x", "s1:n": "1"}, v)
	if len(v.violations) > 0 {
		t.Errorf("a state that is allowed is a violation: %v", v.violations)
	}
	promised{s, all}.compare(state{"s1:a": "x"}, v)
	if len(v.violations) != 1 {
		t.Error("a lost counter is not detected")
	}
	v = &verdict{}
	promised{s, all}.compare(state{"s1:a": "x", "s1:n": "1", "s1:l": "e"}, v)
	if len(v.violations) != 1 {
		t.Error("a refused write that was executed is not detected")
	}
}
