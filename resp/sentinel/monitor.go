// Package sentinel describes the cluster as a Redis Sentinel does: one master (the
// leader), its replicas, the other Sentinels, and events about their changes. Raft
// elects the leader; a Sentinel takes no part in elections.
package sentinel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// Monitor is the state of a Sentinel port: its view of the master, from which
// it derives the events for its subscribers. Run updates the view once in each
// interval checkEvery, and after each change of the leader or of the members.
// Each command that asks about the master also updates it.
type Monitor struct {
	name     string // name of the master
	topology topology.Source
	publish  func(channel, payload string)

	mu        sync.Mutex
	master    topology.Peer // leader that was confirmed last; zero before the first confirmation
	since     time.Time     // when the leader became the master, as this node saw it
	confirmed time.Time     // when a majority last confirmed the leader
	down      bool          // the master has not been confirmed for longer than downAfter
	seen      map[string]topology.Peer
}

const (
	// confirmLimit bounds how long a command waits for a majority to confirm
	// the leader. After that time, the command reports the last confirmed
	// leader. confirmLimit is shorter than the 100 ms that clients usually
	// allow a Sentinel, and far longer than a round trip.
	confirmLimit = 75 * time.Millisecond
	// checkEvery is the interval at which the leader is confirmed without a
	// command.
	checkEvery = time.Second
	// downAfter is how long a leader may stay unconfirmed before the Sentinel
	// reports it as down. An election takes less time.
	downAfter = time.Second
)

// New returns the state of a Sentinel port whose master has the given name.
// publish sends an event to the subscribers of the port.
func New(name string, t topology.Source, publish func(channel, payload string)) *Monitor {
	return &Monitor{name: name, topology: t, publish: publish}
}

// Run updates the monitor until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
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

// refresh asks for a confirmation of the leader and updates the monitor.
func (m *Monitor) refresh(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	leader, err := m.topology.ConfirmLeader(ctx)
	m.update(leader, err == nil && leader.Known(), m.topology.Peers(), time.Now())
}

// update sets the members and, if ok is set, the leader. It publishes events about
// the changes with m.mu locked, so that the events are in order.
func (m *Monitor) update(leader topology.Peer, ok bool, peers []topology.Peer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var switched bool
	if ok {
		switched = m.setMaster(leader, now)
		m.confirmed = now
	}
	m.setDown(!ok && m.master.Known() && now.Sub(m.confirmed) > downAfter)
	if m.seen == nil {
		m.seen = make(map[string]topology.Peer)
	}
	for _, p := range peers {
		if !p.Known() {
			continue
		}
		before, known := m.seen[p.ID]
		m.seen[p.ID] = p
		if p.ID == m.master.ID {
			m.master.Offset, m.master.RunID = p.Offset, p.RunID
		} else if p.Voter {
			m.publishMember("slave", p, before, known && before.Voter && !switched)
		}
		if p.SentinelPort != "" && !p.Self {
			m.publishMember("sentinel", p, before, known && before.SentinelPort != "")
		}
	}
}

// setMaster makes a leader the master. It reports whether the master had another
// address before.
func (m *Monitor) setMaster(leader topology.Peer, now time.Time) (switched bool) {
	old := m.master
	m.master = leader
	if old.Known() && old.Addr() == leader.Addr() {
		return false
	}
	m.since = now
	if !old.Known() {
		return false
	}
	m.down = false // down referred to the old master
	m.event("+switch-master", fmt.Sprintf("%s %s %s %s %s", m.name, old.Host, old.Port, leader.Host, leader.Port))
	return true
}

// setDown sets whether the master is reported as down, and publishes the
// change.
func (m *Monitor) setDown(down bool) {
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

// publishMember publishes the changes of a replica or of another Sentinel.
// After a change of the master, each replica counts as new.
func (m *Monitor) publishMember(kind string, p, before topology.Peer, known bool) {
	switch {
	case !known && (kind != "slave" || m.master.Known()):
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

func (m *Monitor) event(channel, payload string) {
	if m.publish != nil {
		m.publish(channel, payload)
	}
}

// describe returns the description of a member in events.
func (m *Monitor) describe(kind string, p topology.Peer) string {
	switch kind {
	case "master":
		return fmt.Sprintf("master %s %s %s", m.name, p.Host, p.Port)
	case "slave":
		return fmt.Sprintf("slave %s %s %s @ %s %s %s", p.Addr(), p.Host, p.Port, m.name, m.master.Host, m.master.Port)
	}
	return fmt.Sprintf("sentinel %s %s %s @ %s %s %s",
		p.ID, p.SentinelHost, p.SentinelPort, m.name, m.master.Host, m.master.Port)
}

// State is a snapshot of the master and the rest of the cluster.
type State struct {
	name      string
	master    topology.Peer
	down      bool
	since     time.Time
	confirmed time.Time
	replicas  []topology.Peer
	sentinels []topology.Peer // without this node's own
	voters    int
	epoch     uint64
	now       time.Time
}

// State asks for a confirmation of the leader, and then returns a snapshot. ok
// is false before the first confirmation of a leader.
func (m *Monitor) State(ctx context.Context) (w State, ok bool) {
	m.refresh(ctx, confirmLimit)
	peers := m.topology.Peers()
	m.mu.Lock()
	defer m.mu.Unlock()
	w = State{
		name: m.name, master: m.master, down: m.down, since: m.since, confirmed: m.confirmed,
		epoch: m.topology.Term(), now: time.Now(),
	}
	for _, p := range peers {
		if p.Voter {
			w.voters++
		}
		if p.Voter && p.Known() && p.ID != m.master.ID {
			w.replicas = append(w.replicas, p)
		}
		if p.SentinelPort != "" && !p.Self {
			w.sentinels = append(w.sentinels, p)
		}
	}
	return w, m.master.Known()
}

// quorum returns how many voters must agree on a new leader.
func (w *State) quorum() int { return w.voters/2 + 1 }

// usable returns the number of Sentinels that answer, including this one.
func (w *State) usable() int {
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
func (w *State) ago(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, w.now.Sub(t).Milliseconds())
}

// head returns a new item with the first fields, which all kinds of items have.
func (w *State) head(kind, name, host, port, runID string, down bool, heard time.Time) *item {
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

func (w *State) masterItem() fsm.Reply {
	i := w.head("master", w.name, w.master.Host, w.master.Port, w.master.RunID, w.down, w.confirmed)
	i.add("info-refresh", w.ago(w.confirmed))
	i.add("role-reported", "master")
	i.add("role-reported-time", w.ago(w.since))
	i.add("config-epoch", w.epoch)
	i.add("num-slaves", len(w.replicas))
	i.add("num-other-sentinels", len(w.sentinels))
	i.add("quorum", w.quorum())
	i.add("failover-timeout", topology.TransferLimit.Milliseconds())
	i.add("parallel-syncs", 1)
	return i.reply()
}

func (w *State) replicaItem(p topology.Peer) fsm.Reply {
	i := w.head("slave", p.Addr(), p.Host, p.Port, p.RunID, !p.Alive, p.Heard)
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

func (w *State) sentinelItem(p topology.Peer) fsm.Reply {
	i := w.head("sentinel", p.ID, p.SentinelHost, p.SentinelPort, p.ID, !p.Alive, p.Heard)
	i.add("last-hello-message", w.ago(p.Heard))
	i.add("voted-leader", "?")
	i.add("voted-leader-epoch", 0)
	return i.reply()
}

// items returns an array with an item for each peer.
func items(peers []topology.Peer, item func(topology.Peer) fsm.Reply) fsm.Reply {
	out := make([]fsm.Reply, len(peers))
	for i, p := range peers {
		out[i] = item(p)
	}
	return fsm.Array(out)
}

// Addr returns the reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
func (w *State) Addr() fsm.Reply { return fsm.Strings(w.master.Host, w.master.Port) }

// Master returns the reply to SENTINEL MASTER.
func (w *State) Master() fsm.Reply { return w.masterItem() }

// Masters returns the reply to SENTINEL MASTERS.
func (w *State) Masters() fsm.Reply { return fsm.Array([]fsm.Reply{w.masterItem()}) }

// Replicas returns the reply to SENTINEL REPLICAS.
func (w *State) Replicas() fsm.Reply { return items(w.replicas, w.replicaItem) }

// Sentinels returns the reply to SENTINEL SENTINELS.
func (w *State) Sentinels() fsm.Reply { return items(w.sentinels, w.sentinelItem) }

// CheckQuorum returns the reply to SENTINEL CKQUORUM.
func (w *State) CheckQuorum() fsm.Reply {
	usable := w.usable()
	if usable >= w.quorum() {
		return fsm.Simple(fmt.Sprintf(
			"OK %d usable Sentinels. Quorum and failover authorization can be reached", usable))
	}
	return fsm.Error(fmt.Sprintf("NOQUORUM %d usable Sentinels. "+
		"Not enough available Sentinels to reach the specified quorum for this master. "+
		"Not enough available Sentinels to reach the majority and authorize a failover", usable))
}

// IsDown reports whether the master has the given address and is down.
func (w *State) IsDown(host, port string) bool {
	return w.down && w.master.Host == host && w.master.Port == port
}

// CanFailOver reports whether another node could become the master.
func (w *State) CanFailOver() bool {
	return slices.ContainsFunc(w.replicas, func(p topology.Peer) bool { return p.Alive })
}

// InfoLine returns the description of the master in INFO.
func (w *State) InfoLine() string {
	status := "ok"
	if w.down {
		status = "odown"
	}
	return fmt.Sprintf("name=%s,status=%s,address=%s,slaves=%d,sentinels=%d",
		w.name, status, w.master.Addr(), len(w.replicas), len(w.sentinels)+1)
}
