package rueidisclient

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/tidwall/redcon"
)

// TestWaits checks that only LOCK ACQUIRE with the option WAIT has no time limit.
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

// TestClient_Closed checks that a closed client returns the error of a closed client
// of go-redis, which package lock does not retry.
func TestClient_Closed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := redcon.NewServer("", func(c redcon.Conn, _ redcon.Command) { c.WriteString("PONG") }, nil, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	own, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{l.Addr().String()}, AlwaysRESP2: true, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(own)
	if err := c.Do(t.Context(), "PING").Err(); err != nil {
		t.Fatalf("a command before Close: %v, want no error", err)
	}
	own.Close()
	if err := c.Do(t.Context(), "PING").Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a command after Close: %v, want %v", err, redis.ErrClosed)
	}
	if err := errors.Join(server.Close(), <-served); err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}
