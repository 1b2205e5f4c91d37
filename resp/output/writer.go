// Package output sends replies and messages to the client of a connection.
package output

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
)

// The replies of a pipeline are sent while the pipeline runs. As soon as
// SliceBytes are collected, the connection's goroutine sends them before it
// runs the next command, and waits while the client does not read. So if a client
// does not read, its replies occupy little memory, and its further commands do not
// run.
const (
	SliceBytes  = 64 << 10  // bytes of replies that are collected before they are sent
	strideBytes = 256 << 10 // part of a large reply that is sent under one deadline
)

// Writer writes to the socket of a connection. No other code writes there, except
// the guard, which reports protocol errors. Three goroutines use a Writer:
//
//   - The connection's goroutine writes replies, and the messages that belong
//     between them. It collects small texts in redcon's buffer, which only this
//     goroutine uses. It locks mu to send.
//   - While the connection's goroutine waits for the replies of a group, the
//     goroutine that delivers these replies may send them: see sendEarly.
//   - The outbox's goroutine writes messages while no pipeline runs.
type Writer struct {
	cfg WriterConfig

	// mu guards the socket. A goroutine that needs mu and the lock of the
	// outbox locks mu first.
	mu sync.Mutex

	// The following fields belong to the connection's goroutine. While it is in
	// resp.Executor.Do, sent and early belong to sendEarly.
	Mode    ReplyMode
	sent    int // bytes that this pipeline has written
	unsent  int // the part of sent that redcon has buffered
	failed  bool
	early   early
	charged bool // see SetCharged
}

// WriterConfig contains the parts of a connection that its Writer uses.
type WriterConfig struct {
	Redcon redcon.Conn
	Net    net.Conn
	Memory *clientmem.Account
	// Pushed counts the bytes of messages that the outbox's goroutine has sent.
	Pushed *atomic.Uint64
	// Pushers, unless nil, bounds how many outboxes send at the same time.
	Pushers *Pushers
}

// Init makes the zero value a Writer of a connection.
func (w *Writer) Init(cfg WriterConfig) {
	w.cfg = cfg
	w.early.send = w.sendEarly
}

// ReplyMode is the mode that CLIENT REPLY has set.
type ReplyMode int

// The modes of CLIENT REPLY.
const (
	ReplyOn ReplyMode = iota
	ReplyOff
	ReplySkipNext // the last command was CLIENT REPLY SKIP
	ReplySkip     // the current command is the command after CLIENT REPLY SKIP
)

// Failed reports whether the client can receive nothing more.
func (w *Writer) Failed() bool { return w.failed }

// Sent reports whether this pipeline has written anything.
func (w *Writer) Sent() bool { return w.sent > 0 }

// TakeSent ends a pipeline. It returns the number of bytes that the pipeline has
// written: its replies, and the messages between them.
func (w *Writer) TakeSent() int {
	n := w.sent
	w.sent = 0
	return n
}

// SetCharged sets whether the caller has charged the following replies, as a whole,
// to the memory of the connection.
func (w *Writer) SetCharged(charged bool) { w.charged = charged }

// Silent reports whether CLIENT REPLY has turned replies off.
func (w *Writer) Silent() bool { return w.Mode == ReplyOff || w.Mode == ReplySkip }

// Write writes encoded replies, unless CLIENT REPLY has turned replies off.
// They are sent at the end of the pipeline at the latest: see Put.
func (w *Writer) Write(b []byte) {
	if w.Silent() {
		return
	}
	w.Put(b)
}

// Put adds encoded bytes to the output. It sends the output once SliceBytes are
// collected.
func (w *Writer) Put(b []byte) {
	if w.unsent+len(b) <= SliceBytes {
		w.buffer(b)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putLocked(b)
}

// buffer adds encoded bytes to the output without sending it.
func (w *Writer) buffer(b []byte) {
	w.sent += len(b)
	w.unsent += len(b)
	w.cfg.Redcon.WriteRaw(b)
}

// putLocked is like Put, for callers that hold mu.
func (w *Writer) putLocked(b []byte) {
	if w.unsent > 0 && w.unsent+len(b) > SliceBytes {
		w.sendLocked()
	}
	if len(b) <= SliceBytes {
		w.buffer(b)
		return
	}
	if w.charged {
		w.writeLocked(b)
		return
	}
	w.cfg.Memory.Add(int64(len(b)))
	w.writeLocked(b)
	w.cfg.Memory.Add(-int64(len(b)))
}

// Send sends the output that redcon has collected.
func (w *Writer) Send() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked()
}

// sendLocked sends the output that redcon has collected. An error ends the connection.
func (w *Writer) sendLocked() {
	w.unsent = 0
	w.cfg.Memory.BeginWait()
	defer w.cfg.Memory.BeginWork()
	if err := redcon.BaseWriter(w.cfg.Redcon).Flush(); err != nil {
		w.failed = true
	}
}

// writeLocked writes bytes directly to the socket, because redcon would copy them.
func (w *Writer) writeLocked(b []byte) {
	w.cfg.Memory.BeginWait()
	defer w.cfg.Memory.BeginWork()
	for len(b) > 0 && !w.failed {
		n, err := w.cfg.Net.Write(b[:min(len(b), strideBytes)])
		w.sent += n
		b = b[n:]
		w.cfg.Memory.Touch()
		if err != nil {
			w.failed = true
		}
	}
}

var errEnded = errors.New("connection has ended")

// Stream sends a large reply, encoded for a RESP version, piece by piece, without
// copying it as a whole.
func (w *Writer) Stream(r *fsm.Reply, proto int) {
	if w.Silent() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked()
	err := r.Encode(proto, func(b []byte) error {
		w.writeLocked(b)
		if w.failed {
			return errEnded
		}
		return nil
	})
	if err != nil {
		w.failed = true
	}
}

// endAfter calls write, which may call putLocked, and then sends the output at the
// end of a pipeline.
func (w *Writer) endAfter(write func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	write()
	return w.endLocked()
}

// endLocked sends the output at the end of a pipeline. redcon keeps the error
// and ends the connection with it.
func (w *Writer) endLocked() error {
	w.unsent = 0
	w.cfg.Memory.BeginWait()
	return redcon.BaseWriter(w.cfg.Redcon).Flush()
}

// Close sends the output and closes the connection.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Memory.BeginWait()
	return w.cfg.Redcon.Close()
}

// messages writes messages while no pipeline runs. It writes the bytes that
// next returns and then calls sent. It repeats this until next returns nothing.
func (w *Writer) messages(next func() []byte, sent func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		b := next()
		if len(b) == 0 {
			return nil
		}
		err := w.messagesLocked(b)
		sent()
		if err != nil {
			return err
		}
	}
}

// messagesLocked writes messages while no pipeline runs. With a slot of
// Pushers, it sends as many bytes as the socket accepts without waiting. If the
// socket accepts nothing, messagesLocked waits without a slot, and then sends a
// small part.
func (w *Writer) messagesLocked(b []byte) error {
	for len(b) > 0 {
		n, err := w.trySend(b[:min(len(b), strideBytes)]), error(nil)
		if n == 0 {
			n, err = w.cfg.Net.Write(b[:min(len(b), SliceBytes)])
		}
		w.cfg.Pushed.Add(uint64(n))
		w.cfg.Memory.Touch()
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// trySend waits for a free slot of Pushers. Then it sends as many bytes as the
// socket accepts without waiting, and returns their number. It returns 0 if the
// connection is encrypted.
func (w *Writer) trySend(b []byte) (n int) {
	g, ok := w.cfg.Net.(*guard.Conn)
	if !ok || w.cfg.Pushers == nil {
		return 0
	}
	w.cfg.Pushers.send(func() { n = g.TryWrite(b) })
	return n
}

// early lets the goroutine that delivers the results of a log entry write the
// replies of a group to the client's socket. The connection's goroutine waits
// for the replies at that time (see resp.Executor.Do). The delivering goroutine
// writes the replies of many clients before it wakes the goroutines of their
// connections: docs/architecture.md, "Sending replies", has the reason.
type early struct {
	send func(replies []byte) // sendEarly, bound to the writer
	may  bool                 // the replies of the current group may be sent early: see AllowEarly
	sent int                  // bytes that the socket has accepted
}

// AllowEarly sets whether the replies of the current group may be sent early.
func (w *Writer) AllowEarly(may bool) { w.early.may = may }

// Early returns the function to pass to resp.Executor.Do, or nil if replies must
// not be sent early.
func (w *Writer) Early() func(replies []byte) {
	if w.early.may {
		return w.early.send
	}
	return nil
}

// Rest returns the bytes of the replies that were not sent early.
func (w *Writer) Rest(replies []byte) []byte {
	n := w.early.sent
	w.early.sent = 0
	return replies[n:]
}

// sendEarly sends as many bytes as the socket accepts without waiting. The
// connection's goroutine sends the rest and then the messages of the outbox.
func (w *Writer) sendEarly(replies []byte) {
	g, ok := w.cfg.Net.(*guard.Conn)
	if !ok || !w.mu.TryLock() { // a message is being sent
		return
	}
	defer w.mu.Unlock()
	w.early.sent = g.TryWrite(replies)
	w.sent += w.early.sent
}
