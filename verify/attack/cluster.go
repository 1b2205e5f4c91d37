package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// Login is the user and the password of the clients of a cluster under attack.
// The cluster requires a password because some loads of package neighbor come
// from clients that do not log in.
var Login = load.Login{Password: "of-the-attack"}

// cluster contains the nodes under attack, and one spare node that can join
// them.
type cluster struct {
	dir   string
	nodes []*node // the initial members
	spare *node
	net   *network
	disks *diskSet // nil if the plan needs no disks
}

// clusterConfig configures a new cluster.
type clusterConfig struct {
	program string
	dir     string
	nodes   int
	args    []string
	disks   bool
}

func newCluster(cfg clusterConfig) (c *cluster, err error) {
	c = &cluster{dir: cfg.dir, net: newNetwork()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	all := cfg.nodes + 1 // including the spare node
	base, err := process.FreePorts(2, all, 1000)
	if err != nil {
		return c, err
	}
	var peers []string
	for i := range all {
		peers = append(peers, fmt.Sprintf("n%d=127.0.0.1:%d", i+1, base+1000+i))
	}
	pc := process.Config{Program: cfg.program, Dir: cfg.dir, Nodes: all, Password: Login.Password,
		Args: append([]string{"--peers", strings.Join(peers[:cfg.nodes], ","), "--leader-wait", "1s", "--resolve-wait",
			"3s"}, cfg.args...)}
	if cfg.disks {
		if c.disks, err = newDiskRoom(cfg.dir); err != nil {
			return c, err
		}
		pc.Starter = c.disks.starter
	}
	made, err := process.New(pc)
	if err != nil {
		return c, err
	}
	for i, p := range made.Nodes {
		n := &node{Node: p, clock: filepath.Join(cfg.dir, p.ID+".clock"), data: p.Dir, files: p.Dir}
		n.clients = c.net.front(p.ID, fmt.Sprintf("127.0.0.1:%d", base+i), p.Clients, true)
		n.peers = c.net.front(p.ID, fmt.Sprintf("127.0.0.1:%d", base+1000+i), p.Peers, false)
		if err := n.setClocks(0, 1); err != nil {
			return c, err
		}
		if i == cfg.nodes {
			c.spare = n
			break
		}
		if c.disks != nil {
			if n.disk, err = c.disks.add(p.ID); err != nil {
				return c, err
			}
			n.data = filepath.Join(n.disk.mount, "data")
			n.files = c.disks.hostPath(n.data)
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// joinArgs returns the flags with which the spare node joins.
func (c *cluster) joinArgs() []string {
	peers := c.spare.ID + "=" + c.spare.peers.addr
	for _, n := range c.nodes {
		peers += "," + n.ID + "=" + n.peers.addr
	}
	return []string{"--peers", peers}
}

func (c *cluster) start() error {
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

// close ends all processes, proxies and disks. It keeps the directory.
func (c *cluster) close() error {
	var errs []error
	for _, n := range c.all() {
		if n != nil {
			errs = append(errs, n.kill())
		}
	}
	c.net.shut()
	if c.disks != nil {
		c.disks.close()
	}
	return errors.Join(errs...)
}

// all returns the nodes and the spare node.
func (c *cluster) all() []*node { return append(slices.Clip(c.nodes), c.spare) }

// addrs returns the addresses to which clients connect. These are the addresses
// of the proxies.
func (c *cluster) addrs() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.clients.addr)
	}
	return all
}

// live returns the nodes whose process runs and is not paused.
func (c *cluster) live() []*node {
	var all []*node
	for _, n := range c.nodes {
		n.mu.Lock()
		paused := n.paused
		n.mu.Unlock()
		if n.Running() && !paused {
			all = append(all, n)
		}
	}
	return all
}

// states asks the nodes for their states concurrently. Nodes that do not answer
// are missing from the result.
func states(ctx context.Context, nodes []*node) map[*node]state {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := make(map[*node]state)
	for _, n := range nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if s, err := n.state(ctx); err == nil {
				mu.Lock()
				all[n] = s
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return all
}

// leader waits until a live node is leader and a majority of the nodes report
// that they are ready.
func (c *cluster) leader(ctx context.Context) (leader *node, err error) {
	err = process.Poll(ctx, "a leader", func() bool {
		leader = nil
		term, ready := uint64(0), 0
		for n, s := range states(ctx, c.live()) {
			if s.Role == "leader" && s.Ready && s.Term > term {
				leader, term = n, s.Term
			}
			if s.Ready {
				ready++
			}
		}
		return leader != nil && ready > len(c.nodes)/2
	})
	return leader, err
}

// healthy waits until all members run, are voters, follow one leader and have
// almost caught up. It returns the leader.
func (c *cluster) healthy(ctx context.Context) (leader *node, err error) {
	var why string
	err = process.Poll(ctx, "all members to run, follow one leader and catch up", func() bool {
		all := states(ctx, c.nodes)
		if ctx.Err() != nil {
			return false // the variable why keeps the reason of the last complete attempt
		}
		leader = nil
		var commit uint64
		for n, s := range all {
			if s.Role == "leader" && s.Ready {
				leader, commit = n, s.Commit
			}
		}
		if leader == nil {
			why = fmt.Sprintf("no leader; %d nodes answer", len(all))
			return false
		}
		for _, n := range c.nodes {
			s, ok := all[n]
			if !ok || !s.Ready || s.Leader != leader.ID || !s.Voter || s.Applied+8 < min(commit, s.Commit) ||
				s.Commit+4096 < commit {
				why = fmt.Sprintf("%s does not follow %s or lags: answers %v, %+v", n.ID, leader.ID, ok, s)
				return false
			}
		}
		return true
	})
	if err != nil {
		err = fmt.Errorf("%w (%s)", err, why)
	}
	return leader, err
}

// followers returns the live nodes except the leader.
func (c *cluster) followers(leader *node) []*node {
	var all []*node
	for _, n := range c.live() {
		if n != leader {
			all = append(all, n)
		}
	}
	return all
}

// resumeAll resumes paused processes and starts nodes that do not run.
func (c *cluster) resumeAll() error {
	var errs []error
	for _, n := range c.nodes {
		n.mu.Lock()
		paused := n.paused
		n.paused = false
		n.mu.Unlock()
		if paused && n.Running() {
			errs = append(errs, n.Signal(syscall.SIGCONT))
		}
		if !n.Running() {
			n.clients.close()
			n.peers.close()
			errs = append(errs, n.start())
		}
	}
	return errors.Join(errs...)
}

// byAuthority returns the nodes in the order in which to trust their reports
// about the cluster. Leaders come first, the one of the latest term before the
// others. So a node that was removed while it was down comes after them: it
// does not know of its removal, and still lists itself as a member.
func byAuthority(nodes []*node, all map[*node]state) []*node {
	rank := func(n *node) uint64 {
		if s := all[n]; s.Role == "leader" {
			return s.Term
		}
		return 0
	}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b *node) int { return cmp.Compare(rank(b), rank(a)) })
	return sorted
}

// members asks the nodes for the members of the cluster.
func (c *cluster) members(ctx context.Context) ([]state, error) {
	live := c.live()
	if len(live) == 0 {
		return nil, errors.New("no node reports the members: no process runs, or all are paused")
	}
	var last error
	for _, n := range byAuthority(live, states(ctx, live)) {
		text, err := n.ask(ctx, 3*time.Second, "STATUS")
		if err != nil {
			last = err
			continue
		}
		var all []state
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("%s: members %.200q: %w", n.ID, text, err)
		}
		return all, nil
	}
	return nil, fmt.Errorf("no node reports the members: %w", last)
}

// remove removes a node from the cluster. It may need several attempts, because
// the leader may change.
func (c *cluster) remove(ctx context.Context, n *node) error {
	var last error
	err := process.Poll(ctx, n.ID+" to be removed", func() bool {
		members, err := c.members(ctx)
		if err != nil {
			last = err
			return false
		}
		there := false
		for _, m := range members {
			there = there || m.ID == n.ID
		}
		if !there {
			return true
		}
		for _, other := range c.live() {
			if other != n {
				_, last = other.ask(ctx, 6*time.Second, "REMOVE", n.ID)
				break
			}
		}
		return false
	})
	return errors.Join(err, lastError(err, last))
}

// add permits a node to join, as an operator does. Older builds do not know the
// command ADD: a leader of such a build admits every node that asks to join.
func (c *cluster) add(ctx context.Context, n *node) error {
	var last error
	err := process.Poll(ctx, n.ID+" to be added", func() bool {
		for _, other := range c.live() {
			if other == n {
				continue
			}
			_, last = other.ask(ctx, 6*time.Second, "ADD", n.ID, n.peers.addr)
			if last == nil || strings.Contains(last.Error(), "unknown command") ||
				strings.Contains(last.Error(), "unknown subcommand") {
				return true
			}
		}
		return false
	})
	return errors.Join(err, lastError(err, last))
}

// lastError returns the error of the last attempt if waiting failed, and nil
// otherwise.
func lastError(err, last error) error {
	if err == nil {
		return nil
	}
	return last
}

// copyDir copies the contents of one directory to another. It first deletes the
// old contents of the other directory.
func copyDir(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// logSizes returns the sizes of the nodes' logs, for electionLog.
func (c *cluster) logSizes() map[string]int64 {
	sizes := make(map[string]int64)
	for _, n := range c.all() {
		sizes[n.ID] = n.logSize()
	}
	return sizes
}

// electionLog returns what the nodes have logged about elections since their
// logs had the given sizes.
func (c *cluster) electionLog(since map[string]int64) string {
	var lines []string
	for _, n := range c.all() {
		lines = append(lines, n.electionLog(since[n.ID])...)
	}
	return strings.Join(lines, "\n")
}
