package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// node is one node of the cluster under attack, behind its proxies.
type node struct {
	*process.Node
	clients, peers *front
	clock          string // file that controls its test clocks
	data           string // data directory, as the process of the node sees it
	files          string // data directory, as this process sees it
	disk           *disk  // nil if the data is on the machine's own disk

	mu sync.Mutex
	// wanted reports that the process should be running. mayEnd reports that
	// the process may end by itself. If a process ends while wanted is true and
	// mayEnd is false, it has crashed.
	wanted, mayEnd bool
	paused         bool
}

// state is the node's own state: the reply to HOLDFAST STATUS LOCAL.
type state struct {
	ID         string `json:"id"`
	Role       string `json:"role"`
	Leader     string `json:"leader"`
	Term       uint64 `json:"term"`
	Commit     uint64 `json:"commit_index"`
	Applied    uint64 `json:"applied_index"`
	StateIndex uint64 `json:"state_index"`
	StateHash  string `json:"state_hash"`
	Voter      bool   `json:"voter"`
	Ready      bool   `json:"ready"`
	Reachable  bool   `json:"reachable"`
	// Features is the highest feature version that the program of the node
	// knows, or 0 if the node does not report it. FeatureVersion is the feature
	// version of the cluster.
	Features       int `json:"features"`
	FeatureVersion int `json:"feature_version"`
}

// ask sends an admin command directly to the node, not through its proxies.
func (n *node) ask(ctx context.Context, timeout time.Duration, args ...string) (string, error) {
	c, err := load.Dial(ctx, n.Clients, Login, timeout)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.ID, err)
	}
	v, err := c.Do(append([]string{"HOLDFAST"}, args...)...)
	if err == nil && v.Err != "" {
		err = errors.New(v.Err)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return "", fmt.Errorf("%s: %s: %w", n.ID, strings.Join(args, " "), err)
	}
	return v.Text, nil
}

// state asks the node for its own state.
func (n *node) state(ctx context.Context) (state, error) {
	text, err := n.ask(ctx, 500*time.Millisecond, "STATUS", "LOCAL")
	if err != nil {
		return state{}, err
	}
	var all []state
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		return state{}, fmt.Errorf("%s: status %q: want one node, error %v", n.ID, text, err)
	}
	return all[0], nil
}

// start starts the process and opens the proxies.
func (n *node) start(extra ...string) error { return n.launch(false, extra...) }

// launch does the same as start. If mayEnd is true, the process may end by
// itself from the beginning.
func (n *node) launch(mayEnd bool, extra ...string) error {
	n.mu.Lock()
	n.wanted, n.mayEnd, n.paused = false, mayEnd, false
	n.mu.Unlock()
	args := append([]string{"--data-dir", n.data, "--test-clock", n.clock}, extra...)
	if err := n.Start(args...); err != nil {
		return err
	}
	n.mu.Lock()
	n.wanted = true // set after Start, because until then there is no process that can crash
	n.mu.Unlock()
	return errors.Join(n.clients.open(), n.peers.open())
}

// kill ends the process by SIGKILL. Its ports refuse connections from then on.
func (n *node) kill() error {
	n.unwanted()
	err := n.Kill()
	n.clients.close()
	n.peers.close()
	return err
}

// stop ends the process by SIGTERM, as an operator does.
func (n *node) stop() error {
	n.unwanted()
	code, err := n.Stop(15 * time.Second)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with code %d after SIGTERM", n.ID, code)
	}
	n.clients.close()
	n.peers.close()
	return errors.Join(err, n.Kill())
}

func (n *node) unwanted() {
	n.mu.Lock()
	n.wanted, n.paused = false, false
	n.mu.Unlock()
}

// allowEnd records that the process may end by itself from now on.
func (n *node) allowEnd() {
	n.mu.Lock()
	n.mayEnd = true
	n.mu.Unlock()
}

// forbidEnd reverses allowEnd.
func (n *node) forbidEnd() {
	n.mu.Lock()
	n.mayEnd = false
	n.mu.Unlock()
}

// crashed reports whether the process has ended by itself although it should be
// running: wanted is set and mayEnd is not. It reports each crash once.
func (n *node) crashed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted || n.mayEnd || n.Running() {
		return false
	}
	n.wanted = false
	return true
}

// sigstopped reports whether SIGSTOP has stopped the process: state T.
func (n *node) sigstopped() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// setClocks sets the test clocks of the node: the offset of the wall clock, and the
// rate of the monotonic clock.
func (n *node) setClocks(wall time.Duration, rate float64) error {
	next := n.clock + ".new"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%v %g", wall, rate), 0o600); err != nil {
		return err
	}
	return os.Rename(next, n.clock)
}

// last returns the last lines of the output of the node, without the lines of
// the garbage collector.
func (n *node) last() string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(n.Output()), "\n"),
		func(l string) bool { return strings.HasPrefix(l, "gc ") })
	return strings.Join(lines[max(len(lines)-3, 0):], " | ")
}

// logSize returns the size of the node's log in bytes.
func (n *node) logSize() int64 {
	fi, err := os.Stat(n.LogFile)
	if err != nil {
		return 0 // never started
	}
	return fi.Size()
}

// electionLog returns the last lines about elections and lost leaders that the
// node has written to its log since the log had the given size.
func (n *node) electionLog(size int64) []string {
	b, err := os.ReadFile(n.LogFile)
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for l := range strings.Lines(string(b[min(size, int64(len(b))):])) {
		if aboutElections.MatchString(l) {
			lines = append(lines, n.ID+": "+strings.TrimSpace(l))
		}
	}
	return lines[max(len(lines)-maxElectionLines, 0):]
}

var aboutElections = regexp.MustCompile(`election|stepping down|state: |campaign|leadership|vote`)

// maxElectionLines is the number of lines of each node that a violation shows.
const maxElectionLines = 4

// installs counts the snapshots that the node has received from other nodes in
// place of entries, since the episode began.
func (n *node) installs() int {
	b, err := os.ReadFile(n.LogFile)
	if err != nil {
		return 0 // never started
	}
	return strings.Count(string(b), "Installed remote snapshot")
}

// wipe empties the data directory.
func (n *node) wipe() error {
	entries, err := os.ReadDir(n.files)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(n.files, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
