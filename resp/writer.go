package resp

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
// sliceBytes are collected, the connection's goroutine sends them before it
// runs the next command, and waits while the client does not read. So a client
// that does not read makes the node store little, and its further commands do
// not run.
const (
	sliceBytes  = 64 << 10  // replies that are collected before they are sent
	strideBytes = 256 << 10 // part of a large reply that is sent under one deadline
)

// writer is the only code of a connection that writes to the socket. Three
// goroutines use it:
//
//   - The connection's goroutine writes replies, and the messages that belong
//     between them. It collects small ones in redcon's buffer, which only this
//     goroutine uses. It locks mu to send.
//   - While the connection's goroutine waits for the replies of a group, the
//     goroutine that delivers these replies may send them: see sendEarly.
//   - The outbox's goroutine writes messages while no pipeline runs.
type writer struct {
	rc  redcon.Conn
	net net.Conn
	mem *clientmem.Account
	// pushed counts the bytes of messages that the outbox's goroutine has
	// sent.
	pushed *atomic.Uint64
	// pushers, unless nil, bounds how many outboxes send at the same time.
	pushers *pushers

	// mu guards the socket. A goroutine that needs mu and the lock of the
	// outbox locks mu first.
	mu sync.Mutex

	// The following fields belong to the connection's goroutine. While it is in
	// Executor.Do, sent and early belong to sendEarly.
	mode   replyMode
	sent   int // bytes of replies of this pipeline
	unsent int // the part of sent that redcon has buffered
	failed bool
	early  early
	// charged is set while the replies that are being written are charged to mem
	// as a whole: see writeGroup.
	charged bool
}

// replyMode is the mode that CLIENT REPLY has set.
type replyMode int

const (
	replyOn replyMode = iota
	replyOff
	replySkipNext // the last command was CLIENT REPLY SKIP
	replySkip     // the current command is the one after CLIENT REPLY SKIP
)

// silent reports whether CLIENT REPLY has turned replies off.
func (w *writer) silent() bool { return w.mode == replyOff || w.mode == replySkip }

// write writes encoded replies, unless CLIENT REPLY has turned replies off.
// They are sent at the end of the pipeline at the latest: see put.
func (w *writer) write(b []byte) {
	if w.silent() {
		return
	}
	w.put(b)
}

// put adds encoded bytes to the output. It sends the output once sliceBytes are
// collected.
func (w *writer) put(b []byte) {
	if w.unsent+len(b) <= sliceBytes {
		w.buffer(b)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putLocked(b)
}

// buffer adds encoded bytes to the output without sending it.
func (w *writer) buffer(b []byte) {
	w.sent += len(b)
	w.unsent += len(b)
	w.rc.WriteRaw(b)
}

// putLocked is like put, for callers that hold mu.
func (w *writer) putLocked(b []byte) {
	if w.unsent > 0 && w.unsent+len(b) > sliceBytes {
		w.sendLocked()
	}
	if len(b) <= sliceBytes {
		w.buffer(b)
		return
	}
	if w.charged {
		w.writeLocked(b)
		return
	}
	w.mem.Add(int64(len(b)))
	w.writeLocked(b)
	w.mem.Add(-int64(len(b)))
}

// send sends what redcon has collected.
func (w *writer) send() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked()
}

// sendLocked sends what redcon has collected. An error ends the connection.
func (w *writer) sendLocked() {
	w.unsent = 0
	w.mem.BeginWait()
	defer w.mem.BeginWork()
	if err := redcon.BaseWriter(w.rc).Flush(); err != nil {
		w.failed = true
	}
}

// writeLocked writes bytes to the socket, past redcon, which would copy them.
func (w *writer) writeLocked(b []byte) {
	w.mem.BeginWait()
	defer w.mem.BeginWork()
	for len(b) > 0 && !w.failed {
		n, err := w.net.Write(b[:min(len(b), strideBytes)])
		w.sent += n
		b = b[n:]
		w.mem.Touch()
		if err != nil {
			w.failed = true
		}
	}
}

var errEnded = errors.New("connection has ended")

// stream sends a large reply from the memory that it refers to, encoded for a
// RESP version.
func (w *writer) stream(r *fsm.Reply, proto int) {
	if w.silent() {
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

// endLocked sends the output at the end of a pipeline. redcon keeps the error
// and ends the connection with it.
func (w *writer) endLocked() error {
	w.unsent = 0
	w.mem.BeginWait()
	return redcon.BaseWriter(w.rc).Flush()
}

// close sends the output and closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mem.BeginWait()
	return w.rc.Close()
}

// messagesLocked writes messages while no pipeline runs. If a slot is free, it
// sends what the socket accepts. If the socket accepts nothing, messagesLocked
// waits without a slot, and then sends a small part.
func (w *writer) messagesLocked(b []byte) error {
	for len(b) > 0 {
		n, err := w.trySend(b[:min(len(b), strideBytes)]), error(nil)
		if n == 0 {
			n, err = w.net.Write(b[:min(len(b), sliceBytes)])
		}
		w.pushed.Add(uint64(n))
		w.mem.Touch()
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// trySend sends what the socket accepts without waiting, when pushers has a
// slot. It returns 0 if the connection is encrypted.
func (w *writer) trySend(b []byte) (n int) {
	g, ok := w.net.(*guard.Conn)
	if !ok || w.pushers == nil {
		return 0
	}
	w.pushers.send(func() { n = g.TryWrite(b) })
	return n
}

// early lets the goroutine that delivers the results of a log entry write the
// replies of a group to the client's socket. The connection's goroutine waits
// for the replies at that time (see Executor.Do). The replies of many clients
// are written one after the other before any of these goroutines is woken:
// docs/architecture.md, "Sending replies", has the reason.
type early struct {
	send func(replies []byte) // sendEarly, bound to the writer
	may  bool                 // the replies of the current group may be sent early
	sent int                  // bytes that the socket has accepted
}

// now returns the function to pass to Executor.Do, or nil if replies must not
// be sent early.
func (e *early) now() func(replies []byte) {
	if e.may {
		return e.send
	}
	return nil
}

// rest returns the part of the replies that sendEarly has not sent.
func (e *early) rest(replies []byte) []byte {
	n := e.sent
	e.sent = 0
	return replies[n:]
}

// sendEarly sends as many bytes as the socket accepts without waiting. The
// connection's goroutine sends the rest and then the messages of the outbox.
func (w *writer) sendEarly(replies []byte) {
	g, ok := w.net.(*guard.Conn)
	if !ok || !w.mu.TryLock() { // a message is being sent
		return
	}
	defer w.mu.Unlock()
	w.early.sent = g.TryWrite(replies)
	w.sent += w.early.sent
}
