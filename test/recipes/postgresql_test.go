package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "github.com/lib/pq" // the driver of database/sql

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestPostgreSQL runs the examples that store the highest fencing token in a
// table, with a cluster and a PostgreSQL server.
func TestPostgreSQL(t *testing.T) {
	dsn := startPostgreSQL(t)
	c := startNodes(t, 3)
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Clients)
	}
	program := filepath.Join(t.TempDir(), "postgresql")
	build := exec.Command("go", "build", "-o", program, "../../lock/examples/postgresql")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	example(t, exec.Command(program, "-dsn", dsn, "-addr", strings.Join(addrs, ",")))

	needPython(t)
	if out, err := exec.Command(python, "-c", "import psycopg2").CombinedOutput(); err != nil {
		lacks(t, fmt.Sprintf("psycopg2 (Debian: apt-get install python3-psycopg2): %s", out))
	}
	cmd := exec.Command(python, append([]string{"../../clients/python/examples/postgresql.py", dsn}, addrs...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
	example(t, cmd)
}

// example runs an example, whose late write must not change the balance.
func example(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "balance 110: the late write was refused\n" {
		t.Errorf("%s: %v\n%s", cmd.Path, err, out)
	}
}

// lacks ends the test because a program or a library, named by what, is missing on
// this machine. If HOLDFAST_REQUIRE_CLIENTS is 1, the test fails. Otherwise, the
// test is skipped.
func lacks(t *testing.T, what string) {
	t.Helper()
	if testutil.Required(testutil.RequireClients) {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// startPostgreSQL starts a PostgreSQL server and returns its data source name. If
// PostgreSQL is not installed, it calls lacks.
func startPostgreSQL(t *testing.T) (dsn string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian's, not on the PATH
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		lacks(t, "PostgreSQL (Debian: apt-get install postgresql)")
	}
	bin := filepath.Dir(slices.Max(found))
	// The user of the server must be able to open the directory. The folders
	// above $TMPDIR may be closed to that user.
	top, err := os.MkdirTemp("/tmp", "holdfast-postgresql")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(top, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		attr.Credential = unprivileged(t)
		if err := errors.Join(os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)),
			os.Chmod(top, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	port, err := process.FreePorts(1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	create := exec.Command(filepath.Join(bin, "initdb"), "-D", dir, "-U", "tester", "-A", "trust", "--no-sync")
	create.Dir, create.SysProcAttr = "/", attr
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", dir, "-h", "127.0.0.1", "-p", strconv.Itoa(port),
		"-c", "unix_socket_directories="+dir)
	server.Dir, server.SysProcAttr = "/", attr
	log := new(strings.Builder)
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // ends the server at once; its data is not needed
		_ = server.Wait()
		if t.Failed() {
			t.Logf("postgres: %s", log)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit/4)
	defer cancel()
	dsn = fmt.Sprintf("postgres://tester@%s/postgres?sslmode=disable",
		net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var last error
	if err := process.Poll(ctx, "PostgreSQL to answer", func() bool {
		last = db.PingContext(ctx)
		return last == nil
	}); err != nil {
		t.Fatalf("%v: %v", err, last)
	}
	return dsn
}

// unprivileged returns a user that is not root.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Skip("PostgreSQL does not run as root, and this machine has no other user")
	return nil
}

// TestPythonFence runs the tests of the middleware of the Python package.
func TestPythonFence(t *testing.T) {
	needPython(t)
	cmd := exec.Command(python, "../../clients/python/tests/fence.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
