package client

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// TestChange_ConnectionLost checks the error of a change if the node ends the
// connection: the outcome is unknown only if the change was sent.
func TestChange_ConnectionLost(t *testing.T) {
	for _, c := range []struct {
		endsAt string // command at which the node ends the connection
		says   string // part of the error
		not    string // text that the error must not contain
	}{
		{"PING", "nothing was changed", "unknown"},
		{"HOLDFAST", "the outcome of the change is unknown", "client port"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := redcon.NewServer("", func(conn redcon.Conn, cmd redcon.Command) {
			switch name := strings.ToUpper(string(cmd.Args[0])); {
			case name == c.endsAt:
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			case name == "PING":
				conn.WriteString("PONG")
			default:
				conn.WriteError("ERR unknown command")
			}
		}, nil, nil)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		node, err := Dial(t.Context(), l.Addr().String(), load.Login{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = node.Change(t.Context(), "HOLDFAST", "REMOVE", "n2")
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.not) {
			t.Errorf("the node closes the connection at %s: error is %v", c.endsAt, err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}
}

// TestDial_PortWithoutTLS checks that the error names the cause if the port does
// not use TLS. A node does not reply in this case: it takes the handshake for the
// beginning of a command and waits for the rest. Other servers send a reply that is
// not TLS.
func TestDial_PortWithoutTLS(t *testing.T) {
	for name, reply := range map[string]string{"no reply": "", "another protocol": "-ERR Protocol error\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, err = conn.Write([]byte(reply))
					t.Cleanup(func() { conn.Close() })
				}
				served <- err
			}()
			c, err := Dial(t.Context(), l.Addr().String(), load.Login{TLS: &tls.Config{}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Do(t.Context(), "PING")
			if err == nil || !strings.Contains(err.Error(), "leave out the flags --tls") ||
				strings.Contains(err.Error(), "closed network connection") {
				t.Errorf("error is %v, want the advice to leave out the flags --tls", err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
