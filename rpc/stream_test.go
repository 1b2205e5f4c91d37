package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
)

// pair connects two nodes on a virtual network and returns both ends of a
// stream.
func pair(t *testing.T, change func(dialer, acceptor *rpc.Config)) (ours, theirs *rpc.Stream) {
	t.Helper()
	network := newVirtualNet()
	dialer, acceptor := network.node("a"), network.node("b")
	if change != nil {
		change(&dialer, &acceptor)
	}
	a, b := listen(t, dialer), listen(t, acceptor)
	streams := make(chan *rpc.Stream, 1)
	b.Handle(rpc.ServiceWrite, handOver(streams))
	ours = dial(t, a, "b:1", rpc.ServiceWrite, "b")
	return ours, <-streams
}

func TestStream_RoundTripOverTCP(t *testing.T) {
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	b.Handle(rpc.ServiceWrite, echo)
	stream := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")

	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	sizes := []int{0, 1, 59, 60, 61, 64<<10 - 6, 64<<10 - 5, 64<<10 - 4, 64 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20}
	for range 300 {
		sizes = append(sizes, random.IntN(1<<random.IntN(18)))
	}
	random.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	frames := make([][]byte, len(sizes))
	for i, size := range sizes {
		frames[i] = make([]byte, size)
		for j := range frames[i] {
			frames[i][j] = byte(random.Uint32())
		}
	}

	sent := make(chan error, 1)
	go func() {
		for i, frame := range frames {
			send := func() error { return stream.Send(byte(i), frame) }
			if i%2 == 1 {
				send = func() error {
					return stream.SendFunc(byte(i), func(dst []byte) []byte { return append(dst, frame...) })
				}
			}
			if err := send(); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i, want := range frames {
		typ, got, err := stream.Recv()
		if err != nil {
			t.Fatalf("recv %d: %v", i, err)
		}
		if typ != byte(i) || !bytes.Equal(got, want) {
			t.Fatalf("frame %d (seed %d): got type %d and %d bytes, want type %d and %d bytes", i, seed, typ, len(got), byte(i), len(want))
		}
	}
	if err := <-sent; err != nil {
		t.Errorf("send: %v", err)
	}
}

func TestSend_ErrFrameTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, func(a, b *rpc.Config) { a.MaxFrame = 100 })
		big := make([]byte, 101)
		grow := func(dst []byte) []byte { return append(dst, big...) }

		for name, err := range map[string]error{"Send": ours.Send(1, big), "SendFunc": ours.SendFunc(1, grow)} {
			var size *rpc.FrameSizeError
			if !errors.As(err, &size) || !errors.Is(err, rpc.ErrFrameTooLarge) {
				t.Fatalf("%s: got %v, want a FrameSizeError", name, err)
			}
			if got, want := *size, (rpc.FrameSizeError{Size: 101, Limit: 100}); got != want {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
		mustSend(t, ours, 2, "still alive")
		if typ, got := mustRecv(t, theirs); typ != 2 || got != "still alive" {
			t.Errorf("got type %d %q, want type 2 %q", typ, got, "still alive")
		}
	})
}

func TestRecv_ErrFrameTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, func(a, b *rpc.Config) { b.MaxFrame = 100 })
		if err := ours.Send(1, make([]byte, 101)); err != nil {
			t.Fatalf("send: %v", err)
		}
		_, _, err := theirs.Recv()
		if got, want := fmt.Sprint(err), "rpc: frame of 101 bytes exceeds the limit of 100 bytes"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !errors.Is(theirs.Err(), rpc.ErrFrameTooLarge) {
			t.Errorf("the stream continues after a frame over the limit: %v", theirs.Err())
		}
		if _, _, err := ours.Recv(); err != io.EOF {
			t.Errorf("other side: got %v, want %v", err, io.EOF)
		}
	})
}

func TestSendFunc_PanicLeavesNoHalfFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("panic was swallowed")
				}
			}()
			_ = ours.SendFunc(1, func(dst []byte) []byte { panic("build") })
		}()
		mustSend(t, ours, 2, "whole")
		if typ, got := mustRecv(t, theirs); typ != 2 || got != "whole" {
			t.Errorf("got type %d %q, want type 2 %q", typ, got, "whole")
		}
	})
}

func TestSend_BlocksWhileTheQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, func(a, b *rpc.Config) { a.MaxQueue = 1000 })
		frame := make([]byte, 95) // 100 with its header
		var mu sync.Mutex
		sent := 0
		go func() {
			for range 30 {
				if err := ours.Send(1, frame); err != nil {
					t.Errorf("send: %v", err)
				}
				mu.Lock()
				sent++
				mu.Unlock()
			}
		}()
		synctest.Wait()
		mu.Lock()
		// The eleventh frame is sent when exactly 1000 bytes are queued, which
		// is allowed. The twelfth waits.
		if got, want := sent, 11; got != want {
			t.Errorf("got %d frames sent, want %d", got, want)
		}
		mu.Unlock()
		for range 30 {
			mustRecv(t, theirs)
		}
		synctest.Wait()
		if got, want := sent, 30; got != want {
			t.Errorf("got %d frames sent, want %d", got, want)
		}
		if err := ours.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

func TestTrySendFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, func(a, b *rpc.Config) { a.MaxQueue, a.MaxFrame = 10, 100 })
		try := func(text string) error {
			return ours.TrySendFunc(1, func(dst []byte) []byte { return append(dst, text...) })
		}
		if err := try(string(make([]byte, 101))); !errors.Is(err, rpc.ErrFrameTooLarge) {
			t.Errorf("got %v, want %v", err, rpc.ErrFrameTooLarge)
		}
		if err := try("fills the queue"); err != nil {
			t.Errorf("empty queue: %v", err)
		}
		if err := try("never sent"); err != rpc.ErrQueueFull {
			t.Errorf("full queue: got %v, want %v", err, rpc.ErrQueueFull)
		}
		if _, got := mustRecv(t, theirs); got != "fills the queue" {
			t.Errorf("got %q, want %q", got, "fills the queue")
		}
		if err := ours.Flush(); err != nil {
			t.Fatalf("flush: %v", err)
		}
		if err := try("room again"); err != nil {
			t.Errorf("drained queue: %v", err)
		}
		if _, got := mustRecv(t, theirs); got != "room again" {
			t.Errorf("got %q, want %q", got, "room again")
		}
		if err := ours.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := try("x"); err != rpc.ErrStreamClosed {
			t.Errorf("got %v, want %v", err, rpc.ErrStreamClosed)
		}
	})
}

func TestClose_UnblocksEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := pair(t, func(a, b *rpc.Config) { a.MaxQueue = 10 })
		mustSend(t, ours, 1, "more than ten bytes")
		errs := make(chan error, 3)
		go func() { errs <- ours.Send(1, nil) }()
		go func() { errs <- ours.Flush() }()
		go func() { _, _, err := ours.Recv(); errs <- err }()
		synctest.Wait()
		if got := len(errs); got != 0 {
			t.Fatalf("%d of three calls did not wait", got)
		}
		select {
		case <-ours.Done():
			t.Fatal("Done is closed before the stream was closed")
		default:
		}
		if err := ours.Err(); err != nil {
			t.Fatalf("the stream ended before it was closed: %v", err)
		}

		for range 2 { // the second time must do nothing
			if err := ours.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		for range 3 {
			if err := <-errs; !errors.Is(err, rpc.ErrStreamClosed) {
				t.Errorf("got %v, want %v", err, rpc.ErrStreamClosed)
			}
		}
		<-ours.Done()
		if err := ours.Err(); err != rpc.ErrStreamClosed {
			t.Errorf("got %v, want %v", err, rpc.ErrStreamClosed)
		}
		if err := ours.SendFunc(1, func([]byte) []byte { panic("built for a closed stream") }); err != rpc.ErrStreamClosed {
			t.Errorf("got %v, want %v", err, rpc.ErrStreamClosed)
		}
	})
}

func TestRecv_EOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, nil)
		mustSend(t, ours, 1, "last words")
		go func() {
			if err := ours.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			if err := ours.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		if _, got := mustRecv(t, theirs); got != "last words" {
			t.Errorf("got %q, want %q", got, "last words")
		}
		if _, _, err := theirs.Recv(); err != io.EOF {
			t.Errorf("got %v, want %v", err, io.EOF)
		}
		if err := theirs.Send(1, nil); err != io.EOF {
			t.Errorf("send after the end: got %v, want %v", err, io.EOF)
		}
	})
}

// TestHandle_LastFramesAreDelivered checks that the peer receives every frame
// that a handler sent before it returned. Over TCP, this must hold even if the
// handler has not read everything that the dialer sent.
func TestHandle_LastFramesAreDelivered(t *testing.T) {
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	want := bytes.Repeat([]byte("bye "), 1<<18)
	b.Handle(rpc.ServiceAdmin, func(s *rpc.Stream) {
		if _, _, err := s.Recv(); err != nil {
			t.Errorf("recv: %v", err)
		}
		if err := s.Send(9, want); err != nil {
			t.Errorf("send: %v", err)
		}
	})
	stream := dial(t, a, b.Addr().String(), rpc.ServiceAdmin, "b")
	for range 5 { // one is read, and four remain unread
		if err := stream.Send(1, make([]byte, 50_000)); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
	if err := stream.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	typ, got, err := stream.Recv()
	if err != nil || typ != 9 || !bytes.Equal(got, want) {
		t.Errorf("got type %d, %d bytes, %v; want type 9, %d bytes", typ, len(got), err, len(want))
	}
	if _, _, err := stream.Recv(); err != io.EOF {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
}

func TestHandle_PeerThatNeverReadsDoesNotHoldTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		streams := make(chan *rpc.Stream, 1)
		b.Handle(rpc.ServiceAdmin, func(s *rpc.Stream) {
			mustSend(t, s, 1, "nobody reads this")
			streams <- s
		})
		dial(t, a, "b:1", rpc.ServiceAdmin, "b")
		begin := time.Now()
		theirs := <-streams
		<-theirs.Done()
		if got, want := time.Since(begin), 10*time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
		if err := theirs.Err(); !errors.Is(err, rpc.ErrWriteTimeout) {
			t.Errorf("got %v, want %v", err, rpc.ErrWriteTimeout)
		}
	})
}

func TestWriteTimeout_NoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := pair(t, nil)
		time.Sleep(time.Hour) // an idle stream stays open
		if err := ours.Err(); err != nil {
			t.Fatalf("idle stream ended: %v", err)
		}
		begin := time.Now()
		mustSend(t, ours, 1, "anybody there?")
		_, _, err := ours.Recv()
		if !errors.Is(err, rpc.ErrWriteTimeout) {
			t.Errorf("got %v, want %v", err, rpc.ErrWriteTimeout)
		}
		if got, want := time.Since(begin), 10*time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
	})
}

// TestWriteTimeout_SlowProgress checks that a slow peer is not disconnected as
// long as it reads, however long one write takes.
func TestWriteTimeout_SlowProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var raw net.Conn
		ours, _ := pair(t, func(a, b *rpc.Config) {
			inner := a.Dialer
			a.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := inner(ctx, addr)
				raw = &slowConn{Conn: c}
				return raw, err
			}
		})
		raw.(*slowConn).slow = true
		begin := time.Now()
		if err := ours.Send(1, make([]byte, 100)); err != nil {
			t.Fatalf("send: %v", err)
		}
		if err := ours.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		if got, want := time.Since(begin), (8+105)*10*time.Second; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

// slowConn accepts one byte per write deadline.
type slowConn struct {
	net.Conn
	slow     bool
	deadline time.Time
}

func (c *slowConn) SetWriteDeadline(at time.Time) error {
	c.deadline = at
	return nil
}

func (c *slowConn) Write(p []byte) (int, error) {
	if !c.slow {
		return c.Conn.Write(p)
	}
	time.Sleep(time.Until(c.deadline))
	return 1, os.ErrDeadlineExceeded
}

func TestSend_ManyGoroutines(t *testing.T) {
	const senders, each = 16, 500
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	streams := make(chan *rpc.Stream, 1)
	b.Handle(rpc.ServiceWrite, handOver(streams))
	ours := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")
	theirs := <-streams

	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			for i := range each {
				size := 4 + (i*37+sender*101)%3000
				err := ours.SendFunc(byte(sender), func(dst []byte) []byte {
					dst = binary.BigEndian.AppendUint32(dst, uint32(i))
					return append(dst, bytes.Repeat([]byte{byte(sender)}, size-4)...)
				})
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	next := make([]int, senders)
	for range senders * each {
		typ, payload, err := theirs.Recv()
		if err != nil {
			t.Fatalf("recv: %v", err)
		}
		i := int(binary.BigEndian.Uint32(payload))
		if got, want := i, next[typ]; got != want {
			t.Fatalf("sender %d: got frame %d, want %d", typ, got, want)
		}
		next[typ]++
		if got, want := len(payload), 4+(i*37+int(typ)*101)%3000; got != want {
			t.Fatalf("sender %d, frame %d: got %d bytes, want %d", typ, i, got, want)
		}
		if slices.ContainsFunc(payload[4:], func(c byte) bool { return c != typ }) {
			t.Fatalf("sender %d, frame %d: bytes of another frame", typ, i)
		}
	}
	wg.Wait()
}

// countConn lets each write wait for the gate and then counts it.
type countConn struct {
	net.Conn
	gate   chan struct{} // nil: writes neither wait nor count
	writes int
}

func (c *countConn) Write(p []byte) (int, error) {
	if c.gate != nil {
		<-c.gate
		c.writes++
	}
	return c.Conn.Write(p)
}

func TestSend_FramesCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var raw *countConn
		ours, theirs := pair(t, func(a, b *rpc.Config) {
			inner := a.Dialer
			a.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := inner(ctx, addr)
				raw = &countConn{Conn: c}
				return raw, err
			}
		})
		raw.gate = make(chan struct{})
		mustSend(t, ours, 0, "first")
		synctest.Wait() // the writer waits at the gate with the first frame
		for i := range 1000 {
			mustSend(t, ours, 1, fmt.Sprint(i))
		}
		close(raw.gate)
		if _, got := mustRecv(t, theirs); got != "first" {
			t.Errorf("got %q, want %q", got, "first")
		}
		for i := range 1000 {
			if _, got := mustRecv(t, theirs); got != fmt.Sprint(i) {
				t.Fatalf("got %q, want %q", got, fmt.Sprint(i))
			}
		}
		if err := ours.Flush(); err != nil {
			t.Fatalf("flush: %v", err)
		}
		if got, want := raw.writes, 2; got != want {
			t.Errorf("got %d writes for 1001 frames, want %d", got, want)
		}
	})
}

func TestSend_DoesNotAllocate(t *testing.T) {
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	b.Handle(rpc.ServiceWrite, echo)
	stream := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")
	payload := make([]byte, 64)
	roundTrip := func() {
		if err := stream.Send(1, payload); err != nil {
			t.Fatalf("send: %v", err)
		}
		if _, _, err := stream.Recv(); err != nil {
			t.Fatalf("recv: %v", err)
		}
	}
	if got := testing.AllocsPerRun(200, roundTrip); got >= 1 {
		t.Errorf("got %v allocations per round trip, want none", got)
	}
}

// TestSendNow checks that SendNow returns soon even if the peer does not read,
// and that frames of SendNow and Send arrive in the order in which they were
// sent.
func TestSendNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pair(t, nil)
		now := func(text string) error {
			return ours.SendNow(1, func(dst []byte) []byte { return append(dst, text...) })
		}
		begun := time.Now()
		if err := now("not read yet"); err != nil { // a pipe accepts no bytes before its peer reads
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 5*time.Millisecond {
			t.Errorf("SendNow delayed its caller for %v, want at most 5ms", took)
		}
		if err := ours.Send(1, []byte("second")); err != nil {
			t.Fatal(err)
		}
		if err := now("third"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"not read yet", "second", "third"} {
			if _, got := mustRecv(t, theirs); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

func TestSendNow_AmongOthers(t *testing.T) {
	var sent sync.WaitGroup
	// sent.Wait runs after the streams are closed. Closing them releases the
	// senders if the test has failed.
	t.Cleanup(sent.Wait)
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	streams := make(chan *rpc.Stream, 1)
	b.Handle(rpc.ServiceWrite, handOver(streams))
	ours := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")
	theirs := <-streams
	const senders, each = 8, 2000
	for s := range senders {
		sent.Go(func() {
			for i := range each {
				build := func(dst []byte) []byte { return fmt.Appendf(dst, "%d %d", s, i) }
				send := ours.SendNow
				if s%2 == 0 {
					send = ours.SendFunc
				}
				if err := send(byte(s), build); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var next [senders]int
	for range senders * each {
		typ, payload, err := theirs.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(payload), fmt.Sprintf("%d %d", typ, next[typ]); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		next[typ]++
	}
	sent.Wait() // the last frames may arrive before the calls that sent them return
}
