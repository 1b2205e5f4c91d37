package geo

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestGeo_Points checks that the score of a point stands for a point in the
// same cell, with the same score. It also checks the areas, the scores and the
// neighbors of cells.
func TestGeo_Points(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		p := Point{(rng.Float64()*2 - 1) * maxLon, (rng.Float64()*2 - 1) * maxLat}
		q := PointOf(p.Score())
		if q.Score() != p.Score() || math.Abs(p.Lon-q.Lon) > 360.0/(1<<maxSteps) ||
			math.Abs(p.Lat-q.Lat) > 171.0/(1<<maxSteps) {
			t.Fatalf("the score of %v stands for %v, which is in another cell", p, q)
		}
		c := cellOf(p, maxLat, 1+rng.IntN(maxSteps))
		if a := c.area(); p.Lon < a.min.Lon || p.Lon > a.max.Lon || p.Lat < a.min.Lat || p.Lat > a.max.Lat {
			t.Fatalf("point %v is not in the area %v of its cell", p, a)
		}
		if from, to := c.Scores(); p.Score() < from || p.Score() >= to {
			t.Fatalf("point %v has the score %v, but its cell has the scores from %v to %v", p, p.Score(), from, to)
		}
		for _, to := range ring {
			if back := c.neighbor(to.dx, to.dy).neighbor(-to.dx, -to.dy); back != c {
				t.Fatalf("cell %v: the way to a neighbor and back leads to %v", c, back)
			}
		}
	}
}

func TestGeo_Unsigned(t *testing.T) {
	for f, want := range map[float64]uint64{0: 0, 1.9: 1, -1: math.MaxUint64, -1.9: math.MaxUint64, 1 << 52: 1 << 52,
		1 << 63: 1 << 63, 1<<64 - 2048: 1<<64 - 2048, 1 << 64: 0, 1e300: 0, math.Inf(1): 0, -(1 << 63): 1 << 63,
		-1e300: 1 << 63, math.Inf(-1): 1 << 63} {
		if got := unsigned(f); got != want {
			t.Errorf("unsigned(%v) = %d, want %d", f, got, want)
		}
	}
}

// TestGeo_Distance checks some distances to the last digit, because all nodes
// must agree on them.
func TestGeo_Distance(t *testing.T) {
	for _, c := range []struct {
		a, b Point
		want float64
	}{
		{Point{13.361389338970184, 38.1155563954963}, Point{15.087267458438873, 37.50266842333162}, 166274.15156960033},
		{Point{-180, -maxLat}, Point{180, maxLat}, 18919844.730045985},
		{Point{0, 0}, Point{180, 0}, 20020734.00000016},
		{Point{10, 20}, Point{10, 50}, 3336789.0000000275},
	} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != got {
			t.Errorf("Distance(%v, %v) = %v, in the other direction %v, want %v",
				c.a, c.b, got, Distance(c.b, c.a), c.want)
		}
	}
}
