package recipes_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/recipes"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// python is Debian's interpreter. Another interpreter on the PATH may not have
// Debian's libraries.
const python = "/usr/bin/python3"

// program is the binary under test.
var program string

func TestMain(m *testing.M) { testutil.MainWithProgram(m, &program) }

// limit is the time limit of one recipe, including the start of its cluster, on
// a slow machine.
const limit = 2 * time.Minute

func startNodes(t *testing.T, nodes int) *process.Cluster {
	t.Helper()
	return testutil.StartCluster(t, process.Config{Program: program, Nodes: nodes})
}

// TestRecipes_LeaderKilledInTheMiddle checks that each recipe keeps its promise
// on three nodes if the leader is killed with SIGKILL in the middle of the run
// and then restarted.
func TestRecipes_LeaderKilledInTheMiddle(t *testing.T) {
	for _, r := range recipes.All() {
		t.Run(r.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			c := startNodes(t, 3)
			e := &recipes.Env{Log: t.Logf}
			for _, n := range c.Nodes {
				e.Addrs = append(e.Addrs, n.Clients)
			}
			if r.Name == "redlock" {
				e.Others = []string{startNodes(t, 1).Nodes[0].Clients, startNodes(t, 1).Nodes[0].Clients}
			}
			killed := false
			e.Middle = func() {
				leader, err := c.Leader(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if err := leader.Kill(); err != nil {
					t.Error(err)
				}
				if _, err := c.Leader(ctx, leader); err != nil {
					t.Error(err)
				}
				if err := leader.Start(); err != nil {
					t.Error(err)
				}
				killed = true
			}
			if err := errors.Join(r.Run(ctx, e), e.Close()); err != nil {
				t.Error(err)
			}
			if !killed {
				t.Error("the demonstration did not call Middle, so no leader was killed")
			}
		})
	}
}

// needPython calls lacks, which skips or fails the test, if redis-py is missing.
func needPython(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import redis").CombinedOutput(); err != nil {
		lacks(t, "python3 with redis-py: "+string(out))
	}
}

// runPython runs a script and kills a node in the middle of the run: when the
// script prints the line "half".
func runPython(ctx context.Context, t *testing.T, victim *process.Node, env, args []string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errText strings.Builder
	cmd.Stderr = &errText
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	buf := make([]byte, 4096)
	for killed := false; ; {
		n, rerr := stdout.Read(buf)
		said.Write(buf[:n])
		if !killed && strings.Contains(said.String(), "half\n") {
			killed = true
			if err := victim.Kill(); err != nil {
				t.Error(err)
			}
		}
		if rerr != nil {
			if !killed {
				t.Errorf("the script did not print half; it printed %q", said.String())
			}
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s%s", err, said.String(), errText.String())
	}
}

// TestPython checks that the Python examples of the pages work.
func TestPython(t *testing.T) {
	scripts, err := filepath.Glob("../../docs/recipes/*.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	needPython(t)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			c := startNodes(t, 3)
			leader, err := c.Leader(ctx)
			if err != nil {
				t.Fatal(err)
			}
			runPython(ctx, t, leader, nil, []string{script, c.Running(leader)[0].Clients})
		})
	}
}

// TestPythonLock runs the tests of the Python package holdfast_lock.
func TestPythonLock(t *testing.T) {
	needPython(t)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := startNodes(t, 3)
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"../../clients/python/tests/check.py", leader.Clients}
	for _, n := range c.Running(leader) {
		args = append(args, n.Clients)
	}
	env := []string{"PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1"}
	runPython(ctx, t, leader, env, args)
}

// TestPages checks that every recipe has a page that shows its current code.
func TestPages(t *testing.T) {
	for _, r := range recipes.All() {
		path := filepath.Join("../../docs/recipes", r.Name+".md")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("recipe %s has no page: %v", r.Name, err)
			continue
		}
		want, err := recipes.Page(string(page), ".")
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if want != string(page) {
			t.Errorf("%s does not show the current code: run make docs", path)
		}
		if !strings.HasPrefix(string(page), "# "+r.Doc+"\n") {
			t.Errorf("%s does not begin with its title %q", path, r.Doc)
		}
		for _, part := range []string{"## What it guarantees here", "## What it does not"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s lacks %q", path, part)
			}
		}
	}
}
