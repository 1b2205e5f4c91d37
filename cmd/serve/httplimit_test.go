package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestHTTPConns checks that connections without complete requests cannot block
// other requests.
func TestHTTPConns(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	conns := &httpConns{most: 4}
	srv.Config.ConnState = conns.state
	srv.Start()
	t.Cleanup(srv.Close) // runs after the cleanups of dial, which close the connections
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var silent []net.Conn
	for i := range 20 {
		c := dial()
		if i%2 == 1 { // a request whose body never arrives
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		silent = append(silent, c)
	}
	for i := range 10 {
		c := dial()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %v, %v", i, resp, err)
		}
		resp.Body.Close()
	}
	if _, err := silent[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest silent connection is still open")
	}
	// The server may not have removed a closed connection yet.
	testutil.Eventually(t, "at most as many connections as permitted", func() bool {
		conns.mu.Lock()
		defer conns.mu.Unlock()
		return len(conns.at) <= conns.most
	})
}
