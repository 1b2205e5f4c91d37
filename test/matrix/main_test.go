package matrix

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/process"
)

var (
	program string // the binary under test
	update  = flag.Bool("update", false, "write docs/compatibility.md")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "holdfast-matrix-")
		if err == nil {
			defer os.RemoveAll(dir)
			program, err = process.Build(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "build the program:", err)
			return 1
		}
		return m.Run()
	}())
}

// entry is a row of the matrix.
type entry struct {
	lib   string
	mode  string
	what  string // what was done
	run   func(ctx context.Context, a *arena) error
	nodes string // mode of the nodes: standalone, sentinel or clusterMode

	// Where the version comes from: a Go module, a Debian package, or, for a library
	// that is replayed, what its description was made from.
	module, deb, replay string
	// probe ends well where the library is installed.
	probe []string
}

func (e entry) name() string {
	return strings.Trim(regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(e.lib+"_"+e.mode, "-"), "-")
}

// version returns the version that is tried.
func (e entry) version() (string, error) {
	switch {
	case e.module != "":
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", e.module).Output()
		if err != nil {
			return "", fmt.Errorf("version of %s: %w", e.module, err)
		}
		return strings.TrimSpace(string(out)), nil
	case e.deb != "":
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", e.deb).Output()
		if err != nil {
			return "", fmt.Errorf("version of %s: %w", e.deb, err)
		}
		return string(out), nil
	}
	return e.replay, nil
}

// entries are all rows, in the order of the page.
func entries() []entry {
	return slices.Concat(golangEntries, programEntries, replayEntries)
}

// TestMatrix runs every entry and compares with, or writes, docs/compatibility.md.
func TestMatrix(t *testing.T) {
	arenas := make(map[string]*arena) // by mode: entries with the same share a cluster
	rows := make(map[string]string)
	top := t // arenas live as long as the whole test
	for _, e := range entries() {
		t.Run(e.name(), func(t *testing.T) {
			if len(e.probe) > 0 {
				probe := exec.Command(e.probe[0], e.probe[1:]...)
				probe.Env = programEnv()
				if out, err := probe.CombinedOutput(); err != nil {
					if os.Getenv("HOLDFAST_REQUIRE_CLIENTS") == "1" {
						t.Fatalf("%s is not installed: %v: %s", e.lib, err, out)
					}
					t.Skipf("%s is not installed: %v", e.lib, err)
				}
			}
			if arenas[e.nodes] == nil {
				arenas[e.nodes] = newArena(top, e.nodes)
			}
			a := arenas[e.nodes]
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			a.ready(ctx, t)
			if err := e.run(ctx, a); err != nil {
				t.Fatal(err)
			}
			if !a.hurt.Load() {
				t.Fatal("it ran to its end without a leader being killed")
			}
			version, err := e.version()
			if err != nil {
				t.Fatal(err)
			}
			rows[e.name()] = fmt.Sprintf("| %s | %s | %s | %s | works |", e.lib, version, e.mode, e.what)
		})
	}
	if !t.Failed() {
		checkPage(t, rows)
	}
}

const page = "../../docs/compatibility.md"

// checkPage compares the page with the rows that were seen. Versions may differ:
// another machine has other packages.
func checkPage(t *testing.T, rows map[string]string) {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, part := range []struct {
		title string
		rows  []entry
	}{
		{"## Libraries in Go", golangEntries},
		{"## Libraries in other languages, as Debian ships them", programEntries},
		{"## Replayed: libraries that could not be installed", replayEntries},
	} {
		fmt.Fprintf(&b, "\n%s\n\n| library | version | mode | what was done | result |\n|---|---|---|---|---|\n", part.title)
		for _, e := range part.rows {
			row := rows[e.name()]
			if row == "" {
				if *update {
					t.Errorf("%s did not run: the page would lack it", e.name())
				}
				continue
			}
			b.WriteString(row + "\n")
		}
	}
	b.WriteString(pageFoot)
	if *update {
		if t.Failed() {
			return
		}
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range rows {
		cells := strings.Split(row, " | ")
		cells[1] = "VERSION"
		want := regexp.QuoteMeta(strings.Join(cells, " | "))
		if !regexp.MustCompile("(?m)^" + strings.Replace(want, "VERSION", "[^|]*", 1) + "$").Match(old) {
			t.Errorf("%s does not have the row of %s: make matrix", filepath.Base(page), name)
		}
	}
}

const pageHead = "# Compatibility\n" + `
Written by ` + "`make matrix`" + `, which runs all of it: three node processes, the client connected to a follower (or to whatever it finds by itself, in the
Sentinel and cluster modes), and the leader killed with ` + "`kill -9`" + ` in the middle, while a lock is held. "works" means that the library did what its
documentation says, that no lock had two owners, and that no command failed that was sent through a node that lived.
`

const pageFoot = `
For these the version is that of the sources, or their year, from which was learnt what they send; their scripts are written anew from what they do, so that the SHA1 of a replayed script is not that of
the library. Scripts that are recognised by their SHA1 are tested beside the interpreter and a redis-server in ` + "`test/compat`" + `.
`
