package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/verify/process"
)

type options struct {
	nodes, basePort int
	dataDir         string
	sentinel        bool
	clusterMode     bool
	args            []string // passed to every node
}

// Command returns the command that runs a cluster on this machine, with the
// commands that control its nodes.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "dev [-- SERVE-FLAG...]",
		Short: "Run a whole cluster on this machine",
		Long: `Run a cluster of node processes on the loopback interface. The client ports begin
at --base-port. Peer ports are 1000 higher, HTTP ports 2000 higher, and with
--sentinel, Sentinel ports 20000 higher. --data-dir keeps the data between runs.

A node that dies is not restarted, so you can kill one and see how the others
continue. From another terminal, "holdfast dev restart n2" restarts a node; use
stop, start and kill in the same way. Ctrl-C stops all nodes. Each node's log
is kept in the data directory. Flags after -- are passed to every node.`,
		Example: `  holdfast dev
  redis-cli -p 6380 SET lock:a me NX EX 600

  holdfast dev --sentinel
  redis-cli -p 26379 SENTINEL get-master-addr-by-name mymaster

  holdfast dev --cluster-mode
  redis-cli -c -p 6380 SET lock:a me NX EX 600`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); len(args) > 0 && n != 0 {
				return fmt.Errorf("unexpected argument %q: put flags for the nodes after --", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&o.nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&o.basePort, "base-port", 6379, "client port of the first node")
	cmd.Flags().BoolVar(&o.sentinel, "sentinel", false,
		"also serve Redis Sentinel, on ports 20000 above the client ports")
	cmd.Flags().BoolVar(&o.clusterMode, "cluster-mode", false, "act as a Redis Cluster of one shard")
	cmd.MarkFlagsMutuallyExclusive("sentinel", "cluster-mode")
	cmd.Flags().StringVar(&o.dataDir, "data-dir", dataDir(),
		"directory for the data and logs of the nodes")
	cmd.AddCommand(actionCommands()...)
	return cmd
}

// dataDir is the default of --data-dir.
func dataDir() string { return filepath.Join("data", "dev") }

// maxLog is the size in bytes above which dev renames a log when dev itself
// starts.
const maxLog = 16 << 20

// rotateLog renames a log that has become large. It replaces the log that it
// renamed the last time.
func rotateLog(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= maxLog {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(path, path+".1")
}

// sentinelOffset is the difference between Sentinel ports and client ports. With
// the client port 6379, the Sentinel port is 26379, which Redis uses too.
const sentinelOffset = 20000

// config returns the configuration of the cluster for package verify/process.
func (o options) config() (process.Config, error) {
	highest := o.basePort + 2000
	if o.sentinel {
		highest = o.basePort + sentinelOffset
	}
	if o.nodes < 1 || o.basePort < 1 || highest+o.nodes > 65535 {
		return process.Config{}, fmt.Errorf("--nodes %d and --base-port %d do not fit into the port range",
			o.nodes, o.basePort)
	}
	self, err := os.Executable()
	if err != nil {
		return process.Config{}, err
	}
	args := o.args
	if o.clusterMode {
		args = append([]string{"--cluster-mode"}, args...)
	}
	return process.Config{
		Program: self, Dir: o.dataDir, Nodes: o.nodes, BasePort: o.basePort, Sentinel: o.sentinel,
		SentinelOffset: sentinelOffset, Secret: true, Args: args, Env: os.Environ(),
	}, nil
}

// stopLimit is how long the nodes may take to stop.
const stopLimit = 6 * time.Second

func run(ctx context.Context, o options, out io.Writer) error {
	// Closing the terminal stops the nodes in an orderly way, as Ctrl-C does.
	// Under nohup, dev ignores SIGHUP.
	if !signal.Ignored(syscall.SIGHUP) {
		hangup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		ctx = hangup
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	c, err := process.New(cfg)
	if err != nil {
		return err
	}
	for _, n := range c.Nodes {
		for _, addr := range []string{n.Clients, n.Peers, n.HTTP, n.Sentinel} {
			if err := portFree(addr); err != nil {
				return err
			}
		}
	}
	for _, n := range c.Nodes {
		if err := rotateLog(n.LogFile); err != nil {
			return err
		}
	}
	if err := c.Start(); err != nil {
		return errors.Join(err, c.Stop(stopLimit))
	}
	control, err := serveControl(o.dataDir, c.Nodes)
	if err != nil {
		// The cluster works without the control socket.
		fmt.Fprintf(out, "\"holdfast dev restart\" will not work: %v\n", err)
	}
	err = watchNodes(ctx, c.Nodes, o, out)
	fmt.Fprintln(out, "stopping")
	return errors.Join(err, control.close(), c.Stop(stopLimit))
}

// portFree returns an error if another process listens on an address. The
// address may be empty.
func portFree(addr string) error {
	if addr == "" {
		return nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (is another cluster running? try --base-port)", err)
	}
	return ln.Close()
}

// askEvery is the time between two requests for the status of the nodes, once
// the table has been printed.
const askEvery = 500 * time.Millisecond

// watchNodes prints the table of the nodes once the cluster has a leader, and then
// a line for every change, until ctx ends or no node is left.
func watchNodes(ctx context.Context, nodes []*process.Node, o options, out io.Writer) error {
	w, err := newWeb(o.args)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	reported := make(map[string]int) // by node: pid of the last process whose end was reported
	leader, shown := "", false
	var asked time.Time // when the nodes were asked for their status
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		living := 0
		for _, n := range nodes {
			if n.Running() {
				living++
			} else if pid := n.PID(); reported[n.ID] != pid {
				reported[n.ID] = pid
				fmt.Fprintf(out, "%s  %s (pid %d) is gone: %v; its log: %s\n", clock(), n.ID, pid,
					n.Exit(), n.LogFile)
				if last := lastLine(n.LogFile); last != "" {
					fmt.Fprintf(out, "    %s\n", last)
				}
			}
		}
		if living == 0 {
			return errors.New("no node is left")
		}
		// Frequent requests would keep idle nodes busy.
		if shown && time.Since(asked) < askEvery {
			continue
		}
		asked = time.Now()
		status := askNodes(ctx, w, nodes)
		now := client.LeaderOf(status)
		switch {
		case !shown && now != "" && len(status) == living && allReady(status):
			shown, leader = true, now
			printNodes(out, nodes, status, o)
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
		return "" // the caller prints the path of the log
	}
	text := strings.TrimRight(string(b), "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func clock() string { return time.Now().Format("15:04:05.000") }

// askNodes asks each running node for its own status. It uses the HTTP port,
// because the client port may require a password, which clients can change.
func askNodes(ctx context.Context, w *web, nodes []*process.Node) []cluster.NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []cluster.NodeStatus
	for _, n := range nodes {
		if !n.Running() {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			// A node that does not answer is starting or ending. The next call asks
			// it again.
			if st, err := askNode(ctx, w, n); err == nil {
				mu.Lock()
				all = append(all, st)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return all
}

func askNode(ctx context.Context, w *web, n *process.Node) (st cluster.NodeStatus, err error) {
	res, err := w.get(ctx, n, "/status")
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		return st, fmt.Errorf("status of %s: %w", n.ID, err)
	}
	if st.ID != n.ID {
		return st, fmt.Errorf("status of %s: %s answers at %s", n.ID, st.ID, n.HTTP)
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

func printNodes(out io.Writer, nodes []*process.Node, status []cluster.NodeStatus, o options) {
	role := make(map[string]string)
	for _, st := range status {
		role[st.ID] = st.Role
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tPID\tCLIENTS\tPEERS\tHTTP\tROLE")
	var example string
	var sentinels []string
	for _, n := range nodes {
		sentinels = append(sentinels, n.Sentinel)
		if role[n.ID] == "" {
			role[n.ID] = "gone"
		} else {
			example = n.Clients
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", n.ID, n.PID(), n.Clients, n.Peers, n.HTTP, role[n.ID])
	}
	w.Flush()
	_, port, _ := net.SplitHostPort(example)
	flag := ""
	if o.clusterMode {
		flag = "-c "
	}
	flag += tlsFlags(o.args)
	fmt.Fprintf(out, "\nReady. Any node will do:  redis-cli %s-p %s SET lock:a me NX EX 600\n", flag, port)
	if o.sentinel {
		fmt.Fprintf(out, "Sentinels: %s, master name mymaster\n", strings.Join(sentinels, ", "))
	}
	fmt.Fprintf(out, "Data and logs: %s. Ctrl-C stops all nodes.\n\n", o.dataDir)
}

// tlsFlags returns the flags that redis-cli needs for nodes with these arguments,
// followed by a space, or "".
func tlsFlags(args []string) string {
	value := make(map[string]string)
	for i, a := range args {
		name, v, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(args) {
			v = args[i+1]
		}
		value[name] = v
	}
	ports, limited := value["--tls-ports"]
	if value["--tls-cert-file"] == "" || limited && !strings.Contains(ports, "clients") {
		return ""
	}
	flags := "--tls "
	if ca := value["--tls-ca-cert-file"]; ca != "" {
		flags += "--cacert " + ca + " "
	}
	if value["--tls-auth-clients"] == "yes" {
		flags += "--cert CERTIFICATE --key KEY "
	}
	return flags
}
