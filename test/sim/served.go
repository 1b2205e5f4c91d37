package sim

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// served records the observations of the remote clients of a history. These
// clients use more features than the other clients, such as queues, channels,
// scripts and locks with queues. Each history runs some of the workloads, or
// none.
type served struct {
	mu        sync.Mutex
	pushes    []checker.Push
	takes     []*checker.Take
	publishes []checker.Publish
	listens   []checker.Subscription
	cached    []checker.CacheEvent
	added     []checker.Added
	reads     []checker.GroupRead
	acks      []checker.GroupAck
	locks     checker.LockHistory
	steady    checker.Health // when the order of waiters for locks is checked: see checker.LockQueues
	ops       []checker.Op   // operations on data that behaves like a register or a counter

	waiting map[waiterName]*checker.Take // blocking commands that are under way
	caches  []*cacher
	lists   map[string][]string
	ends    []checker.GroupEnd
}

// waiterName identifies a waiter in the state machine.
type waiterName struct {
	session fsm.SessionID
	origin  uint64
}

// workload is a group of clients that work on the same data.
type workload struct {
	name string
	runs []func(*remote) // one client each
}

// workloads lists all workloads. Schedules depend on the order.
var workloads = []workload{
	{"queues", []func(*remote){(*remote).producer, (*remote).producer, (*remote).consumer, (*remote).consumer,
		(*remote).consumer, (*remote).consumer, (*remote).impatient, (*remote).impatient}},
	{"streams", []func(*remote){(*remote).adder, (*remote).groupReader, (*remote).groupReader, (*remote).groupReader}},
	{"scripts", []func(*remote){(*remote).scripter, (*remote).scripter, (*remote).napper}},
	{"pub/sub", []func(*remote){(*remote).publisher, (*remote).publisher, (*remote).subscriber, (*remote).subscriber,
		(*remote).subscriber}},
	{"tracking", []func(*remote){(*remote).cacheUser, (*remote).cacheUser, (*remote).cacheUser}},
	{"users", []func(*remote){(*remote).administrator, (*remote).administrator}},
	{"transactions", []func(*remote){(*remote).transactor, (*remote).transactor}},
	{lockWork, []func(*remote){(*remote).lockWaiter, (*remote).lockWaiter, (*remote).lockWaiter, (*remote).lockWaiter,
		(*remote).lockWaiter, (*remote).lockWaiter, (*remote).lockTaker, (*remote).lockTaker, (*remote).lockBreaker,
		(*remote).lockDelayer}},
}

// lockWork is the name of the workload in which clients wait for locks.
const lockWork = "locks"

// Workloads returns the names of the workloads.
func Workloads() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// startServed starts the remote clients of the schedule.
func (h *history) startServed(clients *sync.WaitGroup) {
	id := 3000
	for _, w := range workloads {
		if !slices.Contains(h.plan.Work, w.name) {
			continue
		}
		for _, run := range w.runs {
			c := h.remote(id, w.name)
			id++
			clients.Go(func() {
				run(c)
				if !c.stays {
					c.close()
				}
			})
		}
	}
}

func (h *history) works(name string) bool { return slices.Contains(h.plan.Work, name) }

// observeWaiters records which of the blocking commands under way are waiters
// in the leader's state machine.
func (h *history) observeWaiters() {
	leader := h.w.leader()
	if leader == "" || !h.works("queues") {
		return
	}
	p := h.w.node(leader).running()
	if p == nil {
		return
	}
	now := h.w.elapsed()
	h.served.mu.Lock()
	defer h.served.mu.Unlock()
	p.n.View(func(m *fsm.Machine) {
		for _, s := range m.WaitSessions() {
			for _, w := range m.WaitersOf(s.ID) {
				if k := h.served.waiting[waiterName{s.ID, w.Origin}]; k != nil && k.Waiting == 0 && !w.Served {
					k.Waiting = now
				}
			}
		}
	})
}

// finishServed reads the final state for the checkers. It is called when all
// clients have ended and all nodes have applied the same index.
func (h *history) finishServed() {
	for _, c := range h.served.caches {
		c.finish()
	}
	h.served.lists = make(map[string][]string)
	if h.works("queues") {
		for _, list := range queueLists() {
			if x, ok := h.ask(command{"lrange", list, "0", "-1"}); ok {
				h.served.lists[list] = texts(x.first())
			}
		}
	}
	if h.works("streams") {
		h.readGroup()
	}
	if h.works("users") {
		h.readUsers()
	}
}

func texts(v value) []string {
	all := []string{}
	for _, e := range v.Array {
		all = append(all, e.Text)
	}
	return all
}

// ask runs commands at the end of a history, when no fault is active.
func (h *history) ask(cmds ...command) (exchange, bool) {
	c := h.remote(2500, "asker")
	for begun := h.w.elapsed(); h.w.elapsed() < begun+recovery; <-time.After(lookEvery) {
		for _, id := range h.w.ids() {
			if c.home = id; !c.dial() {
				continue
			}
			x := c.do(cmds...)
			c.close()
			if x.outcome == checker.Done {
				return x, true
			}
		}
	}
	h.w.audit.violate("%v could not be read at the end", cmds)
	return exchange{}, false
}

// checkServed runs the checkers on the observations of the remote clients.
func (h *history) checkServed(r *Result, log replay.Log, complete bool, add func([]checker.Violation)) {
	s := &h.served
	note := func(what string, checked int, bad []checker.Violation) {
		r.Checks[what] += checked
		r.Ops += checked
		add(bad)
	}
	takes := make([]checker.Take, len(s.takes))
	for i, k := range s.takes {
		takes[i] = *k
	}
	checked, bad := checker.Queues(s.pushes, takes, s.lists, &h.health)
	note("queue", checked, bad)
	if h.works(lockWork) {
		s.locks.LeaveWithin = leaveWithin
		checked, bad = checker.LockQueues(s.locks, &h.health, &s.steady)
		note("lock queue", checked, bad)
		for _, k := range s.locks.Calls {
			if k.Token != 0 {
				r.Checks["lock queue: grants"]++
			}
		}
		r.Checks["lock queue: delays"] += checker.LockDelays(s.locks.Views)
	}
	checked, bad = checker.Groups(s.added, s.reads, s.acks, s.ends)
	note("stream group", checked, bad)
	var messages, values map[string][]string
	if complete {
		messages, values = written(log)
	}
	checked, bad = checker.Messages(s.publishes, s.listens, messages)
	note("pub/sub", checked, bad)
	if complete {
		checked, bad = checker.Caches(s.cached, values)
		note("client-side cache", checked, bad)
	}
	linear := checker.Linear(s.ops, &h.health, checkLimit)
	note("scripts, users, transactions", linear.Ops, linear.Violations)
	maps.Copy(r.bad, linear.Bad)
}

// written returns data from the log that the final state does not contain: the
// messages of each channel, and all values of each key that clients may have
// cached.
func written(log replay.Log) (messages, values map[string][]string) {
	messages, values = make(map[string][]string), make(map[string][]string)
	replay.Commands(log, func(c fsm.RecordCommand) {
		switch {
		case c.Args[0] == fsm.PublishCommand && len(c.Args) > 2:
			messages[c.Args[1]] = append(messages[c.Args[1]], c.Args[2])
		case c.Args[0] == "set" && len(c.Args) > 2:
			values[c.Args[1]] = append(values[c.Args[1]], c.Args[2])
		}
	})
	return messages, values
}

// number returns the name of the i-th key, channel or user.
func number(name string, i int) string { return name + strconv.Itoa(i) }
