package process_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestMaxMemory feeds 300 MB to nodes with --maxmemory 128mb, which take snapshots
// meanwhile. No node may take 320 MB at any time, and none may end.
func TestMaxMemory(t *testing.T) {
	const limit = 320 << 20
	c := startCluster(t, "--maxmemory", "128mb", "--snapshot-bytes", "32mb")
	var sum feedResult
	for _, part := range []struct{ size, total int }{{1 << 10, 60 << 20}, {100 << 10, 240 << 20}} {
		var wg sync.WaitGroup
		const clients = 6
		for i := range clients {
			wg.Go(func() {
				n := c.Nodes[i%len(c.Nodes)]
				got, err := feedValues(n, fmt.Sprint(part.size, ":", i), part.size, part.total/part.size/clients)
				if err != nil {
					t.Errorf("feed %s: %v", n.ID, err)
				}
				sum.add(got)
			})
		}
		wg.Wait()
	}
	if sum.stored == 0 || sum.refused == 0 {
		t.Errorf("%d values stored, %d refused", sum.stored, sum.refused)
	}
	for _, n := range c.Nodes {
		peak, err := peakResident(n)
		if err != nil {
			t.Fatalf("%s: %v", n.ID, err)
		}
		t.Logf("%s: %d MB at most", n.ID, peak>>20)
		if peak > limit {
			t.Errorf("%s took %d bytes of memory, more than %d", n.ID, peak, limit)
		}
		if got := gauge(t, n, "holdfast_dataset_bytes"); got < 120<<20 || got > 136<<20 {
			t.Errorf("%s counts %v bytes", n.ID, got)
		}
	}
	conn := dial(t, c.Nodes[0])
	if _, err := conn.Do("SET", "more", "v"); err == nil || !strings.HasPrefix(err.Error(), "OOM command not allowed") {
		t.Errorf("SET: %v", err)
	}
	if _, err := conn.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	want(t, c.Nodes[1], "OK", "SET", "more", "v")
}

// feedResult counts the replies to commands that store values.
type feedResult struct {
	mu              sync.Mutex
	stored, refused int
}

func (r *feedResult) add(o *feedResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.refused = r.stored+o.stored, r.refused+o.refused
}

// feedValues stores a number of values of a size, in pipelines of about 256 KB.
func feedValues(n *process.Node, prefix string, size, count int) (*feedResult, error) {
	sum := &feedResult{}
	conn, err := dialAddr(n.Clients, replyLimit)
	if err != nil {
		return sum, err
	}
	defer conn.Close()
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	for i := 0; i < count; {
		sent := min(max(256<<10/size, 1), count-i)
		for range sent {
			if err := conn.Send("SET", prefix+":"+strconv.Itoa(i), value); err != nil {
				return sum, err
			}
			i++
		}
		if err := conn.Flush(); err != nil {
			return sum, err
		}
		for range sent {
			var refused redis.Error
			switch _, err := conn.Receive(); {
			case err == nil:
				sum.stored++
			case errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "OOM command not allowed"):
				sum.refused++
			default:
				return sum, err
			}
		}
	}
	return sum, nil
}

// peakResident returns the largest resident set that the process of a node has
// had, in bytes.
func peakResident(n *process.Node) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not report VmHWM")
}
