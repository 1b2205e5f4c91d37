package resp

import (
	"slices"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/fsm"
)

// outbox holds what a connection is sent without having asked: messages of
// channels and invalidations. While the connection's goroutine serves a pipeline
// it alone writes, and puts what has gathered between the replies, so that
// nothing overtakes the reply that it belongs behind. In between, the outbox's
// own goroutine writes.
type outbox struct {
	c    *conn
	wake chan struct{} // capacity 1: something is to be sent
	done chan struct{} // closed when the connection has ended

	// writing is held while the socket is written to. It is taken before mu.
	writing sync.Mutex

	mu      sync.Mutex
	proto   int // RESP version of the connection
	serving bool
	running bool // the goroutine has been started
	closed  bool
	queue   []message
	// waiter names the blocking command that the connection waits for while it is
	// not serving: what that command caused comes behind its reply. 0 for none.
	waiter fsm.Pos
	size   int       // bytes of queue, and of what is being written
	over   time.Time // since when size is above the soft limit; zero if it is not
}

// message is one encoded message and what caused it.
type message struct {
	b     []byte
	cause cause
}

func newOutbox(c *conn) *outbox {
	return &outbox{c: c, proto: 2, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// begin lets the connection's goroutine write alone.
func (o *outbox) begin() {
	o.mu.Lock()
	o.serving, o.waiter = true, 0
	o.mu.Unlock()
}

// end sends the replies, and what has gathered behind them.
func (o *outbox) end() error { return o.endBefore(0) }

// endBefore is end while the connection waits for a blocking command: what that
// command causes is kept until begin.
func (o *outbox) endBefore(waiter fsm.Pos) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.mu.Lock()
	o.waiter = waiter
	o.drainLocked()
	o.serving = false
	o.mu.Unlock()
	return redcon.BaseWriter(o.c.rc).Flush()
}

// hangUp sends the replies and closes the connection.
func (o *outbox) hangUp() error {
	o.writing.Lock()
	defer o.writing.Unlock()
	return o.c.rc.Close()
}

// drain puts what has gathered behind the replies so far.
func (o *outbox) drain() {
	o.mu.Lock()
	o.drainLocked()
	o.mu.Unlock()
}

func (o *outbox) drainLocked() {
	for _, m := range o.takeLocked() {
		o.c.sent += len(m.b)
		o.c.rc.WriteRaw(m.b)
		o.size -= len(m.b)
	}
}

// takeLocked takes what may be sent now from the queue. What follows a message
// that has to wait, waits too: messages keep their order.
func (o *outbox) takeLocked() []message {
	n := len(o.queue)
	if o.waiter != 0 {
		if i := slices.IndexFunc(o.queue, func(m message) bool { return m.cause.wait == o.waiter }); i >= 0 {
			n = i
		}
	}
	taken := o.queue[:n:n]
	if o.queue = o.queue[n:]; len(o.queue) == 0 {
		o.queue = nil
	}
	return taken
}

// takeUntil takes the messages that were caused before, or by, the group at a place
// in the log, up to the first of which that is not known.
func (o *outbox) takeUntil(group cause) []message {
	if group.index == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for i := range o.queue {
		before, in := o.queue[i].cause.relative(group.index, group.position)
		if !before && !in {
			break
		}
		n = i + 1
	}
	taken := o.queue[:n:n]
	o.queue = o.queue[n:]
	for i := range taken {
		o.size -= len(taken[i].b)
	}
	return taken
}

// push adds a message, which encode makes for the connection's RESP version. It
// never waits for the network: a connection that does not take what it is sent
// is closed at a limit.
func (o *outbox) push(why cause, encode func(proto int) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	b := encode(o.proto)
	if len(b) == 0 {
		return
	}
	if reason := o.limit(len(b), time.Now()); reason != "" {
		o.cutOffLocked(reason)
		return
	}
	o.queue = append(o.queue, message{b, why})
	o.size += len(b)
	if o.serving {
		return // end sends it
	}
	if !o.running {
		o.running = true
		o.c.srv.behind.Add(1)
		go o.run()
	}
	poke(o.wake)
}

// limit says which limit n more bytes would break, "" for none.
func (o *outbox) limit(n int, now time.Time) string {
	l := &o.c.srv.cfg.Limits
	size := o.size + n
	switch {
	case l.PushHard > 0 && size > l.PushHard:
		return "hard limit"
	case l.PushSoft == 0 || size <= l.PushSoft:
		o.over = time.Time{}
	case o.over.IsZero():
		o.over = now
	case now.Sub(o.over) >= l.PushSoftTime:
		return "soft limit"
	}
	return ""
}

// cutOff closes the connection: it would miss messages.
func (o *outbox) cutOff(reason string) {
	o.mu.Lock()
	o.cutOffLocked(reason)
	o.mu.Unlock()
}

func (o *outbox) cutOffLocked(reason string) {
	if o.closed {
		return
	}
	o.closed = true
	s := o.c.srv
	s.metrics.CutOff.Inc()
	s.warn("slow_subscriber", "subscriber cut off", "client", o.c.id, "addr", o.c.net.RemoteAddr(), "reason", reason, "bytes", o.size)
	o.queue, o.size = nil, 0
	o.c.killed.Store(true)
	o.c.wakeBlocked(wakeKilled)
	if err := ignoreClosed(o.c.net.Close()); err != nil {
		s.log.Debug("close subscriber", "client", o.c.id, "error", err)
	}
}

// run writes whenever the connection's goroutine does not.
func (o *outbox) run() {
	defer o.c.srv.behind.Done()
	for {
		select {
		case <-o.wake:
		case <-o.done:
			return
		case <-o.c.srv.released:
			return
		}
		if err := o.write(); err != nil {
			// The connection's goroutine finds the socket closed, and ends.
			o.c.srv.log.Debug("write to subscriber", "client", o.c.id, "error", err)
			return
		}
	}
}

func (o *outbox) write() error {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.mu.Lock()
	if o.serving {
		o.mu.Unlock()
		return nil
	}
	var all []byte
	if taken := o.takeLocked(); len(taken) == 1 {
		all = taken[0].b
	} else {
		n := 0
		for _, m := range taken {
			n += len(m.b)
		}
		all = make([]byte, 0, n)
		for _, m := range taken {
			all = append(all, m.b...)
		}
	}
	o.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	n, err := o.c.net.Write(all)
	o.c.srv.metrics.bytesOut.Add(uint64(n))
	o.mu.Lock()
	o.size -= len(all)
	o.mu.Unlock()
	return err
}

// close ends the goroutine. The connection has ended.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.queue, o.size = nil, 0
	o.mu.Unlock()
	close(o.done)
}

// setProto changes the RESP version of what comes. What has gathered is of the old
// one, and goes before the reply that speaks the new one.
func (o *outbox) setProto(proto int) {
	o.mu.Lock()
	if o.proto != proto {
		o.drainLocked()
	}
	o.proto = proto
	o.mu.Unlock()
}

// held returns how many messages and bytes wait.
func (o *outbox) held() (messages, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// poke wakes whoever waits on c.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
