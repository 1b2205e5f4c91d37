package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// numbered returns n different commands.
func numbered(n int) []byte {
	var b []byte
	for i := range n {
		s := fmt.Sprint(i)
		b = fmt.Appendf(b, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

// socket returns a Conn around a real socket, and its client.
func socket(t *testing.T) (g *Conn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	g = New(server, DefaultLimits(), Hooks{})
	g.SetAuthenticated(true)
	t.Cleanup(func() {
		client.Close()
		if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return g, client
}

// TestMore reads a long pipeline as the server does: with a Read of 4 KiB and
// then calls of More. The commands must be complete and in order.
func TestMore(t *testing.T) {
	in := append(numbered(30000), "BAD FRAME\r\n*1\r\n*1\r\n"...)
	g, client := socket(t)
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(in)
		sent <- err
	}()
	var got []byte
	calls, more := 0, 0
	for p := make([]byte, 4096); ; {
		n, err := g.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for room := maxBatch - n; room > 0; {
			packet := g.More(room, int64(len(got)))
			if packet == nil {
				break
			}
			if len(packet) > room {
				t.Fatalf("More(%d) returned %d bytes, want some, and at most that many", room, len(packet))
			}
			got = append(got, packet...)
			room -= len(packet)
			more += len(packet)
		}
		calls++
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	want := append(numbered(30000), "*2\r\n$3\r\nBAD\r\n$5\r\nFRAME\r\n"...)
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want the %d bytes that were sent, in order", len(got), len(want))
	}
	if more < len(want)/2 {
		t.Errorf("More returned %d of %d bytes", more, len(want))
	}
	if cap(g.buf) > bufSize {
		t.Errorf("the guard still has a buffer of %d bytes, want at most bufSize", cap(g.buf))
	}
	reply := make([]byte, 100)
	n, err := client.Read(reply)
	if want := "-ERR Protocol error: expected '$', got '*'\r\n"; err != nil || string(reply[:n]) != want {
		t.Errorf("got %q, %v, want %q", reply[:n], err, want)
	}
}

// TestMore_NotAllowed checks the cases in which More must return nothing.
func TestMore_NotAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		in     []byte
		parsed int // the test passes to More the number of bytes that Read has returned plus this number
		change func(*Conn)
	}{
		"a buffer between has commands": {numbered(2000), -1, func(*Conn) {}},
		"not authenticated":             {numbered(2000), 0, func(g *Conn) { g.SetAuthenticated(false) }},
		"short pipeline":                {numbered(10), 0, func(*Conn) {}},
		"large command":                 {[]byte("*2\r\n$4\r\nECHO\r\n$9000\r\n" + strings.Repeat("x", 9000) + "\r\n"), 0, func(*Conn) {}},
	} {
		g, client := socket(t)
		if _, err := client.Write(tc.in); err != nil {
			t.Fatal(err)
		}
		n, err := g.Read(make([]byte, 4096))
		if err != nil {
			t.Fatal(err)
		}
		tc.change(g)
		if packet := g.More(maxBatch, int64(n+tc.parsed)); packet != nil {
			t.Errorf("%s: More returned %d bytes, want none", name, len(packet))
		}
	}
	// A caller whose group is already full passes a negative number.
	g, client := socket(t)
	if _, err := client.Write(numbered(2000)); err != nil {
		t.Fatal(err)
	}
	for n, p := 0, make([]byte, 4096); n < 4000; {
		k, err := g.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		n += k
		if packet := g.More(-1, int64(n)); packet != nil {
			t.Errorf("More(-1) returned %d bytes, want none", len(packet))
		}
	}
	// If the connection is not a plain socket, for instance with TLS, More
	// cannot read further input without waiting.
	g = New(&feed{in: numbered(2000)}, DefaultLimits(), Hooks{})
	g.SetAuthenticated(true)
	n, err := g.Read(make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	if packet := g.More(maxBatch, int64(n)); len(packet) > 4096 {
		t.Errorf("without a socket, More returned %d bytes, want at most 4096", len(packet))
	}
}
