package dashboard

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/health"
)

// Topics of the stream.
const (
	topicStatus  = "status"  // Status, when it has changed
	topicTraffic = "traffic" // Traffic, with the last samples of each node
	topicEvents  = "events"  // the id of the newest event
)

const (
	maxStreams     = 64
	maxStreamsEach = 16 // maximum number of streams to one address
	statusEvery    = time.Second
	// statusPause is the minimum time between two requests to the members for their
	// status.
	statusPause = 100 * time.Millisecond
	pingEvery   = 15 * time.Second
	streamWrite = 10 * time.Second
)

// stream sends messages to the open streams. It is safe for concurrent use.
type stream struct {
	opened chan struct{} // capacity 1: a stream was opened, or the cluster has changed
	places quota
	log    hclog.Logger

	mu   sync.Mutex
	subs map[*subscriber]bool
}

// subscriber is one open stream. A message replaces an earlier one of its topic
// that has not been sent yet.
type subscriber struct {
	topics map[string]bool
	ready  chan struct{} // capacity 1
	queued map[string][]byte
}

// open adds a stream.
func (s *stream) open(topics []string) *subscriber {
	sub := &subscriber{topics: make(map[string]bool), ready: make(chan struct{}, 1), queued: make(map[string][]byte)}
	for _, t := range topics {
		sub.topics[t] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = make(map[*subscriber]bool)
	}
	s.subs[sub] = true
	s.hurry()
	return sub
}

func (s *stream) close(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, sub)
}

// wanted reports whether a stream has a topic.
func (s *stream) wanted(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		if sub.topics[topic] {
			return true
		}
	}
	return false
}

// hurry makes keepStream ask for the status now.
func (s *stream) hurry() {
	select {
	case s.opened <- struct{}{}:
	default:
	}
}

// send sends a message to the streams with its topic.
func (s *stream) send(topic string, message any) {
	text, err := json.Marshal(message)
	if err != nil {
		s.log.Error("message of a stream cannot be encoded", "topic", topic, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		if sub.topics[topic] {
			sub.put(topic, text)
		}
	}
}

// put queues a message. The caller holds stream.mu.
func (sub *subscriber) put(topic string, text []byte) {
	sub.queued[topic] = text
	select {
	case sub.ready <- struct{}{}:
	default:
	}
}

// take returns the queued messages by topic.
func (s *stream) take(sub *subscriber) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued := sub.queued
	sub.queued = make(map[string][]byte)
	return queued
}

// keepStream asks the members for their status while a stream wants it, and sends
// the status when it has changed.
func (d *Dashboard) keepStream() {
	d.cfg.Events.onAdd(func() { d.stream.sendLast(d.cfg.Events) })
	defer d.cfg.Events.onAdd(nil)
	t := time.NewTimer(0)
	defer t.Stop()
	last := ""
	for {
		if !d.stream.wanted(topicStatus) {
			last = ""
			select {
			case <-d.ctx.Done():
				return
			case <-d.stream.opened:
				continue
			}
		}
		st := d.status(d.ctx)
		if now := essence(st); now != last {
			d.stream.send(topicStatus, st)
			last = now
		}
		t.Reset(statusPause)
		select {
		case <-d.ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(statusEvery - statusPause)
		select {
		case <-d.ctx.Done():
			return
		case <-t.C:
		case <-d.stream.opened:
			last = "" // a new stream has no status yet
		}
	}
}

// essence returns, as text, the part of a status whose change is worth a message.
func essence(st Status) string {
	nodes := slices.Clone(st.Nodes)
	for i := range nodes {
		// The pages compute the uptime themselves. The other values change all
		// the time, even if clients send no commands.
		n := &nodes[i]
		n.Uptime, n.LastAnswer, n.StateHash, n.StateIndex = 0, time.Time{}, "", 0
		n.DiskFree = n.DiskFree >> 20
		n.Links = slices.Clone(n.Links)
		for j := range n.Links {
			l := &n.Links[j] // a round trip is worth a message if it has doubled or halved
			l.RoundTrip, l.Silent = math.Round(math.Log2(l.RoundTrip+0.01)), 0
		}
	}
	return fmt.Sprintf("%+v %+v", st.Verdict, []health.NodeStatus(nodes))
}

// sendLast sends the id of the newest event.
func (s *stream) sendLast(e *Events) {
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	s.send(topicEvents, map[string]uint64{"last": last})
}

// serveStream answers /api/v1/stream.
func (d *Dashboard) serveStream(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, e apiError) { d.writeJSON(w, code, e, nil) }
	if err := d.mayRead(r); err != nil {
		fail(explain(err))
		return
	}
	byLogin := !d.cfg.Token.Admits(r) && d.loginOf(r) != nil
	topics := r.URL.Query()["topic"]
	if len(topics) == 0 {
		topics = []string{topicStatus}
	}
	known := []string{topicStatus, topicTraffic, topicEvents}
	for _, t := range topics {
		if !slices.Contains(known, t) {
			fail(explain(badRequest("there is no topic " + t)))
			return
		}
	}
	place, ok := d.stream.places.try(r, 1)
	if !ok {
		const text = "too many streams are open on this node, or to this address"
		fail(http.StatusServiceUnavailable, apiError{Error: text})
		return
	}
	defer place.release()
	sub := d.stream.open(topics)
	defer d.stream.close(sub)
	// The time limits of the HTTP port are for short requests. A stream has a time
	// limit for each write instead.
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		fail(http.StatusInternalServerError, apiError{Error: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	text := ": open\n\n"
	for {
		if err := control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
			return
		}
		if _, err := fmt.Fprint(w, text); err != nil || control.Flush() != nil {
			return
		}
		text = ""
		select {
		case <-r.Context().Done():
			return
		case <-d.ctx.Done():
			return
		case <-ping.C:
			text = ": ping\n\n"
		case <-sub.ready:
			queued := d.stream.take(sub)
			for _, topic := range slices.Sorted(maps.Keys(queued)) {
				text += "event: " + topic + "\ndata: " + string(queued[topic]) + "\n\n"
			}
		}
		if byLogin && d.loginOf(r) == nil { // the login has ended since the stream began
			return
		}
	}
}
