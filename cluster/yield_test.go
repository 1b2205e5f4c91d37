package cluster

import (
	"net"
	"runtime"
	"testing"
)

// TestYielder checks that, on a single processor, a goroutine that works learns
// of network events after a few yields. Gosched needs as many calls as fit into
// 10 ms.
func TestYielder(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	y := newYielder()
	defer y.close()
	const messages = 100
	heard := make(chan struct{}, messages)
	go func() {
		var b [1]byte
		for range messages {
			if _, err := in.Read(b[:]); err != nil {
				return
			}
			heard <- struct{}{}
		}
	}()
	yields := 0
	for range messages {
		if _, err := out.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for len(heard) == 0 {
			y.yield()
			if yields++; yields > 100*messages {
				t.Fatalf("%d yields and no message", yields)
			}
		}
		<-heard
	}
	t.Logf("%d yields for %d messages", yields, messages)
}
