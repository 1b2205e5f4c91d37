package dashboard

import (
	"cmp"
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

// Kinds of events. All requests that may read the state of the cluster see KindCluster.
const (
	KindCluster = "cluster" // elections and members
	// KindAudit is for the lines of the audit log that have no kind of their own. Users
	// need the command ACL LOG to see KindAudit, KindLogin and KindBackup.
	KindAudit  = "audit"
	KindLogin  = "login"  // refused logins
	KindBackup = "backup" // backups, restores, and the commands SAVE and BGSAVE
	KindSlow   = "slow"   // the slow log; users need SLOWLOG GET
	KindLock   = "lock"   // leases that ended; users need LOCK LIST, and LOCK INFO of the key
)

// Event is something that happened on a node, or that the node has noticed about the
// cluster.
type Event struct {
	// ID grows with each event of the node. It is 0 for events of the slow log.
	ID   uint64    `json:"id"`
	Node string    `json:"node"` // the node that has recorded the event
	Time time.Time `json:"time"` // by the node's wall clock
	Kind string    `json:"kind"`
	// Warning is set if the event may need attention.
	Warning bool   `json:"warning,omitempty"`
	Text    string `json:"text"`
	// Fields are the details, for instance the fields of a line of the audit log or
	// of the slow log, the key of a lock, or the leader and its term.
	Fields map[string]string `json:"fields,omitempty"`
	// Also contains the other nodes that have noticed the same change.
	Also []string `json:"also_noticed_by,omitempty"`
}

// SlowCommand is an entry of the slow log.
type SlowCommand struct {
	At         time.Time
	Took       time.Duration
	Args       []string
	Addr, Name string
}

// maxEvents bounds the events of a kind that a node keeps. Each kind has its own
// bound, so that many events of one kind do not displace those of another.
const maxEvents = 1000

// Events keeps the last events of a node in memory. It is safe for concurrent use.
type Events struct {
	mu     sync.Mutex
	kinds  map[string][]Event // oldest first
	last   uint64             // id of the last event
	notify func()             // called after an event, without mu; nil for none
	// expired counts the leases that ended in the second expiredAt.
	expired   int
	expiredAt int64
	skipped   int // number of events that were left out since the last event of KindLock
}

// add records an event.
func (e *Events) add(ev Event) {
	ev.Time = time.Now()
	e.mu.Lock()
	e.last++
	ev.ID = e.last
	if e.kinds == nil {
		e.kinds = make(map[string][]Event)
	}
	all := e.kinds[ev.Kind]
	if len(all) == maxEvents {
		all = slices.Delete(all, 0, 1)
	}
	e.kinds[ev.Kind] = append(all, ev)
	notify := e.notify
	e.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// onAdd sets the function that the method add calls after each event. The
// function must not block.
func (e *Events) onAdd(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = f
}

// since returns the events whose id is higher than the argument after, oldest
// first, and the highest id.
func (e *Events) since(after uint64) (all []Event, last uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, events := range e.kinds {
		i, _ := slices.BinarySearchFunc(events, after+1, func(ev Event, id uint64) int {
			return cmp.Compare(ev.ID, id)
		})
		all = append(all, events[i:]...)
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(a.ID, b.ID) })
	return all, max(after, e.last)
}

// Audit returns a logger that records the lines of the audit log as events and
// passes them to log. log is nil if there is no audit log.
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
	switch command := strings.ToUpper(ev.Fields["command"]); {
	case strings.HasPrefix(command, "HOLDFAST BACKUP READ"): // a backup sends this command for each MiB
		return
	case strings.HasPrefix(command, "HOLDFAST BACKUP"), strings.HasPrefix(command, "HOLDFAST RESTORE"),
		command == "SAVE", strings.HasPrefix(command, "BGSAVE"):
		ev.Kind = KindBackup
	case strings.HasPrefix(msg, "login"):
		ev.Kind = KindLogin
	}
	t.events.add(ev)
}

// expiredPerSecond bounds the events of KindLock in a second, because very many
// short leases may end at the same time.
const expiredPerSecond = 5

// maxExpired bounds the bytes of the key and the owner together in an event of
// KindLock. LockExpired skips larger events, because Events keeps its events in
// memory.
const maxExpired = 4 << 10

// LockExpired records that the lease of a lock ended before its owner released it.
func (e *Events) LockExpired(db int, key, owner string, token uint64) {
	now := time.Now().Unix()
	e.mu.Lock()
	if now != e.expiredAt {
		e.expiredAt, e.expired = now, 0
	}
	e.expired++
	if e.expired > expiredPerSecond || len(key)+len(owner) > maxExpired {
		e.skipped++
		e.mu.Unlock()
		return
	}
	fields := map[string]string{
		"key": key, "owner": owner, "token": strconv.FormatUint(token, 10), "db": strconv.Itoa(db),
	}
	if e.skipped > 0 {
		fields["not_listed_before"] = strconv.Itoa(e.skipped)
		e.skipped = 0
	}
	e.mu.Unlock()
	e.add(Event{Kind: KindLock, Text: "the lease of a lock ended", Fields: fields})
}

// EventList is the answer of /api/v1/events: the events of all nodes, or of one of
// them, newest first.
type EventList struct {
	Node   string  `json:"node"` // the node that answers
	Events []Event `json:"events"`
	// Last is the id of the newest event of the node that answers, even if that
	// event is of another kind.
	Last uint64 `json:"last"`
	// Hidden contains the kinds that the user may not see.
	Hidden []string `json:"hidden"`
	// Silent contains the members that have not answered.
	Silent []string `json:"silent"`
}

const (
	// maxListed bounds the events of an answer.
	maxListed = 1000
	// slowListed bounds the slow commands of each node in an answer.
	slowListed = 128
	// sameNotice is the time within which events of several nodes with the same
	// text count as one change.
	sameNotice = 30 * time.Second
)

// ownEvents returns the events of this node whose id is higher than the argument
// after, and the newest entries of its slow log. The newest event comes first.
func (d *Dashboard) ownEvents(after uint64) EventList {
	own := EventList{Node: d.cfg.Node.ID()}
	own.Events, own.Last = d.cfg.Events.since(after)
	for _, c := range d.cfg.SlowLog(slowListed) {
		fields := map[string]string{
			"took": c.Took.Round(time.Microsecond).String(), "command": strings.Join(c.Args, " "),
			"addr": c.Addr, "name": c.Name,
		}
		own.Events = append(own.Events, Event{Time: c.At, Kind: KindSlow, Text: "slow command", Fields: fields})
	}
	for i := range own.Events {
		own.Events[i].Node = own.Node
	}
	newestFirst(own.Events)
	return own
}

func newestFirst(all []Event) {
	slices.SortStableFunc(all, func(a, b Event) int { return b.Time.Compare(a.Time) })
}

// listEvents answers /api/v1/events.
func (d *Dashboard) listEvents(r *http.Request) (any, error) {
	after, kind, node := uint64(0), r.FormValue("kind"), r.FormValue("node")
	if text := r.FormValue("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, badRequest("after is not the id of an event")
		}
		if node == "" {
			return nil, badRequest("after needs the parameter node, because each node counts its events")
		}
	}
	answer := EventList{Node: d.cfg.Node.ID(), Events: []Event{}, Hidden: []string{}}
	permitted, hidden := d.mayList(r)
	answer.Hidden = hidden
	answer.Silent = gather(d, r, "events", func() EventList { return d.ownEvents(0) }, func(part EventList) {
		if part.Node == answer.Node {
			answer.Last = part.Last
		}
		for _, ev := range part.Events {
			if (kind == "" || ev.Kind == kind) && (after == 0 || ev.ID > after) && permitted(ev) {
				answer.Events = append(answer.Events, ev)
			}
		}
	})
	newestFirst(answer.Events)
	answer.Events = joined(answer.Events)
	answer.Events = answer.Events[:min(len(answer.Events), maxListed)]
	return answer, nil
}

// mayList returns a function and a list: permitted reports whether the request
// may see an event, and hidden contains the kinds that the request may not see.
func (d *Dashboard) mayList(r *http.Request) (permitted func(Event) bool, hidden []string) {
	kinds, user := map[string]bool{KindCluster: true}, ""
	err := d.read(r, func(ctx context.Context, c *connection) error {
		return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
			user = cmp.Or(c.user, "default")
			// A reply without an error proves that the connection needs no login.
			// Do not send a command that the user may not run, because the node
			// would record the refusal in its ACL log.
			for _, p := range []struct {
				command string
				kinds   []string
			}{
				{"ACL LOG 1", []string{KindAudit, KindLogin, KindBackup}},
				{"SLOWLOG GET 1", []string{KindSlow}},
				{"LOCK LIST COUNT 1", []string{KindLock}},
			} {
				words := strings.Fields(p.command)
				if !d.cfg.Permits(user, words...) {
					continue
				}
				args := make([]any, len(words))
				for i, w := range words {
					args[i] = w
				}
				ok := conn.Do(ctx, args...).Err() == nil
				for _, kind := range p.kinds {
					kinds[kind] = ok
				}
			}
			return nil
		})
	})
	if err != nil { // no access to data: only the events of the cluster
		kinds = map[string]bool{KindCluster: true}
	}
	hidden = []string{}
	for _, kind := range []string{KindAudit, KindLogin, KindBackup, KindSlow, KindLock} {
		if !kinds[kind] {
			hidden = append(hidden, kind)
		}
	}
	return func(ev Event) bool {
		return kinds[ev.Kind] && (ev.Kind != KindLock || d.cfg.Permits(user, "LOCK", "INFO", ev.Fields["key"]))
	}, hidden
}

// joined merges events of several nodes about the same change of the cluster, and
// keeps the earliest of them. all and the result begin with the newest event.
func joined(all []Event) []Event {
	last := make(map[string]int) // by text: position in out of the earliest event so far
	out := all[:0]
	for _, ev := range all {
		if i, ok := last[ev.Text]; ok && ev.Kind == KindCluster && out[i].Time.Sub(ev.Time) < sameNotice &&
			out[i].Node != ev.Node && !slices.Contains(out[i].Also, ev.Node) {
			ev.Also = append(append([]string{}, out[i].Also...), out[i].Node)
			out[i].Text = "" // is removed below
		}
		out = append(out, ev)
		if ev.Kind == KindCluster {
			last[ev.Text] = len(out) - 1
		}
	}
	return slices.DeleteFunc(out, func(ev Event) bool { return ev.Text == "" })
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

// watcher records the changes of the cluster that one node notices.
type watcher struct {
	events *Events
	leader string
	known  bool            // whether the members have been read before
	alive  map[string]bool // whether a member answers, by id
}

func (w *watcher) look(n Node) {
	add := func(warning bool, text string, fields map[string]string) {
		w.events.add(Event{Kind: KindCluster, Warning: warning, Text: text, Fields: fields})
	}
	say := func(warning bool, format string, args ...any) { add(warning, fmt.Sprintf(format, args...), nil) }
	leader, known := n.Leader()
	if !known {
		leader = ""
	}
	if leader != w.leader {
		if leader == "" {
			add(true, "no leader is known; the last one was "+w.leader, map[string]string{"lost": w.leader})
		} else {
			term := strconv.FormatUint(n.Status().Term, 10)
			add(false, leader+" leads in term "+term, map[string]string{"leader": leader, "term": term})
		}
		w.leader = leader
	}
	members := n.PeerHealth()
	now := make(map[string]bool, len(members))
	for _, m := range members {
		// Do not report that a member stopped answering if it has never answered
		// since this node started.
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
