package machine

import (
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Starting announces that the first snapshot that raft restores is this node's
// own. It must be called before raft is created, and only if this node has a
// snapshot.
func (a *Machine) Starting() { a.starting = true }

// Unread returns the reason why this node's own snapshot could not be read at
// the start, or nil.
func (a *Machine) Unread() error { return a.unread }

// Table returns the command table.
func (a *Machine) Table() *fsm.Table { return a.cfg.Table }

// Applied returns the log index of the last entry that was applied.
func (a *Machine) Applied() uint64 { return a.applied.Load() }

// Configured returns the log index of the last configuration that has been
// applied and is therefore committed. 0 means that it is not known yet.
func (a *Machine) Configured() uint64 { return a.configured.Load() }

// Features returns the feature version of the cluster as of the last entry that
// was applied.
func (a *Machine) Features() int { return int(a.features.Load()) }

// Deadline returns the earliest deadline of the state, on the lease clock in
// nanoseconds: see fsm.Machine.NextDeadline. 0 means that there is no deadline.
func (a *Machine) Deadline() int64 { return a.deadline.Load() }

// Spent returns the time that entries have taken since the last snapshot. It
// approximates how long a restart takes to apply them again.
func (a *Machine) Spent() time.Duration { return time.Duration(a.spent.Load()) }

// Forget subtracts an earlier result of Spent from the next ones. The caller
// has taken a snapshot, so a restart need not apply those entries again.
func (a *Machine) Forget(spent time.Duration) { a.spent.Add(-int64(spent)) }

// Lease returns the lease clock of the last entry that was applied, advanced by
// the time since then. If this node has applied the TermStart of the leader,
// the result differs from the leader's lease clock by the delay of the last
// entry and by the allowance for drift. Lease does not subtract this allowance.
func (a *Machine) Lease() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Clock().Lease + int64(max(a.cfg.Mono()-a.clocked, 0))
}

// View calls f with the state machine under the read lock. f must be short,
// because the next entry waits for it.
func (a *Machine) View(f func(m *fsm.Machine)) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	f(a.m)
}

// TryView is like View, but does nothing and returns false if a goroutine has
// the write lock or waits for it, for example to apply an entry.
func (a *Machine) TryView(f func(m *fsm.Machine)) bool {
	if !a.mu.TryRLock() {
		return false
	}
	defer a.mu.RUnlock()
	f(a.m)
	return true
}

// Read executes a group that only reads, under the read lock.
func (a *Machine) Read(dst []byte, req fsm.ReadRequest) (reply []byte, expiryPending bool, err error) {
	a.mu.RLock()
	// Unlock in a deferred call, because the caller may recover from a panic,
	// and the node must then continue.
	defer a.mu.RUnlock()
	return a.m.Read(dst, req)
}

// Clone returns a copy-on-write clone of the state. Making it takes constant
// time, and reading it needs no lock. The next writes copy the data that they
// change.
func (a *Machine) Clone() *fsm.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.Clone()
}

// Speculate begins the speculative execution of a batch on a clone of the
// state.
func (a *Machine) Speculate(h fsm.Header, b *fsm.BatchBuilder, scripts fsm.ScriptRunner) *fsm.Speculation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.Speculate(h, b, scripts)
}

// Want sets the kinds of events that the machine records when it applies an
// entry.
func (a *Machine) Want(kinds fsm.EventKinds) { a.wanted.Store(uint32(kinds)) }
