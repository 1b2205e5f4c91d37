package cluster

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// WatchFunc begins to watch the connection of a client. left is closed when the
// client has closed its connection. stop ends the watch and must be called.
type WatchFunc = func() (left <-chan struct{}, stop func(), err error)

// watchAfter is how long a read runs, or waits, before its client is watched.
// Most reads end before, and watching costs a goroutine and system calls. It
// also lets a client that has closed only its own direction (such as nc -N)
// receive the replies of reads that do not take long: it looks like a client
// that has left.
const watchAfter = 100 * time.Millisecond

// clientWatch ends a slow read when its replies are no longer needed: when done
// is closed or when its client has left.
type clientWatch struct {
	ended    chan struct{} // closed when the replies are no longer needed
	left     bool          // the client has left; valid once ended is closed
	finished chan struct{} // closed by stop
	exited   chan struct{} // closed when the goroutine has ended
}

func watchClient(watch WatchFunc, done <-chan struct{}) *clientWatch {
	w := &clientWatch{ended: make(chan struct{}), finished: make(chan struct{}), exited: make(chan struct{})}
	go w.run(watch, done)
	return w
}

func (w *clientWatch) run(watch WatchFunc, done <-chan struct{}) {
	defer close(w.exited)
	t := time.NewTimer(watchAfter)
	defer t.Stop()
	select {
	case <-w.finished:
		return
	case <-done:
		close(w.ended)
		return
	case <-t.C:
	}
	left, stop, err := watch()
	if err != nil { // the connection is closed
		w.left = true
		close(w.ended)
		return
	}
	defer stop()
	select {
	case <-w.finished:
	case <-done:
		close(w.ended)
	case <-left:
		w.left = true
		close(w.ended)
	}
}

// stop ends the watch. The connection may be read again when it returns.
func (w *clientWatch) stop() {
	close(w.finished)
	<-w.exited
}

// WatchClient sets the function that watches the session's client. A slow read
// then ends when the client leaves. A nil function, the initial value, watches
// no client. The session calls watch while Do runs, and has called stop when Do
// returns.
func (s *Session) WatchClient(watch WatchFunc) { s.watch = watch }

// watching returns the watch function for the group of the call, nil for none.
// The groups of a pipeline that writes are executed although the client has
// left, and so are its reads.
func (s *Session) watching() WatchFunc {
	if s.call.reads {
		return s.watch
	}
	return nil
}

// awaitRead waits until the forwarder has ended the read of the call. It
// returns false if the client has left before and the read was given up.
func (s *Session) awaitRead() bool {
	c := &s.call
	watch := s.watching()
	if watch == nil || !c.lengthy {
		<-c.done
		return true
	}
	t := time.NewTimer(watchAfter)
	defer t.Stop()
	select {
	case <-c.done:
		return true
	case <-t.C:
	}
	left, stop, err := watch()
	if err == nil {
		defer stop()
		select {
		case <-c.done:
			return true
		case <-left:
		}
	}
	for !s.node.forwarder.forget(c) {
		t.Reset(watchAfter)
		select {
		case <-c.done:
			return true
		case <-t.C: // the leader may be running the read now
		}
	}
	return false
}

// forget gives up a read. If it returns false, the read ends as usual.
func (fw *forwarder) forget(c *call) bool {
	fw.readMu.Lock()
	defer fw.readMu.Unlock()
	if i := slices.Index(fw.readWait, c); i >= 0 {
		fw.readWait = slices.Delete(fw.readWait, i, i+1)
		return true
	}
	return fw.reads != nil && fw.reads.forget(c)
}

// forget implements readLink. A read of this node waits for the leadership's
// confirmation only, and its session runs it.
func (l *localLink) forget(*call) bool { return false }

// forget implements readLink. It tells the leader that no client waits for the
// reply, so that the leader ends the read.
func (l *remoteLink) forget(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, other := range l.calls {
		if other != c {
			continue
		}
		delete(l.calls, id)
		if l.cancels() {
			err := l.reads.TrySendFunc(frameCancel, func(dst []byte) []byte { return binary.AppendUvarint(dst, id) })
			if err != nil {
				l.reads.Close()
			}
		}
		return true
	}
	return false
}

// begin records a read that the stream's node has sent.
func (r *readServer) begin(rd *remoteRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[rd.id] = rd
}

// answered removes a read. It returns false if the read was canceled.
func (r *readServer) answered(rd *remoteRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, rd.id)
	return !rd.canceled
}

// cancel ends a read whose client has left its node.
func (r *readServer) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd := r.asked[id]; rd != nil {
		r.cancelLocked(rd)
	}
}

// cancelAll ends all reads of the stream, because the stream has ended.
func (r *readServer) cancelAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rd := range r.asked {
		r.cancelLocked(rd)
	}
}

func (r *readServer) cancelLocked(rd *remoteRead) {
	delete(r.asked, rd.id)
	rd.canceled = true
	if rd.gone != nil {
		close(rd.gone)
	}
}

// ended returns a channel that is closed when the read is canceled. Nothing
// waits for the replies of a canceled read. It is also closed when the
// leadership ends, because the stream ends then.
func (r *remoteRead) ended() <-chan struct{} {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.gone == nil {
		r.gone = make(chan struct{})
		if r.canceled {
			close(r.gone)
		}
	}
	return r.gone
}

// isCanceled reports whether the read was canceled.
func (r *remoteRead) isCanceled() bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.canceled
}

// clientLeft returns errClientLeft in place of errSlotLost if the client has
// left.
func (w *clientWatch) clientLeft(err error) error {
	if errors.Is(err, errSlotLost) && w.left {
		return errClientLeft
	}
	return err
}

// lengthy reports whether a group that only reads may take long, so that it is
// worth watching its client while another node executes it.
func lengthy(g *fsm.Group) bool { return g.Slow || g.Costly || fsm.HasScripts(g.Bytes()) }
