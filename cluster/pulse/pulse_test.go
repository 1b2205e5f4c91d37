package pulse

import (
	"testing"
	"testing/synctest"
	"time"
)

// next waits for a tick or a token and returns how long it took.
func next(tk *Ticker) time.Duration {
	begun := time.Now()
	select {
	case <-tk.C():
	case <-tk.Woken():
	}
	return time.Since(begun)
}

func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New(100*time.Millisecond, time.Second)
		defer tk.Stop()
		want := func(what string, d time.Duration) {
			t.Helper()
			if got := next(tk); got != d {
				t.Errorf("%s: a tick after %v, want %v", what, got, d)
			}
		}
		for range 11 {
			want("before the rest", 100*time.Millisecond)
			tk.Next(false)
		}
		want("at rest", time.Second)
		tk.Next(false)
		if !tk.Resting() {
			t.Error("Resting = false after a second without Touch, want true")
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			tk.Touch()
			tk.Touch()
		}()
		want("touched", 300*time.Millisecond)
		if tk.Resting() {
			t.Error("Resting = true after Touch, want false")
		}
		tk.Next(false)
		want("after Touch", 100*time.Millisecond)
		for range 30 {
			tk.Next(true)
			want("busy", 100*time.Millisecond)
		}
	})
}

// TestTicker_NoTouchIsLost calls Touch while Next may be running: a tick or a
// token must follow soon.
func TestTicker_NoTouchIsLost(t *testing.T) {
	tk := New(time.Millisecond, time.Hour)
	tk.quiet = restAfter
	defer tk.Stop()
	touches := make(chan struct{})
	go func() {
		defer close(touches)
		for range 2000 {
			touches <- struct{}{}
			tk.Touch()
		}
	}()
	for range touches {
		tk.quiet = restAfter
		tk.Next(false)
		select {
		case <-tk.C():
		case <-tk.Woken():
		case <-time.After(10 * time.Second):
			t.Fatal("a call of Touch was lost")
		}
	}
}
