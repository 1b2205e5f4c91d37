package timeline

import (
	"testing"
	"time"
)

func TestScale(t *testing.T) {
	s := Scale{Left: 10, Width: 100, From: time.Minute, To: 2 * time.Minute}
	for at, want := range map[time.Duration]float64{
		0: 10, time.Minute: 10, 90 * time.Second: 60, 2 * time.Minute: 110, time.Hour: 110,
	} {
		if x := s.X(at); x != want {
			t.Errorf("the time %v is at position %v, want %v", at, x, want)
		}
	}
}

// TestPlaceBands checks that labels do not overlap and stay inside the drawing.
func TestPlaceBands(t *testing.T) {
	all := []Band{{X: 0, W: 5, Label: "failover"}, {X: 20, W: 5, Label: "failover"}, {X: 190, W: 2, Label: "failover"}}
	height := PlaceBands(all, 200)
	if all[0].Y == all[1].Y {
		t.Error("two labels overlap, want them in different lines")
	}
	if all[2].Y != all[0].Y {
		t.Error("the last label is not in the first line, although there is room")
	}
	if end := all[2].LabelX + letter*8; end > 200 {
		t.Errorf("a label ends at %v, want at most the width of 200", end)
	}
	if height != 10+2*bandHeight {
		t.Errorf("PlaceBands returns the height %d, want that of two lines", height)
	}
}

func TestStep(t *testing.T) {
	for span, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Second, 10 * time.Second: time.Second, 100 * time.Second: 10 * time.Second,
		time.Hour: 10 * time.Minute, 24 * time.Hour: 3 * time.Hour, 90 * 24 * time.Hour: 10 * 24 * time.Hour,
	} {
		if got := Step(span, 10); got != want || span/got > 10 {
			t.Errorf("the step for a span of %v is %v, want %v", span, got, want)
		}
	}
}
