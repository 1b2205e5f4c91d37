package dashboard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// slowPort is a client port. If the argument of GET is a size, the reply has that
// size. Otherwise, the port replies when late is closed.
type slowPort struct{ late chan struct{} }

func (p slowPort) dial(context.Context, net.Addr) (net.Conn, error) {
	server, client := net.Pipe()
	go p.serve(server)
	return client, nil
}

func (p slowPort) serve(c net.Conn) {
	defer c.Close()
	replies := make(chan string, 100)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(replies)
	wg.Go(func() { // a real connection has a buffer, which net.Pipe lacks
		for text := range replies {
			if _, err := io.WriteString(c, text); err != nil {
				c.Close()
			}
		}
	})
	for r := bufio.NewReader(c); ; {
		command, err := respwire.Read(r)
		if err != nil {
			return
		}
		args := command.Texts()
		size := 0
		switch {
		case strings.EqualFold(args[0], "hello"):
			replies <- "%1\r\n$5\r\nproto\r\n:3\r\n"
		case !strings.EqualFold(args[0], "get"):
			replies <- "-ERR unknown command '" + args[0] + "', with args beginning with: \r\n"
		case args[1] == "late":
			<-p.late
			replies <- "$4\r\nlate\r\n"
		default:
			if _, err := fmt.Sscan(args[1], &size); err != nil {
				return
			}
			replies <- fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("x", size))
		}
	}
}

func (c *connection) get(ctx context.Context, key string) (n int, err error) {
	err = c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
		text, err := conn.Get(ctx, key).Result()
		n = len(text)
		return err
	})
	return n, err
}

// TestConnection_Survives checks that a connection is still usable after a reply
// that was too large and after a reply that was too late, and that later commands
// get their own replies.
func TestConnection_Survives(t *testing.T) {
	p := slowPort{make(chan struct{})}
	d := &Dashboard{cfg: Config{Dial: p.dial, Log: hclog.NewNullLogger()}}
	c := d.dial(&net.TCPAddr{})
	defer c.close()
	if n, err := c.get(t.Context(), "7"); n != 7 || err != nil {
		t.Fatalf("got %d bytes, %v", n, err)
	}
	if _, err := c.get(t.Context(), fmt.Sprint(replyBytes+1)); !errors.Is(err, errTooLarge) {
		t.Errorf("a large reply: %v", err)
	}
	if n, err := c.get(t.Context(), "8"); n != 8 || err != nil {
		t.Errorf("after a large reply: %d bytes, %v", n, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.get(short, "late"); err == nil {
		t.Error("a late reply is not an error")
	}
	short, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.get(short, "9")
	if code, _ := explain(err); code != 503 {
		t.Errorf("while the reply is late: code %d, %v; want code 503", code, err)
	}
	close(p.late)
	if n, err := c.get(t.Context(), "9"); n != 9 || err != nil {
		t.Errorf("after a late reply: %d bytes, %v", n, err)
	}
	if c.broken.Load() || c.db != 0 {
		t.Error("the connection has ended, or no longer knows that database 0 is selected")
	}
}

// TestConnection_Close calls close while a function uses the connection, and
// checks that the connection is closed when the function returns.
func TestConnection_Close(t *testing.T) {
	server, client := net.Pipe()
	d := &Dashboard{cfg: Config{Dial: func(context.Context, net.Addr) (net.Conn, error) { return client, nil }}}
	c := d.dial(&net.TCPAddr{})
	c.pipe = &pipe{client, replyBytes}
	err := c.run(t.Context(), func(context.Context, *redis.Conn) error {
		c.close()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read from a closed connection: %v", err)
	}
	if err := c.run(t.Context(), nil); !errors.Is(err, errClosed) {
		t.Errorf("run on a closed connection: %v", err)
	}
}
