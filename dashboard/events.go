package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
)

// Kinds of events.
const (
	// KindCluster is for elections and members. These events are part of the state
	// of the cluster.
	KindCluster = "cluster"
	// KindAudit is for the lines of the audit log, and KindSlow for the slow
	// log. Users need the commands ACL LOG and SLOWLOG GET to see them.
	KindAudit = "audit"
	KindSlow  = "slow"
)

// Event is something of note that happened on a node, or that the node has
// noticed.
type Event struct {
	// ID grows with each event of the node. It is 0 for events of the slow log.
	ID   uint64    `json:"id"`
	Time time.Time `json:"time"` // by the node's wall clock
	Kind string    `json:"kind"`
	// Warning is set if the event may need attention.
	Warning bool   `json:"warning,omitempty"`
	Text    string `json:"text"`
	// Fields are the fields of a line of the audit log or of the slow log.
	Fields map[string]string `json:"fields,omitempty"`
}

// maxEvents bounds the events that a node keeps.
const maxEvents = 1000

// Events keeps the last events of a node in memory. It is safe for concurrent use.
type Events struct {
	mu     sync.Mutex
	all    []Event // oldest first
	last   uint64  // id of the last event
	notify func()  // called after an event, without mu; nil for none
}

// add records an event.
func (e *Events) add(ev Event) {
	ev.Time = time.Now()
	e.mu.Lock()
	e.last++
	ev.ID = e.last
	if len(e.all) == maxEvents {
		e.all = slices.Delete(e.all, 0, 1)
	}
	e.all = append(e.all, ev)
	notify := e.notify
	e.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// onAdd sets the function that is called after each event. It must not block.
func (e *Events) onAdd(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = f
}

// since returns the events with a higher id than after, oldest first.
func (e *Events) since(after uint64) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.all, after+1, func(ev Event, id uint64) int {
		return int(int64(ev.ID) - int64(id))
	})
	return slices.Clone(e.all[i:])
}

// Audit returns a logger that records the lines of the audit log and passes them
// to log, which is nil if there is no audit log.
func (e *Events) Audit(log hclog.Logger) hclog.Logger {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return auditTee{log, e}
}

// auditTee is the logger of Events.Audit. The client port writes only with Info
// and Warn.
type auditTee struct {
	hclog.Logger
	events *Events
}

// Info implements hclog.Logger.
func (t auditTee) Info(msg string, args ...any) {
	t.Logger.Info(msg, args...)
	t.record(false, msg, args)
}

// Warn implements hclog.Logger.
func (t auditTee) Warn(msg string, args ...any) {
	t.Logger.Warn(msg, args...)
	t.record(true, msg, args)
}

func (t auditTee) record(warning bool, msg string, args []any) {
	ev := Event{Kind: KindAudit, Warning: warning, Text: msg, Fields: make(map[string]string)}
	for i := 0; i+1 < len(args); i += 2 {
		if name := fmt.Sprint(args[i]); name != "node" {
			ev.Fields[name] = fmt.Sprint(args[i+1])
		}
	}
	t.events.add(ev)
}

// EventList is the answer of /api/v1/events: the events of the node that answers,
// newest first.
type EventList struct {
	Node   string  `json:"node"`
	Events []Event `json:"events"`
	// Last is the id of the newest event, also if it is of another kind.
	Last uint64 `json:"last"`
	// Hidden contains the kinds that the user may not see.
	Hidden []string `json:"hidden"`
}

// listEvents answers /api/v1/events.
func (d *Dashboard) listEvents(r *http.Request) (any, error) {
	after := uint64(0)
	if text := r.FormValue("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, badRequest("after is not the id of an event")
		}
	}
	kind := r.FormValue("kind")
	answer := EventList{Node: d.cfg.Node.ID(), Hidden: []string{}}
	all := d.cfg.Events.since(after)
	// An event that is added now has a higher id, and is part of the next answer.
	answer.Last = after
	if len(all) > 0 {
		answer.Last = all[len(all)-1].ID
	}
	permitted := map[string]bool{KindCluster: true}
	var slow []Event
	err := d.read(r, func(ctx context.Context, c *connection) error {
		return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
			permitted[KindAudit] = conn.Do(ctx, "ACL", "LOG", "1").Err() == nil
			entries, err := conn.SlowLogGet(ctx, 128).Result()
			permitted[KindSlow] = err == nil
			slow = slowEvents(entries)
			return nil
		})
	})
	if err != nil { // no access to data: only the events of the cluster
		slow = nil
	}
	for _, hidden := range []string{KindAudit, KindSlow} {
		if !permitted[hidden] {
			answer.Hidden = append(answer.Hidden, hidden)
		}
	}
	answer.Events = slices.DeleteFunc(append(all, slow...), func(ev Event) bool {
		return !permitted[ev.Kind] || kind != "" && ev.Kind != kind
	})
	slices.SortStableFunc(answer.Events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return answer, nil
}

// slowEvents returns the events of a slow log.
func slowEvents(entries []redis.SlowLog) []Event {
	var all []Event
	for _, s := range entries {
		all = append(all, Event{Time: s.Time, Kind: KindSlow, Text: "slow command", Fields: map[string]string{
			"took": s.Duration.String(), "command": strings.Join(s.Args, " "), "addr": s.ClientAddr,
			"name": s.ClientName,
		}})
	}
	return all
}

// watch records changes of the leader and of the members until the Dashboard is
// closed.
func (d *Dashboard) watch() {
	changed, stop := d.cfg.Node.Watch()
	defer stop()
	w := watcher{events: d.cfg.Events, alive: make(map[string]bool)}
	for {
		w.look(d.cfg.Node)
		select {
		case <-d.ctx.Done():
			return
		case <-changed:
			d.stream.hurry()
		}
	}
}

// watcher notices changes of the cluster, as one node sees them.
type watcher struct {
	events *Events
	leader string
	known  bool            // the members have been read once
	alive  map[string]bool // whether a member answers, by id
}

func (w *watcher) look(n Node) {
	say := func(warning bool, format string, args ...any) {
		w.events.add(Event{Kind: KindCluster, Warning: warning, Text: fmt.Sprintf(format, args...)})
	}
	leader, known := n.Leader()
	if !known {
		leader = ""
	}
	if leader != w.leader {
		if leader == "" {
			say(true, "no leader is known; the last one was %s", w.leader)
		} else {
			say(false, "%s leads in term %d", leader, n.Status().Term)
		}
		w.leader = leader
	}
	members := n.PeerHealth()
	now := make(map[string]bool, len(members))
	for _, m := range members {
		// A member that has not answered since this node started is not reported
		// as silent.
		before, listed := w.alive[m.ID]
		now[m.ID] = m.Alive
		switch {
		case !listed && w.known:
			say(false, "%s is a new member", m.ID)
		case listed && before && !m.Alive:
			say(true, "%s does not answer", m.ID)
		case listed && !before && m.Alive:
			say(false, "%s answers", m.ID)
		}
	}
	for id := range w.alive {
		if _, still := now[id]; !still && len(now) > 0 {
			say(true, "%s is no longer a member", id)
		}
	}
	if len(now) > 0 {
		w.alive, w.known = now, true
	}
}
