package luac_test

import (
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/script/luac"
)

// TestCompile_LetsMessagesIn checks that, on a single processor, another
// goroutine receives messages from the network while a large script is
// compiled. Without yields, the network is polled every 10 ms, so about ten
// messages would arrive.
func TestCompile_LetsMessagesIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	ended := make(chan struct{}, 2)
	for _, c := range []net.Conn{a, b} {
		go func() { // sends back the one message that travels between the two
			defer func() { ended <- struct{}{} }()
			var b [1]byte
			for {
				if _, err := c.Read(b[:]); err != nil {
					return
				}
				heard.Add(1)
				if _, err := c.Write(b[:]); err != nil {
					return
				}
			}
		}()
	}
	if _, err := a.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	text := "local x, y = 0, 1\n" + strings.Repeat("x=y ", 25_000)
	before := heard.Load()
	if _, err := luac.Compile(text, "@user_script", 0); err != nil {
		t.Error(err)
	}
	if n := heard.Load() - before; n < 50 {
		t.Errorf("%d messages arrived during the compilation, want at least 50", n)
	} else {
		t.Logf("%d messages arrived during the compilation", n)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.Close() // the test is over
	}
	<-ended
	<-ended
}
