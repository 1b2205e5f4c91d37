package fsm

import "slices"

// maxEndWork bounds how many waiters one operation removes: the sum of the waiters and
// of the keys that they wait for. An operation also reads all waiters until it has
// found enough of those that it must remove.
const maxEndWork = 2048

// endedWaits is the part of waits that describes waits that have ended and whose waiters
// are not removed yet. One operation can end many waits: a node starts again while
// the waiters of its earlier start remain, or the rules of a user change. Such an
// operation only records which waits have ended, and removes the first waiters. The
// leader proposes EndWaitsCommand until the others are removed too. Until then, the
// waiters are served nothing, and waiters for a lock are passed over.
//
// Below FeatureDivide the operation removes all waiters itself, and there are never
// such waits.
type endedWaits struct {
	// left: there may be waiters whose wait has ended. Two nodes may differ in it
	// and in users if one has read a snapshot, but not in the result of ended.
	left  bool
	users []endedUser // replaced and never changed, because clones share it
}

// endedUser says that the open waits of a user ended that had begun before a position.
type endedUser struct {
	user   string
	before Pos
}

// ended reports whether the wait of a waiter has ended, although the waiter is not
// removed yet.
func (w *waits) ended(n *waiter) bool {
	if !w.left {
		return false
	}
	at, _ := w.node(n.session.NodeID)
	return n.session.Boot < w.nodes[at].id.Boot || w.endedByUser(n)
}

// endedByUser reports whether a change of the waiter's user has ended the wait.
func (w *waits) endedByUser(n *waiter) bool {
	return !n.served && slices.ContainsFunc(w.users, func(e endedUser) bool {
		return e.user == n.user && n.pos < e.before
	})
}

// endUser records that the open waits of a user have ended that began before a
// position.
func (w *waits) endUser(user string, before Pos) {
	w.left = true
	users := slices.Clone(w.users)
	for i := range users {
		if users[i].user == user {
			users[i].before = max(users[i].before, before)
			w.users = users
			return
		}
	}
	w.users = append(users, endedUser{user, before})
}

// waitersOf returns the waiters of a session. Below FeatureDivide, it returns none
// that come after a waiter of another start of the node.
func (m *Machine) waitersOf(id SessionID) (list []*waiter) {
	m.waits.conns.Ascend(&waiter{session: id}, func(n *waiter) bool {
		if n.session == id {
			list = append(list, n)
			return true
		}
		return m.features >= FeatureDivide && n.session.NodeID == id.NodeID
	})
	return list
}

// remove removes the waiters of a list. If the node of a waiter is running, it learns
// of the removal from Result.Woken, and the client waits again.
func (c *Ctx) remove(list []*waiter) {
	for _, n := range list {
		c.forget(n)
		c.woken(n, nil)
	}
}

// firstOf returns the first waiters of a list, as many as one operation may remove.
// Below FeatureDivide, it returns all.
func (c *Ctx) firstOf(list []*waiter) []*waiter {
	if c.m.features < FeatureDivide {
		return list
	}
	work := 0
	for i, n := range list {
		if work >= c.m.endWork {
			return list[:i]
		}
		work += 1 + len(n.keys)
	}
	return list
}

// endWaits removes waiters of a session, served or not: as many as one operation may
// remove.
func (c *Ctx) endWaits(id SessionID) { c.remove(c.firstOf(c.m.waitersOf(id))) }

// endOpenWaits removes waiters of a session that were not served, and waiters whose
// grants of locks are not claimed: as many as one operation may remove.
func (c *Ctx) endOpenWaits(id SessionID) {
	list := slices.DeleteFunc(c.m.waitersOf(id), func(n *waiter) bool { return n.served && n.grant == nil })
	c.remove(c.firstOf(list))
}

// endLeft removes waiters whose wait has ended, as many as one operation may remove,
// and returns how many it has removed.
func (c *Ctx) endLeft() int {
	w := &c.m.waits
	var list []*waiter
	w.conns.Scan(func(n *waiter) bool {
		if w.ended(n) {
			list = append(list, n)
		}
		return len(list) <= c.m.endWork // each is at least one unit of work
	})
	first := c.firstOf(list)
	c.remove(first)
	if len(first) == len(list) {
		w.endedWaits = endedWaits{}
	}
	return len(first)
}

// endWaitsOf ends the open waits of a user that is being changed. It also ends
// those of clients whose user is unknown because they began to wait before
// FeatureBudget. The nodes of the clients check the user's rules and execute
// the commands again. The machine cannot check the rules, because their meaning
// depends on the program (see User).
func (c *Ctx) endWaitsOf(user string) {
	w := &c.m.waits
	if c.m.features < FeatureBudget || w.count == 0 {
		return
	}
	if c.m.features >= FeatureDivide {
		w.endUser(user, c.pos)
		w.endUser("", c.pos)
		c.endLeft()
		return
	}
	var ended []*waiter
	w.conns.Scan(func(n *waiter) bool {
		if !n.served && (n.user == user || n.user == "") {
			ended = append(ended, n)
		}
		return true
	})
	c.remove(ended)
}

// endEarlierStart ends the waits of an earlier start of the node that id names.
// The machine calls it for each session in an entry, because the clients of the
// earlier start no longer exist when a later start of the node has a session.
func (c *Ctx) endEarlierStart(id SessionID) {
	w := &c.m.waits
	if len(w.nodes) == 0 {
		return
	}
	at, found := w.node(id.NodeID)
	switch {
	case !found || w.nodes[at].id.Boot >= id.Boot:
	case c.m.features >= FeatureDivide:
		w.nodes[at].id, w.nodes[at].suspended, w.nodes[at].passed = id, false, false
		w.left = true
		c.endLeft()
	default:
		c.endWaits(w.nodes[at].id)
	}
}

// replaceStart ends the waits of earlier starts of the node that id names, so
// that all its other waiters belong to the start that id names. It returns false if
// the node has waiters of a later start.
func (c *Ctx) replaceStart(id SessionID) bool {
	c.endEarlierStart(id)
	w := &c.m.waits
	at, found := w.node(id.NodeID)
	return !found || w.nodes[at].id == id
}

// endSuperseded ends the waits of all starts of a node except the latest one
// that has waiters. Before FeatureMend a node could have waiters of several
// starts.
func (c *Ctx) endSuperseded() {
	w := &c.m.waits
	latest := make([]uint64, len(w.nodes))
	w.conns.Scan(func(n *waiter) bool {
		at, _ := w.node(n.session.NodeID)
		latest[at] = max(latest[at], n.session.Boot)
		return true
	})
	var ended []*waiter
	w.conns.Scan(func(n *waiter) bool {
		if at, _ := w.node(n.session.NodeID); n.session.Boot < latest[at] {
			ended = append(ended, n)
		}
		return true
	})
	c.remove(ended)
	for at := range w.nodes { // each node still has the waiters of its latest start
		w.nodes[at].id.Boot = latest[at]
	}
}

// endWaits executes EndWaitsCommand.
func endWaits(c *Ctx, _ [][]byte) Reply {
	if !c.m.waits.left {
		return Zero
	}
	n := c.endLeft()
	if n > 0 {
		c.Change()
	}
	return Int(int64(n))
}

// endWaitsWork returns the work of EndWaitsCommand.
func endWaitsWork(w *Weigher, _ [][]byte) int {
	if !w.m.waits.left {
		return 0
	}
	return w.m.removalWork()
}

// suspendWork returns the work of SuspendCommand, which may remove waiters.
func suspendWork(w *Weigher, args [][]byte) int {
	if how := string(args[4]); how != SuspendEnd && how != SuspendDrop {
		return 0
	}
	return w.m.removalWork()
}

// removalWork returns an upper limit for the work of an operation that removes
// waiters.
func (m *Machine) removalWork() int {
	n := m.waits.queues.Len() + m.waits.conns.Len()
	if m.features >= FeatureDivide {
		n = min(n, maxEndWork)
	}
	return n * StepsPerWait / 2
}
