package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// connection is one connection of one client. The names of its keys begin with
// the name of the connection, and no other connection writes them. The
// connection sends a group of commands only after the previous group has been
// answered. So its keys hold the state after some number of its commands. This
// number is at least the number of replies.
type connection struct {
	name    string
	node    int  // the node to which the connection goes
	monitor bool // true if the connection only asks the node for its state
	cmds    []command
	groups  int // number of groups of commands that the client has sent
	got     int // number of replies that the client has read

	answers []answer // replies in the recording, in order
	partial []byte   // an incomplete reply
}

type command struct {
	args  []string
	group int // number of commands of the connection up to the end of this command's group
}

// answer is a reply and the step of the recording at which the node began to
// send it.
type answer struct {
	step  int
	reply respwire.Value
}

const (
	fenceKey  = "images:fence"
	lockMs    = 3_600_000 // no lock expires during a run
	keysOfOne = 6
	ioTimeout = 5 * time.Second
)

// work sends the given number of groups of commands. It returns earlier if stop
// is closed, if the connection ends, or if the outcome of a group is unknown.
func (s *connection) work(conn net.Conn, rng *rand.Rand, groups int, stop <-chan struct{}) error {
	c := respwire.NewConn(conn)
	c.Limit = ioTimeout
	defer c.Close()
	pace := time.Millisecond
	if s.monitor {
		pace = 30 * time.Millisecond
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	locks := 0
	for range groups {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		cmds := s.next(rng, &locks)
		upto := len(s.cmds) + len(cmds)
		for _, args := range cmds {
			s.cmds = append(s.cmds, command{args, upto})
		}
		s.groups++
		if err := c.Send(cmds...); err != nil {
			return err
		}
		for range cmds {
			reply, err := c.Receive()
			if err != nil {
				return err
			}
			s.got++
			if strings.HasPrefix(reply.Err, "UNKNOWN") {
				return respwire.ErrorReply(reply.Err) // the group may run later: never use the keys again
			}
		}
	}
	return nil
}

// next returns the next group of commands.
func (s *connection) next(rng *rand.Rand, locks *int) [][]string {
	if len(s.cmds) == 0 {
		return [][]string{{"ECHO", s.name}} // the ECHO names the connection in the recording
	}
	if s.monitor {
		return [][]string{{"INFO", "holdfast"}}
	}
	key := func() string { return fmt.Sprintf("%s:k%d", s.name, rng.IntN(keysOfOne)) }
	value := func() string {
		unit := fmt.Sprintf("%s/%d/%d ", s.name, len(s.cmds), rng.IntN(1000))
		n := 1 + rng.IntN(20)
		if rng.IntN(6) == 0 {
			n = 1 + rng.IntN(400)
		}
		return strings.Repeat(unit, n)
	}
	single := func() []string {
		switch rng.IntN(8) {
		case 0:
			return []string{"INCR", s.name + ":n"}
		case 1:
			return []string{"RPUSH", s.name + ":l", strconv.Itoa(len(s.cmds)) + "." + strconv.Itoa(rng.IntN(1000))}
		case 2:
			return []string{"DEL", key()}
		case 3:
			return []string{"SET", key(), value(), "NX"}
		}
		return []string{"SET", key(), value()}
	}
	switch rng.IntN(8) {
	case 0:
		var cmds [][]string
		for range 2 + rng.IntN(6) {
			cmds = append(cmds, single())
		}
		return cmds
	case 1:
		*locks++
		return [][]string{{"MULTI"},
			{"SET", fmt.Sprintf("%s:lock%d", s.name, *locks), s.name, "NX", "PX", strconv.Itoa(lockMs)},
			{"INCR", fenceKey}, {"EXEC"}}
	case 2:
		if *locks > 0 {
			return [][]string{{"DELIFEQ", fmt.Sprintf("%s:lock%d", s.name, 1+rng.IntN(*locks)), s.name}}
		}
	}
	return [][]string{single()}
}

// state maps the keys of a connection to their values. The value of a list is a
// text of its elements, separated by blanks.
type state map[string]string

// run executes one command, unless its key belongs to another connection.
func (st state) run(s *connection, args []string) {
	key := args[1]
	if !s.owns(key) {
		return
	}
	old, there := st[key]
	switch args[0] {
	case "SET":
		if there && len(args) > 3 && args[3] == "NX" {
			return
		}
		st[key] = args[2]
	case "DEL":
		delete(st, key)
	case "DELIFEQ":
		if old == args[2] {
			delete(st, key)
		}
	case "INCR":
		n, _ := strconv.Atoi(old) // "" counts as 0
		st[key] = strconv.Itoa(n + 1)
	case "RPUSH":
		st[key] = strings.TrimSpace(old + " " + args[2])
	}
}

// states returns the states that the connection's keys may have at a step of
// the recording. In each of these states, at least the answered commands have
// been executed, except for refused ones. acked is the number of answered commands.
func (s *connection) states(step int) (all []state, acked int) {
	for acked < len(s.answers) && s.answers[acked].step <= step {
		acked++
	}
	upto := acked
	if acked < len(s.cmds) {
		upto = s.cmds[acked].group
	}
	st := make(state)
	var queue [][]string
	multi := false
	for i := 0; ; i++ {
		if i >= acked {
			all = append(all, st.copy())
		}
		if i >= upto {
			return all, acked
		}
		if i < len(s.answers) && s.answers[i].reply.Err != "" && !strings.HasPrefix(s.answers[i].reply.Err, "UNKNOWN") {
			continue // refused: not executed
		}
		switch args := s.cmds[i].args; {
		case args[0] == "MULTI":
			multi, queue = true, nil
		case args[0] == "EXEC":
			multi = false
			for _, q := range queue {
				st.run(s, q)
			}
		case multi:
			queue = append(queue, args)
		default:
			st.run(s, args)
		}
	}
}

func (st state) copy() state {
	out := make(state, len(st))
	for k, v := range st {
		out[k] = v
	}
	return out
}

// owns reports whether a key belongs to the connection.
func (s *connection) owns(key string) bool { return strings.HasPrefix(key, s.name+":") }

// keys returns all keys that the connection ever wrote.
func (s *connection) keys() (keys []string) {
	seen := make(map[string]bool)
	for _, c := range s.cmds {
		if len(c.args) > 1 && s.owns(c.args[1]) && !seen[c.args[1]] {
			seen[c.args[1]] = true
			keys = append(keys, c.args[1])
		}
	}
	return keys
}

// sent adds the data that the node began to send to the client at a step.
func (s *connection) sent(step int, data []byte) error {
	s.partial = append(s.partial, data...)
	for len(s.partial) > 0 {
		v, rest, err := respwire.Parse(s.partial)
		if errors.Is(err, respwire.ErrIncomplete) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.partial = rest
		s.answers = append(s.answers, answer{step, v})
	}
	return nil
}

// clientLoad runs the clients of a recording.
type clientLoad struct {
	mu          sync.Mutex
	connections []*connection
	wg          sync.WaitGroup
	stop        chan struct{}
}

// enter connects a client to a node. When a connection ends, the client starts a
// new one, until leave is called or the client has sent enough groups.
func (c *clientLoad) enter(node int, addr string, monitor bool, seed uint64, groups int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		for groups > 0 {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err == nil {
				s := c.add(&connection{node: node, monitor: monitor})
				if err = s.work(conn, rng, groups, c.stop); err == nil {
					return
				}
				groups -= s.groups
			}
			select { // wait, because the node may be dead or may know no leader
			case <-c.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

func (c *clientLoad) add(s *connection) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.name = fmt.Sprintf("s%d", len(c.connections)+1000)
	c.connections = append(c.connections, s)
	return s
}

// leave ends all clients, and waits until they have ended.
func (c *clientLoad) leave() {
	close(c.stop)
	c.wg.Wait()
	c.stop = make(chan struct{})
}
