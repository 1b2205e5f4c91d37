package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// These are the locks that several owners may hold together. The other locks in
// fairLocks have one owner at a time.
const (
	sharedLock  = "fair:shared" // some clients ask for it with SHARED, the others exclusively
	limitedLock = "fair:limit"  // at most two owners hold it
)

var fairLocks = []string{"fair:0", "fair:1", sharedLock, limitedLock}

const (
	// longestWait is how much longer than the shortest WAIT, 100 ms, a WAIT can
	// be. It limits how long Pause waits for these clients.
	longestWait = 3 * time.Second
	// longestLease is how much longer than the shortest lease, 300 ms, a lease
	// can be.
	longestLease = 1500 * time.Millisecond
)

// LeaveWithin is how long a client whose connection has ended may stay in the
// queue of a lock. By default, a leader notices after three seconds that a node
// is silent, and keeps the waiters of that node for one more second.
const LeaveWithin = 5 * time.Second

// waitForLocks takes locks with LOCK ACQUIRE until the load stops, mostly with
// WAIT. The client sometimes closes its connection while it waits. If it loses
// its connection, it may ask again.
func (c *client) waitForLocks() {
	for c.ready() {
		k := c.newLockCall()
		wait := time.Duration(0)
		if k.Waits = c.rng.IntN(8) > 0; k.Waits {
			wait = 100*time.Millisecond + time.Duration(c.rng.Int64N(int64(longestWait)))
		}
		c.acquireLock(k, wait)
		for tries := 0; k.Outcome == checker.Unknown && k.Left == 0 && tries < 3; tries++ {
			if !c.connected() {
				return
			}
			again := *k
			k = &again
			c.acquireLock(k, wait)
		}
		if k.Token != 0 {
			c.ownLock(k)
		}
	}
}

// newLockCall returns an attempt by a new owner to take a random lock.
func (c *client) newLockCall() *checker.LockCall {
	lock := fairLocks[c.rng.IntN(len(fairLocks))]
	key := c.load.mark(c.load.cfg.Prefix + lock)
	k := &checker.LockCall{Lock: key, Owner: c.unique("owner"), Client: c.id,
		TTL: 300*time.Millisecond + time.Duration(c.rng.IntN(int(longestLease/time.Millisecond)))*time.Millisecond}
	switch {
	case lock == limitedLock:
		k.Mode.Limit = 2
	case lock == sharedLock:
		k.Mode.Shared = c.rng.IntN(3) > 0
	}
	return k
}

// acquireLock sends LOCK ACQUIRE and records the result.
func (c *client) acquireLock(k *checker.LockCall, wait time.Duration) {
	l := c.load
	k.Node, k.Outcome, k.Token, k.Left, k.Steps = c.node(), checker.Unknown, 0, 0, nil
	cmd := []string{"LOCK", "ACQUIRE", k.Lock, k.Owner, "PX", millis(k.TTL)}
	if k.Waits {
		cmd = append(cmd, "WAIT", millis(wait))
	}
	switch {
	case k.Mode.Shared:
		cmd = append(cmd, "SHARED")
	case k.Mode.Limit > 0:
		cmd = append(cmd, "LIMIT", strconv.Itoa(k.Mode.Limit))
	}
	limit := wait + takeTimeout
	leaves := k.Waits && c.rng.IntN(10) == 0
	if leaves {
		limit = time.Millisecond + time.Duration(c.rng.Int64N(int64(wait)))
	}
	// While the load pauses, no client may have a LOCK ACQUIRE in flight: the
	// cluster could grant the lock, and a restore would undo the grant.
	l.pause.RLock()
	v, call, ret, err := c.await(cmd, limit)
	l.pause.RUnlock()
	k.Call, k.Return = call, ret
	if err == nil {
		k.Outcome, k.Token = settleLock(v), v.Int
	} else {
		stopped := l.ctx.Err() != nil
		if !leaves && !stopped {
			l.rec.unsteady(ret-lostConnection, ret+lockSettles)
		}
		if leaves || stopped || c.rng.IntN(2) == 0 {
			k.Left = ret
		}
	}
	l.rec.add(func(h *History) { h.Locks.Calls = append(h.Locks.Calls, k) })
}

// settleLock returns the outcome of a command about a lock. An error that asks
// for a higher feature version proves that the command was not executed.
// WRONGTYPE is the reply to a command that was executed: the key is not a
// string, because other owners hold the lock with SHARED or LIMIT.
func settleLock(v respwire.Value) checker.Outcome {
	switch outcome := outcomeOf(v); {
	case outcome != checker.Done || v.Err == "" || strings.HasPrefix(v.Err, "WRONGTYPE"):
		return outcome
	case strings.Contains(v.Err, "needs feature version"):
		return checker.Refused
	}
	return checker.Unknown
}

// takeFairLocks takes the locks of waitForLocks as lock libraries do: with SET NX
// PX, and without waiting. It asks for the token in the same transaction or
// pipeline.
func (c *client) takeFairLocks() {
	for c.ready() {
		k := c.newLockCall()
		k.Mode, k.Node, k.Outcome = checker.LockMode{}, c.node(), checker.Unknown
		cmds := [][]string{{"SET", k.Lock, k.Owner, "NX", "PX", millis(k.TTL)}, {"LOCK", "TOKEN", k.Lock}}
		transaction := c.rng.IntN(2) == 0
		if transaction {
			cmds = [][]string{{"MULTI"}, cmds[0], cmds[1], {"EXEC"}}
		} else {
			cmds[1] = append(cmds[1], k.Owner)
		}
		replies, call, ret := c.send(cmds)
		k.Call, k.Return = call, ret
		if len(replies) == len(cmds) {
			if transaction {
				last := replies[len(replies)-1]
				if k.Outcome = settleLock(last); len(last.Elems) == 2 {
					replies = last.Elems
				}
			}
			switch set := replies[0]; {
			case len(replies) != 2:
			case set.Text != "OK":
				k.Outcome = settleLock(set)
			case replies[1].Err == "": // the reply is the token, or null if the lease has ended
				k.Outcome, k.Token = checker.Done, replies[1].Int
			default:
				k.Outcome = checker.Unknown
			}
		}
		if k.Outcome == checker.Unknown && k.Token == 0 && len(replies) < len(cmds) {
			c.load.rec.unsteady(ret-lostConnection, ret+lockSettles)
		}
		c.load.rec.add(func(h *History) { h.Locks.Calls = append(h.Locks.Calls, k) })
		if k.Token != 0 {
			c.ownLock(k)
		}
		Sleep(c.load.ctx, time.Duration(c.rng.Int64N(int64(30*time.Millisecond))))
	}
}

// ownLock acts as the owner of a lock: it may renew and check the lock, and then
// releases it. Some owners simulate a failure: they close their connection and
// let the lock expire.
func (c *client) ownLock(k *checker.LockCall) {
	hold := int64(20 * time.Millisecond)
	if c.rng.IntN(20) == 0 {
		hold = int64(k.TTL)
	}
	Sleep(c.load.ctx, time.Duration(c.rng.Int64N(hold))/2)
	for range c.rng.IntN(3) {
		if !c.connected() {
			return
		}
		if s := c.lockStep(k, c.rng.IntN(3) == 0); s.Outcome == checker.Done && !s.Mine {
			return
		}
		Sleep(c.load.ctx, time.Duration(c.rng.Int64N(hold))/2)
	}
	if c.rng.IntN(25) == 0 {
		c.hangUp()
		return
	}
	if c.connected() {
		c.releaseLock(k)
	}
}

// lockStep renews or checks a lock, with one of several commands.
func (c *client) lockStep(k *checker.LockCall, check bool) checker.LockStep {
	s := checker.LockStep{Kind: checker.LockRenew}
	px := millis(k.TTL)
	cmd := []string{"LOCK", "RENEW", k.Lock, k.Owner, "PX", px}
	switch how := c.rng.IntN(3); {
	case check:
		s.Kind = checker.LockCheck
		cmd = []string{"LOCK", "CHECK", k.Lock, strconv.FormatInt(k.Token, 10)}
	case k.Mode != checker.LockMode{} || how == 0: // only LOCK supports locks with several owners
	case how == 1:
		cmd = []string{"SET", k.Lock, k.Owner, "IFEQ", k.Owner, "PX", px}
	default:
		cmd = []string{"EVAL", renewScript, "1", k.Lock, k.Owner, px}
	}
	v := c.sendStep(k, &s, cmd)
	s.Mine = v.Int != 0 || v.Text == "OK"
	if cmd[0] == "LOCK" && !check && s.Mine {
		s.Token = v.Int
	}
	c.addStep(k, s)
	return s
}

// releaseLock releases a lock, with one of several commands.
func (c *client) releaseLock(k *checker.LockCall) {
	s := checker.LockStep{Kind: checker.LockRelease}
	cmd := []string{"LOCK", "RELEASE", k.Lock, k.Owner}
	switch how := c.rng.IntN(4); {
	case how == 0:
		cmd = append(cmd, strconv.FormatInt(k.Token, 10))
	case k.Mode != checker.LockMode{} || how == 1:
	case how == 2:
		cmd = []string{"DELIFEQ", k.Lock, k.Owner}
	default:
		cmd = []string{"EVAL", deleteScript, "1", k.Lock, k.Owner}
	}
	s.Mine = c.sendStep(k, &s, cmd).Int == 1
	c.addStep(k, s)
}

// sendStep sends a command of an owner and fills in the times and the outcome.
func (c *client) sendStep(k *checker.LockCall, s *checker.LockStep, cmd []string) (v respwire.Value) {
	replies, call, ret := c.send([][]string{cmd})
	s.Call, s.Return, s.Outcome = call, ret, checker.Unknown
	if len(replies) == 1 {
		v = replies[0]
		s.Outcome = settleLock(v)
	}
	if ret-call > troubled {
		c.load.rec.unsteady(call, ret)
	}
	return v
}

func (c *client) addStep(k *checker.LockCall, s checker.LockStep) {
	c.load.rec.add(func(*History) { k.Steps = append(k.Steps, s) })
}

// breakLocks takes locks away from their owners now and then.
func (c *client) breakLocks() {
	for Sleep(c.load.ctx, time.Duration(c.rng.Int64N(int64(3*time.Second)))) && c.ready() {
		b := checker.LockBreak{Lock: c.load.cfg.Prefix + fairLocks[c.rng.IntN(len(fairLocks))],
			Outcome: checker.Unknown}
		cmd := []string{"LOCK", "BREAK", b.Lock}
		if c.rng.IntN(2) == 0 {
			replies, _, _ := c.send([][]string{{"LOCK", "TOKEN", b.Lock}})
			if len(replies) == 0 || replies[0].Err != "" || replies[0].Null || !c.connected() {
				continue
			}
			b.Token = replies[0].Int
			cmd = append(cmd, strconv.FormatInt(b.Token, 10))
		}
		replies, call, ret := c.send([][]string{cmd})
		b.Call, b.Return = call, ret
		if len(replies) == 1 {
			b.Outcome, b.Broke = settleLock(replies[0]), replies[0].Int > 0
		}
		c.load.rec.add(func(h *History) { h.Locks.Breaks = append(h.Locks.Breaks, b) })
	}
}

const (
	// viewLocksEvery is the interval between two views of the locks.
	viewLocksEvery = 20 * time.Millisecond
	// lostConnection bounds the time from the death of a node until a client
	// notices the loss of its connection. The order of waiters is not checked
	// from lostConnection before the client notices the loss until lockSettles
	// after it.
	lostConnection = 500 * time.Millisecond
	lockSettles    = 300 * time.Millisecond
	// lateView is how late a view may be. If a view is later, the order and the
	// times of the queues are not checked, because the machine is too slow to
	// observe a limit of 100 ms.
	lateView = 80 * time.Millisecond
)

// viewLocks requests views of the locks until the load stops. It records an
// interval as unsteady if the views in it failed or came too late.
func (c *client) viewLocks() {
	l := c.load
	var cmds [][]string
	for _, lock := range fairLocks {
		cmds = append(cmds, []string{"LOCK", "INFO", l.cfg.Prefix + lock})
	}
	for seen := l.Now(); Sleep(l.ctx, viewLocksEvery); {
		if !c.connected() {
			return
		}
		l.pause.RLock()
		call := l.Now()
		replies, err := c.conn.Pipeline(cmds)
		ret := l.Now()
		l.pause.RUnlock()
		views := make([]*checker.LockView, 0, len(cmds))
		for i, v := range replies {
			if v.Err != "" {
				err = cmp.Or(err, errors.New(v.Err))
				continue
			}
			view := checker.LockViewOf(cmds[i][2], v)
			view.Call, view.Return = call, ret
			views = append(views, &view)
		}
		if err != nil {
			l.rec.unsteady(seen-lostConnection, ret+lockSettles)
			c.hangUp()
			c.at++
			continue
		}
		if ret-seen > viewLocksEvery+lateView {
			l.rec.unsteady(seen, ret)
		}
		seen = ret
		l.rec.add(func(h *History) { h.Locks.Views = append(h.Locks.Views, views...) })
	}
}

// probeLocks finds out whether the cluster has locks with a queue of waiters,
// and whether the user of the load may use them.
func (l *Load) probeLocks(c *Conn) error {
	v, err := c.Do("LOCK", "RELEASE", l.cfg.Prefix+"probe", "x")
	l.fair = err == nil && v.Err == ""
	return err
}

// pastLimit is how long collectLocks tries to reach a node, and how long it waits
// until a node reaches a leader.
const pastLimit = 5 * time.Second

// collectLocks asks each node for the history of the locks. It leaves out nodes
// that do not know LOCK HISTORY or refuse it to the user of the load, nodes
// whose history is switched off, and nodes that are down. It also leaves out
// nodes that reach no leader or were removed from the cluster, because their
// answer to LOCK HISTORY may be old. Other checks find out whether a node should
// be up.
func (l *Load) collectLocks(ctx context.Context) error {
	if l.cfg.Waiters == 0 {
		return nil
	}
nodes:
	for _, addr := range l.cfg.Addrs {
		if !l.current(ctx, addr) {
			continue
		}
		reached := time.Now() // time of the latest reply, or of the first attempt to reach the node
	locks:
		for _, lock := range fairLocks {
			key := l.cfg.Prefix + lock
			for {
				v, err := l.once(ctx, addr, 5*time.Second, "LOCK", "HISTORY", key, "COUNT",
					strconv.Itoa(checker.MostGrants))
				switch {
				case err != nil && time.Since(reached) > pastLimit:
					continue nodes
				case err != nil:
				case v.Err == "":
					l.rec.h.Pasts = append(l.rec.h.Pasts, checker.LockPastOf(addr, key, v))
					continue locks
				case strings.Contains(v.Err, "keeps no history"), strings.HasPrefix(v.Err, "NOPERM"),
					strings.Contains(v.Err, "nknown"):
					continue locks
				default:
					reached = time.Now()
				}
				if ctx.Err() != nil {
					return fmt.Errorf("read the history of %s from %s: %w", key, addr,
						errors.Join(err, errors.New(v.Err), context.Cause(ctx)))
				}
				Sleep(ctx, 50*time.Millisecond)
			}
		}
	}
	return nil
}

// current waits until the node executes a read, for which the node needs a
// leader. It reports whether the node executed the read within pastLimit. If
// the user of the load may not send the read, the error counts as success.
func (l *Load) current(ctx context.Context, addr string) bool {
	for began := time.Now(); time.Since(began) <= pastLimit && ctx.Err() == nil; Sleep(ctx, 50*time.Millisecond) {
		v, err := l.once(ctx, addr, pastLimit, "EXISTS", l.cfg.Prefix+"probe")
		switch {
		case err == nil && (v.Err == "" || strings.HasPrefix(v.Err, "NOPERM")):
			return true
		case strings.Contains(v.Err, "was removed from the cluster"):
			return false
		}
	}
	return false
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
