package pubsub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/glob"
)

// mute is a connection that discards its messages.
type mute struct{}

func (mute) Push(Cause, func(int) *Payload) {}
func (mute) CutOff(string)                  {}
func (mute) Closing() bool                  { return false }
func (mute) Rules() *acl.User               { return nil }
func (mute) Subscribed() bool               { return false }
func (mute) RedirectBroken()                {}

// newTestHub returns a hub without a log, and with a clock that does not
// advance.
func newTestHub() *Hub {
	h := New(Config{MaxBytes: 256 << 20})
	h.publishing.Store(true)
	h.SetMatchClock(func() time.Time { return time.Unix(1, 0) })
	return h
}

// join subscribes a connection to patterns.
func (h *Hub) join(c *Subscriber, names ...string) {
	fresh, bytes := c.Fresh(Patterns, args(names))
	if !h.Reserve(bytes) {
		panic("no room")
	}
	h.Subscribe(c, Patterns, fresh, 0)
}

func args(words []string) (all [][]byte) {
	for _, w := range words {
		all = append(all, []byte(w))
	}
	return all
}

// find returns the patterns that match a channel.
func (h *Hub) find(channel string) (names []string) {
	h.mu.RLock()
	lists := h.listsLocked(channel)
	h.mu.RUnlock()
	for _, t := range h.match(lists, channel) {
		names = append(names, t.name)
	}
	return names
}

// TestHub_Model subscribes and unsubscribes at random. The patterns that match
// a channel must be found, in the order in which they were subscribed to, and
// nothing may be left at the end.
func TestHub_Model(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	word := func(alphabet string) string {
		b := make([]byte, r.IntN(5))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	h := newTestHub()
	conns := make([]*Subscriber, 5)
	for i := range conns {
		conns[i] = NewSubscriber(uint64(i+1), mute{})
	}
	type pattern struct {
		name string
		of   map[*Subscriber]bool
	}
	var model []pattern // in the order of subscription
	drop := func(c *Subscriber, name string) {
		for i := range model {
			if model[i].name == name {
				if delete(model[i].of, c); len(model[i].of) == 0 {
					model = slices.Delete(model, i, i+1)
				}
				return
			}
		}
	}
	found := 0
	for step := range 30_000 {
		c, name := conns[r.IntN(len(conns))], word("aab*?[]")
		switch op := r.IntN(100); {
		case op < 40:
			h.join(c, name, name)
			i := slices.IndexFunc(model, func(p pattern) bool { return p.name == name })
			if i < 0 {
				model = append(model, pattern{name, make(map[*Subscriber]bool)})
				i = len(model) - 1
			}
			model[i].of[c] = true
		case op < 70:
			h.Unsubscribe(c, Patterns, []string{name, name})
			drop(c, name)
		case op < 71:
			h.Leave(c)
			for _, p := range slices.Clone(model) {
				drop(c, p.name)
			}
		default:
			channel := word("aab")
			var want []string
			receivers := 0
			for _, p := range model {
				if glob.Match(p.name, channel) {
					want = append(want, p.name)
					receivers += len(p.of)
				}
			}
			found += len(want)
			if got := h.find(channel); !slices.Equal(got, want) {
				t.Fatalf("step %d: the channel %q matches the patterns %q, want %q", step, channel, got, want)
			}
			if got := h.Receivers(channel, false); got != receivers {
				t.Fatalf("step %d: %q has %d receivers, want %d", step, channel, got, receivers)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d patterns matched, want at least 1000", found)
	}
	for _, c := range conns {
		h.Leave(c)
	}
	if z := h.Sizes(); z != (Sizes{}) || h.patterns.len() != 0 || len(h.topics[Patterns]) != 0 {
		t.Errorf("an empty hub has the sizes %+v and %d literal prefixes, want none", z, h.patterns.len())
	}
}

// TestHub_MatchSteps checks that a channel is matched only against patterns whose
// literal prefix it has, and in few steps against patterns whose literal suffix it
// lacks.
func TestHub_MatchSteps(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		name, pattern, channel string
		most                   uint64
	}{
		{"beginning", "user:%d:*", "user:77:name", 100},
		{"end", "*" + strings.Repeat("a", 100) + "b%d", strings.Repeat("a", 2000), 32 * n},
		{"neither", "*%d*", strings.Repeat("a", 10), 64 * n},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestHub()
			var names []string
			for i := range n {
				names = append(names, fmt.Sprintf(c.pattern, i))
			}
			h.join(NewSubscriber(1, mute{}), names...)
			h.find(c.channel)
			if got := h.budget.spent.Load(); got > c.most {
				t.Errorf("matching took %d steps, want at most %d", got, c.most)
			}
		})
	}
}

// TestHub_NoStepLimit checks that the matching budget of a hub without a limit of
// steps keeps no subscriber that has left, however many steps its patterns took.
func TestHub_NoStepLimit(t *testing.T) {
	h := newTestHub()
	h.budget.rate = 0
	for i := range 100 {
		c := NewSubscriber(uint64(i+1), mute{})
		h.join(c, "*a*b*")
		h.find(strings.Repeat("a", 10_000))
		h.Leave(c)
	}
	if n := len(h.budget.heavy); n > 0 {
		t.Errorf("the budget keeps %d subscribers that have left", n)
	}
}

// growth returns the factor by which the time per element of do(n) grows when n
// is 20 times as large. It measures the processor time of the process, because
// the machine may do other work, and takes the minimum of several attempts. The
// factor may exceed 1 even if do is linear, because a small n fits into the caches
// of the processor.
func growth(t *testing.T, do func(n int), n int) float64 {
	t.Helper()
	least := func(n int) time.Duration {
		d := time.Hour
		for range 3 {
			begun := processorTime(t)
			do(n)
			d = min(d, processorTime(t)-begun)
		}
		return d
	}
	return float64(least(20*n)) / float64(least(n)) / 20
}

// TestHub_Linear checks that the time to subscribe to a pattern, and to
// unsubscribe from it, does not grow in proportion to the number of patterns.
func TestHub_Linear(t *testing.T) {
	for _, form := range []string{"p:%d:*", "*%d", "%d*"} {
		g := growth(t, func(n int) {
			h, c := newTestHub(), NewSubscriber(1, mute{})
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf(form, i)
			}
			h.join(c, names...)
			h.Leave(c)
		}, 2000)
		if g > 10 { // 20 would be quadratic
			t.Errorf("%q: with 20 times as many patterns, each pattern takes %.1f times as long, want at most 10", form, g)
		}
	}
}

// TestTracking_PrefixesLinear checks that the time for a BCAST prefix and for a
// change does not grow in proportion to the number of prefixes.
func TestTracking_PrefixesLinear(t *testing.T) {
	g := growth(t, func(n int) {
		h := newTestHub()
		var prefixes []string
		for i := range n {
			prefixes = append(prefixes, fmt.Sprintf("p:%d:", i))
		}
		if refusal := overlapRefusal(nil, prefixes); refusal != "" {
			t.Fatal(refusal)
		}
		h.TrackOn(NewSubscriber(1, mute{}), &Mode{BCast: true, Prefixes: prefixes}, false)
		for i := range n / 10 {
			var events []fsm.Event
			for k := range 10 {
				events = append(events, fsm.Event{Kind: fsm.EventChanged, Key: fmt.Sprintf("q:%d:%d", i, k)})
			}
			h.Applied(uint64(i), events)
		}
		h.Untrack(1)
		if h.track.prefixes.len() != 0 {
			t.Errorf("%d prefixes are left, want none", h.track.prefixes.len())
		}
	}, 2000)
	if g > 10 {
		t.Errorf("with 20 times as many prefixes, the time per prefix grows %.1f times, want at most 10", g)
	}
}

// TestTracking_Overlap checks that the error for overlapping prefixes equals the
// error that a comparison of all pairs of prefixes finds.
func TestTracking_Overlap(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	refusals := 0
	for range 20_000 {
		var there, added []string
		for range r.IntN(10) {
			p := fmt.Sprint(r.IntN(300))
			if r.IntN(2) == 0 && !slices.ContainsFunc(there, func(q string) bool { return overlap(p, q) }) {
				there = append(there, p)
			} else {
				added = append(added, p)
			}
		}
		slices.Sort(there)
		want := ""
		for i, p := range added {
			for _, q := range there {
				if want == "" && overlap(p, q) {
					want = "ERR Prefix '" + p + "' overlaps with an existing prefix '" + q + "'. Prefixes for a single client must not overlap."
				}
			}
			for _, q := range added[i+1:] {
				if want == "" && overlap(p, q) {
					want = "ERR Prefix '" + p + "' overlaps with another provided prefix '" + q + "'. Prefixes for a single client must not overlap."
				}
			}
		}
		if got := overlapRefusal(there, added); got != want {
			t.Fatalf("adding the prefixes %q to %q returns %q, want %q", added, there, got, want)
		}
		if want != "" {
			refusals++
		}
	}
	if refusals < 1000 || refusals > 19_000 {
		t.Errorf("%d of the random additions were refused, want 1000 to 19000", refusals)
	}
}

// TestTracking_TableBytes checks that the table of keys that were read is bounded
// in bytes, and that its size is counted correctly.
func TestTracking_TableBytes(t *testing.T) {
	h := newTestHub()
	tr := &h.track
	tr.maxBytes = 1 << 20
	r := rand.New(rand.NewPCG(9, 10))
	for id := range uint64(3) {
		tr.onLocked(id, &tracker{c: NewSubscriber(id, mute{})})
	}
	for range 20_000 {
		key := strings.Repeat("k", 1+r.IntN(2000))
		tr.reader(key, uint64(r.IntN(3))).hold(1)
		if tr.bytes > tr.maxBytes+trackedKeyBytes+readingBytes+2000 {
			t.Fatalf("the table takes %d bytes, want at most %d", tr.bytes, tr.maxBytes)
		}
	}
	bytes := 0
	for key, readers := range tr.keys {
		bytes += trackedKeyBytes + len(key) + len(readers)*readingBytes
	}
	if bytes != tr.bytes || len(tr.keys) < 100 {
		t.Errorf("with %d keys, the table counts %d bytes, want %d", len(tr.keys), tr.bytes, bytes)
	}
}
