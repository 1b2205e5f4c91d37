package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// userWatch tells of changes of the ACL users.
type userWatch struct {
	told     *fsm.Users // last, by raft's FSM goroutine
	watchers atomic.Pointer[[]func(*fsm.Users)]
}

// see is called by raft's FSM goroutine with what the state holds now. A table
// of users is never changed, so another one is another pointer.
func (w *userWatch) see(u *fsm.Users) {
	if u == w.told {
		return
	}
	w.told = u
	if all := w.watchers.Load(); all != nil {
		for _, f := range *all {
			f(u)
		}
	}
}

// WatchUsers calls f with the users as this node's state has them, at once and
// then with each change. f is called by the goroutine that applies the log and
// must not wait for it; it may be called by two goroutines at a time, and with an
// older table after a newer one.
func (n *Node) WatchUsers(f func(*fsm.Users)) {
	w := &n.machine.users
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
	n.machine.view(func(m *fsm.Machine) { now = m.Users() })
	f(now)
}

// WatchDenials has f told of what scripts that this node runs, for any node's
// clients, were denied. There is one such f.
func (n *Node) WatchDenials(f func(user string, v acl.Verdict)) { n.scripts.guard.OnDenied(f) }
