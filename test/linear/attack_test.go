package linear

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/test/process"
)

var (
	length = flag.Duration("length", 20*time.Second, "how long the cluster is attacked")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the faults and of the clients' choices")
)

const (
	clients   = 6
	lockers   = 4
	keysAlive = 4
	opsPerKey = 150 // porcupine's work grows fast with the length of a history
	open      = int64(1) << 62
	lockTTL   = 700 * time.Millisecond
)

// TestAttack kills, pauses and restarts nodes under load and checks the history.
func TestAttack(t *testing.T) {
	t.Logf("seed %d; again with: go test ./test/linear -run TestAttack -seed %d", *seed, *seed)
	a := start(t)
	faults := a.faults(t.Context())
	a.finish()
	a.check(faults)
}

// TestAttack_Control reads locally, as READONLY allows: what is stale then must
// be caught, or the checks prove nothing.
func TestAttack_Control(t *testing.T) {
	a := start(t, "READONLY")
	a.pause(3 * time.Second)
	a.finish()
	if got := porcupine.CheckOperationsTimeout(register, a.history, 60*time.Second); got != porcupine.Illegal {
		t.Errorf("history of %d commands with stale reads is %v, want %v", len(a.history), got, porcupine.Illegal)
	}
}

// start starts a cluster and its clients, which send a command first on every
// connection if one is given.
func start(t *testing.T, first ...string) *attack {
	dir, err := os.MkdirTemp("", "holdfast-linear")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := process.New(process.Config{Program: binary, Dir: dir, Args: []string{"--leader-wait", "2s", "--resolve-wait", "10s"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &attack{t: t, c: c, begun: time.Now(), stop: make(chan struct{}), first: first, errors: make(map[string]int)}
	t.Cleanup(func() {
		a.finish()
		if err := c.Close(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
		if t.Failed() {
			t.Logf("data and logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		a.wg.Add(1)
		go a.client(i)
	}
	for i := range lockers {
		a.wg.Add(1)
		go a.locker(i)
	}
	return a
}

// finish stops the clients and waits for them.
func (a *attack) finish() {
	a.once.Do(func() { close(a.stop) })
	a.wg.Wait()
}

type attack struct {
	t     *testing.T
	c     *process.Cluster
	begun time.Time
	stop  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	first []string

	mu      sync.Mutex
	history []porcupine.Operation
	holds   []hold
	used    int // commands on the present generation of keys
	refused int
	unknown int
	expired int // locks whose owner let them run out
	errors  map[string]int
}

func (a *attack) now() time.Duration { return time.Since(a.begun) }

func (a *attack) stopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// pause waits for d or the end, and reports whether it is not the end.
func (a *attack) pause(d time.Duration) bool {
	select {
	case <-a.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// faults attacks until the length is over, then heals, and counts what it did.
func (a *attack) faults(ctx context.Context) map[string]int {
	rng := rand.New(rand.NewPCG(*seed, 1))
	done := make(map[string]int)
	must := func(err error) {
		if err != nil {
			a.t.Error(err)
		}
	}
	wait := func(d time.Duration) { // faults last their time whatever happens
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	for a.now() < *length && !a.t.Failed() {
		leader, err := a.c.Leader(ctx)
		if err != nil {
			a.t.Error(err)
			break
		}
		victim := leader
		if rng.IntN(3) == 0 {
			victim = a.c.Nodes[rng.IntN(len(a.c.Nodes))]
		}
		role := "follower"
		if victim == leader {
			role = "leader"
		}
		length := time.Duration(100+rng.IntN(1500)) * time.Millisecond
		switch kind := rng.IntN(4); kind {
		case 0, 1:
			done["kill -9 of the "+role]++
			must(victim.Kill())
			wait(length / 2)
			must(victim.Start())
		case 2:
			done["pause of the "+role]++
			must(victim.Signal(syscall.SIGSTOP))
			wait(length)
			must(victim.Signal(syscall.SIGCONT))
		case 3: // the leader and one more: no majority
			done["pause of the leader, kill -9 of a follower"]++
			other := a.c.Nodes[rng.IntN(len(a.c.Nodes))]
			must(leader.Signal(syscall.SIGSTOP))
			if other != leader {
				must(other.Kill())
			}
			wait(length / 2)
			must(leader.Signal(syscall.SIGCONT))
			if other != leader {
				must(other.Start())
			}
		}
		// At least a majority is back before the next blow, and has some traffic.
		if _, err := a.c.Settled(ctx); err != nil {
			a.t.Error(err)
		}
		wait(time.Duration(rng.IntN(600)) * time.Millisecond)
	}
	return done
}

// dial connects to the node, or to another one while that is down.
func (a *attack) dial(i int) redis.Conn {
	for !a.stopped() {
		n := a.c.Nodes[i%len(a.c.Nodes)]
		c, err := redis.Dial("tcp", n.Clients, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(15*time.Second))
		if err == nil && len(a.first) > 0 {
			_, err = c.Do(a.first[0])
		}
		if err == nil {
			return c
		}
		i++
		a.pause(20 * time.Millisecond)
	}
	return nil
}

// definite reports whether an error says for certain that nothing was done.
func definite(err error) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.HasPrefix(string(e), "CLUSTERDOWN ")
}

// kindOf is an error without the addresses in it.
func kindOf(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 && strings.Contains(text, "tcp") {
		return text[i+2:]
	}
	return text
}

// client runs random commands on a few keys.
func (a *attack) client(id int) {
	defer a.wg.Done()
	rng := rand.New(rand.NewPCG(*seed, uint64(100+id)))
	conn := a.dial(id)
	for n := 0; conn != nil && !a.stopped(); n++ {
		a.mu.Lock()
		a.used++
		key := fmt.Sprintf("k%d-%d", a.used/(keysAlive*opsPerKey), rng.IntN(keysAlive))
		a.mu.Unlock()
		in := op{key: key, kind: [...]string{"set", "setnx", "setnx", "get", "get", "get", "getset", "del", "cad"}[rng.IntN(9)], arg: fmt.Sprintf("v%d-%d", id, n)}
		if in.kind == "cad" {
			in.arg = fmt.Sprintf("v%d-%d", rng.IntN(clients), max(n-rng.IntN(6), 0))
		}
		if again := a.do(conn, id, in); !again {
			conn.Close()
			if conn = a.dial(id + n); conn == nil {
				return
			}
		}
		if !a.pause(time.Duration(rng.IntN(8)) * time.Millisecond) {
			break
		}
	}
	if conn != nil {
		conn.Close()
	}
}

// do runs one command and notes it; it reports whether the connection still
// works. A client whose command's outcome is open goes on under another name:
// to porcupine a client does one thing at a time.
func (a *attack) do(conn redis.Conn, id int, in op) bool {
	var args []any
	switch in.kind {
	case "get", "del":
		args = []any{in.key}
	default:
		args = []any{in.key, in.arg}
	}
	name := map[string]string{"cad": "DELIFEQ"}[in.kind]
	if name == "" {
		name = in.kind
	}
	call := int64(a.now())
	reply, err := conn.Do(name, args...)
	ret := int64(a.now())
	out := outcome{known: err == nil}
	switch r := reply.(type) {
	case nil:
		out.null = err == nil
	case int64:
		out.n = r
	case []byte:
		out.value = string(r)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
	case definite(err):
		a.refused++
		return true // it did not happen
	default:
		a.errors[kindOf(err)]++
		if in.kind == "get" {
			return false // a read that was not answered says nothing
		}
		a.unknown++
		ret = open
		id += 1000 + len(a.history)
	}
	a.history = append(a.history, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: ret})
	var e redis.Error
	return err == nil || errors.As(err, &e)
}

// locker takes one lock again and again, holds it for a while, sometimes renews
// it, and gives it back or lets it run out.
func (a *attack) locker(id int) {
	defer a.wg.Done()
	rng := rand.New(rand.NewPCG(*seed, uint64(200+id)))
	conn := a.dial(id)
	for n := 0; conn != nil && !a.stopped(); n++ {
		h := hold{lock: fmt.Sprintf("lock:%d", rng.IntN(3)), token: fmt.Sprintf("t%d-%d", id, n), ttl: lockTTL}
		h.called = a.now()
		reply, err := conn.Do("SET", h.lock, h.token, "NX", "PX", h.ttl.Milliseconds())
		h.granted = a.now()
		var e redis.Error
		if err != nil && !errors.As(err, &e) {
			conn.Close()
			conn = a.dial(id + n)
			continue
		}
		if err != nil || reply == nil {
			a.pause(time.Duration(1+rng.IntN(20)) * time.Millisecond)
			continue
		}
		if rng.IntN(3) == 0 {
			a.pause(lockTTL / 2)
			sent := a.now()
			reply, err := redis.String(conn.Do("SET", h.lock, h.token, "IFEQ", h.token, "PX", h.ttl.Milliseconds()))
			if err == nil && reply == "OK" {
				h.renewed = sent
			}
		}
		a.pause(time.Duration(rng.IntN(900)) * time.Millisecond)
		if rng.IntN(3) > 0 {
			h.released = a.now()
			if _, err := conn.Do("DELIFEQ", h.lock, h.token); err != nil && !errors.As(err, &e) {
				conn.Close()
				conn = a.dial(id + n)
			}
		}
		a.mu.Lock()
		a.holds = append(a.holds, h)
		if h.released == 0 {
			a.expired++
		}
		a.mu.Unlock()
	}
	if conn != nil {
		conn.Close()
	}
}

func (a *attack) check(faults map[string]int) {
	t := a.t
	total := 0
	for kind, n := range faults {
		t.Logf("%3d × %s", n, kind)
		total += n
	}
	t.Logf("%d commands (%d of unknown outcome), %d certainly refused, %d grants of locks (%d left to run out), errors: %v", len(a.history), a.unknown, a.refused, len(a.holds), a.expired, a.errors)
	if total == 0 || len(a.history) < 50*total || len(a.holds) == 0 {
		t.Errorf("%d faults, %d commands, %d grants: too little to prove anything", total, len(a.history), len(a.holds))
	}
	for _, bad := range overlaps(a.holds) {
		t.Errorf("two owners: %s", bad)
	}
	result, info := porcupine.CheckOperationsVerbose(register, a.history, 60*time.Second)
	if result != porcupine.Ok {
		path := os.TempDir() + "/holdfast-linear.html"
		if err := porcupine.VisualizePath(register, info, path); err != nil {
			t.Error(err)
		}
		t.Errorf("history is %v, drawn in %s", result, path)
	}
}
