package execution

import (
	"errors"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
)

// WatchFunc begins to watch the connection of a client. left is closed when the
// client has closed its connection. stop ends the watch and must be called.
type WatchFunc = func() (left <-chan struct{}, stop func(), err error)

// ErrClientLeft is the error of a read whose client has closed its connection.
// It differs from fairshare.ErrLost, after which a session asks the next leader.
var ErrClientLeft = errors.New("the client has closed its connection, so the read was ended")

// WatchAfter is how long a read runs, or waits, before its client is watched.
// Most reads end earlier, and watching costs a goroutine and system calls. The
// delay also lets a client that has closed only its sending direction (such as
// nc -N) receive the replies of reads that do not take long. A node cannot
// distinguish such a client from one that has left.
const WatchAfter = 100 * time.Millisecond

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
	t := time.NewTimer(WatchAfter)
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

// stop ends the watch. After stop has returned, the connection may be read
// again.
func (w *clientWatch) stop() {
	close(w.finished)
	<-w.exited
}

// clientLeft returns ErrClientLeft in place of fairshare.ErrLost if the client
// has left.
func (w *clientWatch) clientLeft(err error) error {
	if errors.Is(err, fairshare.ErrLost) && w.left {
		return ErrClientLeft
	}
	return err
}
