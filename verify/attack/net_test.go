package attack

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// behind starts a server that sends every line back, and a proxy in front of
// it.
func behind(t *testing.T) (n *network, f *front) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // ends with the connection
				c.Close()
			}()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	n = newNetwork()
	f = n.front("n1", addr, ln.Addr().String(), true)
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.shut()
		ln.Close()
	})
	return n, f
}

type line struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func connect(t *testing.T, f *front) *line {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &line{t, c, bufio.NewReader(c)}
}

// say sends a line and returns the reply, or "" if no reply arrives within the
// limit.
func (l *line) say(text string, limit time.Duration) string {
	l.t.Helper()
	if _, err := l.Write([]byte(text + "\n")); err != nil {
		return ""
	}
	if err := l.SetReadDeadline(time.Now().Add(limit)); err != nil {
		l.t.Fatal(err)
	}
	answer, err := l.r.ReadString('\n')
	if err != nil {
		return ""
	}
	return answer[:len(answer)-1]
}

func TestNetwork(t *testing.T) {
	const long, short = 10 * time.Second, 100 * time.Millisecond
	n, f := behind(t)
	c := connect(t, f)
	if got := c.say("a", long); got != "a" {
		t.Fatalf("the reply through the open proxy is %q, want \"a\"", got)
	}

	// If one direction is blocked, its bytes are not lost. They only arrive
	// later.
	lift := n.apply(func(h hop) bool { return h.toDialer }, effect{block: true})
	if got := c.say("b", short); got != "" {
		t.Errorf("the reply is %q while replies are blocked, want none", got)
	}
	if lift() == 0 {
		t.Error("the rule blocked no chunk")
	}
	if got := c.say("c", long); got != "b" {
		t.Errorf("the reply after the block is %q, want \"b\"", got)
	}

	c = connect(t, f)
	lift = n.apply(func(h hop) bool { return h.from == clientSide }, effect{delay: 200 * time.Millisecond})
	begun := time.Now()
	if got := c.say("d", long); got != "d" || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("the reply is %q after %v, want \"d\" after at least 200ms", got, time.Since(begun))
	}
	lift()

	lift = n.apply(func(h hop) bool { return h.toDialer }, effect{corrupt: true})
	spoiled := false
	for range 4 {
		spoiled = spoiled || c.say("eeeeeeee", long) != "eeeeeeee"
	}
	if lift(); !spoiled {
		t.Error("no reply was corrupted")
	}

	c = connect(t, f)
	if got := c.say("f", long); got != "f" {
		t.Errorf("the reply before the reset is %q, want \"f\"", got)
	}
	if count := n.reset(func(hop) bool { return true }); count == 0 {
		t.Error("no connection was reset")
	}
	if got := c.say("g", long); got != "" {
		t.Errorf("the reply after the reset is %q, want none", got)
	}

	f.close()
	if other, err := net.Dial("tcp", f.addr); err == nil {
		other.Close()
		t.Error("the port of a dead node accepts a connection")
	}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	if got := connect(t, f).say("h", long); got != "h" {
		t.Errorf("the reply after the proxy was opened again is %q, want \"h\"", got)
	}
}

// TestPlans checks that the same seed produces the same plans, that every class
// is chosen, and that no fault is combined with a fault of its own group.
func TestPlans(t *testing.T) {
	faults := allFaults()
	a, b := plans(7, 22, faults), plans(7, 22, faults)
	chosen := make(map[string]int)
	for i := range a {
		if a[i].String() != b[i].String() || a[i].Seed != b[i].Seed {
			t.Fatalf("episode %d differs: %v, %v", i+1, a[i], b[i])
		}
		for _, step := range a[i].Steps {
			for _, class := range step {
				chosen[class]++
				if f := find(class); f.nodes != 0 && f.nodes != a[i].Nodes {
					t.Errorf("class %s is chosen for a cluster of %d nodes", class, a[i].Nodes)
				}
			}
			if len(step) == 2 && find(step[0]).group == find(step[1]).group {
				t.Errorf("both faults of the step %v are of one group", step)
			}
		}
	}
	for _, f := range faults {
		if chosen[f.class] == 0 {
			t.Errorf("%s is not chosen in 22 episodes", f.class)
		}
	}
	if _, err := choose([]string{"meteorite"}); err == nil {
		t.Error("an unknown class is accepted")
	}
	if some, err := choose([]string{"kill -9 leader", "clock"}); err != nil || len(some) != 5 {
		t.Errorf("choose returned %v and the error %v, want 5 faults", names(some), err)
	}
}
