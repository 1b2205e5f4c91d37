package machine

import (
	"slices"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm"
)

// userWatch reports changes of the ACL users to its watchers.
type userWatch struct {
	last     *fsm.Users // last is used only by raft's FSM goroutine
	watchers atomic.Pointer[[]func(*fsm.Users)]
}

// see compares the users of the state with the users of the previous call, and
// calls the watchers if they differ. Only raft's FSM goroutine calls it. It
// compares only the pointers: a table of users is never modified, so every
// change makes another table.
func (w *userWatch) see(u *fsm.Users) {
	if u == w.last {
		return
	}
	w.last = u
	if all := w.watchers.Load(); all != nil {
		for _, f := range *all {
			f(u)
		}
	}
}

// WatchUsers calls f with the users of this node's state, immediately and after
// each change. The goroutine that applies the log calls f, so f must not wait
// for that goroutine. Two goroutines may call f at the same time, and f may
// receive an older table after a newer one.
func (a *Machine) WatchUsers(f func(*fsm.Users)) {
	w := &a.users
	for {
		old := w.watchers.Load()
		var all []func(*fsm.Users)
		if old != nil {
			all = slices.Clone(*old)
		}
		all = append(all, f)
		if w.watchers.CompareAndSwap(old, &all) {
			break
		}
	}
	var now *fsm.Users
	a.View(func(m *fsm.Machine) { now = m.Users() })
	f(now)
}
