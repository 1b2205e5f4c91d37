package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

const (
	failoverName = "failover"
	silentName   = "silent leader"

	// failoverFloor and silentFloor are upper limits. Each repetition has a
	// longest gap between two acknowledged writes, and the limits are for the
	// median of these gaps.
	failoverFloor = time.Second
	silentFloor   = 600 * time.Millisecond

	// writePause is the time between a reply and the next write.
	writePause = time.Millisecond
	// around is how long the writer writes before a fault. After the fault, it
	// writes for at least this time, and for more than twice the longest gap.
	around = 700 * time.Millisecond
)

// fault is a way to make a leader fail. Its function mend undoes the failure.
type fault struct {
	name string
	fail func(*process.Node) error
	mend func(*process.Node) error
}

// measureFailover kills the leader repeatedly. Meanwhile a loop writes through
// a node that survives.
func measureFailover(ctx context.Context, m machine) (missed bool, err error) {
	return measureGaps(ctx, m, failoverName, failoverFloor, fault{
		name: "kill -9 of the leader",
		fail: (*process.Node).Kill,
		mend: func(n *process.Node) error { return n.Start() },
	})
}

// measureSilent stops the leader repeatedly with SIGSTOP: its connections stay
// open, so the followers notice its failure only by its silence.
func measureSilent(ctx context.Context, m machine) (missed bool, err error) {
	return measureGaps(ctx, m, silentName, silentFloor, fault{
		name: "SIGSTOP of the leader",
		fail: func(n *process.Node) error { return n.Signal(syscall.SIGSTOP) },
		mend: func(n *process.Node) error { return n.Signal(syscall.SIGCONT) },
	})
}

// measureGaps makes the leader fail repeatedly. Each time, it measures the
// longest time without an acknowledged write. floor is the upper limit for the
// median of these times.
func measureGaps(ctx context.Context, m machine, name string, floor time.Duration, f fault) (missed bool, err error) {
	out, o := m.out, m.o
	c, err := startCluster(ctx, m.program, filepath.Join(m.dir, strings.ReplaceAll(name, " ", "-")), o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fmt.Fprintf(out, "\n%s: %s, one client that writes %v after each reply, through another node\n",
		name, f.name, writePause)
	var gaps []time.Duration
	written, refused, lost := 0, 0, 0
	for i := range o.kills {
		leader, err := c.Settled(ctx)
		if err != nil {
			return false, errors.Join(err, showLogs(c))
		}
		survivors := c.Running(leader)
		through := survivors[i%len(survivors)]
		w, err := newWriter(through.Clients, i)
		if err != nil {
			return false, err
		}
		gap, err := w.over(ctx, func() error { return f.fail(leader) })
		if err != nil {
			return false, errors.Join(fmt.Errorf("write through %s: %w", through.ID, err), showLogs(c))
		}
		if err := f.mend(leader); err != nil {
			return false, err
		}
		next, err := c.Settled(ctx)
		if err != nil {
			return false, errors.Join(err, showLogs(c))
		}
		missing, err := w.missing(next.Clients)
		if err != nil {
			return false, err
		}
		gaps = append(gaps, gap)
		written, refused, lost = written+len(w.acked), refused+w.refused, lost+missing
		fmt.Fprintf(out, "fault %d/%d of %s, written through %s: gap %v, %d writes acknowledged, %d refused, %d "+
			"missing\n",
			i+1, o.kills, leader.ID, through.ID, gap.Round(time.Millisecond), len(w.acked), w.refused, missing)
	}
	slices.Sort(gaps)
	middle := median(gaps)
	verdict := "ok"
	if middle > floor || lost > 0 {
		verdict, missed = "MISSED", true
	}
	fmt.Fprintf(out, "longest gap in acknowledged writes: min %v, median %v, max %v; at the median at most %v; %d of "+
		"%d acknowledged writes missing, %d refused: %s\n",
		gaps[0].Round(time.Millisecond), middle.Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond),
		floor, lost, written, refused, verdict)
	return missed, nil
}

// writer writes keys, each once, and records which writes were acknowledged.
type writer struct {
	conn    *respwire.Conn
	name    string
	acked   []string
	refused int // number of error replies
}

func newWriter(addr string, i int) (*writer, error) {
	conn, err := respwire.Connect(addr, replyLimit)
	if err != nil {
		return nil, err
	}
	return &writer{conn: conn, name: fmt.Sprintf("failover:%d", i)}, nil
}

// over writes keys, and meanwhile makes the leader fail. It returns the longest
// time between two acknowledgements.
func (w *writer) over(ctx context.Context, fail func() error) (gap time.Duration, err error) {
	defer func() { err = errors.Join(err, w.conn.Close()) }()
	begun := time.Now()
	last := begun
	var failed time.Time
	after := 0
	done := make(chan error, 1)
	t := time.NewTimer(0)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-t.C:
		}
		key := fmt.Sprintf("%s:%d", w.name, n)
		reply, err := w.conn.Do("SET", key, key, "NX")
		now := time.Now()
		switch {
		case err != nil:
			return 0, err
		case reply.IsError():
			w.refused++ // no acknowledgement: the gap continues
		case reply.Null:
			return 0, fmt.Errorf("SET %s NX returned nil, although it was sent only once", key)
		default:
			w.acked = append(w.acked, key)
			gap = max(gap, now.Sub(last))
			last = now
			if !failed.IsZero() {
				after++
			}
		}
		switch {
		case failed.IsZero() && now.Sub(begun) > around:
			failed = now
			go func() { done <- fail() }() // the leader fails while the next write is in progress
		case after > 1 && now.Sub(failed) > around && now.Sub(failed) > 2*gap:
			return gap, <-done
		}
		t.Reset(writePause)
	}
}

// missing counts the acknowledged keys that a node does not have.
func (w *writer) missing(addr string) (int, error) {
	missing := 0
	for keys := range slices.Chunk(w.acked, 1000) {
		values, err := ask(addr, append([]string{"MGET"}, keys...)...)
		if err == nil && len(values.Elems) != len(keys) {
			err = fmt.Errorf("MGET of %d keys returned %d values", len(keys), len(values.Elems))
		}
		if err != nil {
			return 0, fmt.Errorf("read back: %w", err)
		}
		for i, v := range values.Elems {
			if v.Text != keys[i] {
				missing++
			}
		}
	}
	return missing, nil
}
