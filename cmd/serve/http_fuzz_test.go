package serve

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster"
)

// httpLog notices that net/http reports a panic.
type httpLog struct{ panicked atomic.Bool }

func (l *httpLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic serving")) {
		l.panicked.Store(true)
	}
	return len(line), nil
}

// FuzzHTTP sends arbitrary bytes to the HTTP port. The port must neither panic nor
// show a page that needs the token to a client that does not have it.
func FuzzHTTP(f *testing.F) {
	const token, secret = "token-of-the-test", "canary-7f3a"
	var t httpToken
	t.set(token)
	log := &httpLog{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	srv := serveHTTP(ln, httpPages{
		notReady: func() string { return secret },
		status:   func() cluster.NodeStatus { return cluster.NodeStatus{ID: secret, Detail: secret} },
		metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, secret) }),
		token:    &t, pprof: true,
		log: hclog.New(&hclog.LoggerOptions{Output: log}),
	})
	f.Cleanup(func() {
		if err := srv.Close(); err != nil {
			f.Error(err)
		}
	})
	ask := func(t testing.TB, request []byte) []byte {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		// The server may refuse the request and close the connection before it
		// has read everything. Then the rest is not sent, and the reply may be
		// lost.
		_, _ = conn.Write(request)
		_ = conn.(*net.TCPConn).CloseWrite()
		reply, _ := io.ReadAll(conn)
		return reply
	}
	get := "GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token + "\r\nConnection: close\r\n\r\n"
	for _, path := range []string{"/status", "/metrics", "/readyz"} {
		if reply := ask(f, fmt.Appendf(nil, get, path)); !bytes.Contains(reply, []byte(secret)) {
			f.Fatalf("%s with the token: reply %q does not have the secret", path, reply)
		}
	}
	for _, seed := range []string{
		"GET /status HTTP/1.1\r\nHost: h\r\n\r\n", "GET //status HTTP/1.0\r\n\r\n", "GET /%2e/metrics HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /status HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \r\n\r\n", "POST /debug/pprof/symbol HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc",
		"GET /readyz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PING\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		permitted := bytes.Contains(request, []byte(token))
		if reply := ask(t, request); !permitted && bytes.Contains(reply, []byte(secret)) {
			t.Errorf("%q was answered without the token: %q", request, reply)
		}
		if log.panicked.Load() {
			t.Errorf("%q: the HTTP server panicked", request)
		}
	})
}
