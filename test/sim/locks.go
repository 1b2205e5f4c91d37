package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// These locks of the workload may have a lock delay, or several owners at the
// same time.
const (
	fairDelayed = "fair1" // one owner at a time, like fair0
	fairShared  = "fair2" // some clients ask for it with SHARED, the others exclusively
	fairLimit   = "fair3" // at most two owners hold it
)

// fairLocks are all locks of the workload. If a schedule has a lock delay, the
// delay applies to fairDelayed and fairLimit.
var fairLocks = []string{"fair0", fairDelayed, fairShared, fairLimit}

const (
	// lockLookEvery is the interval between two views of the locks.
	lockLookEvery = 20 * time.Millisecond
	// unsteady is how long after a change of leader the order and the times of
	// the queues are not checked.
	unsteady = 300 * time.Millisecond
	// leaveWithin is the value of checker.LockHistory.LeaveWithin. It is longer
	// than the time after which a leader notices that a node is silent, plus
	// WaiterGrace.
	leaveWithin = 3500 * time.Millisecond
)

// Lock libraries use these scripts. A node recognizes them and executes them
// natively: see fsm/nativescript.go.
const (
	releaseScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	renewScript   = `if redis.call("get",KEYS[1]) == ARGV[1] then ` +
		`return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
)

// gentle lists the faults during which the order of waiters is checked. During
// these faults, the nodes that are up can reach each other, and their disks and
// their monotonic clocks work. During a change of leader, the order is not
// checked.
var gentle = []string{"kill", "power failure", "power failure of a majority", "power failure of all", "snapshot",
	"transfer storm", "clock jump"}

// faultEnded records the interval in which a fault was active, unless the fault
// is gentle.
func (h *history) faultEnded(kind string, from, to time.Duration) {
	if slices.Contains(gentle, kind) {
		return
	}
	h.unsteady(max(0, from-lookEvery), to+2*time.Second)
}

// unsteady records an interval in which the order and the times of the queues
// are not checked.
func (h *history) unsteady(from, to time.Duration) {
	h.served.mu.Lock()
	defer h.served.mu.Unlock()
	h.served.steady.Add(from, to)
}

// joining reports whether some running node has applied nothing yet. Such a
// node has just started, or has not joined the cluster because the attempts to
// add it failed. Until it has joined, it does not forward the commands of its
// clients, so these clients are not in a queue.
func (w *world) joining() bool {
	for _, id := range w.ids() {
		p := w.node(id).running()
		if p == nil {
			continue
		}
		applied := uint64(0)
		p.n.View(func(m *fsm.Machine) { applied = m.Applied() })
		if applied == 0 {
			return true
		}
	}
	return false
}

// newCall returns a call in which a new owner attempts to take a lock.
func (c *remote) newCall(n int) *checker.LockCall {
	k := &checker.LockCall{
		Lock: fairLocks[c.r.IntN(len(fairLocks))], Owner: fmt.Sprintf("%d.%d", c.id, n), Client: c.id,
		TTL: time.Duration(5+c.r.IntN(25)) * 100 * time.Millisecond,
	}
	if c.r.IntN(8) == 0 { // a long lease: an owner that dies blocks the lock for a while
		k.TTL = 8 * time.Second
	}
	k.TTL = cmp.Or(c.h.plan.Lease, k.TTL)
	switch {
	case k.Lock == fairLimit:
		k.Mode.Limit = 2
	case k.Lock == fairShared:
		k.Mode.Shared = c.r.IntN(3) > 0
	}
	return k
}

func (h *history) lockCall(k *checker.LockCall) {
	h.served.mu.Lock()
	defer h.served.mu.Unlock()
	h.served.locks.Calls = append(h.served.locks.Calls, k)
}

// lockDelayer sets the lock delay of the schedule, if there is one. It repeats
// the command until the cluster has the feature version that the setting needs.
func (c *remote) lockDelayer() {
	delay := c.h.plan.LockDelay
	if delay == 0 {
		return
	}
	for c.h.pause(20*time.Millisecond) && c.connect() {
		value := fmt.Sprintf("%s %s %s %[2]s", fairDelayed, millis(delay), fairLimit)
		x := c.do(command{"config", "set", "lock-delay", value})
		if x.outcome != checker.Done || x.first().Text != "OK" {
			continue
		}
		c.h.served.mu.Lock()
		c.h.served.locks.Delays = map[string]time.Duration{fairDelayed: delay, fairLimit: delay}
		c.h.served.locks.DelaysSince = x.ret
		c.h.served.mu.Unlock()
		return
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lockWaiter takes locks with LOCK ACQUIRE, mostly with WAIT. The client
// sometimes closes its connection while it waits. If it loses the connection,
// it may ask again.
func (c *remote) lockWaiter() {
	for n := 0; c.think() && c.connect(); n++ {
		k := c.newCall(n)
		wait := time.Duration(0)
		if k.Waits = c.r.IntN(8) > 0; k.Waits {
			wait = time.Duration(1+c.r.IntN(60)) * 100 * time.Millisecond
		}
		if !c.acquire(k, wait) {
			continue
		}
		for tries := 0; k.Outcome == checker.Unknown && k.Left == 0 && tries < 3; tries++ {
			if !c.connect() {
				return
			}
			again := *k
			again.Outcome, again.Return = checker.Done, 0
			k = &again
			c.acquire(k, wait)
		}
		if k.Token != 0 {
			c.ownLock(k)
		}
	}
}

// acquire sends LOCK ACQUIRE and records the result. If the feature version of
// the cluster is too low for the command, acquire records nothing and reports
// false.
func (c *remote) acquire(k *checker.LockCall, wait time.Duration) bool {
	cmd := command{"lock", "acquire", k.Lock, k.Owner, "px", millis(k.TTL)}
	if k.Waits {
		cmd = append(cmd, "wait", millis(wait))
	}
	switch {
	case k.Mode.Shared:
		cmd = append(cmd, "shared")
	case k.Mode.Limit > 0:
		cmd = append(cmd, "limit", strconv.Itoa(k.Mode.Limit))
	}
	k.Node = c.home
	leaves := k.Waits && c.r.IntN(8) == 0
	proc := c.proc
	x := c.send(cmd)
	if x.outcome == checker.Done {
		if leaves { // the client leaves while it waits, or while the node replies
			x = c.receiveOrLeave(x, time.Duration(c.r.Int64N(int64(wait))))
		} else {
			x = c.receive(x, 1, wait+replyTimeout)
		}
	}
	k.Call, k.Return, k.Outcome = x.call, x.ret, x.outcome
	if v := x.first(); v.Error && strings.Contains(v.Text, "needs feature version") {
		c.h.pause(200 * time.Millisecond)
		return false
	}
	switch v := x.first(); {
	case x.outcome == checker.Unknown && len(x.replies) == 0:
		c.ended(k, proc, leaves && !x.disconnected)
	case x.outcome != checker.Done:
	case v.Error:
		c.h.w.audit.violate("client %d: %v answered %s", c.id, cmd, v.Text)
	default:
		k.Token = v.Int
	}
	c.h.lockCall(k)
	return true
}

// ended records when the connection ended, unless the client will ask again.
func (c *remote) ended(k *checker.LockCall, proc *process, left bool) {
	if !left && c.r.IntN(2) == 0 {
		return
	}
	k.Left = k.Return
	if at := time.Duration(proc.died.Load()); at != 0 {
		k.Left = min(k.Left, at)
	}
}

// lockTaker takes locks as lock libraries do: with SET NX PX, and without
// waiting. It asks for the token in the same pipeline, or in a transaction.
func (c *remote) lockTaker() {
	for n := 0; c.think() && c.connect(); n++ {
		k := c.newCall(n)
		if k.Mode != (checker.LockMode{}) {
			k.Mode = checker.LockMode{}
		}
		k.Node = c.home
		cmds := []command{{"set", k.Lock, k.Owner, "nx", "px", millis(k.TTL)}, {"lock", "token", k.Lock}}
		transaction := c.r.IntN(2) == 0
		if transaction {
			cmds = []command{{"multi"}, cmds[0], cmds[1], {"exec"}}
		} else {
			cmds[1] = append(cmds[1], k.Owner)
		}
		x := c.do(cmds...)
		x.last()
		k.Call, k.Return, k.Outcome = x.call, x.ret, x.outcome
		replies := x.replies
		if x.outcome == checker.Done && transaction {
			replies = x.replies[len(x.replies)-1].Array
		}
		switch {
		case x.outcome != checker.Done:
		case len(replies) != 2:
			// Nodes refuse to queue a command that needs a higher feature
			// version, so no lock was taken.
			k.Outcome = checker.Refused
		case replies[0].Text == "OK" && !replies[1].Error:
			k.Token = replies[1].Int
		case replies[0].Text == "OK":
			k.Outcome = checker.Unknown // the feature version may be below that of LOCK TOKEN
		}
		c.h.lockCall(k)
		if k.Token != 0 {
			c.ownLock(k)
		}
	}
}

// ownLock acts as the owner of a lock: it may renew and check the lock, and then
// releases it. Some owners simulate a failure: they close their connection and
// let the lock expire.
func (c *remote) ownLock(k *checker.LockCall) {
	hold := min(k.TTL, 2*time.Second)
	c.h.pause(time.Duration(c.r.Int64N(int64(hold))) / 2)
	for range c.r.IntN(3) {
		if !c.connect() {
			return
		}
		if s := c.lockStep(k, c.r.IntN(3) == 0); s.Outcome == checker.Done && !s.Mine {
			return
		}
		c.h.pause(time.Duration(c.r.Int64N(int64(hold))) / 2)
	}
	if c.r.IntN(5) == 0 {
		c.leave()
		return
	}
	if c.connect() {
		c.releaseLock(k)
	}
}

// lockStep renews or checks a lock.
func (c *remote) lockStep(k *checker.LockCall, check bool) checker.LockStep {
	s := checker.LockStep{Kind: checker.LockRenew}
	px := millis(k.TTL)
	cmd := command{"lock", "renew", k.Lock, k.Owner, "px", px}
	switch how := c.r.IntN(3); {
	case check:
		s.Kind = checker.LockCheck
		cmd = command{"lock", "check", k.Lock, strconv.FormatInt(k.Token, 10)}
	case k.Mode != checker.LockMode{} || how == 0: // only LOCK supports locks with several owners
	case how == 1:
		cmd = command{"set", k.Lock, k.Owner, "ifeq", k.Owner, "px", px}
	default:
		cmd = command{"eval", renewScript, "1", k.Lock, k.Owner, px}
	}
	x := c.do(cmd)
	v := x.first()
	s.Mine = v.Int != 0 || v.Text == "OK"
	if cmd[0] == "lock" && !check && s.Mine {
		s.Token = v.Int
	}
	c.addStep(k, &s, x, cmd)
	return s
}

// releaseLock releases a lock.
func (c *remote) releaseLock(k *checker.LockCall) {
	s := checker.LockStep{Kind: checker.LockRelease}
	cmd := command{"lock", "release", k.Lock, k.Owner}
	switch how := c.r.IntN(4); {
	case how == 0:
		cmd = append(cmd, strconv.FormatInt(k.Token, 10))
	case k.Mode != checker.LockMode{} || how == 1:
	case how == 2:
		cmd = command{"delifeq", k.Lock, k.Owner}
	default:
		cmd = command{"eval", releaseScript, "1", k.Lock, k.Owner}
	}
	x := c.do(cmd)
	s.Mine = x.first().Int == 1
	c.addStep(k, &s, x, cmd)
}

func (c *remote) addStep(k *checker.LockCall, s *checker.LockStep, x exchange, cmd command) {
	s.Call, s.Return, s.Outcome = x.call, x.ret, x.outcome
	if v := x.first(); x.outcome == checker.Done && v.Error {
		if strings.HasPrefix(v.Text, "WRONGTYPE") { // another owner shares the lock
			s.Mine = false
		} else {
			c.h.w.audit.violate("client %d: %v answered %s", c.id, cmd, v.Text)
		}
	}
	c.h.served.mu.Lock()
	defer c.h.served.mu.Unlock()
	k.Steps = append(k.Steps, *s)
}

// lockBreaker takes locks away from their owners.
func (c *remote) lockBreaker() {
	for c.h.pause(time.Duration(c.r.Int64N(int64(8*time.Second)))) && c.connect() {
		b := checker.LockBreak{Lock: fairLocks[c.r.IntN(len(fairLocks))]}
		cmd := command{"lock", "break", b.Lock}
		if c.r.IntN(2) == 0 {
			x := c.do(command{"lock", "token", b.Lock})
			if x.outcome != checker.Done || x.first().Null || x.first().Error || !c.connect() {
				continue
			}
			b.Token = x.first().Int
			cmd = append(cmd, strconv.FormatInt(b.Token, 10))
		}
		x := c.do(cmd)
		b.Call, b.Return, b.Outcome, b.Broke = x.call, x.ret, x.outcome, x.first().Int == 1
		c.h.served.mu.Lock()
		c.h.served.locks.Breaks = append(c.h.served.locks.Breaks, b)
		c.h.served.mu.Unlock()
	}
}

// observeLocks records views of the locks in the leader's state machine until
// stop is closed. It also records when no leader is ready, when the leader
// changes, and when a node joins.
func (h *history) observeLocks(stop <-chan struct{}) {
	if !h.works(lockWork) {
		return
	}
	var term, index uint64
	last := make(map[string]*checker.LockView)
	seen := time.Duration(0)
	for t := time.NewTicker(lockLookEvery); ; {
		select {
		case <-stop:
			t.Stop()
			return
		case <-t.C:
		}
		p, is := h.w.readyLeader()
		now := h.w.elapsed()
		if p == nil || is != term || h.w.joining() {
			h.unsteady(seen, now+unsteady)
		}
		seen = now
		if p == nil || is < term { // no leader, or a deposed leader that has not noticed the change
			continue
		}
		term = is
		p.n.View(func(m *fsm.Machine) {
			at, _ := m.Hash()
			for _, lock := range fairLocks {
				v := last[lock]
				if at != index || v == nil {
					v = h.lockView(m, lock)
				}
				if v == nil {
					continue
				}
				same := *v
				same.Call, same.Return = now, now
				last[lock] = &same
				h.served.mu.Lock()
				h.served.locks.Views = append(h.served.locks.Views, &same)
				h.served.mu.Unlock()
			}
			index = at
		})
	}
}

// readyLeader returns the leader of the highest term in which a leader is
// ready, and this term. If another node knows a higher term, the process is
// nil.
func (w *world) readyLeader() (p *process, term uint64) {
	var top uint64
	for _, id := range w.ids() {
		q := w.node(id).running()
		if q == nil {
			continue
		}
		st := q.n.Status()
		top = max(top, st.Term)
		if st.Role == "leader" && st.Ready && st.Term > term {
			p, term = q, st.Term
		}
	}
	if term < top {
		return nil, term
	}
	return p, term
}

// lockView returns the reply of a state machine to LOCK INFO. It returns nil if
// the feature version is below fsm.FeatureShared, or if the read fails.
func (h *history) lockView(m *fsm.Machine, lock string) *checker.LockView {
	if m.Features() < fsm.FeatureShared {
		return nil
	}
	cmd := command{"lock", "info", lock}
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(m.Table().Find([]byte(cmd[0])), 0, args(cmd))
	raw, _, err := m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
	var v respwire.Value
	if err == nil {
		v, _, err = respwire.Parse(raw)
	}
	if err != nil {
		h.w.audit.violate("%v of the leader's state: %v", cmd, err)
		return nil
	}
	view := checker.LockViewOf(lock, v)
	view.Clock = time.Duration(m.Clock().Lease)
	return &view
}
