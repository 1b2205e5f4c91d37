package process_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// departures contains the ways in which a client may leave that has the
// connection c.
var departures = []struct {
	name  string
	leave func(t *testing.T, c *net.TCPConn)
}{
	{"closes", func(t *testing.T, c *net.TCPConn) {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}},
	{"resets", func(t *testing.T, c *net.TCPConn) {
		if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
			t.Fatal(err)
		}
	}},
	{"is killed", func(t *testing.T, c *net.TCPConn) {
		// The process that is killed is the last to have the socket.
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		client := exec.Command("sleep", "600")
		client.ExtraFiles = []*os.File{f}
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), c.Close(), client.Process.Kill()); err != nil {
			t.Fatal(err)
		}
		_ = client.Wait() // returns that the process was killed
	}},
}

// TestDeparted checks that a client that leaves while it waits gets neither a lock
// nor an element, however much it has sent behind its command. The next client
// gets the lock or the element as soon as there is one.
func TestDeparted(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1})
	n := c.Nodes[0]
	startListening(t, n)
	for _, size := range []int{0, 2 << 20, 40 << 20, 100 << 20} {
		for i, d := range departures {
			t.Run(fmt.Sprintf("%d MiB %s", size>>20, d.name), func(t *testing.T) {
				key := fmt.Sprint("key:", size, ":", i)
				acquire := []string{"LOCK", "ACQUIRE", key + ":lock", "second", "PX", "600000", "WAIT", "600000"}
				departed(t, n, key+":lock", size, d.leave, acquire, func() {
					token := strings.TrimPrefix(do(t, n, "LOCK", "TOKEN", key+":lock"), "(integer) ")
					want(t, n, "(integer) 1", "LOCK", "RELEASE", key+":lock", "first", token)
				})
				departed(t, n, key+":list", size, d.leave, []string{"BLPOP", key + ":list", "0"}, func() {
					want(t, n, "(integer) 1", "RPUSH", key+":list", "x")
				})
				read := []string{"XREAD", "BLOCK", "0", "STREAMS", key + ":stream", "0"}
				departed(t, n, key+":stream", size, d.leave, read, func() {
					want(t, n, "1-1", "XADD", key+":stream", "1-1", "field", "value")
				})
			})
		}
	}
	_, metrics := fetch(t, n, "/metrics")
	if reason := `holdfast_client_refused_total{reason="waiting_input"} `; !strings.Contains(metrics, reason) {
		t.Errorf("/metrics lacks %s", reason)
	}
}

// departed lets one client wait in a command, send size more bytes and leave, while
// another client waits in the same command. Then serve ends the wait of a client,
// which must be the one that has stayed.
func departed(t *testing.T, n *process.Node, key string, size int, leave func(*testing.T, *net.TCPConn),
	command []string, serve func(),
) {
	t.Helper()
	if command[0] == "LOCK" {
		if got := do(t, n, "LOCK", "ACQUIRE", key, "first", "PX", "600000"); !strings.HasPrefix(got, "(integer) ") {
			t.Fatalf("LOCK ACQUIRE of a free lock: %q", got)
		}
	}
	blocked := func(count int) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprint(count, " clients to wait"), func() bool { return blockedOn(t, n) == count })
	}
	leaves := dialTCP(t, n.Clients, string(respwire.AppendCommand(nil, command...))).(*net.TCPConn)
	blocked(1)
	if command[0] == "LOCK" {
		command[3] = "third"
	}
	stays := dial(t, n)
	if err := stays.Send(command); err != nil {
		t.Fatal(err)
	}
	blocked(2)
	if size > 0 {
		const ping = "PING\r\n"
		_, _ = leaves.Write([]byte(strings.Repeat(ping, size/len(ping)))) // fails if the node closes the connection
	}
	leave(t, leaves)
	blocked(1)
	began := time.Now()
	serve()
	v, err := stays.Receive()
	if err != nil || v.String() == "(nil)" {
		t.Fatalf("the client that stayed got %v, %v", v, err)
	}
	t.Logf("%s: served %v after the end of the lock or the arrival of the element", command[0], time.Since(began))
	stays.Close()
}
