package resp

import (
	"time"
)

// pause is a CLIENT PAUSE in force. It concerns the clients of this node only:
// to pause all writes of a cluster, send CLIENT PAUSE to every node.
type pause struct {
	until time.Time
	all   bool          // all commands, not only writes
	over  chan struct{} // closed when another pause, or none, replaces this one
}

// setPause pauses clients until the given time. As in Redis, it neither
// shortens a pause in force nor relaxes it.
func (s *Server) setPause(until time.Time, all bool) {
	next := &pause{until: until, all: all, over: make(chan struct{})}
	for {
		old := s.pause.Load()
		if old != nil && time.Now().Before(old.until) {
			next.all = all || old.all
			if old.until.After(until) {
				next.until = old.until
			}
		}
		if s.pause.CompareAndSwap(old, next) {
			if old != nil {
				close(old.over)
			}
			return
		}
		next.until, next.all = until, all
	}
}

// endPause ends the pause in force.
func (s *Server) endPause() {
	if old := s.pause.Swap(nil); old != nil {
		close(old.over)
	}
}

// waitPause returns when the connection may run a command. write says whether
// the command writes.
func (c *conn) waitPause(write bool) {
	for {
		p := c.srv.pause.Load()
		if p == nil || !p.all && !write || c.killed.Load() {
			return
		}
		d := time.Until(p.until)
		if d <= 0 {
			if c.srv.pause.CompareAndSwap(p, nil) {
				close(p.over)
			}
			continue
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-p.over:
		case <-c.srv.stopping:
			t.Stop()
			return
		}
		t.Stop()
	}
}

// waitPauseBefore is waitPause for a session command. CLIENT UNPAUSE does not
// wait; otherwise no client could end a pause of all commands.
func (c *conn) waitPauseBefore(r *row) {
	if c.srv.pause.Load() != nil && r.fullName() != "client|unpause" {
		c.waitPause(false)
	}
}
