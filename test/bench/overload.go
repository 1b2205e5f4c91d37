package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/verify/process"
)

const (
	overloadName = "overload"

	overloadClients = 5000

	// starvedShare is the smallest number of commands that the slowest client
	// must complete, as a share of the mean over all clients.
	starvedShare = 0.5

	// connectionKB is the most memory that a busy connection may cost the leader
	// under overload, in KB. A quiet connection costs about 20 KB, mostly for
	// the buffers of its reader and its writer. A busy connection has 28 KB of
	// live memory with its commands, its replies and its part of the entries in
	// flight, as a heap profile under this load shows (-pprof-dir). The
	// collector lets the heap grow to a little more than twice the live memory.
	connectionKB = 72

	// memoryGrowth is the factor by which the peak of the memory in the second
	// run with all clients may exceed the peak in the first run. Peaks differ
	// because the garbage collector runs at different moments.
	memoryGrowth = 1.25

	// warmUp is the shortest duration, in seconds, of the first run with all
	// clients. After that run, the memory grows by a factor below memoryGrowth
	// under this load. The memory was 233 MB after 6 s, 301 MB after 12 s, 370 MB
	// after 45 s, and 377 MB after 90 s.
	warmUp = 20.0
)

// measureOverload lets 5,000 clients log in, and then take, renew and release
// locks as fast as they can, without a pause. No client may be starved and no
// command may be refused. The memory of the leader may grow with the number of
// connections, but not with the time that the overload lasts.
func measureOverload(ctx context.Context, m machine) (missed bool, err error) {
	out, o := m.out, m.o
	if err := raiseFiles(overloadName, overloadClients+200); err != nil {
		return false, err
	}
	c, err := startClusterWith(ctx, process.Config{
		Program: m.program, Dir: filepath.Join(m.dir, overloadName), Password: benchPassword,
	}, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	leader, err := c.Settled(ctx)
	if err != nil {
		return false, err
	}
	before, err := leader.State()
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\noverload: lock cycles (SET NX PX, PEXPIRE, DELIFEQ) without a pause, of 50 clients and of %d\n",
		overloadClients)
	few, err := newRenewing(leader.Clients, benchPassword, 50, renewals, ownKeys("overload:few"))
	if err != nil {
		return false, err
	}
	calm, err := few.runFor(ctx, o.seconds)
	if err := errors.Join(err, few.close()); err != nil {
		return false, fmt.Errorf("%s: 50 clients: %w", overloadName, err)
	}
	base, err := peak(leader.PID())
	if err != nil {
		return false, err
	}
	many, err := newRenewing(leader.Clients, benchPassword, overloadClients, renewals, ownKeys("overload:many"))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, many.close()) }()
	// The first run grows the buffers of all connections to their final sizes.
	if _, err := many.runFor(ctx, max(3*o.seconds, warmUp)); err != nil {
		return false, fmt.Errorf("%s: %w", overloadName, err)
	}
	first, err := peak(leader.PID())
	if err != nil {
		return false, err
	}
	if err := resetPeak(leader.PID()); err != nil {
		return false, err
	}
	busy, err := many.runFor(ctx, 3*o.seconds)
	if err != nil {
		return false, fmt.Errorf("%s: %w", overloadName, err)
	}
	last, err := peak(leader.PID())
	if err != nil {
		return false, err
	}
	after, err := leader.State()
	if err != nil {
		return false, err
	}
	most := min(base+overloadClients*connectionKB>>10, int(memoryGrowth*float64(first)))
	verdict := "ok"
	if busy.slowest() < starvedShare || after.Term != before.Term || last > most {
		verdict, missed = "MISSED", true
	}
	fmt.Fprintf(out, "50 clients: %.0f commands/s, p99 %.1f ms\n", calm.rate(), ms(calm.at(0.99)))
	fmt.Fprintf(out, "%d clients: %.0f commands/s, p50 %.1f ms, p99 %.1f ms, max %.1f ms; slowest client %.2f of the "+
		"mean (at least %.2f); memory with 50 clients %d MB, in the first run with all clients %d MB, in the "+
		"second run %d MB (at most %d MB); %d elections; none refused: %s\n",
		overloadClients, busy.rate(), ms(busy.at(0.5)), ms(busy.at(0.99)), ms(busy.at(1)), busy.slowest(), starvedShare,
		base, first, last, most, after.Term-before.Term, verdict)
	return missed, nil
}

// raiseFiles raises the limit of open files to at least n, for this process and
// for the processes that it starts. name is the row that needs the files.
func raiseFiles(name string, n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if l.Cur >= n {
		return nil
	}
	if l.Max < n {
		return fmt.Errorf("%s needs %d open files, the limit is %d (ulimit -n)", name, n, l.Max)
	}
	l.Cur = n
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// span is the result of one run of a load of renewing clients, or of a load
// that the lock benchmark runs with other clients.
type span struct {
	took   time.Duration
	times  []time.Duration // durations of all commands, sorted
	counts []int           // commands of each client, or lock cycles of each client of redsync
}

func (s *span) rate() float64 { return float64(len(s.times)) / s.took.Seconds() }

func (s *span) at(share float64) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	return s.times[int(share*float64(len(s.times)-1))]
}

// slowest returns the number of commands of the client that completed the
// fewest, as a share of the mean over all clients.
func (s *span) slowest() float64 {
	least, all := s.counts[0], 0
	for _, n := range s.counts {
		least = min(least, n)
		all += n
	}
	return float64(least) * float64(len(s.counts)) / float64(max(all, 1))
}
