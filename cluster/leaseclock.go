package cluster

import "time"

// driftPPM is the part of elapsed time, in parts per million, that the
// leadership does not count. NTP slews a clock by up to 500 ppm, and a quartz
// clock is off by up to 100 ppm. So a TTL may last longer by this part, but it
// never ends early.
const driftPPM = 1000

// maxAdvance bounds one step of the lease clock, in nanoseconds. While keys
// have a TTL, clock entries are committed every few seconds, so a larger step
// means that the clock source is broken.
const maxAdvance = int64(10 * time.Minute)

// timeBase relates the lease clock to the node's monotonic clock: when Mono was
// t0, the lease clock was base, in nanoseconds. A leadership starts with the
// lease clock of its TermStart. So the lease clock includes neither the time
// without a leader nor the time that an earlier leadership measured but never
// logged.
type timeBase struct {
	base int64
	t0   time.Duration
}

// now returns the leadership's lease clock in nanoseconds: its base plus the
// elapsed time, minus the allowance for drift.
func (ld *leadership) now() int64 {
	t := ld.time.Load()
	d := int64(ld.clock.Mono() - t.t0)
	return t.base + d - d/(1e6/driftPPM)
}

// wall returns the wall clock in microseconds, the unit that entries use.
func (ld *leadership) wall() int64 { return ld.clock.Wall().UnixMicro() }

// stamp returns the lease clock for the next entry: the time that now returns,
// but not less than the last stamp, and at most maxAdvance more than the last
// stamp.
func (ld *leadership) stamp() int64 {
	// maxAdvance does not limit the step that a restore makes.
	ld.lastEntryStamp = max(ld.lastEntryStamp, ld.floor.Load())
	now := max(ld.now(), ld.lastEntryStamp)
	if now-ld.lastEntryStamp > maxAdvance {
		// A large step is an error only if the state has a deadline, such as
		// the TTL of a key. Without deadlines, no clock entries are committed,
		// and nothing can expire.
		if ld.machine.Deadline() != 0 {
			ld.log.Error("lease clock jumped, the step was limited",
				"step", time.Duration(now-ld.lastEntryStamp), "cut_to", time.Duration(maxAdvance))
		}
		now = ld.lastEntryStamp + maxAdvance
		ld.time.Store(&timeBase{now, ld.clock.Mono()})
	}
	ld.lastEntryStamp = now
	return now
}

// rebase moves the clock forward to lease after a restore. It never moves the
// clock back.
func (ld *leadership) rebase(lease int64) {
	ld.time.Store(&timeBase{max(lease, ld.now()), ld.clock.Mono()})
	ld.floor.Store(lease)
}
