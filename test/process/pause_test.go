package process_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// pauseLength is many times the leader's lease.
const pauseLength = 5 * time.Second

// TestPause_OfTheLeader pauses the leader for seconds, as a hypervisor pauses a
// virtual machine. Meanwhile another node leads. The old leader must not use
// its old state to answer commands that it received before, during or right
// after its pause.
func TestPause_OfTheLeader(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "pause", each(3, c.Nodes)...)
	var locks []*mutex
	for i := range 3 { // the client that holds a lock may use the paused node; the other locks must stay usable
		locks = append(locks, newMutex(t, fmt.Sprintf("mutex:%d", i), c.Nodes))
	}
	r := newRegister(t, c.Nodes)
	for round := range 2 {
		leader := c.settled()
		l.progress(50)
		r.follow(c.others(leader)[0])
		// The clients must get no error, because a client of the paused node
		// only waits.
		send(t, leader, syscall.SIGSTOP)
		resume := time.NewTimer(pauseLength)
		defer resume.Stop()
		next := c.leader(leader)
		held := fmt.Sprintf("pause:held:%d", round)
		want(t, next, "OK", "SET", held, "new", "NX", "EX", "600")
		<-resume.C

		// The socket of the paused node accepts commands although the
		// process does not read them yet. The node reads them first
		// when it continues.
		low := r.acked.Load()
		var queued []*respwire.Conn
		for i := range 20 {
			conn, err := respwire.Connect(leader.Clients, replyLimit)
			if err != nil {
				t.Fatalf("connect to the paused leader: %v", err)
			}
			defer conn.Close()
			cmd := []string{"GET", r.key}
			if i%2 == 1 {
				cmd = []string{"SET", held, "old", "NX", "EX", "600"}
			}
			if err := conn.Send(cmd); err != nil {
				t.Fatalf("send to the paused leader: %v", err)
			}
			queued = append(queued, conn)
		}
		send(t, leader, syscall.SIGCONT)
		for i, conn := range queued {
			reply, err := respwire.NoError(conn.Receive())
			switch {
			case strings.HasPrefix(reply.Err, "CLUSTERDOWN"):
			case err != nil:
				t.Errorf("queued command %d: %v", i, err)
			case i%2 == 1 && !reply.Null:
				t.Errorf("queued SET NX of a lock that is held: %v", reply)
			case i%2 == 0:
				if n, err := strconv.ParseInt(reply.Text, 10, 64); err != nil || n < low {
					t.Errorf("queued GET: %v (%v), want at least %d, which was acknowledged before it was sent", n, err,
						low)
				}
			}
		}
		c.settled()
		for _, n := range c.Nodes {
			want(t, n, "new", "GET", held)
		}
		l.progress(50)
	}
	for _, m := range locks {
		m.end()
	}
	r.end()
	l.check(c.Nodes[0])
}

// mutex is a set of clients that take and release one lock. They check that no
// two of them hold it at the same time.
type mutex struct {
	t      *testing.T
	key    string
	holder atomic.Int64 // id of the client that certainly holds the lock, 0 for none
	grants atomic.Int64
	stop   chan struct{}
	wg     sync.WaitGroup
}

func newMutex(t *testing.T, key string, nodes []*process.Node) *mutex {
	t.Helper()
	m := &mutex{t: t, key: key, stop: make(chan struct{})}
	for i, n := range nodes {
		conn := dial(t, n)
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			m.contend(int64(i+1), n, conn)
		}()
	}
	t.Cleanup(m.end)
	return m
}

func (m *mutex) end() {
	select {
	case <-m.stop:
	default:
		close(m.stop)
		m.wg.Wait()
		m.t.Logf("%s granted %d times", m.key, m.grants.Load())
		if m.grants.Load() < 10 {
			m.t.Errorf("%s was granted only %d times", m.key, m.grants.Load())
		}
	}
}

func (m *mutex) contend(id int64, n *process.Node, conn *respwire.Conn) {
	t := time.NewTicker(3 * time.Millisecond)
	defer t.Stop()
	for i := 0; ; i++ {
		select {
		case <-m.stop:
			return
		case <-t.C:
		}
		token := fmt.Sprintf("%d-%d", id, i)
		reply, err := respwire.NoError(conn.Do("SET", m.key, token, "NX", "EX", "600"))
		switch {
		case strings.HasPrefix(reply.Err, "CLUSTERDOWN"):
			continue
		case err != nil:
			m.t.Errorf("lock through %s: %v", n.ID, err)
			return
		case reply.Null:
			continue
		}
		if !m.holder.CompareAndSwap(0, id) {
			m.t.Errorf("lock granted to client %d through %s while client %d held it", id, n.ID, m.holder.Load())
			return
		}
		m.grants.Add(1)
		<-t.C
		m.holder.Store(0)
		for {
			deleted := show(conn, "DELIFEQ", m.key, token)
			if strings.HasPrefix(deleted, "CLUSTERDOWN") {
				continue
			}
			if deleted != "(integer) 1" {
				m.t.Errorf("unlock through %s: %s, want 1: the lock was held", n.ID, deleted)
				return
			}
			break
		}
	}
}

// register is a number that only grows. One client writes it, and several
// clients on every node read it. No read may return less than the value that
// was acknowledged before the read was sent.
type register struct {
	t     *testing.T
	key   string
	acked atomic.Int64
	reads atomic.Int64
	next  chan *process.Node // node to write to from now on
	stop  chan struct{}
	wg    sync.WaitGroup
}

func newRegister(t *testing.T, nodes []*process.Node) *register {
	t.Helper()
	r := &register{t: t, key: "register", next: make(chan *process.Node), stop: make(chan struct{})}
	want(t, nodes[0], "OK", "SET", r.key, "0")
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		r.write(nodes[0])
	}()
	for _, n := range append(nodes, nodes...) {
		conn := dial(t, n)
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			r.read(n, conn)
		}()
	}
	t.Cleanup(r.end)
	return r
}

func (r *register) end() {
	select {
	case <-r.stop:
	default:
		close(r.stop)
		r.wg.Wait()
		r.t.Logf("register written %d times, read %d times", r.acked.Load(), r.reads.Load())
	}
}

// follow moves the writer to a node and waits until it has written there. The
// node that the writer uses now must be running.
func (r *register) follow(n *process.Node) {
	r.t.Helper()
	select {
	case r.next <- n:
	case <-time.After(replyLimit):
		r.t.Fatal("the writer of the register hangs")
	}
	from := r.acked.Load()
	if err := process.Poll(testutil.Within(r.t, replyLimit), "the register to be written",
		func() bool { return r.acked.Load() > from+20 }); err != nil {
		r.t.Fatal(err)
	}
}

// write writes the register, and changes to another node on request.
func (r *register) write(n *process.Node) {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	conn, err := respwire.Connect(n.Clients, replyLimit)
	if err != nil {
		r.t.Errorf("connect to %s: %v", n.ID, err)
		return
	}
	defer func() { conn.Close() }()
	for v := int64(1); ; v++ {
		select {
		case <-r.stop:
			return
		case n = <-r.next:
			conn.Close()
			if conn, err = respwire.Connect(n.Clients, replyLimit); err != nil {
				r.t.Errorf("connect to %s: %v", n.ID, err)
				return
			}
		case <-t.C:
		}
		if err := r.set(conn, v); err != nil {
			r.t.Errorf("write %d through %s: %v", v, n.ID, err)
			return
		}
		r.acked.Store(v)
	}
}

// set writes v if the value is v-1.
func (r *register) set(conn *respwire.Conn, v int64) error {
	reply, err := respwire.NoError(conn.Do("SET", r.key, fmt.Sprint(v), "IFEQ", fmt.Sprint(v-1)))
	if err == nil && reply.Null {
		return errors.New("the key does not have the previous value")
	}
	return err
}

func (r *register) read(n *process.Node, conn *respwire.Conn) {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
		}
		low := r.acked.Load()
		v, err := numberOf(conn, r.key)
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "CLUSTERDOWN"):
		case err != nil:
			r.t.Errorf("read through %s: %v", n.ID, err)
			return
		case v < low:
			r.t.Errorf("read %d through %s, although %d was acknowledged before", v, n.ID, low)
			return
		default:
			r.reads.Add(1)
		}
	}
}
