package recipes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestLockExamples runs the examples of the lock packages, except those that need
// PostgreSQL. The leader is killed after the first part of each job.
func TestLockExamples(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"job", "http"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), "../../lock/examples/"+name)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("http", func(t *testing.T) {
		c := startNodes(t, 3)
		cmd := exec.Command(filepath.Join(dir, "http"), "-addr", strings.Join(clientAddrs(c), ","))
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "the late request was refused\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("job", func(t *testing.T) {
		runJob(t, func(addrs []string) []string {
			return []string{filepath.Join(dir, "job"), "-pause", "100ms", "-addr", strings.Join(addrs, ",")}
		})
	})
	t.Run("job.py", func(t *testing.T) {
		needPython(t)
		runJob(t, func(addrs []string) []string {
			return append([]string{python, "../../clients/python/examples/job.py"}, addrs...)
		})
	})
}

// clientAddrs returns the client addresses of all nodes.
func clientAddrs(c *process.Cluster) (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Clients)
	}
	return addrs
}

// runJob runs a job, and kills the leader when the job has printed its first
// part. All parts must have the same token.
func runJob(t *testing.T, command func(addrs []string) []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := startNodes(t, 3)
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	words := command(clientAddrs(c))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "PAUSE=0.1", "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	token, parts := "", 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		parts++
		begin := fmt.Sprintf("part %d of 10 with token ", parts)
		rest, ok := strings.CutPrefix(lines.Text(), begin)
		if parts == 1 {
			token = rest
			if err := leader.Kill(); err != nil {
				t.Error(err)
			}
		}
		if !ok || rest != token {
			t.Errorf("the job printed %q, want %q", lines.Text(), begin+token)
		}
	}
	if err := cmd.Wait(); err != nil || parts != 10 {
		t.Errorf("%v after %d parts\n%s", err, parts, errText.String())
	}
}
