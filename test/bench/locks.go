package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// These are the rows about LOCK.
const (
	locksName     = "locks: "
	handOverName  = locksName + "hand-over"
	ownLocksName  = locksName + "own keys"
	nextOwnerName = locksName + "time to the next owner"
	manyWaitName  = locksName + "many waiters"
)

const (
	lockClients = 50

	// handOverFloor is the minimum number of hand-overs of one lock per second.
	// spreadLimit is the largest factor by which the grants of one client may
	// exceed those of another.
	handOverFloor = 5000
	spreadLimit   = 1.2

	// ownLocksFloor is the smallest rate of LOCK, as a share of the rate of SET
	// NX PX and DELIFEQ. It is below 1 because of the noise between two runs.
	ownLocksFloor = 0.95

	fewWaiters, manyWaiters = 100, 10_000

	// queueFloor is the smallest rate of hand-overs with many waiters, as a
	// share of the rate with few waiters.
	queueFloor = 0.8
	// waiterKB is the most memory that a waiter may cost the leader in addition to
	// its connection, in KB: 10 to 12 KB were measured.
	waiterKB = 16
)

// locked is a cycle that waits for a lock, takes it and releases it.
var locked = []exchange{
	{func(c *renewer) []string {
		return []string{"LOCK", "ACQUIRE", c.key, c.owner, "PX", "30000", "WAIT", "0"}
	}, ""},
	{func(c *renewer) []string { return []string{"LOCK", "RELEASE", c.key, c.owner} }, ":1\r\n"},
}

// tried is a cycle that takes a lock without waiting and releases it.
var tried = []exchange{
	{func(c *renewer) []string { return []string{"LOCK", "ACQUIRE", c.key, c.owner, "PX", "30000"} }, ""}, locked[1],
}

// setAndDelete is a cycle that takes a lock with SET NX PX and releases it with
// DELIFEQ.
var setAndDelete = []exchange{renewals[0], renewals[2]}

func ownKeys(prefix string) func(i int) string {
	return func(i int) string { return prefix + ":" + strconv.Itoa(i) }
}

func oneKey(key string) func(i int) string { return func(int) string { return key } }

// lockRow is one row about LOCK.
type lockRow struct {
	name string
	run  func(l *lockBench, ctx context.Context) (missed bool, err error)
}

var lockRows = []lockRow{
	{handOverName, (*lockBench).handOver}, {ownLocksName, (*lockBench).own}, {nextOwnerName, (*lockBench).nextOwner},
	{manyWaitName, (*lockBench).manyWaiters},
}

// lockBench measures LOCK on a running cluster.
type lockBench struct {
	out     io.Writer
	o       options
	cluster *process.Cluster
	leader  *process.Node
	redis   *redisServer
}

// measureLocks measures the selected rows about LOCK.
func measureLocks(ctx context.Context, m machine) (missed bool, err error) {
	out, o, dir := m.out, m.o, filepath.Join(m.dir, "locks")
	redis, err := startRedis(ctx, m.tools, filepath.Join(dir, "redis"), redisFlags)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, redis.close()) }()
	c, err := startCluster(ctx, m.program, filepath.Join(dir, "nodes"), o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	leader, err := c.Settled(ctx)
	if err != nil {
		return false, err
	}
	l := &lockBench{out: out, o: o, cluster: c, leader: leader, redis: redis}
	fmt.Fprintln(out)
	for _, r := range lockRows {
		if !o.wants(r.name) {
			continue
		}
		var profiled chan error
		if o.pprofDir != "" {
			profiled = make(chan error, 1)
			go func() { profiled <- o.profile(ctx, r.name, leader) }()
		}
		miss, err := r.run(l, ctx)
		if profiled != nil {
			err = errors.Join(err, <-profiled)
		}
		if err != nil {
			return false, errors.Join(fmt.Errorf("%s: %w", r.name, err), showLogs(c))
		}
		missed = missed || miss
	}
	return missed, nil
}

func verdictOf(missed bool) string {
	if missed {
		return "MISSED"
	}
	return "ok"
}

// cycles runs cycles of one kind, once for each repetition, and returns the runs
// in the order of their rates.
func (l *lockBench) cycles(ctx context.Context, clients int, cycle []exchange, key func(int) string) ([]*span, error) {
	r, err := newRenewing(l.leader.Clients, "", clients, cycle, key)
	if err != nil {
		return nil, err
	}
	var runs []*span
	for range l.o.reps {
		s, err := r.runFor(ctx, l.o.seconds)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		runs = append(runs, s)
	}
	slices.SortFunc(runs, func(a, b *span) int { return int(a.cyclesPerSecond() - b.cyclesPerSecond()) })
	return runs, r.close()
}

// cyclesPerSecond returns the rate of the cycles, each of which has two
// commands.
func (s *span) cyclesPerSecond() float64 { return s.rate() / 2 }

// spread returns the largest number of commands that a client completed,
// divided by the smallest.
func (s *span) spread() float64 {
	return float64(slices.Max(s.counts)) / float64(max(slices.Min(s.counts), 1))
}

// handOver measures how often clients that wait for one lock hand it over, with
// LOCK and with redsync on the redis-server.
func (l *lockBench) handOver(ctx context.Context) (missed bool, err error) {
	before, err := l.leader.State()
	if err != nil {
		return false, err
	}
	runs, err := l.cycles(ctx, lockClients, locked, oneKey("locks:one"))
	if err != nil {
		return false, err
	}
	after, err := l.leader.State()
	if err != nil {
		return false, err
	}
	middle := runs[len(runs)/2]
	spread, grants := 1.0, 0
	for _, s := range runs {
		spread = max(spread, s.spread())
		grants += len(s.times) / 2
	}
	entries := float64(after.Commit-before.Commit) / float64(grants)
	polled, err := l.poll(ctx)
	if err != nil {
		return false, err
	}
	missed = middle.cyclesPerSecond() < handOverFloor || spread > spreadLimit
	fmt.Fprintf(l.out, "%s: %d clients, one key, LOCK ACQUIRE WAIT and RELEASE: %.0f hand-overs/s (at least %d), "+
		"%.1f log entries for each, spread between clients %.2f (at most %.1f); redsync that polls one fsyncing Redis "+
		"every ms: %.0f/s, spread %.1f: %s\n",
		handOverName, lockClients, middle.cyclesPerSecond(), handOverFloor, entries, spread, spreadLimit,
		polled.cyclesPerSecond(), polled.spread(), verdictOf(missed))
	return missed, nil
}

// own compares LOCK with SET NX and DELIFEQ. Each client has a key of its own.
// The kinds of cycles run alternately, so that other work on the machine slows
// all of them down equally.
func (l *lockBench) own(ctx context.Context) (missed bool, err error) {
	kinds := [][]exchange{setAndDelete, tried, locked}
	runs := make([][]*span, len(kinds))
	var shares []float64
	for rep := range 2*l.o.reps + 1 {
		for i, cycle := range kinds {
			keys := ownKeys(fmt.Sprintf("locks:own:%d:%d", rep, i))
			r, err := newRenewing(l.leader.Clients, "", lockClients, cycle, keys)
			if err != nil {
				return false, err
			}
			s, err := r.runFor(ctx, l.o.seconds)
			if err := errors.Join(err, r.close()); err != nil {
				return false, err
			}
			runs[i] = append(runs[i], s)
		}
		if rep > 0 { // the first run warms up
			shares = append(shares, runs[1][rep].cyclesPerSecond()/runs[0][rep].cyclesPerSecond())
		}
	}
	for _, all := range runs {
		slices.SortFunc(all, func(a, b *span) int { return int(a.cyclesPerSecond() - b.cyclesPerSecond()) })
	}
	slices.Sort(shares)
	share := median(shares)
	missed = share < ownLocksFloor
	plain, with, wait := runs[0][l.o.reps], runs[1][l.o.reps], runs[2][l.o.reps]
	fmt.Fprintf(l.out, "%s: %d clients: LOCK ACQUIRE and RELEASE %.0f cycles/s, p99 of a command %.2f ms; SET NX PX "+
		"and DELIFEQ %.0f cycles/s, p99 %.2f ms; share %.2f, from %.2f to %.2f (at least %.2f); with WAIT %.0f: %s\n",
		ownLocksName, lockClients, with.cyclesPerSecond(), ms(with.at(0.99)), plain.cyclesPerSecond(),
		ms(plain.at(0.99)), share, shares[0], shares[len(shares)-1], ownLocksFloor, wait.cyclesPerSecond(),
		verdictOf(missed))
	return missed, nil
}

// nextOwner measures the time from a release until the next owner has its reply.
func (l *lockBench) nextOwner(ctx context.Context) (missed bool, err error) {
	all := l.cluster.Running()
	for _, through := range []struct {
		what      string
		from, to  string
		exchanges int
	}{{"both clients at the leader", l.leader.Clients, l.leader.Clients, 1000},
		{"clients at two followers", other(all, l.leader, 0), other(all, l.leader, 1), 1000}} {
		s, err := l.passOver(ctx, through.from, through.to, through.exchanges)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(l.out, "%s: LOCK, %s: p50 %.2f ms, p99 %.2f ms\n", nextOwnerName, through.what, ms(s.at(0.5)),
			ms(s.at(0.99)))
	}
	s, err := l.passOverRedis(ctx, 40)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(l.out, "%s: redsync with its defaults on one fsyncing Redis: p50 %.2f ms, p99 %.2f ms\n", nextOwnerName,
		ms(s.at(0.5)), ms(s.at(0.99)))
	return false, nil
}

func other(all []*process.Node, leader *process.Node, n int) string {
	followers := slices.DeleteFunc(slices.Clone(all), func(n *process.Node) bool { return n == leader })
	return followers[n%len(followers)].Clients
}

// passOver lets two clients hand a lock to each other. A client releases the
// lock when the other client is in the queue.
func (l *lockBench) passOver(ctx context.Context, a, b string, exchanges int) (*span, error) {
	var conns [3]*respwire.Conn // one for each client, and one that looks at the queue
	for i, addr := range []string{a, b, l.leader.Clients} {
		c, err := respwire.Connect(addr, replyLimit)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		conns[i] = c
	}
	const key = "locks:next"
	if _, err := integer(conns[0].Do("LOCK", "ACQUIRE", key, "owner-0", "PX", "30000")); err != nil {
		return nil, err
	}
	s := &span{}
	for i := range exchanges {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		mine, next := i%2, (i+1)%2
		owner := fmt.Sprint("owner-", next)
		if err := conns[next].Send([]string{"LOCK", "ACQUIRE", key, owner, "PX", "30000", "WAIT", "0"}); err != nil {
			return nil, err
		}
		for {
			info, err := respwire.NoError(conns[2].Do("LOCK", "INFO", key))
			if err != nil {
				return nil, err
			}
			if strings.Contains(info.String(), owner) {
				break
			}
		}
		released := make(chan error, 1)
		begun := time.Now()
		go func() {
			_, err := integer(conns[mine].Do("LOCK", "RELEASE", key, fmt.Sprint("owner-", mine)))
			released <- err
		}()
		_, err := integer(conns[next].Receive())
		s.times = append(s.times, time.Since(begun))
		if err := errors.Join(err, <-released); err != nil {
			return nil, err
		}
	}
	slices.Sort(s.times)
	_, err := integer(conns[exchanges%2].Do("LOCK", "RELEASE", key, fmt.Sprint("owner-", exchanges%2)))
	return s, err
}

// manyWaiters compares a short queue with a long one.
func (l *lockBench) manyWaiters(ctx context.Context) (missed bool, err error) {
	if err := raiseFiles(manyWaitName, manyWaiters+200); err != nil {
		return false, err
	}
	few, err := l.cycles(ctx, fewWaiters, locked, oneKey("locks:few"))
	if err != nil {
		return false, err
	}
	r, err := newRenewing(l.leader.Clients, "", manyWaiters, locked, oneKey("locks:many"))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for i, c := range r.clients { // a key for each client, so that this run allocates the buffers of every connection
		c.key = "locks:own:" + strconv.Itoa(i)
	}
	if _, err := r.runFor(ctx, l.o.seconds); err != nil {
		return false, err
	}
	if err := resetPeak(l.leader.PID()); err != nil {
		return false, err
	}
	idle, err := peak(l.leader.PID())
	if err != nil {
		return false, err
	}
	for _, c := range r.clients {
		c.key = "locks:many"
	}
	s, err := r.runFor(ctx, l.o.seconds)
	if err != nil {
		return false, err
	}
	waiting, err := peak(l.leader.PID())
	if err != nil {
		return false, err
	}
	before := few[len(few)/2].cyclesPerSecond()
	share := s.cyclesPerSecond() / before
	cost := float64(waiting-idle) * 1024 / manyWaiters
	missed = share < queueFloor || cost > waiterKB
	fmt.Fprintf(l.out, "%s: %.0f hand-overs/s with %d clients on one key, %.0f with %d, share %.2f (at least %.1f); "+
		"memory of the leader %d MB with %d clients that do not wait, at most %d MB with %d waiters, "+
		"%.1f KB for each (at most %d): %s\n",
		manyWaitName, before, fewWaiters, s.cyclesPerSecond(), manyWaiters, share, queueFloor,
		idle, manyWaiters, waiting, manyWaiters, cost, waiterKB, verdictOf(missed))
	return missed, nil
}
