package resp_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestEarly checks that the client receives a reply while the connection's
// goroutine still waits for this reply, and receives it only once.
func TestEarly(t *testing.T) {
	f := newFake(t)
	waiting, release := make(chan struct{}), make(chan struct{})
	f.answered = func() {
		waiting <- struct{}{}
		<-release
	}
	s := serve(t, f)
	c := dial(t, s)
	for i := range 3 {
		c.send("INCR n", "GET n")
		<-waiting
		c.want(fmt.Sprintf(":%d", i+1), fmt.Sprintf("$1\n%d", i+1))
		release <- struct{}{}
	}
	c.expect("GET n", "$1\n3")
	if got := metric(t, s, "holdfast_client_sent_bytes_total"); got != 3*(4+7)+7 {
		t.Errorf("the metrics count %v sent bytes, want 40", got)
	}
}

// TestEarly_FullSocket checks that the bytes that the socket does not accept at
// once follow later, with nothing in between.
func TestEarly_FullSocket(t *testing.T) {
	f := newFake(t)
	waiting, release := make(chan struct{}), make(chan struct{})
	f.answered = func() {
		waiting <- struct{}{}
		<-release
	}
	c := dial(t, serve(t, f))
	value := strings.Repeat("0123456789abcdef", 24<<10)
	c.send("SET k " + value)
	<-waiting
	c.want("+OK")
	release <- struct{}{}
	const times = 40 // 15 MiB, more than the buffers of two sockets
	c.send(strings.Split(strings.Repeat("GETEX k PERSIST,", times)[:16*times-1], ",")...)
	<-waiting
	first := make([]byte, 8)
	if _, err := io.ReadFull(c.r, first); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("$%d\r\n", len(value)); string(first) != want[:len(first)] {
		t.Fatalf("the reply begins with %q, want the length of the value", first)
	}
	release <- struct{}{}
	rest, err := c.r.ReadString('\n')
	if err != nil || "$"+fmt.Sprint(len(value))+"\r\n" != string(first)+rest {
		t.Fatalf("the rest of the first line is %q, %v, want the length of the value", rest, err)
	}
	if _, err := io.ReadFull(c.r, make([]byte, len(value)+2)); err != nil {
		t.Fatal(err)
	}
	for i := range times - 1 {
		if got, err := c.reply(); err != nil || got != fmt.Sprintf("$%d\n%s\n", len(value), value) {
			t.Fatalf("reply %d is not the whole value (error: %v)", i+1, err)
		}
	}
	c.expect("GET n", "$-1")
}

// TestEarly_Order checks that the replies of a group are sent early only if the
// group writes and ends a pipeline that has no other replies. If there were
// replies before them, early replies would overtake these.
func TestEarly_Order(t *testing.T) {
	f := newFake(t)
	early := make(chan struct{}, 10)
	f.answered = func() { early <- struct{}{} }
	c := dial(t, serve(t, f))
	for _, p := range []struct {
		lines []string
		want  []string
		early int
	}{
		{[]string{"INCR n"}, []string{":1"}, 1},
		{[]string{"ECHO x", "INCR n"}, []string{"$1\nx", ":2"}, 0},
		{[]string{"INCR n", "ECHO x"}, []string{":3", "$1\nx"}, 0},
		{[]string{"MULTI", "INCR n", "EXEC"}, []string{"+OK", "+QUEUED", "*1\n:4"}, 0},
		{[]string{"INCR n", "ECHO x", "INCR n"}, []string{":5", "$1\nx", ":6"}, 0},
		{[]string{"GET n"}, []string{"$1\n6"}, 0},
		{[]string{"CLIENT REPLY SKIP", "INCR n", "ECHO x"}, []string{"$1\nx"}, 0},
		{[]string{"CLIENT REPLY OFF", "INCR n"}, nil, 0},
		{[]string{"NOSUCH", "INCR n"}, []string{"-ERR unknown command 'NOSUCH', with args beginning with: ", ":9"}, 0},
		{[]string{"INCR n"}, []string{":10"}, 1},
	} {
		c.send(p.lines...)
		c.want(p.want...)
		c.send("CLIENT REPLY ON") // its reply shows that all commands before it are done
		c.want("+OK")
		got := 0
		for len(early) > 0 {
			<-early
			got++
		}
		if got != p.early {
			t.Errorf("%q: %d replies sent early, want %d", p.lines, got, p.early)
		}
	}
}
