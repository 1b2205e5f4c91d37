package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
)

type devOptions struct {
	nodes, basePort int
	dataDir         string
	sentinel        bool
	clusterMode     bool
	args            []string // passed to every node
}

func devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev [-- SERVE-FLAG...]",
		Short: "Run a whole cluster on this machine",
		Long: `Run a cluster of node processes on the loopback interface. The client ports begin
at --base-port. Peer ports are 1000 higher, HTTP ports 2000 higher, and with
--sentinel, Sentinel ports 20000 higher. --data-dir keeps the data between runs.

A node that dies is not restarted, so you can kill one and see how the others
continue. Ctrl-C stops all nodes. Flags after -- are passed to every node.`,
		Example: `  holdfast dev
  redis-cli -p 6380 SET lock:a me NX EX 600

  holdfast dev --sentinel
  redis-cli -p 26379 SENTINEL get-master-addr-by-name mymaster

  holdfast dev --cluster-mode
  redis-cli -c -p 6380 SET lock:a me NX EX 600`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); len(args) > 0 && n != 0 {
				return fmt.Errorf("unexpected argument %q: flags of the nodes follow --", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return dev(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&o.nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&o.basePort, "base-port", 6379, "client port of the first node")
	cmd.Flags().BoolVar(&o.sentinel, "sentinel", false, "also serve Redis Sentinel, on ports 20000 above the client ports")
	cmd.Flags().BoolVar(&o.clusterMode, "cluster-mode", false, "act as a Redis Cluster of one shard")
	cmd.MarkFlagsMutuallyExclusive("sentinel", "cluster-mode")
	cmd.Flags().StringVar(&o.dataDir, "data-dir", filepath.Join("data", "dev"), "directory for the data and logs of the nodes")
	return cmd
}

// devNode is a node process.
type devNode struct {
	id, clients, peers, http string
	sentinel                 string // "" for none
	log                      string
	cmd                      *exec.Cmd
	exited                   chan struct{}
	err                      error // valid after exited is closed
}

// sentinelOffset is the difference between Sentinel ports and client ports.
// From 6379 it leads to the usual ports of Sentinel.
const sentinelOffset = 20000

// discovery returns the flags for clients that find the leader by themselves.
func (n *devNode) discovery(o devOptions) []string {
	var args []string
	if n.sentinel != "" {
		args = append(args, "--sentinel-addr", n.sentinel)
	}
	if o.clusterMode {
		args = append(args, "--cluster-mode")
	}
	return args
}

// secretFile returns the path of the file with the cluster secret.
func (o devOptions) secretFile() string { return filepath.Join(o.dataDir, "cluster-secret") }

func (n *devNode) alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

func dev(ctx context.Context, o devOptions, out io.Writer) error {
	// Closing the terminal stops the nodes in order, as Ctrl-C does.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	highest := o.basePort + 2000
	if o.sentinel {
		highest = o.basePort + sentinelOffset
	}
	if o.nodes < 1 || o.basePort < 1 || highest+o.nodes > 65535 {
		return fmt.Errorf("--nodes %d from --base-port %d do not fit the port range", o.nodes, o.basePort)
	}
	nodes := make([]*devNode, o.nodes)
	var peers []string
	addr := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	for i := range nodes {
		n := &devNode{id: "n" + strconv.Itoa(i+1), exited: make(chan struct{})}
		n.clients, n.peers, n.http = addr(o.basePort+i), addr(o.basePort+1000+i), addr(o.basePort+2000+i)
		n.log = filepath.Join(o.dataDir, n.id+".log")
		nodes[i] = n
		peers = append(peers, n.id+"="+n.peers)
		ports := []string{n.clients, n.peers, n.http}
		if o.sentinel {
			n.sentinel = addr(o.basePort + sentinelOffset + i)
			ports = append(ports, n.sentinel)
		}
		for _, a := range ports {
			if err := portFree(a); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(o.dataDir, 0o755); err != nil {
		return err
	}
	if err := createSecret(o.secretFile()); err != nil {
		return fmt.Errorf("cluster secret: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A child must not outlive this process, however this process ends.
	// PR_SET_PDEATHSIG is tied to the thread that forked. So one thread starts
	// all nodes and lives until the end.
	errs := make(chan error)
	stay := make(chan struct{})
	defer close(stay)
	go func() {
		runtime.LockOSThread()
		errs <- startNodes(self, nodes, strings.Join(peers, ","), o)
		<-stay
	}()
	err = <-errs
	if err == nil {
		err = watchNodes(ctx, nodes, o, out)
	}
	return errors.Join(err, stopNodes(nodes, out))
}

// portFree returns an error if another process listens on an address.
func portFree(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (another cluster running? try --base-port)", err)
	}
	return ln.Close()
}

func startNodes(self string, nodes []*devNode, peers string, o devOptions) error {
	for _, n := range nodes {
		log, err := os.Create(n.log)
		if err != nil {
			return err
		}
		args := append([]string{"serve", "--node-id", n.id, "--data-dir", filepath.Join(o.dataDir, n.id),
			"--client-addr", n.clients, "--peer-addr", n.peers, "--http-addr", n.http, "--peers", peers,
			"--cluster-secret-file", o.secretFile()}, n.discovery(o)...)
		args = append(args, o.args...)
		n.cmd = exec.Command(self, args...)
		n.cmd.Stdout, n.cmd.Stderr = log, log
		// Each node has its own process group, so Ctrl-C in the terminal
		// reaches only this process, which then stops the nodes in order.
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		err = n.cmd.Start()
		if closeErr := log.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			n.cmd = nil
			return fmt.Errorf("start %s: %w", n.id, err)
		}
		go func() {
			n.err = n.cmd.Wait()
			close(n.exited)
		}()
	}
	return nil
}

// watchNodes prints the table once the cluster has a leader, and then every
// change, until ctx ends or no node is left.
func watchNodes(ctx context.Context, nodes []*devNode, o devOptions, out io.Writer) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	reported := make(map[string]bool)
	leader, shown := "", false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		living := 0
		for _, n := range nodes {
			if n.alive() {
				living++
			} else if !reported[n.id] {
				reported[n.id] = true
				fmt.Fprintf(out, "%s  %s (pid %d) is gone: %v; its log: %s\n", clock(), n.id, n.cmd.Process.Pid, n.err, n.log)
				if last := lastLine(n.log); last != "" {
					fmt.Fprintf(out, "    %s\n", last)
				}
			}
		}
		if living == 0 {
			return errors.New("no node is left")
		}
		status := devStatus(ctx, nodes)
		now := leaderOf(status)
		switch {
		case !shown && now != "" && len(status) == living && allReady(status):
			shown, leader = true, now
			printDev(out, nodes, status, o)
		case shown && now != leader:
			if now == "" {
				fmt.Fprintf(out, "%s  no leader\n", clock())
			} else {
				fmt.Fprintf(out, "%s  %s leads\n", clock(), now)
			}
			leader = now
		}
	}
}

// lastLine returns the last line of a log, which usually says why the node
// ended; "" if there is none.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "" // the caller has printed the path
	}
	text := strings.TrimRight(string(b), "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func clock() string { return time.Now().Format("15:04:05.000") }

// devStatus asks each running node for its own status, on its HTTP port. The
// client port may require a password, which clients can change.
func devStatus(ctx context.Context, nodes []*devNode) []cluster.NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []cluster.NodeStatus
	for _, n := range nodes {
		if !n.alive() {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			// A node that does not answer is starting or ending; the next call
			// will see it.
			if st, err := askNode(ctx, n); err == nil {
				mu.Lock()
				all = append(all, st)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return all
}

func askNode(ctx context.Context, n *devNode) (st cluster.NodeStatus, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/status", nil)
	if err != nil {
		return st, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		return st, fmt.Errorf("status of %s: %w", n.id, err)
	}
	if st.ID != n.id {
		return st, fmt.Errorf("status of %s: %s answers at %s", n.id, st.ID, n.http)
	}
	return st, nil
}

func allReady(nodes []cluster.NodeStatus) bool {
	for _, st := range nodes {
		if !st.Ready {
			return false
		}
	}
	return true
}

func printDev(out io.Writer, nodes []*devNode, status []cluster.NodeStatus, o devOptions) {
	role := make(map[string]string)
	for _, st := range status {
		role[st.ID] = st.Role
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tPID\tCLIENTS\tPEERS\tHTTP\tROLE")
	var example string
	var sentinels []string
	for _, n := range nodes {
		sentinels = append(sentinels, n.sentinel)
		if role[n.id] == "" {
			role[n.id] = "gone"
		} else {
			example = n.clients
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", n.id, n.cmd.Process.Pid, n.clients, n.peers, n.http, role[n.id])
	}
	w.Flush()
	_, port, _ := net.SplitHostPort(example)
	flag := ""
	if o.clusterMode {
		flag = "-c "
	}
	fmt.Fprintf(out, "\nReady. Any node will do:  redis-cli %s-p %s SET lock:a me NX EX 600\n", flag, port)
	if o.sentinel {
		fmt.Fprintf(out, "Sentinels: %s, master name mymaster\n", strings.Join(sentinels, ", "))
	}
	fmt.Fprintf(out, "Data and logs: %s. Ctrl-C stops all nodes.\n\n", o.dataDir)
}

// stopNodes sends SIGTERM to all running nodes and waits. It kills the nodes
// that do not stop in time.
func stopNodes(nodes []*devNode, out io.Writer) error {
	var errs []error
	fmt.Fprintln(out, "stopping")
	for _, n := range nodes {
		if n.cmd != nil && n.alive() {
			errs = append(errs, ignoreDone(n.cmd.Process.Signal(syscall.SIGTERM)))
		}
	}
	deadline := time.After(6 * time.Second)
	for _, n := range nodes {
		if n.cmd == nil {
			continue
		}
		select {
		case <-n.exited:
		case <-deadline:
			errs = append(errs, fmt.Errorf("%s did not stop in time and was killed", n.id), ignoreDone(n.cmd.Process.Kill()))
			<-n.exited
		}
	}
	return errors.Join(errs...)
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
