package serve

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTestClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say("0s 1")
	c, err := newTestClock(path)
	if err != nil {
		t.Fatal(err)
	}
	say("-1h 0")
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	stopped := c.Mono()
	if back := time.Since(c.Wall()); back < time.Hour || back > time.Hour+time.Minute {
		t.Errorf("wall clock is %v behind, want an hour", back)
	}
	if again := c.Mono(); again != stopped {
		t.Errorf("stopped clock advanced from %v to %v", stopped, again)
	}
	say("1h 2")
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	if on := c.Mono(); on < stopped {
		t.Errorf("clock went back from %v to %v", stopped, on)
	}
	for _, text := range []string{"", "1h", "soon 1", "1h -1"} {
		say(text)
		if err := c.read(); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
