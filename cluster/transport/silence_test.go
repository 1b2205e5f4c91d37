package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// left fails the test unless Left returns the given time.
func left(t *testing.T, s *Silence, want time.Duration) {
	t.Helper()
	if got, known := s.Left("n1"); !known || got != want {
		t.Errorf("Left = %v (known: %v), want %v", got, known, want)
	}
}

// beat is a request of n1 that is answered at once.
func (s *Silence) beat() {
	s.began("n1", true)
	s.ended("n1")
}

func TestSilence_FollowsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSilence(200*time.Millisecond, time.Second)
		if _, known := s.Left("n1"); known {
			t.Error("Left: known = true for a node that has sent nothing, want false")
		}
		s.beat()
		left(t, s, 200*time.Millisecond)
		time.Sleep(60 * time.Millisecond)
		left(t, s, 140*time.Millisecond)
		s.beat()
		left(t, s, 200*time.Millisecond) // the shortest time, because twice the longest pause (60 ms) plus the margin is less

		// Heartbeats become late, so the limit rises at once.
		time.Sleep(150 * time.Millisecond)
		s.beat()
		left(t, s, 350*time.Millisecond)
		time.Sleep(400 * time.Millisecond)
		left(t, s, -50*time.Millisecond)
		s.beat()
		left(t, s, 850*time.Millisecond)
		time.Sleep(700 * time.Millisecond)
		s.beat()
		left(t, s, time.Second) // the longest time, although the pauses would allow 1.45 s

		// The limit does not exceed the longest time after an even longer pause
		// either.
		time.Sleep(5 * time.Second)
		s.beat()
		left(t, s, time.Second)

		// Old pauses are forgotten after 10 to 20 s.
		for range 250 {
			time.Sleep(80 * time.Millisecond)
			s.beat()
		}
		left(t, s, 210*time.Millisecond)
	})
}

// TestSilence_OwnWork checks that a longer limit applies while this node owes
// an answer. It also checks that a node counts as silent some time after its
// connection has ended.
func TestSilence_OwnWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSilence(200*time.Millisecond, time.Second)
		ours, theirs := net.Pipe()
		c := &heardConn{Conn: ours, node: "n1", silence: s}
		defer theirs.Close()
		exchange := func() {
			go func() { _, _ = theirs.Write([]byte("request")) }()
			if _, err := c.Read(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
		}
		exchange()
		time.Sleep(1500 * time.Millisecond)
		left(t, s, 500*time.Millisecond) // the limit is 2 s, twice the longest time
		go func() { _, _ = theirs.Read(make([]byte, 16)) }()
		if _, err := c.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		left(t, s, 50*time.Millisecond)

		// The other node counts as silent some time after its connection has
		// ended.
		exchange()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if now, _ := s.Left("n1"); now > 0 {
			t.Errorf("%v left for a node whose connection has ended, want 0 or less", now)
		}
	})
}

func TestSilence_Off(t *testing.T) {
	s := NewSilence(0, time.Second)
	s.beat()
	if _, known := s.Left("n1"); known {
		t.Error("Left: known = true although no node counts as silent, want false")
	}
	var none *Silence
	if _, known := none.Left("n1"); known {
		t.Error("Left of a nil Silence: known = true, want false")
	}
}
