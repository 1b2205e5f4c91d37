package resp

import (
	"net"
	"testing"
	"time"
)

func TestGuesses(t *testing.T) {
	var g guesses
	now := time.Unix(1000, 0)
	a, b := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 1}
	for i := range freeGuesses {
		a.Port = i
		if n := g.add(a, now); n != 0 {
			t.Fatalf("guess %d counts %d", i+1, n)
		}
	}
	for i := 1; i <= 3; i++ {
		if n := g.add(a, now.Add(guessWindow)); n != i {
			t.Errorf("guess %d beyond the free ones counts %d", i, n)
		}
	}
	if n := g.add(b, now); n != 0 {
		t.Errorf("another address counts %d", n)
	}
	if n := g.add(a, now.Add(3*guessWindow)); n != 0 {
		t.Errorf("after a while a guess counts %d", n)
	}
	if n := g.add(&net.UnixAddr{Name: "x"}, now); n != 0 {
		t.Errorf("a unix socket counts %d", n)
	}
	for i := range maxGuessers + 10 {
		g.add(&net.TCPAddr{IP: net.IPv4(11, byte(i>>16), byte(i>>8), byte(i))}, now)
	}
	if len(g.by) > maxGuessers {
		t.Errorf("%d addresses are kept", len(g.by))
	}
}
