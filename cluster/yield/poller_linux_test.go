package yield

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNow_LetsMessagesIn checks that, on a single processor, at least half of
// the messages are delivered while a goroutine computes and yields. A message
// counts if its receiver has read it by the end of the second yield. The test
// measures no time, so the speed of the machine does not matter.
func TestNow_LetsMessagesIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const messages = 200
	with, without := heardSoon(t, messages, Now), heardSoon(t, messages, runtime.Gosched)
	t.Logf("of %d messages, %d were received in time with Now, %d with Gosched", messages, with, without)
	if with < messages/2 {
		t.Errorf("%d of %d messages were received in time, want at least half", with, messages)
	}
}

// heardSoon sends messages to a goroutine that echoes them. After each message,
// it calls yield twice, and counts the message if the goroutine has read it by
// then. It returns the count.
func heardSoon(t *testing.T, messages int, yield func()) (soon int) {
	t.Helper()
	out, in := socketPair(t)
	var heard atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var b [1]byte
		for range messages {
			if _, err := in.Read(b[:]); err != nil {
				t.Error(err)
				return
			}
			heard.Add(1)
			if _, err := in.Write(b[:]); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var b [1]byte
	for i := range messages {
		if _, err := out.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			compute()
			yield()
		}
		if heard.Load() > int64(i) {
			soon++
		}
		if _, err := out.Read(b[:]); err != nil { // waits until the other goroutine has echoed the message
			t.Fatal(err)
		}
	}
	<-ended
	return soon
}

// work keeps the compiler from removing the loop of compute.
var work int

// compute works for some microseconds.
func compute() {
	for i := range 10_000 {
		work += i
	}
}

func socketPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conns[i], err = net.FileConn(f)
		if closing := f.Close(); err != nil || closing != nil {
			t.Fatal(err, closing)
		}
		t.Cleanup(func() { _ = conns[i].Close() }) // a failure to close must not fail the test
	}
	return conns[0], conns[1]
}

// TestNow_IsSafeForConcurrentUse checks that goroutines that yield all the time
// neither wait forever nor open more descriptors than allowed.
func TestNow_IsSafeForConcurrentUse(t *testing.T) {
	Now() // the first poll makes the runtime open descriptors of its own
	before := descriptors(t)
	var all sync.WaitGroup
	for range 4 * maxPollers {
		all.Go(func() {
			for range 50 {
				Now()
			}
		})
	}
	all.Wait()
	if opened := descriptors(t) - before; opened > maxPollers {
		t.Errorf("%d descriptors were opened, want at most %d", opened, maxPollers)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestPoll_WithoutDescriptor checks that a goroutine continues while the process
// may not open a file, and that a later call opens the descriptor.
func TestPoll_WithoutDescriptor(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	p := &poller{}
	p.poll()
	opened := p.conn != nil
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if opened {
		t.Fatal("a descriptor was opened beyond the limit")
	}
	if p.poll(); p.conn == nil {
		t.Error("no descriptor was opened after the limit had been raised")
	}
}

func BenchmarkNow(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.ReportAllocs()
	for b.Loop() {
		Now()
	}
}
