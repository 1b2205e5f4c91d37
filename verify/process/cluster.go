package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config describes the cluster that New makes.
type Config struct {
	Program string // path of the binary: see Build
	Dir     string // directory for the nodes' data directories and logs
	Nodes   int    // default 3
	// BasePort is the client port of the first node. If it is 0, New chooses
	// ports on which no program listens.
	BasePort int
	// Sentinel makes every node serve Redis Sentinel too. SentinelOffset is the
	// difference between the Sentinel port and the client port, by default
	// 3000.
	Sentinel       bool
	SentinelOffset int
	// Secret makes the nodes authenticate each other by a secret in a file of
	// Dir: see SecretFile. New writes a random secret if there is no such file.
	Secret bool
	// Password is the password of the default user on all nodes, "" for none.
	Password string
	Args     []string // further arguments of "serve", for all nodes
	Env      []string // environment of the nodes, in addition to CleanEnv
	Starter  *Starter // starts the processes; default: one Starter for all clusters of this process
}

// Cluster is a set of nodes on loopback.
type Cluster struct {
	Nodes []*Node
}

// New makes a cluster and starts no process. The client ports of the nodes are
// consecutive. The peer and HTTP ports are 1000 and 2000 above the client ports.
func New(cfg Config) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Starter == nil {
		var err error
		if cfg.Starter, err = CommonStarter(); err != nil {
			return nil, err
		}
	}
	if cfg.SentinelOffset == 0 {
		cfg.SentinelOffset = 3000
	}
	base := cfg.BasePort
	if base == 0 {
		var err error
		if base, err = FreePorts(4, cfg.Nodes, 1000); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	secret := SecretFile(cfg.Dir)
	if cfg.Secret {
		if err := writeSecret(secret); err != nil {
			return nil, fmt.Errorf("cluster secret: %w", err)
		}
	}
	c := &Cluster{}
	var peers []string
	for i := range cfg.Nodes {
		id := "n" + strconv.Itoa(i+1)
		n := &Node{
			ID: id, Clients: Loopback(base + i), Peers: Loopback(base + 1000 + i), HTTP: Loopback(base + 2000 + i),
			Dir: filepath.Join(cfg.Dir, id), LogFile: filepath.Join(cfg.Dir, id+".log"),
			password: cfg.Password, program: cfg.Program, Env: append(CleanEnv(), cfg.Env...), starter: cfg.Starter,
		}
		if cfg.Sentinel {
			n.Sentinel = Loopback(base + cfg.SentinelOffset + i)
		}
		c.Nodes = append(c.Nodes, n)
		peers = append(peers, id+"="+n.Peers)
	}
	for _, n := range c.Nodes {
		n.Args = []string{"serve", "--node-id", n.ID, "--data-dir", n.Dir, "--client-addr", n.Clients,
			"--peer-addr", n.Peers, "--http-addr", n.HTTP, "--peers", strings.Join(peers, ",")}
		if n.Sentinel != "" {
			n.Args = append(n.Args, "--sentinel-addr", n.Sentinel)
		}
		if cfg.Secret {
			n.Args = append(n.Args, "--cluster-secret-file", secret)
		}
		if cfg.Password != "" {
			n.Args = append(n.Args, "--requirepass", cfg.Password)
		}
		n.Args = append(n.Args, cfg.Args...)
	}
	return c, nil
}

// SecretFile returns the path of the file with the cluster secret. dir is the
// directory of the cluster's Config.
func SecretFile(dir string) string { return filepath.Join(dir, "cluster-secret") }

// writeSecret makes a file with a random secret unless the file exists.
func writeSecret(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, rand.Text()+rand.Text())
	return errors.Join(err, f.Close())
}

// CleanEnv returns the environment of this process without the variables that
// would set flags of the program.
func CleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") {
			env = append(env, v)
		}
	}
	return env
}

// Start starts the processes of all nodes that are not running.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if !n.Running() {
			if err := n.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stop ends the processes of all nodes with SIGTERM. It kills those that have
// not ended within the limit, and returns an error that names them.
func (c *Cluster) Stop(limit time.Duration) error {
	var errs []error
	for _, n := range c.Nodes {
		if err := n.Signal(syscall.SIGTERM); !errors.Is(err, errNotRunning) && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	deadline := time.Now().Add(limit)
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		if _, err := n.Wait(time.Until(deadline)); err != nil {
			errs = append(errs, fmt.Errorf("%s did not stop in time and was killed", n.ID), n.Kill())
		}
	}
	return errors.Join(errs...)
}

// Close kills the processes of all nodes.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// Running returns the nodes whose process is alive, except the given ones.
func (c *Cluster) Running(without ...*Node) []*Node {
	var nodes []*Node
	for _, n := range c.Nodes {
		skip := !n.Running()
		for _, w := range without {
			skip = skip || w == n
		}
		if !skip {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// State is the state that a node reports.
type State struct {
	Role, Leader          string
	Term, Commit, Applied uint64
	Ready                 bool
}

// State asks the node for its state. A process that SIGSTOP has paused does not
// reply, so State waits for at most a second.
func (n *Node) State() (State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := NewClient(n.Clients, n.password, nil)
	defer client.Close()
	text, err := client.Info(ctx, "holdfast").Result()
	if err != nil {
		return State{}, err
	}
	var s State
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseUint(value, 10, 64) // 0 if the value is not a number
		switch name {
		case "raft_role":
			s.Role = value
		case "raft_leader":
			s.Leader = value
		case "raft_term":
			s.Term = number
		case "commit_index":
			s.Commit = number
		case "applied_index":
			s.Applied = number
		case "ready":
			s.Ready = number == 1
		}
	}
	return s, nil
}

// states asks all nodes at the same time. Nodes that do not reply are missing
// from the result.
func states(nodes []*Node) map[*Node]State {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := make(map[*Node]State)
	for _, n := range nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if s, err := n.State(); err == nil {
				mu.Lock()
				all[n] = s
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return all
}

// Leader waits until one of the running nodes, except the given ones, is leader
// and a majority of the cluster's nodes report that they are ready.
func (c *Cluster) Leader(ctx context.Context, without ...*Node) (leader *Node, err error) {
	err = Poll(ctx, "a leader", func() bool {
		leader = nil
		term, ready := uint64(0), 0
		for n, s := range states(c.Running(without...)) {
			if s.Role == "leader" && s.Ready && s.Term > term {
				leader, term = n, s.Term
			}
			if s.Ready {
				ready++
			}
		}
		return leader != nil && ready > len(c.Nodes)/2
	})
	return leader, err
}

// Settled waits until all running nodes, except the given ones, follow the same
// leader and have applied the entries that the leader had committed when
// Settled found it.
func (c *Cluster) Settled(ctx context.Context, without ...*Node) (leader *Node, err error) {
	if leader, err = c.Leader(ctx, without...); err != nil {
		return nil, err
	}
	nodes := c.Running(without...)
	commit := states([]*Node{leader})[leader].Commit
	err = Poll(ctx, "all nodes to catch up", func() bool {
		all := states(nodes)
		for n, s := range all {
			if s.Role == "leader" {
				leader = n
			}
		}
		for _, n := range nodes {
			if s, ok := all[n]; !ok || !s.Ready || s.Leader != leader.ID || s.Applied < commit {
				return false
			}
		}
		return true
	})
	return leader, err
}

// pollEvery is the interval at which Poll calls f.
const pollEvery = 10 * time.Millisecond

// Poll calls f repeatedly until f returns true or ctx is done. The error
// describes the condition with the text what.
func Poll(ctx context.Context, what string, f func() bool) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, context.Cause(ctx))
		case <-t.C:
		}
	}
	return nil
}
