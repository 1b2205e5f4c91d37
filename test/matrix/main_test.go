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

	"github.com/holdfast-kv/holdfast/test/testutil"
)

var (
	program string // path of the binary under test
	update  = flag.Bool("update", false, "write docs/compatibility.md")
)

func TestMain(m *testing.M) {
	flag.Parse()
	testutil.MainWithProgram(m, &program)
}

// entry is a row of the matrix.
type entry struct {
	lib   string
	mode  string
	what  string // what the entry tests
	run   func(ctx context.Context, a *arena) error
	nodes string // mode of the nodes: standalone, sentinel or clusterMode

	// Exactly one of these determines the version: the Go module, the Debian
	// package or, for a replayed library, the version or the date of the
	// description from which the replay was written.
	module, deb, replay string
	// probe is a command that succeeds if the library is installed.
	probe []string
}

func (e entry) name() string {
	return strings.Trim(regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(e.lib+"_"+e.mode, "-"), "-")
}

// version returns the version of the library that is tested.
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

// entries returns all rows, in the order of the page.
func entries() []entry {
	return slices.Concat(golangEntries, programEntries, replayEntries)
}

// TestMatrix runs every entry. It compares the results with
// docs/compatibility.md, or writes that page.
func TestMatrix(t *testing.T) {
	arenas := make(map[string]*arena) // by the mode of the nodes; entries with the same mode share a cluster
	rows := make(map[string]string)
	top := t // the test that owns the arenas, which all subtests share
	for _, e := range entries() {
		t.Run(e.name(), func(t *testing.T) {
			if len(e.probe) > 0 {
				probe := exec.Command(e.probe[0], e.probe[1:]...)
				probe.Env = programEnv()
				testutil.Need(t, testutil.RequireClients, e.lib, probe.Run())
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
			if !a.killed.Load() {
				t.Fatal("the entry ended before the leader was killed")
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

// checkPage compares the page with the rows of this run, or writes the page
// with -update. Versions may differ, because another machine has other
// packages.
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
		fmt.Fprintf(&b, "\n%s\n\n| library | version | mode | what was done | result |\n|---|---|---|---|---|\n",
			part.title)
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
` + "`make matrix`" + ` tests client libraries and writes this page. Each test starts
three node processes and connects the client to a follower. In the Sentinel and
cluster modes, the client connects to the node that it finds. Then the test
kills the leader with ` + "`kill -9`" + `. In the tests of locks, the client holds a lock
at that time. "works" means three things: the library did what its documentation
says, no lock had two owners, and no command that was sent through a surviving
node failed.
`

const pageFoot = `
A test replays a library by sending the commands that the library's source
contains. The version is then that of the source, or its year. The tests do not
contain the scripts of these libraries. They contain scripts that do the same
and were written for the tests, so a replayed script has a different SHA1 from
the library's script. Holdfast recognizes some scripts by their SHA1, and runs
each of them as a built-in command. ` + "`test/compat`" + ` compares the results of these
commands with those of the interpreter and of a redis-server.
`
