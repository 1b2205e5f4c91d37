package resp

import (
	"time"
)

// pause is a CLIENT PAUSE in force. It concerns this node's clients only: to
// hold all writes of a cluster, pause on every node.
type pause struct {
	until time.Time
	all   bool          // all commands, not only those that write
	over  chan struct{} // closed when another pause, or none, takes its place
}

// setPause holds clients up until a moment. A pause in force is neither
// shortened nor made to let more through, as in Redis.
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

// endPause lets clients go on.
func (s *Server) endPause() {
	if old := s.pause.Swap(nil); old != nil {
		close(old.over)
	}
}

// waitPause returns when a command may be run: one that writes, or any other.
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

// waitPauseBefore is waitPause for a session command. CLIENT UNPAUSE is not held
// up, or nobody could end a pause of all commands.
func (c *conn) waitPauseBefore(r *row) {
	if c.srv.pause.Load() != nil && r.fullName() != "client|unpause" {
		c.waitPause(false)
	}
}
