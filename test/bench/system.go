package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// startLimit is how long a system may take until it serves.
const startLimit = 30 * time.Second

// redisServer is the reference system: one redis-server. With redisFlags, it
// calls fsync before it answers.
type redisServer struct {
	addr   string
	cmd    *exec.Cmd
	exited chan error
}

// redisFlags make redis-server durable and turn off its background work.
// redisMemoryFlags turn off its persistence.
var redisFlags = []string{"--appendonly", "yes", "--appendfsync", "always", "--save", "",
	"--auto-aof-rewrite-percentage", "0"}

var redisMemoryFlags = []string{"--appendonly", "no", "--save", ""}

func startRedis(ctx context.Context, t tools, dir string, flags []string) (*redisServer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := process.FreePorts(1, 1, 0)
	if err != nil {
		return nil, err
	}
	r := &redisServer{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), exited: make(chan error, 1)}
	r.cmd = exec.Command(t.server, append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--daemonize", "no"}, flags...)...)
	r.cmd.Stderr = os.Stderr
	if err := process.Start(r.cmd); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	go func() { r.exited <- r.cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err = process.Poll(ctx, "redis-server to answer", func() bool {
		_, err := ask(r.addr, "PING")
		return err == nil
	})
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// close kills the server. Its data is discarded.
func (r *redisServer) close() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop redis-server: %w", err)
	}
	<-r.exited
	return nil
}

func startCluster(ctx context.Context, program, dir string, o options) (*process.Cluster, error) {
	return startClusterWith(ctx, process.Config{Program: program, Dir: dir}, o)
}

// startClusterWith starts a cluster with the flags of the bench and waits until
// it serves.
func startClusterWith(ctx context.Context, cfg process.Config, o options) (*process.Cluster, error) {
	args := strings.Fields(o.serve)
	if o.pprofDir != "" {
		args = append(args, "--pprof")
	}
	cfg.Args = append(cfg.Args, args...)
	c, err := process.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if _, err := c.Settled(ctx); err != nil {
		return nil, errors.Join(err, showLogs(c), c.Close())
	}
	return c, nil
}

// showLogs prints the ends of the nodes' logs, which are removed with their
// directory.
func showLogs(c *process.Cluster) error {
	for _, n := range c.Nodes {
		text := n.Output()
		if _, err := fmt.Fprintf(os.Stderr, "--- %s\n%s\n", n.ID, text[max(0, len(text)-2000):]); err != nil {
			return err
		}
	}
	return nil
}

// replyLimit is how long a server may take for a reply.
const replyLimit = time.Minute

// ask sends one command on a connection of its own and returns the reply. For an
// error reply, the returned error is a respwire.ErrorReply.
func ask(addr string, args ...string) (respwire.Value, error) {
	return respwire.NoError(respwire.Do(addr, replyLimit, args...))
}

// integer converts the results of ask, Do or Receive to a number. It returns an
// error if the reply is not an integer.
func integer(v respwire.Value, err error) (int64, error) {
	v, err = respwire.NoError(v, err)
	if err == nil && v.Kind != ':' {
		err = fmt.Errorf("the reply is %q, want an integer", v)
	}
	return v.Int, err
}

// stat reads one number of INFO.
func stat(addr, section, name string) (int64, error) {
	info, err := ask(addr, "INFO", section)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info.Text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("INFO %s has no %s: %w", section, name, io.ErrUnexpectedEOF)
}
