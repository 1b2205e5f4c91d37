package resp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// monitor is the state of a Sentinel port: what it knows about the master, and
// the events for its subscribers. The goroutine run updates it once per
// checkEvery; each command that asks about the master also updates it.
type monitor struct {
	name     string // of the master
	topology Topology
	publish  func(channel, payload string)

	mu        sync.Mutex
	master    Peer      // the leader confirmed last; zero before the first
	since     time.Time // when it became the master, as this node saw it
	confirmed time.Time // when a majority confirmed it last
	down      bool      // not confirmed for longer than downAfter
	seen      map[string]Peer
}

const (
	// confirmLimit bounds how long a command waits for a majority to confirm
	// the leader. After that the last confirmed leader is reported. It is
	// shorter than the 100 ms that clients usually allow a Sentinel, and far
	// longer than a round trip.
	confirmLimit = 75 * time.Millisecond
	// checkEvery is the interval at which the leader is confirmed without a
	// command.
	checkEvery = time.Second
	// downAfter is how long a leader may stay unconfirmed before the Sentinel
	// reports it as down. Elections take less.
	downAfter = time.Second
)

// run updates the monitor until ctx ends.
func (m *monitor) run(ctx context.Context) {
	changed, stop := m.topology.Watch()
	defer stop()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		m.refresh(ctx, downAfter)
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// refresh has the leader confirmed and updates the monitor.
func (m *monitor) refresh(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	leader, err := m.topology.ConfirmLeader(ctx)
	m.note(leader, err == nil && leader.known(), m.topology.Peers(), time.Now())
}

// note updates the leader, if ok, and the members, and publishes events about
// the changes. It publishes under m.mu, so that events are in order.
func (m *monitor) note(leader Peer, ok bool, peers []Peer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var moved bool
	if ok {
		moved = m.lead(leader, now)
		m.confirmed = now
	}
	m.setDown(!ok && m.master.known() && now.Sub(m.confirmed) > downAfter)
	if m.seen == nil {
		m.seen = make(map[string]Peer)
	}
	for _, p := range peers {
		if !p.known() {
			continue
		}
		before, known := m.seen[p.ID]
		m.seen[p.ID] = p
		if p.ID == m.master.ID {
			m.master.Offset, m.master.RunID = p.Offset, p.RunID
		} else if p.Voter {
			m.member("slave", p, before, known && before.Voter && !moved)
		}
		if p.SentinelPort != "" && !p.Self {
			m.member("sentinel", p, before, known && before.SentinelPort != "")
		}
	}
}

// lead makes a leader the master. It reports whether another node was the
// master before.
func (m *monitor) lead(leader Peer, now time.Time) (moved bool) {
	old := m.master
	m.master = leader
	if old.known() && old.addr() == leader.addr() {
		return false
	}
	m.since = now
	if !old.known() {
		return false
	}
	m.down = false // down concerned the old master
	m.event("+switch-master", fmt.Sprintf("%s %s %s %s %s", m.name, old.Host, old.Port, leader.Host, leader.Port))
	return true
}

// setDown sets whether the master is reported as down, and publishes the
// change.
func (m *monitor) setDown(down bool) {
	if down == m.down {
		return
	}
	m.down = down
	sign, quorum := "-", ""
	if down {
		sign, quorum = "+", " #quorum 1/1"
	}
	m.event(sign+"sdown", m.describe("master", m.master))
	m.event(sign+"odown", m.describe("master", m.master)+quorum)
}

// member publishes the changes of a replica or of another Sentinel. A replica
// counts as new after a change of master.
func (m *monitor) member(kind string, p, before Peer, known bool) {
	switch {
	case !known && (kind != "slave" || m.master.known()):
		m.event("+"+kind, m.describe(kind, p))
		if !p.Alive {
			m.event("+sdown", m.describe(kind, p))
		}
	case known && before.Alive && !p.Alive:
		m.event("+sdown", m.describe(kind, p))
	case known && !before.Alive && p.Alive:
		if before.RunID != p.RunID {
			m.event("+reboot", m.describe(kind, p))
		}
		m.event("-sdown", m.describe(kind, p))
	}
}

func (m *monitor) event(channel, payload string) {
	if m.publish != nil {
		m.publish(channel, payload)
	}
}

// describe returns the description of a member in events.
func (m *monitor) describe(kind string, p Peer) string {
	switch kind {
	case "master":
		return fmt.Sprintf("master %s %s %s", m.name, p.Host, p.Port)
	case "slave":
		return fmt.Sprintf("slave %s %s %s @ %s %s %s", p.addr(), p.Host, p.Port, m.name, m.master.Host, m.master.Port)
	}
	return fmt.Sprintf("sentinel %s %s %s @ %s %s %s", p.ID, p.SentinelHost, p.SentinelPort, m.name, m.master.Host, m.master.Port)
}

// watch is a snapshot of the master and the rest of the cluster.
type watch struct {
	name      string
	master    Peer
	down      bool
	since     time.Time
	confirmed time.Time
	replicas  []Peer
	sentinels []Peer // without this node's own
	voters    int
	epoch     uint64
	now       time.Time
}

// watch has the leader confirmed and returns what the Sentinel knows then. ok
// is false before the first confirmation of a leader.
func (m *monitor) watch(ctx context.Context) (w watch, ok bool) {
	m.refresh(ctx, confirmLimit)
	peers := m.topology.Peers()
	m.mu.Lock()
	defer m.mu.Unlock()
	w = watch{
		name: m.name, master: m.master, down: m.down, since: m.since, confirmed: m.confirmed,
		epoch: m.topology.Term(), now: time.Now(),
	}
	for _, p := range peers {
		if p.Voter {
			w.voters++
		}
		if p.Voter && p.known() && p.ID != m.master.ID {
			w.replicas = append(w.replicas, p)
		}
		if p.SentinelPort != "" && !p.Self {
			w.sentinels = append(w.sentinels, p)
		}
	}
	return w, m.master.known()
}

// quorum returns how many nodes have to agree on a new leader.
func (w *watch) quorum() int { return w.voters/2 + 1 }

// usable returns the number of Sentinels that answer, including this one.
func (w *watch) usable() int {
	n := 1
	for _, p := range w.sentinels {
		if p.Alive {
			n++
		}
	}
	return n
}

// item is an entry of SENTINEL MASTERS and related commands: names and values,
// all strings.
type item struct{ pairs []fsm.Reply }

func (i *item) add(name string, value any) {
	i.pairs = append(i.pairs, fsm.Bulk(name), fsm.Bulk(fmt.Sprint(value)))
}

// ago returns the milliseconds from t until the snapshot, or 0 if t is zero.
func (w *watch) ago(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, w.now.Sub(t).Milliseconds())
}

// head adds the fields that all kinds of items begin with.
func (w *watch) head(kind, name, host, port, runID string, down bool, heard time.Time) *item {
	flags := []string{kind}
	if down {
		flags = []string{"s_down", kind, "disconnected"}
		if kind == "master" {
			flags = []string{"s_down", "o_down", kind, "disconnected"}
		}
	}
	i := &item{}
	i.add("name", name)
	i.add("ip", host)
	i.add("port", port)
	i.add("runid", runID)
	i.add("flags", strings.Join(flags, ","))
	i.add("link-pending-commands", 0)
	i.add("link-refcount", 1)
	silence := w.ago(heard)
	if down {
		i.add("last-ping-sent", silence)
	} else {
		i.add("last-ping-sent", 0)
	}
	i.add("last-ok-ping-reply", silence)
	i.add("last-ping-reply", silence)
	if down {
		i.add("s-down-time", silence)
		if kind == "master" {
			i.add("o-down-time", silence)
		}
	}
	i.add("down-after-milliseconds", downAfter.Milliseconds())
	return i
}

func (i *item) reply() fsm.Reply { return fsm.Map(i.pairs) }

func (w *watch) masterItem() fsm.Reply {
	i := w.head("master", w.name, w.master.Host, w.master.Port, w.master.RunID, w.down, w.confirmed)
	i.add("info-refresh", w.ago(w.confirmed))
	i.add("role-reported", "master")
	i.add("role-reported-time", w.ago(w.since))
	i.add("config-epoch", w.epoch)
	i.add("num-slaves", len(w.replicas))
	i.add("num-other-sentinels", len(w.sentinels))
	i.add("quorum", w.quorum())
	i.add("failover-timeout", takeOverLimit.Milliseconds())
	i.add("parallel-syncs", 1)
	return i.reply()
}

func (w *watch) replicaItem(p Peer) fsm.Reply {
	i := w.head("slave", p.addr(), p.Host, p.Port, p.RunID, !p.Alive, p.Heard)
	i.add("info-refresh", w.ago(p.Heard))
	i.add("role-reported", "slave")
	i.add("role-reported-time", w.ago(w.since))
	status, silence := "ok", int64(0)
	if w.down || !p.Alive {
		status, silence = "err", w.ago(p.Heard)
		if w.down {
			silence = w.ago(w.confirmed)
		}
	}
	i.add("master-link-down-time", silence)
	i.add("master-link-status", status)
	i.add("master-host", w.master.Host)
	i.add("master-port", w.master.Port)
	i.add("slave-priority", 100)
	i.add("slave-repl-offset", p.Offset)
	i.add("replica-announced", 1)
	return i.reply()
}

func (w *watch) sentinelItem(p Peer) fsm.Reply {
	i := w.head("sentinel", p.ID, p.SentinelHost, p.SentinelPort, p.ID, !p.Alive, p.Heard)
	i.add("last-hello-message", w.ago(p.Heard))
	i.add("voted-leader", "?")
	i.add("voted-leader-epoch", 0)
	return i.reply()
}
