package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// spec is a kind of cluster to record.
type spec struct {
	name   string
	nodes  int
	share  int // percentage of the images
	args   []string
	play   func(ctx context.Context, r *recorder) error
	groups int // number of groups that a client sends before it ends
	delay  int // delay of each fsync, in µs
}

// small are flags for small log segments, frequent snapshots and a short log
// behind a snapshot, so that a short load produces many segments and snapshots.
var small = []string{"--snapshot-bytes", "65536", "--test-segment-bytes", "32768", "--trailing-bytes", "1"}

var specs = []spec{
	{name: "one node, wal", nodes: 1, share: 35, args: small, play: lives, groups: 70, delay: 1000},
	{name: "one node, boltdb", nodes: 1, share: 20, args: append([]string{"--log-store", "boltdb"}, small...),
		play: lives, groups: 50, delay: 1000},
	{name: "one node, wal as shipped", nodes: 1, share: 10, play: lives, groups: 25, delay: 1000},
	{name: "three nodes, wal", nodes: 3, share: 25, args: small, play: leaderships, groups: 60, delay: 1000},
	{name: "three nodes, boltdb", nodes: 3, share: 10, args: append([]string{"--log-store", "boltdb"}, small...),
		play: leaderships, groups: 40, delay: 1000},
}

// recording is everything that a cluster did with its disks, and every reply
// that it sent.
type recording struct {
	spec        spec
	lives       [][]life // the processes of each node, in order
	dirs        []string // data directories, by node
	connections []*connection
	took        time.Duration
}

// life is one process of a node.
type life struct {
	trace  string        // file that strace wrote
	left   string        // copy of the data directory after the process ended
	killed time.Duration // time of the SIGKILL since the Unix epoch; 0 if there was none
}

// recorder runs a cluster under strace.
type recorder struct {
	spec       spec
	dir        string
	seed       uint64
	rng        *rand.Rand
	cluster    *process.Cluster
	program    string
	clientLoad clientLoad
	lives      [][]life
}

// wrapper is the program that the cluster starts. It becomes the node, and strace
// traces the node. strace delays every fsync, so that a kill or a loss of power
// can happen during the fsync.
const wrapper = `#!/bin/sh
exec strace -D -f --seccomp-bpf -y -xx -ttt -T -s 33554432 -e signal=KILL -e trace=%s \
	-e inject=fsync,fdatasync:delay_enter=%d -o %s/"$3".$$.trace %s "$@"
`

// why returns the reason why this machine cannot record, or "" if it can.
func why() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "needs strace"
	}
	if out, err := exec.Command("strace", "-f", "--seccomp-bpf", "-e", "trace=fsync", "-o", "/dev/null",
		"true").CombinedOutput(); err != nil {
		return fmt.Sprintf("strace cannot trace here: %v: %s", err, bytes.TrimSpace(out))
	}
	return ""
}

// record runs a cluster of the given kind and records it.
func record(ctx context.Context, sp spec, program, dir string, seed uint64) (rec *recording, err error) {
	begun := time.Now()
	r := &recorder{spec: sp, dir: dir, program: program, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)),
		lives: make([][]life, sp.nodes)}
	r.clientLoad.stop = make(chan struct{})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	start := filepath.Join(dir, "node.sh")
	if err := os.WriteFile(start, fmt.Appendf(nil, wrapper, calls, sp.delay, dir, program), 0o755); err != nil {
		return nil, err
	}
	args := append([]string{"--heartbeat-timeout", "200ms", "--disk-stall-timeout", "30s"}, sp.args...)
	r.cluster, err = process.New(process.Config{Program: start, Dir: dir, Nodes: sp.nodes, Args: args})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Close()) }()
	err = sp.play(ctx, r)
	r.clientLoad.leave()
	for i := range r.cluster.Nodes {
		err = errors.Join(err, r.end(ctx, i, syscall.SIGKILL))
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", sp.name, err)
	}
	rec = &recording{spec: sp, lives: r.lives, connections: r.clientLoad.connections, took: time.Since(begun)}
	for _, n := range r.cluster.Nodes {
		rec.dirs = append(rec.dirs, n.Dir)
	}
	return rec, nil
}

// end ends a node's process, waits until strace has written everything, and
// copies the data directory.
func (r *recorder) end(ctx context.Context, i int, sig syscall.Signal) error {
	n := r.cluster.Nodes[i]
	if !n.Running() {
		return nil
	}
	var killed time.Duration
	if sig == syscall.SIGKILL {
		killed = time.Duration(time.Now().UnixMicro()) * time.Microsecond
	}
	if err := n.Signal(sig); err != nil {
		return err
	}
	if _, err := n.Wait(15 * time.Second); err != nil {
		return err
	}
	l := life{
		trace:  filepath.Join(r.dir, fmt.Sprintf("%s.%d.trace", n.ID, n.PID())),
		left:   filepath.Join(r.dir, fmt.Sprintf("%s.%d.left", n.ID, len(r.lives[i]))),
		killed: killed,
	}
	wait, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := process.Poll(wait, "strace to end", func() bool { return tailEnds(l.trace, n.PID()) }); err != nil {
		return err
	}
	if err := copyDir(n.Dir, l.left); err != nil {
		return err
	}
	r.lives[i] = append(r.lives[i], l)
	return nil
}

var lastLinePattern = regexp.MustCompile(`(?m)^(\d+) +\d+\.\d+ \+\+\+ .*\+\+\+$`)

// tailEnds reports whether strace has recorded the end of a process. The first
// thread of the process is the last one whose end strace sees.
func tailEnds(path string, pid int) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	b := make([]byte, min(info.Size(), 2000))
	if _, err := f.ReadAt(b, info.Size()-int64(len(b))); err != nil {
		return false
	}
	all := lastLinePattern.FindAllSubmatch(b, -1)
	return len(all) > 0 && string(all[len(all)-1][1]) == strconv.Itoa(pid)
}

// copyDir copies a directory. It stores runs of zeros as holes.
func copyDir(from, to string) error {
	if out, err := exec.Command("cp", "-r", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// enter connects clients to a node.
func (r *recorder) enter(i, clients int) {
	n := r.cluster.Nodes[i]
	for range clients {
		r.clientLoad.enter(i, n.Clients, false, r.rng.Uint64(), r.spec.groups)
	}
}

// watch connects a client that only asks the node for its state.
func (r *recorder) watch(i int) {
	r.clientLoad.enter(i, r.cluster.Nodes[i].Clients, true, r.rng.Uint64(), 1<<30)
}

// lives is the scenario of a single node. It starts the node five times, and
// ends each process under load: the second with SIGTERM, the others with
// SIGKILL.
func lives(ctx context.Context, r *recorder) error {
	for life := range 5 {
		if err := r.cluster.Start(); err != nil {
			return err
		}
		leader, cancel := context.WithTimeout(ctx, 20*time.Second)
		_, err := r.cluster.Leader(leader)
		cancel()
		if err != nil {
			return err
		}
		r.enter(0, 3)
		r.watch(0)
		how := syscall.SIGKILL
		switch life {
		case 0, 4: // more than a second, because a node checks once a second whether a snapshot is due
			load.Sleep(ctx, 1300*time.Millisecond)
		case 1:
			load.Sleep(ctx, 150*time.Millisecond)
			how = syscall.SIGTERM
		default:
			load.Sleep(ctx, time.Duration(30+r.rng.IntN(400))*time.Millisecond)
		}
		if err := r.end(ctx, 0, how); err != nil {
			return err
		}
		r.clientLoad.leave()
	}
	return nil
}

// leaderships is the scenario of three nodes. It transfers leadership and kills
// leaders. One of them dies with entries that the other nodes never received.
func leaderships(ctx context.Context, r *recorder) error {
	settle := func() (*process.Node, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return r.cluster.Leader(ctx)
	}
	if err := r.cluster.Start(); err != nil {
		return err
	}
	leader, err := settle()
	if err != nil {
		return err
	}
	for i := range r.cluster.Nodes {
		r.enter(i, 2)
		r.watch(i)
	}
	load.Sleep(ctx, 1500*time.Millisecond)
	// On a slow machine the transfer may time out. In that case the old
	// leader continues to lead.
	if out, err := exec.CommandContext(ctx, r.program, "member", "transfer",
		"--addr", leader.Clients).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("timeout")) {
		return fmt.Errorf("transfer: %w: %s", err, bytes.TrimSpace(out))
	}
	if leader, err = settle(); err != nil {
		return err
	}
	// The leader runs alone for a short time, and dies with entries that no
	// other node has.
	i := r.index(leader)
	for j, n := range r.cluster.Nodes {
		if j != i {
			if err := n.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
		}
	}
	r.enter(i, 3)
	load.Sleep(ctx, 120*time.Millisecond)
	err = r.end(ctx, i, syscall.SIGKILL)
	for j, n := range r.cluster.Nodes {
		if j != i {
			err = errors.Join(err, n.Signal(syscall.SIGCONT))
		}
	}
	if err != nil {
		return err
	}
	next, err := settle()
	if err != nil {
		return err
	}
	r.enter(r.index(next), 2)
	load.Sleep(ctx, 200*time.Millisecond)
	if err := r.cluster.Start(); err != nil {
		return err
	}
	load.Sleep(ctx, 300*time.Millisecond)
	if leader, err = settle(); err != nil {
		return err
	}
	// All nodes die, one after the other, and start again.
	r.enter((r.index(leader)+1)%3, 3)
	load.Sleep(ctx, 100*time.Millisecond)
	for j := range r.cluster.Nodes {
		if err := r.end(ctx, (r.index(leader)+j)%3, syscall.SIGKILL); err != nil {
			return err
		}
	}
	r.clientLoad.leave()
	if err := r.cluster.Start(); err != nil {
		return err
	}
	if _, err := settle(); err != nil {
		return err
	}
	for i := range r.cluster.Nodes {
		r.enter(i, 1)
	}
	load.Sleep(ctx, 1200*time.Millisecond)
	return nil
}

func (r *recorder) index(n *process.Node) int {
	i, err := strconv.Atoi(strings.TrimPrefix(n.ID, "n"))
	if err != nil {
		panic(err) // impossible, because the cluster numbers its nodes
	}
	return i - 1
}
