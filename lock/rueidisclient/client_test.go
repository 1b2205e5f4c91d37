package rueidisclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/tidwall/redcon"
)

// TestWaits checks that waits returns true only for LOCK ACQUIRE with the option
// WAIT.
func TestWaits(t *testing.T) {
	for line, want := range map[string]bool{
		"LOCK ACQUIRE k o PX 100 WAIT 100":              true,
		"lock acquire k o px 100 META m LIMIT 2 wait 1": true,
		"LOCK ACQUIRE k o PX 100":                       false,
		"LOCK ACQUIRE WAIT WAIT PX 100 META WAIT":       false,
		"LOCK RENEW WAIT WAIT PX 100":                   false,
		"LOCK RELEASE WAIT o":                           false,
		"SET WAIT WAIT":                                 false,
		"PING":                                          false,
	} {
		if got := waits(strings.Fields(line)); got != want {
			t.Errorf("waits(%s) is %t, want %t", line, got, want)
		}
	}
}

// TestClient_Closed checks that a closed client returns redis.ErrClosed. Package
// lock does not repeat a command after this error.
func TestClient_Closed(t *testing.T) {
	own := serve(t, func(c redcon.Conn, _ redcon.Command) { c.WriteString("PONG") })
	c := New(own)
	if err := c.Do(t.Context(), "PING").Err(); err != nil {
		t.Fatalf("a command before Close: %v, want no error", err)
	}
	own.Close()
	if err := c.Do(t.Context(), "PING").Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a command after Close: %v, want %v", err, redis.ErrClosed)
	}
}

// TestClient_HangsUntilDeadline checks that Client always switches to the other
// node when a command to a node that hangs exceeds its deadline.
func TestClient_HangsUntilDeadline(t *testing.T) {
	c := New(serve(t, func(c redcon.Conn, cmd redcon.Command) {
		if string(cmd.Args[0]) != "GET" { // GET hangs
			c.WriteString("OK")
		}
	}), serve(t, func(c redcon.Conn, _ redcon.Command) { c.WriteString("OK") }))
	for i := range 20 {
		c.current.Store(0)
		short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := c.Do(short, "GET", "k").Err()
		stop()
		if at := c.current.Load(); at != 1 {
			t.Fatalf("command %d: %v; the next command goes to client %d, want 1", i, err, at)
		}
	}
}

// serve returns a client of a server that handles commands with handle.
func serve(t *testing.T, handle func(redcon.Conn, redcon.Command)) rueidis.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := redcon.NewServer("", handle, nil, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{l.Addr().String()}, AlwaysRESP2: true, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		if err := errors.Join(server.Close(), <-served); err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	})
	return client
}
