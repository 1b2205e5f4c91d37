package pubsub

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// letIn runs work on a single processor, beside a goroutine that wakes every 50
// µs. It returns how often that goroutine ran, and the processor time that the
// process used.
func letIn(t *testing.T, work func()) (ran int64, took time.Duration) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ran = testutil.Wakes(func() {
		begun := processorTime(t)
		work()
		took = processorTime(t) - begun
	})
	return ran, took
}

// processorTime returns the processor time of this process. Unlike the wall
// clock, it does not advance while other processes have the processor.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestHub_Yields checks that a connection lets other goroutines run while it joins
// and leaves many topics, tracks many prefixes and matches slow patterns, even if
// the node has a single processor. Without yields, the other goroutine runs when
// the scheduler preempts the connection, about every 10 ms. With yields, it runs
// several times in a millisecond; the test demands once in 4 ms.
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
		work func()
	}{
		{"find new topics", func() { fresh, _ = c.Fresh(Patterns, raw) }},
		{"join", func() { h.Subscribe(c, Patterns, fresh, 0) }},
		{"sort", func() { fresh = c.Names(Patterns) }},
		{"leave by name", func() { h.Unsubscribe(c, Patterns, fresh) }},
		{"join again", func() { h.Subscribe(c, Channels, names, 0) }},
		{"leave all", func() { h.Leave(c) }},
		{"track", func() { h.TrackOn(c, &Mode{BCast: true, Prefixes: names}, false) }},
		{"end tracking", func() { h.Untrack(c.id) }},
		{"join patterns that match slowly", func() { h.Subscribe(c, Patterns, slow, 0) }},
		{"match", func() {
			h.match(slices.Repeat([][]*topic{h.patterns.at("").list()}, 200), strings.Repeat("a", 200))
		}},
	} {
		ran, took := letIn(t, step.work)
		if want := int64(took / (4 * time.Millisecond)); ran < want {
			t.Errorf("%s: another goroutine ran %d times in %v, want at least %d", step.name, ran, took, want)
		}
	}
}
