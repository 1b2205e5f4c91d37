package cluster_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

var (
	queueTime = flag.Duration("queue.time", 6*time.Second, "how long each TestQueue injects faults")
	queueSeed = flag.Uint64("queue.seed", 1, "seed of the faults of TestQueue")
)

// TestQueue_Partitions cuts nodes off and transfers leadership. No client dies, so
// every element whose push was acknowledged is in one reply or in a list, exactly
// once.
func TestQueue_Partitions(t *testing.T) {
	t.Parallel()
	testQueue(t, false)
}

// TestQueue_Restarts is like TestQueue_Partitions, with nodes that die. An
// element that was given to a client of a dead node may be lost. No other
// element may be lost.
func TestQueue_Restarts(t *testing.T) {
	t.Parallel()
	testQueue(t, true)
}

func testQueue(t *testing.T, restarts bool) {
	r := rand.New(rand.NewPCG(*queueSeed, 1))
	c := start(t, 3, func(o *cluster.Options) {
		o.ResolveWait = time.Hour
		o.SnapshotBytes, o.TrailingBytes = 256<<10, 1
	})
	c.mended()
	patient := &queue{c: c, name: "patient", restarts: restarts}
	hasty := &queue{c: c, name: "hasty", timeout: time.Second, restarts: restarts}
	// No element is pushed to this queue before the end, so a node that is cut
	// off always has waiters that were not served. The leader ends only the waits
	// of such waiters.
	quiet := &queue{c: c, name: "quiet", quiet: true, restarts: restarts}
	queues := []*queue{patient, hasty, quiet}
	for i, q := range queues {
		q.start(uint64(i) * 1000)
	}
	// The cut lasts long enough for the leader to end the waits of the node.
	cutOff := func(id string) {
		c.isolate(id)
		during(time.Duration(2500+r.IntN(2500)) * time.Millisecond)
		c.net.heal()
	}
	end := time.Now().Add(*queueTime)
	cutOff(c.others(c.leader())[r.IntN(2)])
	for time.Now().Before(end) {
		during(time.Duration(100+r.IntN(600)) * time.Millisecond)
		id := c.ids()[r.IntN(3)]
		fault := r.IntN(8)
		switch {
		case fault < 2:
			cutOff(id)
		case fault == 2:
			c.isolate(id)
			during(time.Duration(300+r.IntN(2000)) * time.Millisecond)
			c.net.heal()
		case fault == 3: // cut in one direction
			c.net.hold(id, c.others(id)[r.IntN(2)])
			during(time.Duration(300+r.IntN(3000)) * time.Millisecond)
			c.net.heal()
		case fault == 4:
			if err := c.node(id).TransferLeadership(id); err != nil {
				t.Logf("transfer to %s: %v", id, err) // the node may still be cut off
			}
		case fault == 5:
			if err := c.node(id).Snapshot(); err != nil {
				t.Logf("snapshot of %s: %v", id, err) // the snapshot may contain nothing new
			}
		case restarts:
			c.crash(id)
			c.open(id)
		}
	}
	c.ready(c.ids()...)
	for _, q := range queues {
		q.finish()
	}
	cl := c.client(c.leader())
	for _, q := range queues {
		q.check(cl)
	}
	c.caughtUp()
	c.forgotten()
}

// queue is a list that clients of all nodes push to and pop from, and the
// record of the replies that they received. BLMOVE moves its elements to the
// list name+":taken".
type queue struct {
	c        *testCluster
	name     string
	timeout  time.Duration // timeout of the clients that pop, 0 for none
	quiet    bool          // nothing is pushed until the end
	restarts bool

	producers, consumers sync.WaitGroup
	stopProducers, stop  chan struct{}

	mu     sync.Mutex
	pushed map[string]bool // elements whose push was acknowledged
	maybe  map[string]bool // elements whose push has an unknown outcome
	popped map[string]int
	moved  map[string]int
	unsure int // pops with an unknown outcome
}

func (q *queue) start(origin uint64) {
	q.stopProducers, q.stop = make(chan struct{}), make(chan struct{})
	q.pushed, q.maybe = map[string]bool{}, map[string]bool{}
	q.popped, q.moved = map[string]int{}, map[string]int{}
	for i, id := range q.c.ids() {
		if !q.quiet {
			q.producers.Go(func() { q.produce(id) })
		}
		for k := range 4 {
			q.consumers.Go(func() { q.consume(id, origin+uint64(10*i+k+1), k == 0) })
		}
	}
}

func (q *queue) produce(id string) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for n := 0; !closed(q.stopProducers); n++ {
		<-tick.C
		if node := q.c.members[id].running(); node != nil {
			q.push(newClient(node), fmt.Sprintf("%s-%d", id, n))
		}
	}
}

func (q *queue) push(cl *client, element string) {
	_, err := cl.do("rpush", q.name, element)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch outcome.Of(err) {
	case outcome.Executed:
		q.pushed[element] = true
	case outcome.Unknown:
		q.maybe[element] = true
	}
}

// consume pops on one connection after another until it is stopped.
func (q *queue) consume(id string, origin uint64, moves bool) {
	command := []string{"blpop", q.name, "0"}
	if moves {
		command = []string{"blmove", q.name, q.name + ":taken", "left", "right", "0"}
	}
	for !closed(q.stop) {
		node := q.c.members[id].running()
		if node == nil {
			during(10 * time.Millisecond)
			continue
		}
		origin += 10000 // a new connection
		reply, err := q.pop(&waiter{newClient(node), origin}, id, command)
		q.mu.Lock()
		switch {
		case err != nil && outcome.Of(err) != outcome.NotExecuted:
			q.unsure++
		case err == nil && reply != "":
			if lines := strings.Split(reply, "\r\n"); moves && len(lines) == 3 {
				q.moved[lines[1]]++
			} else if !moves && len(lines) == 6 {
				q.popped[lines[4]]++
			} else {
				q.c.t.Errorf("the reply to %v is %q, which has the wrong number of lines", command, reply)
			}
		}
		q.mu.Unlock()
	}
}

// pop runs a blocking command as package resp does. It returns an empty answer
// when the timeout is over.
func (q *queue) pop(w *waiter, id string, command []string) (string, error) {
	var over <-chan time.Time
	if q.timeout > 0 {
		over = time.After(q.timeout)
	}
	for {
		out, err := w.tryBlock(command)
		if _, _, waits := fsm.Waiting(out); err != nil || !waits {
			return string(out), err
		}
		out, err = q.wait(w, id, over)
		if out != nil || err != nil {
			return string(out), err
		}
		select {
		case <-over:
			return "", nil
		default: // the cluster has forgotten the wait
		}
	}
}

// wait returns the reply with which the current wait ends. It ends the wait itself
// when the channel over receives a value.
func (q *queue) wait(w *waiter, id string, over <-chan time.Time) ([]byte, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case out := <-w.s.Waited():
			return out, nil
		case <-over:
			out, err := w.s.Unblock()
			if out == nil && err == nil {
				out = []byte{}
			}
			return out, err
		case <-tick.C:
		}
		if q.c.members[id].running() != w.node { // the client has died with its node
			select {
			case out := <-w.s.Waited():
				return out, nil
			default:
				return nil, outcome.ErrUnknown
			}
		}
	}
}

// tryBlock sends a blocking command.
func (w *waiter) tryBlock(args []string) ([]byte, error) {
	w.group.Reset(2, w.origin)
	raw := respwire.Args(args...)
	w.group.Command(w.node.Table().Find(raw[0]), 0, raw)
	return w.s.Block(&w.group, w.origin, false)
}

// finish stops the clients. It pushes an element for each client that waits, so
// that the client stops waiting.
func (q *queue) finish() {
	close(q.stopProducers)
	q.producers.Wait()
	close(q.stop)
	ended := make(chan struct{})
	go func() { q.consumers.Wait(); close(ended) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * waitLimit)
	for n := 0; ; n++ {
		select {
		case <-ended:
			return
		case <-deadline:
			q.c.t.Fatalf("the clients of queue %s do not end", q.name)
		case <-tick.C:
			q.push(q.c.client(q.c.leader()), fmt.Sprintf("end-%d", n))
		}
	}
}

// check compares the record with the remaining elements.
func (q *queue) check(cl *client) {
	t := q.c.t
	found := map[string]int{}
	left := q.list(cl, q.name)
	for _, x := range left {
		found[x]++
	}
	taken := map[string]int{}
	for _, x := range q.list(cl, q.name+":taken") {
		found[x]++
		taken[x]++
	}
	for x, n := range q.popped {
		found[x] += n
	}
	for x, n := range q.moved {
		if taken[x] != n {
			t.Errorf("%s: element %s was the reply to %d moves, but the list of moved elements contains it %d times", q.name, x, n, taken[x])
		}
	}
	missing, twice := 0, 0
	for x := range q.pushed {
		if found[x] == 0 {
			missing++
			t.Logf("%s: element %s is missing", q.name, x)
		}
	}
	for x, n := range found {
		if n > 1 {
			twice++
			t.Errorf("%s: element %s was popped %d times, want at most once", q.name, x, n)
		}
		if !q.pushed[x] && !q.maybe[x] {
			t.Errorf("%s: element %s was found, but no client has pushed it", q.name, x)
		}
	}
	t.Logf("%s: %d pushes acknowledged, %d unknown, %d popped, %d moved, %d left, %d missing, %d twice, %d pops with an unknown outcome",
		q.name, len(q.pushed), len(q.maybe), len(q.popped), len(taken), len(left), missing, twice, q.unsure)
	if q.timeout == 0 && !q.restarts && q.unsure > 0 {
		t.Errorf("%s: the outcome of %d pops is not known although no client dies or stops waiting, want 0", q.name, q.unsure)
	}
	if missing > q.unsure {
		t.Errorf("%s: %d elements are missing, but only %d pops with an unknown outcome can have taken one", q.name, missing, q.unsure)
	}
}

func (q *queue) list(cl *client, key string) []string {
	var elements []string
	for i, line := range strings.Split(cl.must(q.c.t, "lrange", key, "0", "-1"), "\r\n") {
		if i > 0 && i%2 == 0 {
			elements = append(elements, line)
		}
	}
	return elements
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
