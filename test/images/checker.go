package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// job is one image to check, and the promise that must hold on it.
type job struct {
	image   *image
	promise *promise
	spec    spec
	about   string // the recording and the step that the image comes from
	control bool   // true if the image comes from a disk that ignores fsync, so that a check should fail
}

// verdict is the result of a job.
type verdict struct {
	refused    []string // for each node that did not start, the last line that it printed
	violations []string
	checks     int
	took       time.Duration
}

func (v *verdict) violate(format string, args ...any) {
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// want counts a check, and records a violation if ok is false.
func (v *verdict) want(ok bool, format string, args ...any) {
	v.checks++
	if !ok {
		v.violate(format, args...)
	}
}

// checker starts nodes on images, one image at a time. Several checkers run at
// the same time, with separate ports and processes.
type checker struct {
	dir      string
	program  string
	clusters map[string]*process.Cluster // by kind of cluster
}

func newChecker(dir, program string) *checker {
	return &checker{dir: dir, program: program, clusters: make(map[string]*process.Cluster)}
}

// startLimit is how long a cluster may take until it serves on an image. It is
// long because the machine may be busy.
const startLimit = 30 * time.Second

func (j *checker) cluster(sp spec) (*process.Cluster, error) {
	if c := j.clusters[sp.name]; c != nil {
		return c, nil
	}
	beat := "25ms"
	if sp.nodes > 1 {
		beat = "150ms"
	}
	args := append([]string{"--heartbeat-timeout", beat, "--disk-stall-timeout", "30s"}, sp.args...)
	c, err := process.New(process.Config{Program: j.program,
		Dir: filepath.Join(j.dir, strings.ReplaceAll(sp.name, " ", "-")), Nodes: sp.nodes, Args: args})
	if err == nil {
		j.clusters[sp.name] = c
	}
	return c, err
}

// try starts nodes on an image and checks it. An error means that the image
// could not be checked.
func (j *checker) try(ctx context.Context, t *job) (*verdict, error) {
	begun := time.Now()
	c, err := j.cluster(t.spec)
	if err != nil {
		return nil, err
	}
	for i, n := range c.Nodes {
		for _, old := range []string{n.Dir, n.LogFile} {
			if err := os.RemoveAll(old); err != nil {
				return nil, err
			}
		}
		if err := t.image.dirs[i].save(n.Dir); err != nil {
			return nil, fmt.Errorf("write image: %w", err)
		}
	}
	v := &verdict{}
	err = j.examine(ctx, c, t, v)
	err = errors.Join(err, c.Close())
	v.took = time.Since(begun)
	return v, err
}

func (j *checker) examine(ctx context.Context, c *process.Cluster, t *job, v *verdict) error {
	if err := c.Start(); err != nil {
		return err
	}
	leader, err := j.serving(ctx, c, v)
	if err != nil || leader == nil {
		return err
	}
	state, err := leader.State()
	if err != nil {
		v.violate("the leader does not answer: %v", err)
		return nil
	}
	v.want(state.Term > t.promise.led, "a node leads term %d, but term %d had a leader before",
		state.Term, t.promise.led)
	for i, n := range c.Nodes {
		s, err := n.State()
		v.want(err == nil && s.Term >= t.promise.terms[i], "%s is in term %d (%v), but was in term %d before", n.ID,
			s.Term, err, t.promise.terms[i])
	}
	conn, err := respwire.Connect(leader.Clients, ioTimeout)
	if err != nil {
		v.violate("the leader does not accept clients: %v", err)
		return nil
	}
	defer conn.Close()
	if err := t.promise.check(conn, v); err != nil {
		v.violate("cannot read the acknowledged data: %v", err)
	}
	for _, n := range c.Nodes {
		for _, line := range complaints.FindAllString(n.Output(), -1) {
			// raft logs an error when a peer is not up yet, and when it
			// loses an election. Neither is a violation.
			if !strings.Contains(line, "raft: failed to ") && !strings.Contains(line, "raft: peer has newer term") {
				v.violate("%s says: %s", n.ID, line)
			}
		}
	}
	return nil
}

// complaints matches lines of a node's log that a loss of power does not
// explain.
var complaints = regexp.MustCompile(`(?m)^.*(\[ERROR\]|panic:|is corrupt).*$`)

// serving waits until the nodes serve, and returns the leader. If a node ends
// by itself, it has refused the image. If the nodes do not serve, serving adds
// violations to v and returns nil.
func (j *checker) serving(ctx context.Context, c *process.Cluster, v *verdict) (*process.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	gone, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errEnded := errors.New("a node ended")
	for _, n := range c.Nodes {
		go func() {
			for gone.Err() == nil {
				if _, err := n.Wait(50 * time.Millisecond); err == nil {
					stop(errEnded)
				}
			}
		}()
	}
	var leader *process.Node
	var err error
	if len(c.Nodes) == 1 {
		leader, err = c.Leader(gone)
	} else {
		leader, err = c.Settled(gone)
	}
	if err == nil {
		return leader, nil
	}
	for _, n := range c.Nodes {
		if !n.Running() {
			words := lastLine(n.Output())
			v.refused = append(v.refused, words)
			v.violate("%s did not start: %s", n.ID, words)
		}
	}
	if len(v.refused) == 0 {
		if ctx.Err() == nil {
			return nil, err
		}
		for _, n := range c.Nodes {
			v.violate("%s does not serve after %v: %s", n.ID, startLimit, lastLine(n.Output()))
		}
	}
	return nil, nil
}

// lastLine returns the last line that a node has printed.
func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

// check reads all promised keys over the connection conn and compares them with
// the promise. It then tries to take a lock of another client, and to get a
// fencing token.
func (pr *promise) check(conn *respwire.Conn, v *verdict) error {
	var sent []string
	var cmds [][]string
	for _, s := range pr.connections {
		for _, key := range s.connection.keys() {
			cmd := []string{"GET", key}
			if strings.HasSuffix(key, ":l") {
				cmd = []string{"LRANGE", key, "0", "-1"}
			}
			cmds, sent = append(cmds, cmd), append(sent, key)
		}
	}
	if err := conn.Send(append(cmds, []string{"GET", fenceKey})...); err != nil {
		return err
	}
	there := make(state)
	for _, key := range sent {
		text, found, err := receive(conn)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if found {
			there[key] = text
		}
	}
	reply, err := respwire.NoError(conn.Receive())
	if err != nil {
		return err
	}
	fence := int64(0)
	if !reply.Null {
		if fence, err = strconv.ParseInt(reply.Text, 10, 64); err != nil {
			return err
		}
	}
	v.want(fence >= pr.fence, "fencing token %d was issued, but the next token would be %d", pr.fence, fence+1)
	for _, s := range pr.connections {
		s.compare(there, v)
	}
	// The locks of dead clients must still be held, and fencing tokens must
	// continue to grow.
	for key, owner := range there {
		if !strings.Contains(key, ":lock") {
			continue
		}
		got, err := conn.Do("SET", key, "intruder", "NX", "PX", strconv.Itoa(lockMs))
		v.want(err == nil && got.Null, "another client got lock %s of %s (%v, %v)", key, owner, got, err)
		left, err := conn.Do("PTTL", key)
		v.want(err == nil && left.Int > 0 && left.Int <= lockMs, "lock %s has %v ms to live (%v)", key, left, err)
		break // one lock is enough, because many images are checked
	}
	next, err := conn.Do("INCR", fenceKey)
	v.want(err == nil && next.Int > pr.fence, "the next fencing token is %v (%v), but %d was issued", next, err,
		pr.fence)
	return nil
}

// receive reads the value of a key. It returns a list as a text of its
// elements, separated by blanks.
func receive(conn *respwire.Conn) (text string, found bool, err error) {
	reply, err := respwire.NoError(conn.Receive())
	switch {
	case err != nil:
		return "", false, err
	case reply.Kind == '*':
		return strings.Join(reply.Texts(), " "), len(reply.Elems) > 0, nil
	}
	return reply.Text, !reply.Null, nil
}

// compare compares there, the state that was read from the node, with the promised
// states. If the state equals none of them, compare adds a violation to v.
func (p promised) compare(there state, v *verdict) {
	keys := p.connection.keys()
	why := ""
	for _, st := range p.states {
		bad := ""
		for _, key := range keys {
			got, ok := there[key]
			want, should := st[key]
			if ok != should || got != want {
				bad = fmt.Sprintf("%s holds %.60q (%v) instead of %.60q (%v)", key, got, ok, want, should)
				break
			}
		}
		if bad == "" {
			v.checks += len(keys)
			return
		}
		if why == "" {
			why = bad
		}
	}
	v.checks += len(keys)
	v.violate("connection %s: an acknowledged state is missing: %s", p.connection.name, why)
}
