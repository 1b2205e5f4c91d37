package cluster

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/trace"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// batches are the groups that wait for an entry.
type batches struct {
	filling *fsm.BatchBuilder   // groups that arrive now
	full    []*fsm.BatchBuilder // builders that reached their size limit, in order
	spare   []*fsm.BatchBuilder // empty builders
}

// pipeline is the state of the entries that are on their way through the log.
type pipeline struct {
	inflight []proposal    // entries that are proposed and not applied yet, in log order
	waitSlot bool          // propose waits for room in the window
	taken    bool          // propose has taken an entry that is not in inflight yet
	paused   bool          // nothing is proposed: see pause
	quiet    chan struct{} // the channel that pause returned; nil once it is closed, and after resume
	arrivals trace.Arrivals
}

// submit adds a group to the batches for the next entries. It copies body.
func (ld *leadership) submit(id fsm.SessionID, ackFloor, seq uint64, body []byte) error {
	ld.pulse.Touch()
	limit := ld.opts.workLimits().Entry
	steps, depends := ld.machine.Table().Weigh(body)
	full := ld.host.NoRoom() != ""
	traced := ld.pipeline.arrivals.Sampled(id, seq)
	ld.mu.Lock()
	if ld.closed {
		ld.mu.Unlock()
		return errNotLeader
	}
	groups, bytes := ld.batches.filling.Len()
	if groups > 0 && (bytes+len(body) > ld.opts.MaxEntryBytes || groups >= ld.opts.MaxEntryGroups ||
		ld.batches.filling.Work()+steps > limit) {
		ld.batches.full = append(ld.batches.full, ld.batches.filling)
		ld.batches.filling = ld.spareBuilder()
	}
	ld.batches.filling.Add(id, ackFloor, seq, body)
	// While some commands are refused, divide must see every group.
	ld.batches.filling.Weighed(steps, depends || steps > limit || full)
	ld.accepted[id] = max(ld.accepted[id], seq)
	if traced {
		ld.pipeline.arrivals.Add(id, seq)
	}
	wake := ld.commitWait.Suffices(groups + 1)
	ld.mu.Unlock()
	if wake {
		signal(ld.work)
	}
	return nil
}

// awaitClockEntry calls f once an entry that was stamped after this call has
// been applied, or once the leadership has closed.
func (ld *leadership) awaitClockEntry(f func()) {
	ld.mu.Lock()
	if ld.closed {
		ld.mu.Unlock()
		f()
		return
	}
	ld.clockWaits = append(ld.clockWaits, f)
	ld.mu.Unlock()
	signal(ld.work)
}

// propose builds entries and passes them to raft. At most opts.Window entries
// are in flight at a time.
func (ld *leadership) propose() {
	defer ld.wg.Done()
	for {
		b, p, ok := ld.next()
		if !ok {
			return
		}
		header := fsm.Header{Term: ld.term, Wall: ld.wall(), Seed: rand.Uint64()}
		ld.machine.View(func(m *fsm.Machine) { header.HashIndex, header.Hash = m.Hash() })
		// Read the clock after the hash index: if the entries up to that index
		// include a restore, the stamp must come from the clock as the restore
		// has set it.
		header.Stamp = ld.stamp()
		var err error
		if b.Depends() {
			b, err = ld.divide(b)
		}
		if err == nil && b.Scripts() {
			b, err = ld.speculate(b, header)
		}
		if err != nil {
			ld.fatal(err)
			for _, f := range p.clockWaits {
				f()
			}
			return
		}
		entry := b.Encode(header)
		groups, _ := b.Len()
		b.Reset(2 * ld.opts.MaxEntryBytes)
		p.stamped = ld.clock.Mono()

		ld.mu.Lock()
		if ld.closed {
			ld.mu.Unlock()
			for _, f := range p.clockWaits {
				f()
			}
			return
		}
		ld.pipeline.inflight, ld.pipeline.taken = append(ld.pipeline.inflight, p), false
		ld.batches.spare = append(ld.batches.spare, b)
		ld.mu.Unlock()
		ld.stats.Entries.Add(1)
		ld.stats.EntryGroups.Observe(float64(groups))
		ld.stats.EntryBytes.Observe(float64(len(entry)))
		// Ignore the raft.ApplyFuture: the state machine delivers the results in
		// log order. A future that fails means that the node is no longer
		// leader, and then the leadership is closed. Apply returns when raft's
		// main loop has accepted the entry.
		ld.raft.Apply(entry, 0)
		if groups > 0 {
			failpoint.Hit(failpoint.EntryProposed)
		}
	}
}

// next waits until there is work and room in the window, and then takes the
// work. It does so as late as possible, so that the entry contains all groups
// that have arrived.
func (ld *leadership) next() (*fsm.BatchBuilder, proposal, bool) {
	for {
		ld.mu.Lock()
		groups, _ := ld.batches.filling.Len()
		work := groups > 0 || len(ld.batches.full) > 0 || len(ld.clockWaits) > 0
		switch {
		case ld.closed:
			ld.mu.Unlock()
			return nil, proposal{}, false
		case ld.pipeline.paused:
			ld.mu.Unlock()
			<-ld.work
		case work && len(ld.pipeline.inflight) < ld.windowLocked():
			if len(ld.batches.full) == 0 && len(ld.clockWaits) == 0 && len(ld.pipeline.inflight) == 0 {
				if wait := ld.commitWait.Begin(groups); wait > 0 {
					ld.commitWaitLocked(wait)
					continue
				}
			}
			ld.commitWait.Proposed(groups)
			p := proposal{clockWaits: ld.clockWaits}
			ld.clockWaits = nil
			var b *fsm.BatchBuilder
			if len(ld.batches.full) > 0 {
				b = ld.batches.full[0]
				ld.batches.full = ld.batches.full[1:]
			} else {
				b, ld.batches.filling = ld.batches.filling, ld.spareBuilder()
			}
			ld.pipeline.taken = true
			ld.mu.Unlock()
			return b, p, true
		case work:
			ld.pipeline.waitSlot = true
			ld.mu.Unlock()
			<-ld.slot
		default:
			ld.mu.Unlock()
			<-ld.work
		}
	}
}

// commitWaitLocked waits until the expected number of groups has arrived, until
// there is other work to do, or until the time wait is over. The caller must hold
// mu, and commitWaitLocked releases it.
func (ld *leadership) commitWaitLocked(wait time.Duration) {
	select { // discard an earlier token
	case <-ld.work:
	default:
	}
	ld.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ld.work:
	case <-t.C:
	}
	ld.mu.Lock()
	groups, _ := ld.batches.filling.Len()
	ld.commitWait.Waited(groups)
	ld.mu.Unlock()
}

func (ld *leadership) spareBuilder() *fsm.BatchBuilder {
	if n := len(ld.batches.spare); n > 0 {
		b := ld.batches.spare[n-1]
		ld.batches.spare = ld.batches.spare[:n-1]
		return b
	}
	return &fsm.BatchBuilder{}
}

// pause stops the proposer until resume is called. It closes quiet once no
// entry of this leadership is in flight. From then on this node's log ends with
// the last entry that its state machine has applied, unless raft appends a
// change of the members. The leadership still accepts groups. They wait for
// resume, or go to the next leader if the leadership closes first. ok is false
// if the leadership has closed.
//
// Only one caller at a time may pause a leadership. transfers.busy enforces
// this.
func (ld *leadership) pause() (quiet <-chan struct{}, ok bool) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.closed {
		return nil, false
	}
	c := make(chan struct{})
	ld.pipeline.paused, ld.pipeline.quiet = true, c
	ld.checkQuietLocked()
	return c, true
}

func (ld *leadership) resume() {
	ld.mu.Lock()
	ld.pipeline.paused, ld.pipeline.quiet = false, nil
	ld.mu.Unlock()
	signal(ld.work)
}

// checkQuietLocked closes the channel that pause returned if no entry is in
// flight. The caller holds ld.mu.
func (ld *leadership) checkQuietLocked() {
	if ld.pipeline.quiet != nil && len(ld.pipeline.inflight) == 0 && !ld.pipeline.taken {
		close(ld.pipeline.quiet)
		ld.pipeline.quiet = nil
	}
}

// workLimits returns how many steps it may take to apply an entry, and how many
// a single operation may take.
func (o *Options) workLimits() fsm.WorkLimits {
	return fsm.WorkLimits{Entry: int(o.EntryWork / fsm.StepNanos), Operation: int(o.MaxWriteTime / fsm.StepNanos)}
}

// divide takes the first groups of a batch for the next entry, as many as one
// entry may execute within its limit, and leaves the other groups for later
// entries. No entry is on its way through the log while divide runs: see
// windowLocked.
func (ld *leadership) divide(b *fsm.BatchBuilder) (*fsm.BatchBuilder, error) {
	ld.mu.Lock()
	out, rest := ld.spareBuilder(), ld.spareBuilder()
	ld.mu.Unlock()
	var refused int
	var err error
	limits := ld.opts.workLimits()
	limits.Full = ld.host.NoRoom()
	ld.machine.View(func(m *fsm.Machine) { refused, err = m.Divide(b, out, rest, limits) })
	if err != nil {
		// Divide never fails unless there is a bug, because this program has
		// encoded every group itself or has checked it with Table.CheckAt.
		return nil, fmt.Errorf("divide a batch: %w", err)
	}
	switch limits.Full {
	case "":
		ld.stats.WritesRefused.Add(float64(refused))
	case fsm.MsgOOM: // count all refusals here, because most of them have this reason
		ld.stats.MemoryRefused.Add(float64(refused))
	default: // the disk is almost full, which another metric reports: see descRefused
	}
	ld.later(b, rest)
	return out, nil
}

// writeTime returns approximately how long applying a group takes.
func (ld *leadership) writeTime(body []byte) (time.Duration, error) {
	var steps int
	var err error
	ld.machine.View(func(m *fsm.Machine) { steps, err = m.GroupWork(body) })
	if err != nil {
		return 0, fmt.Errorf("weigh a group: %w", err)
	}
	return time.Duration(steps) * fsm.StepNanos, nil
}

// later keeps rest, the groups that are left for later entries. It returns the
// builder b to the spare builders, because divide or speculate has copied its
// groups.
func (ld *leadership) later(b, rest *fsm.BatchBuilder) {
	b.Reset(2 * ld.opts.MaxEntryBytes)
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.batches.spare = append(ld.batches.spare, b)
	if groups, _ := rest.Len(); groups > 0 {
		ld.batches.full = append([]*fsm.BatchBuilder{rest}, ld.batches.full...)
	} else {
		ld.batches.spare = append(ld.batches.spare, rest)
	}
}

// windowLocked returns how many entries may be in flight, including the next
// one. A batch with scripts is executed speculatively on the state that it will
// be applied to, and a batch whose work depends on the state is weighed on that
// state. In both cases no other entry may be in flight. The caller holds ld.mu.
func (ld *leadership) windowLocked() int {
	next := ld.batches.filling
	if len(ld.batches.full) > 0 {
		next = ld.batches.full[0]
	}
	if next.Scripts() || next.Depends() {
		return 1
	}
	return ld.opts.Window
}

// speculate executes a batch on a clone of the state machine, and returns the
// batch to propose. That batch contains the effects of the scripts instead of
// the scripts. No entry may be in flight: see windowLocked. The groups for
// which there was no time become the next batch.
//
// Meanwhile, the proposer proposes no other entry. This time is bounded by half
// of EntryWork plus the time limit of the last group. That limit is
// BriefScriptTime. After a dry run has shown that the scripts end, it is longer:
// see script_dryrun.go. Reads, elections and heartbeats do not wait.
func (ld *leadership) speculate(b *fsm.BatchBuilder, h fsm.Header) (*fsm.BatchBuilder, error) {
	ld.mu.Lock()
	out, rest := ld.spareBuilder(), ld.spareBuilder()
	ld.mu.Unlock()
	var pace yield.Pace
	sp := ld.machine.Speculate(h, b, ld.host.PacedRunner(ld.done, &pace))
	begun := ld.clock.Mono()
	err := sp.Run(out, rest, func() bool {
		pace.Check()
		return ld.ended() || ld.clock.Mono()-begun > ld.opts.EntryWork/2
	})
	if err != nil {
		// This program has encoded every group itself or has checked it with
		// Table.CheckAt, so the state machine contradicts its own command
		// table. If the leader proposed this batch, it would stop every node.
		return nil, fmt.Errorf("speculatively execute a batch with scripts: %w", err)
	}
	rest.Weighed(0, true)
	ld.later(b, rest)
	return out, nil
}
