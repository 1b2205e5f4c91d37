package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Config says what cluster New makes.
type Config struct {
	Program string // path of the binary: see Build
	Dir     string // holds the nodes' data directories and logs
	Nodes   int    // default 3
	// Sentinel has every node serve Redis Sentinel too.
	Sentinel bool
	// Secret has the nodes authenticate each other by a secret in a file of Dir.
	Secret  bool
	Args    []string // further arguments of "serve", for all nodes
	Env     []string // environment of the nodes, beside this process' own
	Starter *Starter // default: one for all clusters of this process
}

// Cluster is a set of nodes on loopback.
type Cluster struct {
	Nodes []*Node
}

// New makes a cluster of which nothing runs yet. Its client ports follow each
// other, as do its peer, its http and its Sentinel ports, 1000, 2000 and 3000
// above.
func New(cfg Config) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Starter == nil {
		var err error
		if cfg.Starter, err = common(); err != nil {
			return nil, err
		}
	}
	base, err := FreePorts(4, cfg.Nodes, 1000)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	secret := filepath.Join(cfg.Dir, "cluster-secret")
	if cfg.Secret {
		if err := os.WriteFile(secret, []byte("what the nodes of a test know, and nobody else\n"), 0o600); err != nil {
			return nil, err
		}
	}
	c := &Cluster{}
	var peers []string
	for i := range cfg.Nodes {
		id := "n" + strconv.Itoa(i+1)
		n := &Node{
			ID: id, Clients: loopback(base + i), Peers: loopback(base + 1000 + i), HTTP: loopback(base + 2000 + i),
			Dir: filepath.Join(cfg.Dir, id), LogFile: filepath.Join(cfg.Dir, id+".log"),
			program: cfg.Program, env: append(cleanEnv(), cfg.Env...), starter: cfg.Starter,
		}
		if cfg.Sentinel {
			n.Sentinel = loopback(base + 3000 + i)
		}
		c.Nodes = append(c.Nodes, n)
		peers = append(peers, id+"="+n.Peers)
	}
	for _, n := range c.Nodes {
		n.args = []string{"serve", "--node-id", n.ID, "--data-dir", n.Dir, "--client-addr", n.Clients,
			"--peer-addr", n.Peers, "--http-addr", n.HTTP, "--peers", strings.Join(peers, ",")}
		if n.Sentinel != "" {
			n.args = append(n.args, "--sentinel-addr", n.Sentinel)
		}
		if cfg.Secret {
			n.args = append(n.args, "--cluster-secret-file", secret)
		}
		n.args = append(n.args, cfg.Args...)
	}
	return c, nil
}

// cleanEnv is this process' environment without what would set flags of the
// program.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") {
			env = append(env, v)
		}
	}
	return env
}

// Start starts the processes of all nodes that have none.
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

// Close kills what runs.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// Running returns the nodes whose process lives, but for those in without.
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

// State is what a node says of itself.
type State struct {
	Role, Leader          string
	Term, Commit, Applied uint64
	Ready                 bool
}

// State asks the node for its state. A node that has stopped answers nothing:
// the limit is a second.
func (n *Node) State() (State, error) {
	conn, err := redis.Dial("tcp", n.Clients, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second), redis.DialWriteTimeout(time.Second))
	if err != nil {
		return State{}, err
	}
	defer conn.Close()
	text, err := redis.String(conn.Do("INFO", "holdfast"))
	if err != nil {
		return State{}, err
	}
	var s State
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseUint(value, 10, 64) // 0 for what is none
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

// states asks nodes at the same time; those that do not answer are missing.
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

// Leader waits until one of the running nodes, but for those in without, leads
// and a majority of the cluster has a way to it.
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

// Settled waits until all running nodes, but for those in without, follow the
// same leader and have applied what it has committed.
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

// pollEvery is how often Poll looks.
const pollEvery = 10 * time.Millisecond

// Poll waits until f returns true, or for ctx. what says what is waited for.
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
