package health

import (
	"context"
	"sync"
	"time"
)

// PeerHealth is the last answer of a member to this node. It says that the
// member is up, and at which addresses clients reach it. The log contains only
// the peer addresses. ClientAddr, SentinelAddr, HTTPAddr and RunID are empty
// until the member has answered once.
type PeerHealth struct {
	ID           string
	PeerAddr     string
	ClientAddr   string
	SentinelAddr string // "" if the member has no Sentinel port
	HTTPAddr     string
	RunID        string    // RunID identifies the member's process.
	Applied      uint64    // applied index of the member
	Heard        time.Time // when the member last answered, by this node's wall clock
	Voter        bool
	Alive        bool // the member answered the latest request
	Disk         DiskStatus
}

// AskEvery is how long this node pauses after it has asked the members, unless
// the node was removed. A node that has died is listed as alive for at most
// AskEvery plus twice the time limit of a request.
const AskEvery = time.Second

// Book records the last report of each member about itself. Its methods are
// safe for concurrent use.
type Book struct {
	wall    func() time.Time
	changed func()        // called without mu held
	asap    chan struct{} // capacity 1: ask the members now

	mu   sync.Mutex
	last map[string]PeerHealth // by id
	// trips contains the durations of the last round trips to each member, by
	// id. Each array is used as a ring.
	trips map[string]*[roundTrips]time.Duration
	trip  map[string]int // position of the next round trip in the ring, by id
}

// roundTrips is the number of round trips to a member that are recorded. Link
// returns the shortest of them, because other work of the two processes may
// have delayed the longer ones.
const roundTrips = 8

// NewBook returns an empty Book. wall returns the time of the wall clock. The
// Book calls changed when data that clients see has changed.
func NewBook(wall func() time.Time, changed func()) *Book {
	return &Book{
		wall: wall, changed: changed, asap: make(chan struct{}, 1), last: make(map[string]PeerHealth),
		trips: make(map[string]*[roundTrips]time.Duration), trip: make(map[string]int),
	}
}

// Keep asks the members for their status until ctx ends, and pauses for pause()
// after each request.
func (b *Book) Keep(ctx context.Context, ask func(context.Context) []NodeStatus, pause func() time.Duration) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		b.learn(ask(ctx))
		t.Reset(pause())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.asap:
		}
	}
}

func (b *Book) learn(status []NodeStatus) {
	b.mu.Lock()
	changed := false
	for _, st := range status {
		known := b.last[st.ID]
		now := known
		now.ID, now.Alive = st.ID, st.Reachable
		if st.Reachable {
			now.ClientAddr, now.SentinelAddr, now.RunID, now.Applied = st.ClientAddr, st.Sentinel, st.RunID, st.Applied
			now.HTTPAddr = st.HTTPAddr
			now.Heard, now.Disk = b.wall(), st.DiskStatus
		}
		b.last[st.ID] = now
		// ignore the fields that always change, and those that clients do not see
		known.Applied, known.Heard, known.Disk = now.Applied, now.Heard, now.Disk
		changed = changed || now != known
	}
	b.mu.Unlock()
	if changed {
		b.changed()
	}
}

// Measured records the time between a request to a member and its answer.
func (b *Book) Measured(id string, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trips[id] == nil {
		b.trips[id] = new([roundTrips]time.Duration)
	}
	b.trips[id][b.trip[id]%roundTrips] = took
	b.trip[id]++
}

// Link returns the state of the link to a member.
func (b *Book) Link(id string) Link {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.last[id]
	l := Link{To: id, Alive: h.Alive}
	if !h.Alive && !h.Heard.IsZero() {
		l.Silent = b.wall().Sub(h.Heard).Seconds()
	}
	shortest := time.Duration(0)
	if trips := b.trips[id]; trips != nil && h.Alive {
		for _, t := range trips[:min(b.trip[id], roundTrips)] {
			if shortest == 0 || t < shortest {
				shortest = t
			}
		}
	}
	l.RoundTrip = float64(shortest.Microseconds()) / 1000
	return l
}

// AskNow makes Keep ask the members at once.
func (b *Book) AskNow() {
	select {
	case b.asap <- struct{}{}:
	default:
	}
}

// Silent records that a member is down. The caller has found that the member's
// process has ended, and does not wait for the next request.
func (b *Book) Silent(id string) {
	b.mu.Lock()
	c := b.last[id]
	c.ID, c.Alive = id, false
	b.last[id] = c
	b.mu.Unlock()
	b.changed()
}

// Of returns the last report of a member.
func (b *Book) Of(id string) PeerHealth {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[id]
}
