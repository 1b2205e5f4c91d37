package process_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// onTerminal is a program that runs on a terminal.
type onTerminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File // the other side of the terminal
	out  testutil.Log
	done chan struct{}
	rows uint16
}

// runOnTerminal starts the program on a terminal.
func runOnTerminal(t *testing.T, env []string, args ...string) *onTerminal {
	t.Helper()
	p := &onTerminal{t: t, cmd: exec.Command(binary, args...), done: make(chan struct{}), rows: 30}
	p.cmd.Env = append(process.CleanEnv(), append([]string{"TERM=xterm-256color"}, env...)...)
	var err error
	if p.file, err = pty.StartWithSize(p.cmd, &pty.Winsize{Rows: p.rows, Cols: 180}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		// Linux reports the end of the program as EIO.
		if _, err := io.Copy(&p.out, p.file); err != nil && !errors.Is(err, syscall.EIO) {
			t.Errorf("read the terminal: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error is ignored: the program has usually ended already
		<-p.done
		p.file.Close()
	})
	return p
}

// press types on the terminal.
func (p *onTerminal) press(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.file, keys); err != nil {
		p.t.Fatal(err)
	}
}

// shows waits until the screen has all texts. The program draws only what
// changes. So before each check, shows changes the height of the terminal,
// which makes the program draw the whole screen.
func (p *onTerminal) shows(texts ...string) {
	p.t.Helper()
	var last string
	err := process.Poll(testutil.Within(p.t, testutil.StartLimit), "the screen to show "+strings.Join(texts, ", "),
		func() bool {
			before := len(p.out.String())
			p.rows = 61 - p.rows
			if err := pty.Setsize(p.file, &pty.Winsize{Rows: p.rows, Cols: 180}); err != nil {
				p.t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(p.t.Context(), testutil.StartLimit)
			defer cancel()
			if err := process.Poll(ctx, "the screen to be drawn", func() bool {
				last = p.out.String()[before:]
				return strings.Contains(last, "filter") && strings.Contains(last, "q: quit")
			}); err != nil {
				return false
			}
			for _, text := range texts {
				if !strings.Contains(last, text) {
					return false
				}
			}
			return true
		})
	if err != nil {
		p.t.Fatalf("%v; it shows %q", err, last)
	}
}

// TestTop watches a cluster with top on a terminal: its nodes, its locks, and
// the death of the leader, to which top is connected.
func TestTop(t *testing.T) {
	password := writeSecret(t, filepath.Join(t.TempDir(), "password"), "a-password")
	c := newCluster(t, process.Config{Password: "a-password"})
	c.start()
	leader := c.leader()
	conn := as(t, leader, "default", "a-password")
	for _, key := range []string{"deploy:web", "deploy:db", "backup"} {
		got := show(conn, "LOCK", "ACQUIRE", key, "owner-of-"+key, "PX", "600000")
		if !strings.HasPrefix(got, "(integer) ") {
			t.Fatal(got)
		}
	}
	top := runOnTerminal(t, nil, "top", leader.Clients, "--password-file", password, "--interval", "200ms")
	top.shows("Healthy: tolerates 1 more failure", leader.ID+"    leader", "OPS/S", "3 keys")
	top.press("\t")
	top.shows("3 locks", "deploy:web", "owner-of-backup")
	top.press("/deploy:\r")
	top.shows("2 locks", "deploy:db", "filter: deploy:")
	top.press("\t")
	top.shows(leader.ID + "    leader")

	kill(t, leader)
	next := c.leader(leader)
	top.shows("Degraded: "+leader.ID+" is unreachable", next.ID+"    leader")
	start(t, leader)
	top.shows("Healthy: tolerates 1 more failure", leader.ID+"    follower")
	if !strings.Contains(top.out.String(), "\x1b[32m") && !strings.Contains(top.out.String(), "\x1b[38;5;2m") {
		t.Error("no line is green")
	}
	top.press("q")
	<-top.done
	if err := top.cmd.Wait(); err != nil {
		t.Errorf("q: %v", err)
	}

	plain := runOnTerminal(t, []string{"NO_COLOR=1"}, "top", next.Clients, "--password-file", password, "--locks",
		"--filter", "owner:owner-of-backup")
	plain.shows("1 lock", "owner-of-backup")
	for _, color := range []string{"\x1b[32m", "\x1b[38;", "\x1b[33m"} {
		if strings.Contains(plain.out.String(), color) {
			t.Errorf("with NO_COLOR, the output has %q", color)
		}
	}
	plain.press("\x03")
	<-plain.done
	if err := plain.cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}

	// For a lock that was taken with SET NX, top gets the client from the
	// history of locks.
	if got := show(as(t, next, "default", "a-password"), "SET", "plain", "me", "NX", "PX", "600000"); got != "OK" {
		t.Fatal(got)
	}
	taken := runOnTerminal(t, nil, "top", next.Clients, "--password-file", password, "--locks", "--filter", "plain")
	taken.shows("1 lock", "plain", "at "+next.ID)
	taken.press("q")
	<-taken.done
	if err := taken.cmd.Wait(); err != nil {
		t.Errorf("q: %v", err)
	}

	wrong := runOnTerminal(t, nil, "top", next.Clients)
	wrong.shows("no node answers", "NOAUTH", "--password-file")
	if o := invoke(t, nil, "top", next.Clients); o.code != 1 || !strings.Contains(o.errOut, "not a terminal: use") {
		t.Errorf("without a terminal: exit %d, %s", o.code, o.errOut)
	}
}
