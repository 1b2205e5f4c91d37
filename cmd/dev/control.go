package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// actions are the commands that a running "holdfast dev" accepts.
var actions = []struct{ name, short string }{
	{"restart", "Restart a node of a running dev cluster, in an orderly way if it is up"},
	{"start", "Start a node that is down, in a running dev cluster"},
	{"stop", "Stop a node of a running dev cluster in an orderly way"},
	{"kill", "Kill a node of a running dev cluster, as kill -9 does"},
}

// actionCommands returns the commands that control the nodes of a running dev
// cluster.
func actionCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, a := range actions {
		var dir string
		cmd := &cobra.Command{
			Use: a.name + " NODE", Short: a.short, Args: cobra.ExactArgs(1),
			Example: fmt.Sprintf("  holdfast dev %s n2", a.name),
			RunE: func(cmd *cobra.Command, args []string) error {
				done, err := ask(cmd.Context(), dir, a.name, args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
				return err
			},
		}
		cmd.Flags().StringVar(&dir, "data-dir", dataDir(), "data directory of the running dev cluster")
		out = append(out, cmd)
	}
	return out
}

// socket returns the path of the Unix socket on which dev accepts commands.
func socket(dir string) string { return filepath.Join(dir, "dev.sock") }

// ask sends one command to the dev cluster of a data directory and returns the
// answer.
func ask(ctx context.Context, dir, action, node string) (string, error) {
	path := socket(dir)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
	ctx, cancel := context.WithTimeout(ctx, 2*stopLimit)
	defer cancel()
	target := "http://dev/" + action + "?node=" + url.QueryEscape(node)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("no running \"holdfast dev\" with --data-dir %s: %w", dir, errors.Unwrap(err))
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return "", err
	}
	text = bytes.TrimSpace(text)
	if res.StatusCode != http.StatusOK {
		return "", errors.New(string(text))
	}
	return string(text), nil
}

// control carries out the commands that reach dev's Unix socket, one at a
// time.
type control struct {
	mu     sync.Mutex // held while a command runs
	nodes  []*process.Node
	server http.Server
	served chan error // receives the reason why the server ended; capacity 1
}

// serveControl listens on the socket of a data directory until close.
func serveControl(dir string, nodes []*process.Node) (*control, error) {
	path := socket(dir)
	// A dev that was killed leaves its socket behind. The ports were free, so
	// no other dev with the same ports is running.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w (the path of a Unix socket is limited to about 100 bytes: choose a shorter "+
			"--data-dir)", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	c := &control{nodes: nodes, served: make(chan error, 1)}
	mux := http.NewServeMux()
	for _, a := range actions {
		mux.HandleFunc("POST /"+a.name, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, a.name) })
	}
	c.server = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { c.served <- c.server.Serve(l) }()
	return c, nil
}

// close ends the service. It waits for the command that runs. c may be nil.
func (c *control) close() error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*stopLimit)
	defer cancel()
	err := c.server.Shutdown(ctx)
	if served := <-c.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (c *control) answer(w http.ResponseWriter, r *http.Request, action string) {
	done, err := c.run(action, r.URL.Query().Get("node"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	// The client is a command on this machine. If it has ended, the answer is not
	// needed.
	_, _ = io.WriteString(w, done+"\n")
}

// run carries out one command and returns a message about the result.
func (c *control) run(action, id string) (string, error) {
	i := slices.IndexFunc(c.nodes, func(n *process.Node) bool { return n.ID == id })
	if i < 0 {
		var ids []string
		for _, n := range c.nodes {
			ids = append(ids, n.ID)
		}
		return "", fmt.Errorf("no node %q: the nodes are %s", id, strings.Join(ids, ", "))
	}
	n := c.nodes[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	up := n.Running()
	switch {
	case action == "start" && up:
		return "", fmt.Errorf("%s is already up (pid %d)", id, n.PID())
	case (action == "stop" || action == "kill") && !up:
		return "", fmt.Errorf("%s is already down", id)
	}
	if up {
		stop := func() error { _, err := n.Stop(stopLimit); return err }
		if action == "kill" {
			stop = n.Kill
		}
		if err := stop(); err != nil {
			return "", fmt.Errorf("%s %s: %w", action, id, err)
		}
	}
	switch action {
	case "stop":
		return id + " has stopped", nil
	case "kill":
		return id + " has been killed", nil
	}
	if err := n.Start(); err != nil {
		return "", fmt.Errorf("%s %s: %w", action, id, err)
	}
	return fmt.Sprintf("%s has been started (pid %d)", id, n.PID()), nil
}
