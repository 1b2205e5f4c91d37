package guard

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestEarlyConns checks that Accept waits while the first commands of other
// connections are executed. It also checks when a connection counts: from
// Accept until it waits for input, and again from its first input until its
// next Read, ReadAhead or Close.
func TestEarlyConns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(ln, DefaultLimits(), Hooks{})
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	l.early.most, l.early.pause = 3, time.Hour
	var clients, conns []net.Conn
	open := func() *Conn {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		clients, conns = append(clients, client), append(conns, c)
		return c.(*Conn)
	}
	defer func() {
		for _, c := range append(clients, conns...) {
			_ = c.Close() // the connection may be closed already
		}
	}()
	counted := func(when string, want int64) {
		t.Helper()
		if n := l.early.n.Load(); n != want {
			t.Errorf("%s: %d connections are counted, want %d", when, n, want)
		}
	}
	first := func(c *Conn) {
		t.Helper()
		if n, err := c.Read(make([]byte, 512)); n == 0 || err != nil {
			t.Fatalf("Read returned %d bytes, %v, want some bytes and no error", n, err)
		}
	}
	a, b, c := open(), open(), open()
	counted("accepted", 3)
	first(a)
	first(b)
	counted("executing", 3)
	accepted := make(chan *Conn)
	go func() {
		fourth, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(accepted)
			return
		}
		accepted <- fourth.(*Conn)
	}()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	clients = append(clients, client)
	select {
	case <-accepted:
		t.Error("Accept returned while the first commands of three connections ran, want it to wait")
	case <-time.After(50 * time.Millisecond):
	}
	// The next Read of a waits for input, so a is no longer counted.
	ended := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 512))
		ended <- err
	}()
	if d, ok := <-accepted; ok {
		conns = append(conns, d)
	}
	counted("one waits for input", 3)
	_, stop, err := b.ReadAhead()
	if err != nil {
		t.Fatal(err)
	}
	counted("one waits in a command", 2)
	stop()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	counted("one is closed", 1)
	if _, err := clients[0].Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	counted("second command", 1)
}
