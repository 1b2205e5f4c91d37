package output

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

// Outbox queues the messages that the server sends to a connection without a
// request: messages of channels, invalidations, and lines of MONITOR.
//
// While the connection's goroutine serves a pipeline, that goroutine alone
// writes to the socket. It inserts the queued messages between the replies, so
// that no message overtakes the reply that it must follow. At all other times
// the outbox's own goroutine writes.
type Outbox struct {
	node   *Node
	client uint64 // id of the connection
	w      *Writer
	// cutOffClient closes the connection. It is called with mu held.
	cutOffClient func(reason string, bytes int)
	wake         chan struct{} // signals that the queue has messages to send; capacity 1
	done         chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	proto   int  // RESP version of the connection
	serving bool // the connection's goroutine serves a pipeline and writes
	running bool // the outbox's goroutine has been started
	closed  bool
	queue   []Message
	// waiter is the blocking command that the connection waits for while
	// serving is false. Messages that this command caused stay in the queue
	// until its reply is written. If there is no such command, waiter is 0.
	waiter fsm.Pos
	size   int // bytes of the messages in queue and of the messages that are being written
	count  int // number of messages in queue and of messages that are being written
	// ranked is the part of size and count that has been reported to the memory
	// for clients: see rankLocked.
	ranked int64
	// over is the time at which size rose above the soft limit. It is zero
	// while size is not above that limit.
	over time.Time
}

// Message is an encoded message and its cause.
type Message struct {
	*pubsub.Payload
	Cause pubsub.Cause
}

const (
	// messageBytes estimates the memory of a queued message, in bytes, without
	// its payload.
	messageBytes = 96
	// rankBytes is the granularity, in bytes, with which an outbox reports its
	// size to the clientmem.Account of its connection: see rankLocked.
	rankBytes = 4 << 10
)

// Node contains the limits and the services that all outboxes of a node share.
type Node struct {
	Memory *clientmem.Budget
	Limits *guard.Limits
	// Go runs f on a goroutine. The server waits for these goroutines when it
	// closes. Closed is closed when they must end.
	Go     func(f func())
	Closed <-chan struct{}
	Logger hclog.Logger
}

// NewOutbox returns the outbox of a connection. The outbox charges its messages to
// the memory account of w. cutOff closes the connection, for example because the
// client reads too slowly, and counts and logs this. cutOff must not call the
// outbox.
func NewOutbox(node *Node, client uint64, w *Writer, cutOff func(reason string, bytes int)) *Outbox {
	return &Outbox{
		node: node, client: client, w: w, cutOffClient: cutOff, proto: 2,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Begin gives the connection's goroutine the exclusive right to write, for a
// pipeline. Before the replies, Begin writes the messages that the outbox's
// goroutine has not written yet: a client must not receive the reply of a later
// command before an invalidation that was due earlier.
func (o *Outbox) Begin() {
	if o.Resume() {
		o.Drain()
	}
}

// Resume is like Begin, for a connection that has waited for a blocking
// command. The queued messages may be a consequence of that command, so they
// follow its reply. Resume reports whether messages are queued.
func (o *Outbox) Resume() (queued bool) {
	o.mu.Lock()
	o.serving, o.waiter = true, 0
	queued = len(o.queue) > 0
	o.mu.Unlock()
	o.w.cfg.Memory.BeginWork()
	return queued
}

// End sends the replies, and after them the queued messages.
func (o *Outbox) End() error { return o.EndBefore(0) }

// EndBefore is like End, for a connection that then waits for a blocking command.
// Messages that the command causes stay in the queue until Resume.
func (o *Outbox) EndBefore(waiter fsm.Pos) error { return o.w.endAfter(func() { o.release(waiter) }) }

// release writes the queued messages after the replies. The outbox's goroutine
// sends the messages that arrive meanwhile; if release sent them too, a flood
// of messages could keep it from ever returning. Only Writer.endAfter calls
// release.
func (o *Outbox) release(waiter fsm.Pos) {
	o.mu.Lock()
	o.waiter = waiter
	taken := o.takeLocked()
	o.mu.Unlock()
	for i := range taken {
		o.w.putLocked(taken[i].Bytes)
		o.sent(taken[i : i+1])
	}
	o.mu.Lock()
	o.serving = false
	if len(o.queue) > 0 && !o.closed {
		o.runLocked()
	}
	o.mu.Unlock()
}

// sent records that messages taken from the queue have been sent.
func (o *Outbox) sent(taken []Message) {
	o.mu.Lock()
	o.releaseLocked(taken)
	d := o.rankLocked()
	o.mu.Unlock()
	o.w.cfg.Memory.Rank(d)
}

// releaseLocked releases the memory that was charged for messages that have
// left the queue.
func (o *Outbox) releaseLocked(taken []Message) {
	bytes := 0
	for i := range taken {
		p := taken[i].Payload
		o.size -= len(p.Bytes)
		bytes += messageBytes
		if p.Queues.Add(-1) == 0 {
			bytes += len(p.Bytes)
		}
	}
	o.count -= len(taken)
	o.node.Memory.Push(-int64(bytes))
}

// rankLocked returns the change of the outbox's size since the last report to
// the memory for clients, rounded to rankBytes. The caller passes the result to
// Account.Rank after it has released o.mu.
func (o *Outbox) rankLocked() int64 {
	n := int64(o.size+o.count*messageBytes) / rankBytes * rankBytes
	d := n - o.ranked
	o.ranked = n
	return d
}

// Drain writes the queued messages after the replies so far.
func (o *Outbox) Drain() {
	o.mu.Lock()
	taken := o.takeLocked()
	o.mu.Unlock()
	for i := range taken {
		o.w.Put(taken[i].Bytes)
		o.sent(taken[i : i+1])
	}
}

// drainLocked is like Drain, for callers that must not wait for the network.
func (o *Outbox) drainLocked() {
	taken := o.takeLocked()
	for _, m := range taken {
		o.w.buffer(m.Bytes)
	}
	o.releaseLocked(taken)
}

// takeLocked takes the messages that may be sent now from the queue. If a message
// must wait, the messages after it wait too, so that messages keep their order.
func (o *Outbox) takeLocked() []Message {
	n := len(o.queue)
	if o.waiter != 0 {
		if i := slices.IndexFunc(o.queue, func(m Message) bool { return m.Cause.Wait == o.waiter }); i >= 0 {
			n = i
		}
	}
	taken := o.queue[:n:n]
	if o.queue = o.queue[n:]; len(o.queue) == 0 {
		o.queue = nil
	}
	return taken
}

// TakeUntil takes the messages that the given group, or an operation before it in
// the log, caused. It stops at the first message that has a later or an unknown
// cause.
func (o *Outbox) TakeUntil(group pubsub.Cause) []Message {
	if group.Index == 0 {
		return nil
	}
	o.mu.Lock()
	n := 0
	for i := range o.queue {
		before, in := o.queue[i].Cause.Relative(group.Index, group.Position)
		if !before && !in {
			break
		}
		n = i + 1
	}
	taken := o.queue[:n:n]
	o.queue = o.queue[n:]
	o.releaseLocked(taken)
	d := o.rankLocked()
	o.mu.Unlock()
	o.w.cfg.Memory.Rank(d)
	return taken
}

// Push queues a message. encode makes the message for the connection's RESP
// version, or returns nil if there is nothing to send in that version. Push never
// waits for the network: a connection that does not read is closed at its own
// limit or at the limit of the node.
func (o *Outbox) Push(why pubsub.Cause, encode func(proto int) *pubsub.Payload) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	charged := o.pushLocked(why, encode)
	d := o.rankLocked()
	o.mu.Unlock()
	o.w.cfg.Memory.Rank(d)
	if charged {
		o.node.Memory.Relieve()
	}
}

// pushLocked queues a message. It reports whether the memory for clients was
// charged.
func (o *Outbox) pushLocked(why pubsub.Cause, encode func(proto int) *pubsub.Payload) bool {
	p := encode(o.proto)
	if p == nil {
		return false
	}
	if reason := o.limit(len(p.Bytes), time.Now()); reason != "" {
		o.cutOffLocked(reason)
		return false
	}
	if o.size == 0 { // from now on, the client has a message to read
		o.w.cfg.Memory.Touch()
	}
	o.queue = append(o.queue, Message{p, why})
	o.size += len(p.Bytes)
	o.count++
	bytes := messageBytes
	if p.Queues.Add(1) == 1 {
		bytes += len(p.Bytes)
	}
	o.node.Memory.Push(int64(bytes))
	if o.serving {
		return true // End sends the message
	}
	o.runLocked()
	return true
}

// runLocked starts the outbox's goroutine if necessary and wakes it.
func (o *Outbox) runLocked() {
	if !o.running {
		o.running = true
		o.node.Go(o.run)
	}
	signal(o.wake)
}

// limit returns the name of the limit that n more bytes would exceed, or "" if
// they exceed none.
func (o *Outbox) limit(n int, now time.Time) string {
	l := o.node.Limits
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

// CutOff closes the connection for the given reason. The hub calls it when the
// connection would otherwise miss messages, or costs the node too much.
func (o *Outbox) CutOff(reason string) {
	o.mu.Lock()
	o.cutOffLocked(reason)
	o.mu.Unlock()
}

func (o *Outbox) cutOffLocked(reason string) {
	if o.closed {
		return
	}
	o.closed = true
	bytes := o.size
	o.dropLocked()
	o.cutOffClient(reason, bytes)
}

// dropLocked drops the queued messages.
func (o *Outbox) dropLocked() {
	o.releaseLocked(o.queue)
	o.queue = nil
}

// Discard drops the queued messages and refuses further messages. The caller then
// closes the connection.
func (o *Outbox) Discard() {
	o.mu.Lock()
	o.closed = true
	o.dropLocked()
	o.mu.Unlock()
}

// run writes queued messages whenever the connection's goroutine does not
// write.
func (o *Outbox) run() {
	for {
		select {
		case <-o.wake:
		case <-o.done:
			return
		case <-o.node.Closed:
			return
		}
		if err := o.write(); err != nil {
			// The connection's goroutine finds the socket closed and ends.
			o.node.Logger.Debug("cannot send messages to client", "client", o.client, "error", err)
			return
		}
	}
}

func (o *Outbox) write() error {
	var taken []Message
	next := func() (all []byte) {
		all, taken = o.next()
		return all
	}
	return o.w.messages(next, func() { o.sent(taken) })
}

// next takes the next messages that the outbox's goroutine writes: one large
// message, or a buffer with several small messages. It returns nothing while
// the connection's goroutine writes.
func (o *Outbox) next() (all []byte, taken []Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.serving {
		return nil, nil
	}
	taken = o.takeLocked()
	n, size := 0, 0
	for n < len(taken) && (n == 0 || size+len(taken[n].Bytes) <= SliceBytes) {
		size += len(taken[n].Bytes)
		n++
	}
	if n < len(taken) {
		o.queue = append(taken[n:len(taken):len(taken)], o.queue...)
	}
	taken = taken[:n]
	if n == 1 {
		return taken[0].Bytes, taken
	}
	all = make([]byte, 0, size)
	for _, m := range taken {
		all = append(all, m.Bytes...)
	}
	return all, taken
}

// Close ends the outbox's goroutine. The connection calls Close when it ends.
func (o *Outbox) Close() {
	o.mu.Lock()
	o.closed = true
	o.dropLocked()
	o.mu.Unlock()
	close(o.done)
}

// SetProto changes the RESP version of further messages. Queued messages were
// encoded for the old version, so SetProto writes them before the reply that
// uses the new version.
func (o *Outbox) SetProto(proto int) {
	o.mu.Lock()
	if o.proto != proto {
		o.drainLocked()
	}
	o.proto = proto
	d := o.rankLocked()
	o.mu.Unlock()
	o.w.cfg.Memory.Rank(d)
}

// Pending returns the number of messages in the queue, and the bytes of these
// messages and of the messages that are being written.
func (o *Outbox) Pending() (messages, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// signal wakes the goroutine that waits on c. c has a capacity of 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
