package rpc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxWrite is the maximum size of one Write in bytes. Because of this limit,
// WriteTimeout can measure progress even if a connection cannot report a
// partial write (TLS). It also lets senders that wait for room continue early.
const maxWrite = 1 << 20

// Stream is a connection that carries frames in both directions. Only one
// goroutine may call Recv. All other methods may be called from any number of
// goroutines.
//
// A stream ends once, for one reason (Err): Close, the peer closing the
// connection (io.EOF), a broken frame or connection, WriteTimeout, Close of the
// Mux, or Mux.SetSecrets. Frames that have been sent but not yet written are
// then lost.
type Stream struct {
	conn         *conn
	peer         Hello
	maxFrame     int
	maxQueue     uint64
	writeTimeout time.Duration

	frames *frameReader // used by Recv only
	shut   atomic.Bool  // this side has closed the stream: Recv returns no more buffered frames

	done chan struct{} // closed when err is set

	mu sync.Mutex
	// work is signaled when outbox is no longer empty or the stream has ended.
	// The writer waits for it.
	work sync.Cond
	// space is signaled when the field written has grown or the stream has
	// ended. Send and Flush wait for it.
	space  sync.Cond
	outbox []byte // complete frames only
	// spare becomes the outbox while the current one is being written. It is
	// nil during that time.
	spare []byte
	// writing is set while a goroutine writes a former outbox. No other
	// goroutine may write meanwhile, so that frames keep their order.
	writing  bool
	accepted uint64 // bytes ever put into the outbox
	written  uint64 // bytes ever written; the queue has accepted-written bytes
	err      error  // why the stream ended; nil while it is open
}

func newStream(c *conn, peer Hello, cfg *Config) *Stream {
	s := &Stream{
		conn:         c,
		peer:         peer,
		maxFrame:     cfg.MaxFrame,
		maxQueue:     uint64(cfg.MaxQueue),
		writeTimeout: cfg.WriteTimeout,
		frames:       newFrameReader(c, cfg.MaxFrame),
		done:         make(chan struct{}),
	}
	s.work.L, s.space.L = &s.mu, &s.mu
	return s
}

// Peer returns the other side's Hello: the dialer's on the accepting side, the
// acceptor's on the dialing side.
func (s *Stream) Peer() Hello { return s.peer }

// Send queues a frame. It copies the payload, which may be reused at once. It
// blocks only while more than Config.MaxQueue bytes wait to be written. A nil
// error means that the frame is queued, not that it is delivered. After the end
// of the stream, Send returns Err. For a payload over Config.MaxFrame, it
// returns a *FrameSizeError and queues nothing.
func (s *Stream) Send(typ byte, payload []byte) error {
	if len(payload) > s.maxFrame {
		return &FrameSizeError{Size: int64(len(payload)), Limit: int64(s.maxFrame)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.waitRoomLocked(); err != nil {
		return err
	}
	s.outbox = append(appendFrameHeader(s.outbox, typ, len(payload)), payload...)
	s.acceptLocked(frameHeader + len(payload))
	s.work.Signal()
	return nil
}

// SendFunc is like Send, for a payload that is built in place: build appends it
// to dst and returns the result, as append does. SendFunc calls build at most
// once, under the stream's lock, so build must be quick and must not use the
// stream. The result of build shares memory with other frames and must not be
// kept.
func (s *Stream) SendFunc(typ byte, build func(dst []byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.waitRoomLocked(); err != nil {
		return err
	}
	return s.sendFuncLocked(typ, build)
}

// sendFuncLocked builds a frame in the outbox and wakes the writer.
func (s *Stream) sendFuncLocked(typ byte, build func(dst []byte) []byte) error {
	err := s.buildLocked(typ, build)
	s.work.Signal() // takes a few nanoseconds if the writer is busy
	return err
}

// buildLocked builds a frame in the outbox without waking the writer.
func (s *Stream) buildLocked(typ byte, build func(dst []byte) []byte) error {
	if s.err != nil {
		return s.err
	}
	// The outbox is unchanged until the frame is complete, so that a panic in
	// build or an oversize payload leaves no partial frame.
	start := len(s.outbox)
	grown := appendFrameHeader(s.outbox, typ, 0)
	body := len(grown)
	grown = build(grown)
	size := len(grown) - body
	if size < 0 {
		panic("rpc: SendFunc: build returned less than it was given")
	}
	if size > s.maxFrame {
		return &FrameSizeError{Size: int64(size), Limit: int64(s.maxFrame)}
	}
	appendFrameHeader(grown[:start], typ, size)
	s.outbox = grown
	s.acceptLocked(frameHeader + size)
	return nil
}

// waitRoomLocked waits until the queue is within its limit. It fails if the
// stream has ended.
func (s *Stream) waitRoomLocked() error {
	for s.err == nil && s.accepted-s.written > s.maxQueue {
		s.space.Wait()
	}
	return s.err
}

// acceptLocked counts a frame of n bytes, including the header, that was put
// into the outbox.
func (s *Stream) acceptLocked(n int) {
	s.accepted += uint64(n)
}

// Flush waits until every frame that was sent before the call has been written
// to the connection. It fails with Err if the stream ends first. It does not
// wait for the peer to read the frames.
func (s *Stream) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.accepted; s.written < until; {
		if s.err != nil {
			return s.err
		}
		s.space.Wait()
	}
	return nil
}

// Recv returns the next frame. The payload is valid until the next Recv. Only
// one goroutine may call Recv. After the last frame, Recv returns Err: io.EOF
// if the peer closed the connection between two frames, or a wrapped
// io.ErrUnexpectedEOF if the connection ended inside a frame.
func (s *Stream) Recv() (typ byte, payload []byte, err error) {
	if s.shut.Load() {
		return 0, nil, s.Err()
	}
	typ, payload, err = s.frames.next()
	if err != nil {
		s.fail(err)
		// Return the first reason for the end of the stream: after Close, the
		// connection's own error is meaningless.
		return 0, nil, s.Err()
	}
	return typ, payload, nil
}

// Close ends the stream at once. Waiting calls of Send, Flush and Recv return,
// and frames that are not yet written are dropped; call Flush first if they
// matter. Close may be called any number of times.
func (s *Stream) Close() error { return s.close(ErrStreamClosed) }

func (s *Stream) close(reason error) error {
	s.shut.Store(true)
	return s.end(reason)
}

// Done returns a channel that is closed when the stream has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err returns why the stream has ended, or nil while it is open.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end ends the stream for the given reason, unless it has already ended.
func (s *Stream) end(reason error) error {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil
	}
	s.err = reason
	s.outbox, s.spare = nil, nil
	close(s.done)
	s.work.Broadcast()
	s.space.Broadcast()
	s.mu.Unlock()
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close stream: %w", err)
	}
	return nil
}

// fail ends the stream like end. It only logs an error of closing the connection,
// because reason is more important.
func (s *Stream) fail(reason error) {
	if err := s.end(reason); err != nil {
		s.conn.mux.log.Debug("cannot close stream", "reason", reason, "error", err)
	}
}

// drainAndClose writes the queued frames, waits for the peer to close the
// connection, and closes the stream. It takes at most WriteTimeout. The Mux
// calls it when a handler has returned, so a handler may send an answer and
// return.
func (s *Stream) drainAndClose() error {
	timer := time.AfterFunc(s.writeTimeout, func() { s.fail(ErrWriteTimeout) })
	defer timer.Stop()
	if err := s.Flush(); err != nil {
		return nil // already ended; Err returns the reason
	}
	// Closing a TCP connection with unread bytes resets it, and the reset
	// discards bytes that are still in transit. So first signal the end, and
	// read until the peer has closed the connection, too.
	if half, ok := s.conn.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if _, err := io.Copy(io.Discard, s.conn); err != nil {
			s.fail(fmt.Errorf("wait for the peer to close the connection: %w", err))
			return nil
		}
	}
	return s.Close()
}

// writeLoop writes the queued frames until the stream ends. Only writeLoop and
// SendNow write to the connection; the field writing keeps them from writing at
// the same time.
func (s *Stream) writeLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		waited := false
		for s.err == nil && (len(s.outbox) == 0 || s.writing) {
			s.work.Wait()
			waited = true
		}
		if s.err != nil {
			return
		}
		if waited {
			// When the first of many senders wakes this goroutine, the
			// scheduler runs it before the other senders. Let them add their
			// frames first.
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
			if s.err != nil || s.writing || len(s.outbox) == 0 {
				continue
			}
		}
		full := s.takeLocked()
		s.mu.Unlock()
		err := s.write(full)
		if err != nil {
			s.fail(err)
		}
		s.mu.Lock()
		s.writing = false
		if err == nil && cap(full) <= keepBuffer {
			s.spare = full[:0]
		}
	}
}

// takeLocked returns the outbox and sets the field writing. The caller writes the
// outbox and then clears the field.
func (s *Stream) takeLocked() []byte {
	full := s.outbox
	s.outbox, s.spare = s.spare, nil
	s.writing = true
	return full
}

// promptWrite bounds how long SendNow may delay its caller. If the connection
// has not accepted all bytes within that time, the stream's writer sends the
// rest.
const promptWrite = 2 * time.Millisecond

// SendNow is like TrySendFunc, for small frames that must be sent with low
// latency. If no other goroutine is writing, SendNow writes the frame itself,
// which saves waking the writer. It delays the caller by at most 2 ms.
func (s *Stream) SendNow(typ byte, build func(dst []byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.accepted-s.written > s.maxQueue {
		return ErrQueueFull
	}
	if err := s.buildLocked(typ, build); err != nil {
		return err
	}
	if s.writing {
		s.work.Signal()
		return nil
	}
	full := s.takeLocked()
	s.mu.Unlock()
	n, err := 0, s.conn.SetWriteDeadline(time.Now().Add(promptWrite))
	if err == nil {
		n, err = s.conn.Write(full)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.fail(fmt.Errorf("write frames: %w", err))
	}
	s.mu.Lock()
	s.writing = false
	if s.err != nil {
		return s.err
	}
	s.written += uint64(n)
	s.space.Broadcast()
	switch {
	case n < len(full): // the writer continues from here
		s.outbox = append(full[n:], s.outbox...)
	case cap(full) <= keepBuffer:
		s.spare = full[:0]
	}
	if len(s.outbox) > 0 {
		s.work.Signal()
	}
	return nil
}

// write writes all of buf, as long as the peer accepts at least a byte per
// WriteTimeout.
func (s *Stream) write(buf []byte) error {
	for len(buf) > 0 {
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.writeTimeout)); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
		before := s.conn.wire
		n, err := s.conn.Write(buf[:min(len(buf), maxWrite)])
		buf = buf[n:]
		s.mu.Lock()
		s.written += uint64(n)
		s.space.Broadcast()
		s.mu.Unlock()
		timeout := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err == nil, timeout && s.conn.wire > before:
		case timeout:
			return fmt.Errorf("%w: the peer has accepted no bytes for %v", ErrWriteTimeout, s.writeTimeout)
		default:
			return fmt.Errorf("write frames: %w", err)
		}
	}
	return nil
}

// TrySendFunc is like SendFunc, for callers that must not wait. If it would
// have to wait for room in the queue, it fails with ErrQueueFull and sends
// nothing.
func (s *Stream) TrySendFunc(typ byte, build func(dst []byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.accepted-s.written > s.maxQueue {
		return ErrQueueFull
	}
	return s.sendFuncLocked(typ, build)
}
