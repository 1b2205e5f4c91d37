package rpc

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzHandshake sends arbitrary bytes to a peer port, with and without a secret.
// The port must end the connection soon after the client has stopped sending. A
// port with a secret must not hand the connection to a handler.
func FuzzHandshake(f *testing.F) {
	hello := Hello{Service: ServiceAdmin, Proto: Proto, ClusterID: "c", NodeID: "n2", Instance: "i", Boot: 1, To: "n1"}
	plain, err := appendPrelude(nil, hello, nil)
	if err != nil {
		f.Fatal(err)
	}
	secret := bytes.Repeat([]byte("s"), MinSecret)
	ring, err := newKeyring(secret, nil, false)
	if err != nil {
		f.Fatal(err)
	}
	offered, err := appendPrelude(nil, hello, ring.newOffer())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, plain, offered, append(offered, make([]byte, proofSize)...),
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		[]byte("*1\r\n$4\r\nPING\r\n"), {0x16, 3, 1, 2, 0}, plain[:len(plain)-3]} {
		f.Add(b, true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, input []byte, keyed bool) {
		cfg := DefaultConfig()
		cfg.Logger = nil
		cfg.Self = func() Hello { return Hello{ClusterID: "c", NodeID: "n1", Instance: "j"} }
		cfg.HandshakeTimeout = 5 * time.Second
		if keyed {
			cfg.Secret = secret
		}
		m, err := Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.Handle(ServiceAdmin, func(s *Stream) {
			if keyed {
				t.Error("a handler got a connection without a proof of the secret")
			}
			for {
				if _, _, err := s.Recv(); err != nil {
					return
				}
			}
		})
		c, err := net.Dial("tcp", m.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		// The port may close the connection before it has read everything.
		_, _ = c.Write(input)
		_ = c.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, c); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("the port keeps a connection open whose client has stopped sending")
			}
		}
	})
}
