package guard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// transport connects a client to a Conn that knows that its client has
// authenticated.
type transport struct {
	name   string
	listen func(t *testing.T) net.Listener
	dial   func(addr string) (net.Conn, error)
}

// transports contains the ways in which a client may be connected.
var transports = []transport{
	{"plain", listenLoopback, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }},
	{"TLS", func(t *testing.T) net.Listener {
		s := httptest.NewTLSServer(nil) // for its certificate
		t.Cleanup(s.Close)
		return tls.NewListener(listenLoopback(t), &tls.Config{Certificates: s.TLS.Certificates})
	}, func(addr string) (net.Conn, error) {
		return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	}},
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// connect returns both ends of a connection, and delivers the first command, PING,
// to the server. If memory is not 0, it limits the memory for clients.
func (tr transport) connect(t *testing.T, memory int64, hooks Hooks) (client net.Conn, server *Conn) {
	t.Helper()
	ln := NewListener(tr.listen(t), DefaultLimits(), hooks)
	t.Cleanup(func() { _ = ln.Close() }) // an error must not fail the test
	dialed := make(chan error, 1)
	go func() {
		var err error
		if client, err = tr.dial(ln.Addr().String()); err == nil {
			_, err = io.WriteString(client, ping)
		}
		dialed <- err
	}()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server = accepted.(*Conn)
	server.SetAuthenticated(true)
	if memory > 0 {
		server.SetMemory(clientmem.New(memory).Account(func(int64) {}))
	}
	_, err = io.ReadFull(server, make([]byte, len(ping)))
	if err := errors.Join(err, <-dialed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() }) // the test may have closed them
	return client, server
}

const ping = "*1\r\n$4\r\nPING\r\n"

// ways contains the ways in which a client may leave.
var ways = map[string]func(t *testing.T, c net.Conn){
	"closes": func(t *testing.T, c net.Conn) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	},
	"resets": func(t *testing.T, c net.Conn) {
		raw := c
		if s, ok := c.(*tls.Conn); ok {
			raw = s.NetConn()
		}
		if err := errors.Join(raw.(*net.TCPConn).SetLinger(0), raw.Close()); err != nil {
			t.Error(err)
		}
	},
	"closes its sending side": func(t *testing.T, c net.Conn) {
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
	},
}

// wantGone fails the test if gone is not closed within a minute.
func wantGone(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-testutil.Within(t, time.Minute).Done():
		t.Fatal("the guard did not notice that the client had disconnected")
	}
}

// TestReadAheadWaiting checks that a waiting command always notices that its client
// leaves, however much the client has sent before, and that all bytes are
// delivered that a client sent before it closed its side.
func TestReadAheadWaiting(t *testing.T) {
	for _, tr := range transports {
		for _, size := range []int{0, 1, 3 << 10, maxAhead - 1, 2 << 20, 20 << 20} {
			for way, leave := range ways {
				t.Run(fmt.Sprint(tr.name, " ", size, " ", way), func(t *testing.T) {
					client, server := tr.connect(t, 0, Hooks{})
					gone, stop, err := server.ReadAheadWaiting()
					if err != nil {
						t.Fatal(err)
					}
					input := bytes.Repeat([]byte(ping), size/len(ping)+1)[:size]
					if _, err := client.Write(input); err != nil {
						t.Fatal(err)
					}
					leave(t, client)
					wantGone(t, gone)
					stop()
					if way == "resets" {
						return // the kernel may drop what the client sent before
					}
					got, err := io.ReadAll(server)
					if whole := input[:size/len(ping)*len(ping)]; err != nil || !bytes.Equal(got, whole) {
						t.Errorf("Read delivered %d bytes of commands and the error %v, want %d bytes",
							len(got), err, len(whole))
					}
					if server.ahead.size != 0 || server.ahead.room != 0 {
						t.Errorf("%d bytes in %d bytes of chunks are left", server.ahead.size, server.ahead.room)
					}
				})
			}
		}
	}
}

// TestReadAheadWaiting_TooMuch checks that a client that sends more than its share
// of the memory for clients while its command waits is disconnected. Such a client
// may have left, and a full buffer in the kernel may hide that.
func TestReadAheadWaiting_TooMuch(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			const most = 1 << 20
			reported := make(chan int, 1)
			client, server := tr.connect(t, waitingAheadPart*most,
				Hooks{TooMuchAhead: func(_ *Conn, bytes int) { reported <- bytes }})
			gone, stop, err := server.ReadAheadWaiting()
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = client.Write(bytes.Repeat([]byte(ping), 40<<20/len(ping))) // fails when the server closes
			}()
			wantGone(t, gone)
			stop()
			if n := <-reported; n <= most || n > most+aheadChunk {
				t.Errorf("the guard kept %d bytes, want a little more than %d", n, most)
			}
			if got, err := io.ReadAll(server); !errors.Is(err, errAhead) || len(got) < most-len(ping) {
				t.Errorf("Read delivered %d bytes and the error %v, want %v", len(got), err, errAhead)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			<-sent
		})
	}
}

// TestReadAhead_Stopped checks that ReadAhead stops reading when the client sends a
// long pipeline, but notices that the client leaves, and that nothing is lost.
func TestReadAhead_Stopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports that a client has left whose bytes are unread")
	}
	for _, tr := range transports {
		for way, leave := range ways {
			if tr.name == "TLS" && way == "closes its sending side" {
				continue // the client sends a record of TLS, which the kernel does not understand
			}
			t.Run(tr.name+" "+way, func(t *testing.T) {
				client, server := tr.connect(t, 0, Hooks{})
				gone, stop, err := server.ReadAhead()
				if err != nil {
					t.Fatal(err)
				}
				// The kernel reports that the client has left only if it has room for the
				// bytes that the guard does not read.
				input := bytes.Repeat([]byte(ping), (maxAhead+32<<10)/len(ping))
				if _, err := client.Write(input); err != nil {
					t.Fatal(err)
				}
				leave(t, client)
				wantGone(t, gone)
				stop()
				if n := server.ahead.size; n > maxAhead+aheadChunk {
					t.Errorf("%d bytes were read ahead, want little more than %d", n, maxAhead)
				}
				if way == "resets" {
					return
				}
				if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, input) {
					t.Errorf("Read delivered %d bytes and the error %v, want %d bytes", len(got), err, len(input))
				}
			})
		}
	}
}

// TestReadAhead_Again checks that a pipeline is delivered as a whole when its
// commands wait and run in turn, and that More returns bytes that were read ahead.
func TestReadAhead_Again(t *testing.T) {
	client, server := transports[0].connect(t, 0, Hooks{})
	input := bytes.Repeat([]byte(ping), 3<<20/len(ping))
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(input)
		sent <- err
	}()
	var got []byte
	parsed := int64(len(ping))
	for i := 0; len(got) < len(input); i++ {
		ahead := server.ReadAhead
		if i%3 == 0 {
			ahead = server.ReadAheadWaiting
		}
		_, stop, err := ahead()
		if err != nil {
			t.Fatal(err)
		}
		stop()
		p := make([]byte, 4096)
		n, err := server.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		got, parsed = append(got, p[:n]...), parsed+int64(n)
		more := server.More(100<<10, parsed)
		got, parsed = append(got, more...), parsed+int64(len(more))
	}
	if !bytes.Equal(got, input) {
		t.Errorf("%d bytes were delivered that differ from the input of %d bytes", len(got), len(input))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
