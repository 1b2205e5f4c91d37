package pubsub

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// letIn returns how often a goroutine that wakes every 50 µs runs while work
// does, on a single processor.
func letIn(work func()) (ran int64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ticker := time.NewTicker(50 * time.Microsecond)
	defer ticker.Stop()
	var n atomic.Int64
	ended, stopped, begun := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		close(begun)
		for {
			select {
			case <-ticker.C:
				n.Add(1)
			case <-ended:
				return
			}
		}
	}()
	<-begun
	before := n.Load()
	work()
	ran = n.Load() - before
	close(ended)
	<-stopped
	return ran
}

// TestHub_Yields checks that a connection with many topics lets other
// goroutines run while it joins and leaves them, even if the node has a single
// processor. Without yields, the other goroutine runs when the scheduler
// preempts the connection, about every 10 ms. With yields, it runs several
// hundred times in most of the steps; the test allows for a faster machine.
func TestHub_Yields(t *testing.T) {
	const topics = 50_000
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("news.%d.%d", i%1000, i)
	}
	raw := args(names)
	h := newTestHub()
	c := NewSubscriber(1, mute{})
	slow := make([]string, 2000)
	for i := range slow {
		slow[i] = strings.Repeat("?*a", 20) + fmt.Sprint("*[b]", i)
	}
	var fresh []string
	for _, step := range []struct {
		name string
		want int64
		work func()
	}{
		{"find new topics", 15, func() { fresh, _ = c.Fresh(Patterns, raw) }},
		{"join", 15, func() { h.Subscribe(c, Patterns, fresh, 0) }},
		{"sort", 15, func() { fresh = c.Names(Patterns) }},
		{"leave by name", 15, func() { h.Unsubscribe(c, Patterns, fresh) }},
		{"join again", 15, func() { h.Subscribe(c, Channels, names, 0) }},
		{"leave all", 15, func() { h.Leave(c) }},
		{"track", 15, func() { h.TrackOn(c, &Mode{BCast: true, Prefixes: names}, false) }},
		{"end tracking", 15, func() { h.Untrack(c.id) }},
		{"join patterns that match slowly", 1, func() { h.Subscribe(c, Patterns, slow, 0) }},
		{"match", 15, func() {
			h.match(slices.Repeat([][]*topic{h.patterns.at("").list()}, 200), strings.Repeat("a", 200))
		}},
	} {
		if ran := letIn(step.work); ran < step.want {
			t.Errorf("%s: another goroutine ran %d times, want at least %d", step.name, ran, step.want)
		}
	}
}
