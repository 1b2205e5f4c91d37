package resp_test

import (
	"testing"
)

// TestWatchClient checks that the server notices the disconnection of a client while
// a read of that client runs. Commands that the client sends during the read are
// executed afterward.
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
