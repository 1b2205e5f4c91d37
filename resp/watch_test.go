package resp_test

import (
	"testing"
)

// TestWatchClient checks that the server notices while a read runs that the
// client disconnects. Commands that the client sends meanwhile are executed afterwards.
func TestWatchClient(t *testing.T) {
	f := newFake(t)
	watching, proceed, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := true
	f.reading = func(watch func() (left <-chan struct{}, stop func(), err error)) {
		left, stop, err := watch()
		if err != nil {
			t.Error(err)
			return
		}
		defer stop()
		watching <- struct{}{}
		if first {
			first = false
			<-proceed
			return
		}
		<-left
		close(gone)
	}
	s := serve(t, f)
	c := dial(t, s)
	c.send("GET k")
	<-watching
	c.send("SET k 1")
	proceed <- struct{}{}
	c.want("$-1")
	c.want("+OK")
	c.send("GET k")
	<-watching
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-gone
}
