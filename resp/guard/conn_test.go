package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// A feed is a connection with fixed input. It stores the bytes that are written
// to it, and counts the calls of SetReadDeadline.
type feed struct {
	net.Conn         // nil: no other method may be called
	in        []byte // input that is still to be read
	next      func() int
	replies   bytes.Buffer
	deadlines int // number of calls of SetReadDeadline
	closed    bool
}

func (f *feed) Read(p []byte) (int, error) {
	if len(f.in) == 0 {
		return 0, io.EOF
	}
	if f.next != nil {
		p = p[:min(len(p), f.next())]
	}
	n := copy(p, f.in)
	f.in = f.in[n:]
	return n, nil
}

func (f *feed) Write(p []byte) (int, error)      { return f.replies.Write(p) }
func (f *feed) SetReadDeadline(time.Time) error  { f.deadlines++; return nil }
func (f *feed) SetWriteDeadline(time.Time) error { return nil }
func (f *feed) Close() error                     { f.closed = true; return nil }

// TestLinear counts the bytes that are scanned and the memory that is
// allocated when the input arrives one byte at a time.
func TestLinear(t *testing.T) {
	value := strings.Repeat("v", 1<<20)
	for _, c := range []struct {
		name, in string
		many     bool // many commands, whose small buffers come from the pool
	}{
		{"one argument of 1 MiB", "*2\r\n$4\r\nECHO\r\n$1048576\r\n" + value + "\r\n", false},
		{"100000 arguments", "*100000\r\n" + strings.Repeat("$1\r\nx\r\n", 100000), false},
		{"one inline of 64 KiB", "PING " + value[:guard64K-6] + "\r\n", false},
		{"10000 commands", strings.Repeat(pingLine, 10000), true},
		{"10000 inline commands", strings.Repeat("PING\r\n", 10000), true},
		{"100000 empty lines", strings.Repeat("\r\n", 100000) + pingLine, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := New(&feed{in: []byte(c.in), next: oneByte()}, DefaultLimits(), Hooks{})
			g.SetAuthenticated(true)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			delivered := 0
			for p := make([]byte, 4096); ; {
				n, err := g.Read(p)
				delivered += n
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			if got, most := g.scanned, uint64(2*len(c.in)+100); got > most {
				t.Errorf("the guard scanned %d bytes for %d bytes of input, want at most %d", got, len(c.in), most)
			}
			if c.many {
				return
			}
			if delivered < len(c.in) {
				t.Errorf("bytes delivered: got %d, want %d or more", delivered, len(c.in))
			}
			// Doubling a buffer allocates less than four times its last size.
			// An inline command is allocated three times: as a line, as a word
			// and as a multibulk command.
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(12*len(c.in)+guard64K); got > most {
				t.Errorf("the guard allocated %d bytes for %d bytes of input, want at most %d", got, len(c.in), most)
			}
		})
	}
}

// TestThroughReader reads a large command as redcon does.
func TestThroughReader(t *testing.T) {
	value := strings.Repeat("v", 1<<20)
	in := "*8\r\n$4\r\nECHO\r\n" + strings.Repeat("$1048576\r\n"+value+"\r\n", 7)
	g := New(&feed{in: []byte(in + pingLine), next: random(7)()}, DefaultLimits(), Hooks{})
	g.SetAuthenticated(true)
	r := redcon.NewReader(g)
	cmd, err := r.ReadCommand()
	if err != nil || string(cmd.Raw) != in || len(cmd.Args) != 8 || string(cmd.Args[7]) != value {
		t.Fatalf("redcon parsed a command of %d bytes with %d arguments, %v, want the large command", len(cmd.Raw), len(cmd.Args), err)
	}
	if cmd, err = r.ReadCommand(); err != nil || string(cmd.Raw) != pingLine {
		t.Fatalf("redcon parsed %q, %v, want PING", cmd.Raw, err)
	}
	if _, err = r.ReadCommand(); err != io.EOF {
		t.Fatalf("got %v, want EOF", err)
	}
}

// TestClaimsCostNothing checks that lengths that a client announces allocate
// nothing. It sends only the starts of large commands.
func TestClaimsCostNothing(t *testing.T) {
	for _, in := range []string{
		"*1048576\r\n",
		"*1048576\r\n$1048576\r\n",
		"*8\r\n$1048576\r\nabc",
	} {
		g := New(&feed{in: []byte(in)}, DefaultLimits(), Hooks{})
		g.SetAuthenticated(true)
		if n, err := g.Read(make([]byte, 4096)); n != 0 || err != io.EOF {
			t.Errorf("%q: got %d, %v, want EOF", in, n, err)
		}
		if got, want := cap(g.buf), bufSize; got > want {
			t.Errorf("%q: buffer: got %d bytes, want at most %d", in, got, want)
		}
	}
}

// TestBuffersAreReturned checks that a guard that waits for the next command
// has no buffer.
func TestBuffersAreReturned(t *testing.T) {
	value := strings.Repeat("v", 1<<20)
	for _, in := range []string{
		pingLine,
		pingLine + "\r\n",
		"PING\r\nPING\r\n",
		"*2\r\n$4\r\nECHO\r\n$1048576\r\n" + value + "\r\n",
		"*2\r\n$4\r\nECHO\r\n$1048576\r\n" + value + "\r\n" + pingLine,
	} {
		g := New(&feed{in: []byte(in), next: random(3)()}, DefaultLimits(), Hooks{})
		g.SetAuthenticated(true)
		if _, err := io.Copy(io.Discard, g); err != nil {
			t.Fatal(err)
		}
		if g.buf != nil || g.big != nil {
			t.Errorf("%s: the idle guard holds %d bytes in buf and %d in big, want none", short(in), cap(g.buf), cap(g.big))
		}
	}
}

// TestFastPathSetsNoDeadlines checks that complete commands of an authenticated
// client are passed on without a deadline and without an allocation.
func TestFastPathSetsNoDeadlines(t *testing.T) {
	batch := []byte(strings.Repeat(pingLine, 100))
	feed := &feed{}
	g := New(feed, DefaultLimits(), Hooks{})
	g.SetAuthenticated(true)
	p := make([]byte, 4096)
	allocs := testing.AllocsPerRun(100, func() {
		feed.in = batch
		if n, err := g.Read(p); n != len(batch) || err != nil {
			t.Fatalf("got %d, %v, want %d", n, err, len(batch))
		}
	})
	if allocs != 0 || feed.deadlines != 0 {
		t.Errorf("got %v allocations and %d deadlines, want none", allocs, feed.deadlines)
	}
}

// TestBatch checks that the bytes and the commands of one Read are bounded, and
// that a Read returns only complete commands.
func TestBatch(t *testing.T) {
	for _, c := range []struct {
		command string
		auth    bool
		want    int // bytes of the first Read
	}{
		{pingLine, true, 1024 * len(pingLine)},
		{"PING\r\n", true, 1024 * len(pingLine)},
		{"*2\r\n$4\r\nECHO\r\n$1000\r\n" + strings.Repeat("x", 1000) + "\r\n", true, maxBatch / 1023 * 1023},
		{pingLine, false, len(pingLine)},
		{"PING\n", false, len(pingLine)},
	} {
		g := New(&feed{in: bytes.Repeat([]byte(c.command), 20000)}, DefaultLimits(), Hooks{})
		g.SetAuthenticated(c.auth)
		n, err := g.Read(make([]byte, 1<<20))
		if n != c.want || err != nil {
			t.Errorf("%.10q: got %d, %v, want %d", c.command, n, err, c.want)
		}
	}
}

// TestMaxCommand checks that the limit is exact, on the fast path and in the
// scanner.
func TestMaxCommand(t *testing.T) {
	in := "*3\r\n$4\r\nECHO\r\n$1\r\nx\r\n$20\r\n" + strings.Repeat("v", 20) + "\r\n"
	for _, next := range []func() int{nil, oneByte()} {
		for _, c := range []struct {
			limit     int
			out, said string
		}{
			{len(in), in, ""},
			{len(in) - 1, "", protocolError(fmt.Sprintf("too big command, the limit is %d bytes", len(in)-1))},
		} {
			l := DefaultLimits()
			l.MaxInline, l.MaxCommand = 32, c.limit
			feed := &feed{in: []byte(in), next: next}
			g := New(feed, l, Hooks{})
			g.SetAuthenticated(true)
			out, err := io.ReadAll(g)
			if string(out) != c.out || feed.replies.String() != c.said || err != nil {
				t.Errorf("limit %d: got %q, said %q, %v, want %q, %q", c.limit, out, &feed.replies, err, c.out, c.said)
			}
		}
	}
}

// TestLargeBufferIsNotKept checks that the guard frees the buffer of a large
// command, even if more input follows the command.
func TestLargeBufferIsNotKept(t *testing.T) {
	large := "*2\r\n$4\r\nECHO\r\n$1000000\r\n" + strings.Repeat("v", 1000000) + "\r\n"
	for _, c := range []struct {
		name, rest string
		next       func() int
	}{
		{"the front of a command", pingLine[:5], func() int { return 1000 }},
		{"a long pipeline", strings.Repeat(pingLine, 100000), nil},
	} {
		g := New(&feed{in: []byte(large + c.rest), next: c.next}, DefaultLimits(), Hooks{})
		g.SetAuthenticated(true)
		p := make([]byte, 4096)
		for left := len(large); left > 0; {
			n, err := g.Read(p[:min(left, len(p))])
			if err != nil {
				t.Fatal(err)
			}
			left -= n
		}
		if got := cap(g.buf); got > 2*bufSize {
			t.Errorf("%s: buffer: got %d bytes, want about %d", c.name, got, bufSize)
		}
		if out, err := io.ReadAll(g); len(out) != len(c.rest)/len(pingLine)*len(pingLine) || err != nil {
			t.Errorf("%s: Read returned %d bytes, %v, want all input", c.name, len(out), err)
		}
	}
}

// A bubble is a guard, the other end of its connection, and the goroutine
// that reads from the guard, in a synctest bubble.
type bubble struct {
	*Conn
	peer    net.Conn
	started time.Time
	timeout string        // the kind that the hook Timeout received
	after   time.Duration // time from the start until the call of the hook Timeout
	err     error         // the last error of Read
	got     bytes.Buffer
	done    chan struct{}
}

// inBubble runs f in a bubble.
func inBubble(t *testing.T, auth bool, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		b := &bubble{peer: far, started: time.Now(), done: make(chan struct{})}
		b.Conn = New(near, DefaultLimits(), Hooks{Timeout: func(_ *Conn, kind string) {
			b.timeout, b.after = kind, time.Since(b.started)
		}})
		b.SetAuthenticated(auth)
		go func() {
			defer close(b.done)
			_, b.err = io.Copy(&b.got, b.Conn)
			b.Conn.Close()
		}()
		f(t, b)
		far.Close()
		<-b.done
	})
}

func (b *bubble) send(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(b.peer, s); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (b *bubble) want(t *testing.T, kind string, after time.Duration) {
	t.Helper()
	<-b.done
	if b.timeout != kind || b.after != after || !errors.Is(b.err, os.ErrDeadlineExceeded) {
		t.Errorf("got timeout %q after %v, error %v, want %q after %v", b.timeout, b.after, b.err, kind, after)
	}
}

func TestHandshakeTimeout(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		inBubble(t, false, func(t *testing.T, b *bubble) {
			b.want(t, "handshake", 5*time.Second)
		})
	})
	t.Run("blank lines do not count", func(t *testing.T) {
		inBubble(t, false, func(t *testing.T, b *bubble) {
			for range 4 {
				time.Sleep(time.Second)
				b.send(t, "*0\r\n\r\n")
			}
			b.want(t, "handshake", 5*time.Second)
		})
	})
	t.Run("bytes do not count", func(t *testing.T) {
		inBubble(t, false, func(t *testing.T, b *bubble) {
			for i := range 4 {
				time.Sleep(time.Second)
				b.send(t, pingLine[i:i+1])
			}
			b.want(t, "handshake", 5*time.Second)
		})
	})
	t.Run("a command counts", func(t *testing.T) {
		inBubble(t, false, func(t *testing.T, b *bubble) {
			time.Sleep(3 * time.Second)
			b.send(t, pingLine)
			time.Sleep(50 * time.Second)
			b.send(t, pingLine)
			b.want(t, "unauthenticated idle", 113*time.Second)
		})
	})
	t.Run("commands do not count for ever", func(t *testing.T) {
		inBubble(t, false, func(t *testing.T, b *bubble) {
			b.send(t, pingLine)
			for range 3 {
				time.Sleep(35 * time.Second)
				b.send(t, pingLine)
			}
			b.want(t, "login", 120*time.Second)
		})
	})
	t.Run("authenticated", func(t *testing.T) {
		inBubble(t, true, func(t *testing.T, b *bubble) {
			time.Sleep(24 * time.Hour)
			b.send(t, pingLine)
			time.Sleep(24 * time.Hour)
			if b.timeout != "" || b.got.String() != pingLine {
				t.Errorf("got timeout %q and the commands %q, want no timeout and one PING", b.timeout, &b.got)
			}
		})
	})
}

func TestCommandTimeout(t *testing.T) {
	t.Run("rest missing", func(t *testing.T) {
		inBubble(t, true, func(t *testing.T, b *bubble) {
			time.Sleep(time.Hour)
			b.send(t, pingLine+pingLine[:5])
			b.want(t, "command", time.Hour+10*time.Second)
		})
	})
	t.Run("a trickle does not help", func(t *testing.T) {
		inBubble(t, true, func(t *testing.T, b *bubble) {
			for i := range 10 {
				b.send(t, pingLine[i:i+1])
				time.Sleep(999 * time.Millisecond)
			}
			b.want(t, "command", 10*time.Second)
		})
	})
	t.Run("each command has its own", func(t *testing.T) {
		inBubble(t, true, func(t *testing.T, b *bubble) {
			b.send(t, pingLine[:5])
			for range 5 {
				time.Sleep(8 * time.Second)
				b.send(t, pingLine[5:]+pingLine[:5])
			}
			time.Sleep(8 * time.Second)
			b.send(t, pingLine[5:])
			time.Sleep(time.Hour)
			if got, want := b.got.String(), strings.Repeat(pingLine, 6); b.timeout != "" || got != want {
				t.Errorf("got timeout %q and the commands %q, want no timeout and 6 PINGs", b.timeout, got)
			}
		})
	})
}

func TestWriteTimeout(t *testing.T) {
	inBubble(t, true, func(t *testing.T, b *bubble) {
		time.Sleep(time.Minute)
		n, err := b.Conn.Write([]byte(pongLine)) // nothing reads from the other end
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(b.started) != 70*time.Second || b.timeout != "write" {
			t.Errorf("Write returned %d, %v, timeout %q after %v, want the timeout \"write\" after 70s", n, err, b.timeout, time.Since(b.started))
		}
		if n, err := b.Conn.Write([]byte(pongLine)); n != 0 || err == nil {
			t.Errorf("Write on the closed guard returned %d, %v, want 0 and an error", n, err)
		}
		if err := b.Conn.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeWrite checks that each MiB has its own deadline, so that a slow client
// receives a large reply.
func TestLargeWrite(t *testing.T) {
	inBubble(t, true, func(t *testing.T, b *bubble) {
		reply := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
		var got []byte
		read := make(chan struct{})
		go func() {
			defer close(read)
			part := make([]byte, 1<<20)
			for len(got) < len(reply) {
				time.Sleep(9 * time.Second)
				n, err := io.ReadFull(b.peer, part)
				got = append(got, part[:n]...)
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()
		if n, err := b.Conn.Write(reply); n != len(reply) || err != nil {
			t.Errorf("Write returned %d, %v, want the length of the reply and no error", n, err)
		}
		<-read
		if !bytes.Equal(got, reply) {
			t.Error("the client received other bytes than the reply")
		}
	})
}

// TestPad checks that redcon has freed its memory two seconds after a large command,
// and that it then parses the next commands correctly.
func TestPad(t *testing.T) {
	large := "*2\r\n$4\r\nECHO\r\n$1000000\r\n" + strings.Repeat("v", 1000000) + "\r\n"
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		g := New(near, DefaultLimits(), Hooks{})
		g.SetAuthenticated(true)
		r := redcon.NewReader(g)
		commands := make(chan string, 1)
		go func() {
			defer close(commands)
			for {
				cmd, err := r.ReadCommand()
				if err != nil {
					return
				}
				commands <- string(cmd.Raw)
			}
		}()
		for range 2 {
			if _, err := io.WriteString(far, large); err != nil {
				t.Fatal(err)
			}
			if got := <-commands; got != large {
				t.Fatalf("got %s", short(got))
			}
			synctest.Wait()
			busy := testutil.Heap()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			idle := testutil.Heap()
			if freed, least := int64(busy)-int64(idle), int64(len(large)); freed < least {
				t.Errorf("freed when idle: got %d bytes, want %d at least", freed, least)
			}
			for _, s := range []string{pingLine, "PING\r\n", pingLine} {
				if _, err := io.WriteString(far, s); err != nil {
					t.Fatal(err)
				}
				if got := <-commands; got != pingLine {
					t.Fatalf("got %s", short(got))
				}
			}
		}
		far.Close()
		if cmd, ok := <-commands; ok {
			t.Errorf("redcon parsed %q after the end of the connection, want no command", cmd)
		}
		g.Close()
	})
}

// TestIdleMemory measures the memory of an idle guard, without redcon's
// buffers.
func TestIdleMemory(t *testing.T) {
	const guards = 10000
	l, hooks := DefaultLimits(), Hooks{}
	p := make([]byte, 4096)
	all := make([]*Conn, guards)
	feeds := make([]feed, guards)
	in := []byte(pingLine + "PING a\r\n" + pingLine)
	before := testutil.Heap()
	for i := range all {
		feeds[i].in, feeds[i].next = in, random(uint64(i))()
		all[i] = newConn(&feeds[i], &l, &hooks, nil)
		all[i].SetAuthenticated(true)
		for err := error(nil); err == nil; {
			_, err = all[i].Read(p)
		}
		feeds[i].next = nil
	}
	perGuard := (int64(testutil.Heap()) - int64(before)) / guards
	if perGuard > 1024 {
		t.Errorf("an idle guard holds %d bytes, want at most 1024", perGuard)
	}
	t.Logf("an idle guard holds %d bytes", perGuard)
	runtime.KeepAlive(all)
}

// TestRepliesUnread sends a million commands and reads no reply. The write deadline
// must end the connection, and the memory of the server must stay small.
func TestRepliesUnread(t *testing.T) {
	l := DefaultLimits()
	l.WriteTimeout = 200 * time.Millisecond
	s := serveTest(t, l, "", nil)
	before := testutil.Heap()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, strings.Repeat(pingLine, 1000000))
		sent <- err
	}()
	select {
	case <-s.write:
	case <-time.After(30 * time.Second):
		t.Fatal("the write deadline did not end the connection")
	}
	if err := <-sent; err == nil {
		t.Error("the server read a million commands of a client that reads no replies, want it to stop earlier")
	}
	if grown, most := int64(testutil.Heap())-int64(before), int64(4<<20); grown > most {
		t.Errorf("heap grew by %d bytes, want at most %d", grown, most)
	}
	if got, err := ask("tcp", s.addr, pingLine, pongLine, false); got != pongLine || err != nil {
		t.Errorf("another connection got %q, %v, want the reply to its PING", got, err)
	}
}

// TestWriteIsWhole writes to one connection from many goroutines. The bytes of one
// Write must not be mixed with those of another.
func TestWriteIsWhole(t *testing.T) {
	near, far := net.Pipe()
	g := New(near, DefaultLimits(), Hooks{})
	const writers, each = 8, 50
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			line := append(bytes.Repeat([]byte{byte('a' + w)}, 3000), '\n')
			for range each {
				if _, err := g.Write(line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		all.Wait()
		g.Close()
	}()
	got, err := io.ReadAll(far)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	if len(lines) != writers*each {
		t.Errorf("got %d lines, want %d", len(lines), writers*each)
	}
	for _, line := range lines {
		if line != strings.Repeat(line[:1], 3000) {
			t.Fatalf("a line contains bytes of two Writes: %s", short(line))
		}
	}
}

// TestNeverReturnsWithoutCommand checks that the guard drops a stream of empty
// commands: redcon recurses if a Read contains no complete command.
func TestNeverReturnsWithoutCommand(t *testing.T) {
	in := strings.Repeat("\r\n*0\r\n \r\n*-1\r\n", 5000) + pingLine
	for _, next := range []func() int{nil, oneByte(), random(5)()} {
		g := New(&feed{in: []byte(in), next: next}, DefaultLimits(), Hooks{})
		g.SetAuthenticated(true)
		p := make([]byte, 4096)
		n, err := g.Read(p)
		if got := string(p[:n]); got != pingLine || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, pingLine)
		}
	}
}

func TestHookReasons(t *testing.T) {
	for in, want := range map[string]string{
		"*x\r\n":           "protocol: " + badMulti,
		"*1\r\n+\r\n":      "protocol: expected '$', got '+'",
		"POST / HTTP\r\n":  "cross",
		"PUT / HTTP/2\r\n": "cross",
	} {
		got := ""
		feed := &feed{in: []byte(in)}
		g := New(feed, DefaultLimits(), Hooks{
			ProtocolError: func(_ *Conn, reason string) { got += "protocol: " + reason },
			CrossProtocol: func(*Conn) { got += "cross" },
		})
		g.SetAuthenticated(true)
		for range 3 { // the guard refuses all further Reads, and sends the error once
			if n, err := g.Read(make([]byte, 64)); n != 0 || err != io.EOF {
				t.Errorf("%q: got %d, %v, want EOF", in, n, err)
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "-1": -1, "10": 10, "1048576": 1048576,
		"9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		if got, ok := readNumber(in); !ok || got != want {
			t.Errorf("%q: got %d, %v, want %d", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1x", "x", "--1", "1-",
		"9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
		"18446744073709551617", "99999999999999999999", "100000000000000000000000000000"} {
		if got, ok := readNumber(in); ok {
			t.Errorf("%q: got %d, want none", in, got)
		}
	}
}

func readNumber(s string) (int64, bool) {
	var n decimal
	for i := range len(s) {
		n.add(s[i])
	}
	return n.value()
}

func TestLimitsValidate(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Errorf("Validate of the default limits returned %v, want nil", err)
	}
	for name, spoil := range map[string]func(*Limits){
		"MaxArgs":          func(l *Limits) { l.MaxArgs = 0 },
		"MaxBulk":          func(l *Limits) { l.MaxBulk = 1 << 30 },
		"MaxInline":        func(l *Limits) { l.MaxInline = 1 },
		"MaxCommand":       func(l *Limits) { l.MaxCommand = -1 },
		"UnauthArgs":       func(l *Limits) { l.UnauthArgs = l.MaxArgs + 1 },
		"UnauthBulk":       func(l *Limits) { l.UnauthBulk = 0 },
		"MaxClients":       func(l *Limits) { l.MaxClients = -1 },
		"MaxUnauth":        func(l *Limits) { l.MaxUnauth = -1 },
		"HandshakeTimeout": func(l *Limits) { l.HandshakeTimeout = -1 },
		"UnauthIdle":       func(l *Limits) { l.UnauthIdle = -1 },
		"CommandTimeout":   func(l *Limits) { l.CommandTimeout = -1 },
		"WriteTimeout":     func(l *Limits) { l.WriteTimeout = -1 },
	} {
		l := DefaultLimits()
		spoil(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), name+" ") {
			t.Errorf("invalid %s: Validate returned %v, want an error that names the field", name, err)
		}
	}
}

// BenchmarkConn reads pipelines of complete commands as redcon does, 4 KiB at
// a time. ns/op is for one command.
func BenchmarkConn(b *testing.B) {
	for _, c := range []struct{ name, command string }{
		{"PING", pingLine},
		{"SET", "*5\r\n$3\r\nSET\r\n$8\r\nlock:123\r\n$16\r\n0123456789abcdef\r\n$2\r\nPX\r\n$5\r\n30000\r\n"},
		{"inline", "PING\r\n"},
	} {
		for _, depth := range []int{1, 40} {
			b.Run(fmt.Sprintf("%s/pipeline=%d", c.name, depth), func(b *testing.B) {
				batch := []byte(strings.Repeat(c.command, depth))
				feed := &feed{}
				g := New(feed, DefaultLimits(), Hooks{})
				g.SetAuthenticated(true)
				p := make([]byte, 4096)
				b.ReportAllocs()
				for n := 0; n < b.N; n += depth {
					feed.in = batch
					for len(feed.in) > 0 {
						if _, err := g.Read(p); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
