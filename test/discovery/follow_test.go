package discovery

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// client is one long-lived client object of a client library.
type client interface {
	// set writes a key.
	set(ctx context.Context, key, value string) error
	// port returns the client port of the node that receives the client's
	// writes.
	port(ctx context.Context) (string, error)
}

// follow lets a client write, kills the leader, and lets the client write
// again. The client must find the new leader by itself, and no acknowledged
// write may be missing.
func follow(t *testing.T, c *cluster, lib client) {
	t.Helper()
	ctx := testutil.Within(t, limit)
	var written []string
	write := func(name string) error {
		err := lib.set(ctx, name, name)
		if err == nil {
			written = append(written, name)
		}
		return err
	}
	for i := range 20 {
		if err := write(fmt.Sprint("before", i)); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if port, err := lib.port(ctx); err != nil || port != portOf(t, c.leader.Clients) {
		t.Errorf("the client writes to port %s (%v), but %s leads", port, err, c.leader.Clients)
	}
	c.killLeader(t)
	begun := time.Now()
	var first time.Duration
	var failed []string
	pause := time.NewTicker(10 * time.Millisecond) // programs should pause between attempts too
	defer pause.Stop()
	for i, streak := 0, 0; streak < 20; i++ {
		if err := write(fmt.Sprint("after", i)); err != nil {
			streak = 0
			failed = append(failed, err.Error())
			if ctx.Err() != nil {
				t.Fatalf("no writes after the leader was killed; %d errors: %.2000q", len(failed),
					slices.Compact(failed))
			}
			<-pause.C
			continue
		}
		if streak++; first == 0 {
			first = time.Since(begun)
		}
	}
	t.Logf("first write %v after the kill, %d errors: %.300q", first.Round(time.Millisecond), len(failed),
		slices.Compact(slices.Clone(failed)))
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	follows := func() bool { // leadership may have moved again after the first election
		port, err := lib.port(ctx)
		return err == nil && port == portOf(t, leader.Clients)
	}
	if err := process.Poll(ctx, "the client to be at the new leader", follows); err != nil {
		t.Error(err)
	}
	conn, err := respwire.Connect(leader.Clients, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, key := range written {
		if got, err := conn.Do("GET", key); err != nil || got.Text != key {
			t.Errorf("acknowledged %s: %q, %v", key, got, err)
		}
	}
}

// tcpPort returns the port in the output of INFO.
func tcpPort(info string) (string, error) {
	for line := range strings.Lines(info) {
		if port, ok := strings.CutPrefix(strings.TrimSpace(line), "tcp_port:"); ok {
			return port, nil
		}
	}
	return "", fmt.Errorf("no tcp_port in %.100q", info)
}

// script is a client in another language. It is a program that reads "set KEY
// VALUE" and "port" from its standard input and answers each with a line, "ok
// …" or "error …".
type script struct {
	in   io.Writer
	out  *bufio.Reader
	pipe deadliner
}

// deadliner is implemented by a pipe whose reads can have a deadline.
type deadliner interface{ SetReadDeadline(time.Time) error }

// startScript runs a script of testdata with the addresses as its arguments.
// The probe command succeeds if the library is installed.
func startScript(t *testing.T, library, program, probe, file string, args ...string) *script {
	t.Helper()
	path, err := exec.LookPath(program)
	testutil.Need(t, testutil.RequireClients, library, err)
	// NODE_PATH lets a Node.js that is not from Debian find Debian's libraries.
	env := append(os.Environ(), "NODE_PATH=/usr/share/nodejs")
	flag := map[string]string{"php": "-r", "/usr/bin/python3": "-c"}[program]
	if flag == "" {
		flag = "-e"
	}
	try := exec.Command(path, flag, probe)
	try.Env = env
	testutil.Need(t, testutil.RequireClients, library, try.Run())
	cmd := exec.Command(path, append([]string{filepath.Join("testdata", file)}, args...)...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut strings.Builder
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the script's process
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err = <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			err = <-done
		}
		if t.Failed() {
			t.Logf("%s: %v\n%s", file, err, errOut.String())
		}
	})
	return &script{in, bufio.NewReader(out), out.(deadliner)}
}

func (s *script) do(line string) (string, error) {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		return "", err
	}
	if err := s.pipe.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	answer, err := s.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	answer = strings.TrimSpace(answer)
	if text, failed := strings.CutPrefix(answer, "error"); failed {
		return "", errors.New(strings.TrimSpace(text))
	}
	return strings.TrimSpace(strings.TrimPrefix(answer, "ok")), nil
}

func (s *script) set(_ context.Context, key, value string) error {
	_, err := s.do("set " + key + " " + value)
	return err
}

func (s *script) port(context.Context) (string, error) { return s.do("port") }
