package serve

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestJoinedListener_LongPipeline checks that a client within the process can send
// a long pipeline before it reads the first reply, as go-redis does. The port
// replies to the beginning of the pipeline before it reads the rest.
func TestJoinedListener_LongPipeline(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := joinListener(ln)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4096))
			c.Close()
		}
		served <- err
	}()
	c, err := l.dial(t.Context(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 64<<10)
	if _, err := c.Write(sent); err != nil {
		t.Fatalf("write before the first read: %v", err)
	}
	if _, err := io.ReadFull(c, sent); err != nil {
		t.Fatalf("read the replies: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}
