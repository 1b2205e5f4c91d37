package fsm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGeo_Points checks that the score of a point stands for another point in
// the same cell, and that this point has the same score.
func TestGeo_Points(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		p := point{(rng.Float64()*2 - 1) * geoMaxLon, (rng.Float64()*2 - 1) * geoMaxLat}
		q := pointOf(p.score())
		if q.score() != p.score() || math.Abs(p.lon-q.lon) > 360.0/(1<<geoSteps) ||
			math.Abs(p.lat-q.lat) > 171.0/(1<<geoSteps) {
			t.Fatalf("%v becomes %v", p, q)
		}
		c := cellOf(p, geoMaxLat, 1+rng.IntN(geoSteps))
		if a := c.area(); p.lon < a.min.lon || p.lon > a.max.lon || p.lat < a.min.lat || p.lat > a.max.lat {
			t.Fatalf("%v is not in %v", p, a)
		}
		if from, to := c.scores(); p.score() < from || p.score() >= to {
			t.Fatalf("%v has the score %v, its cell %v to %v", p, p.score(), from, to)
		}
		for _, to := range geoRing {
			if back := c.neighbor(to.dx, to.dy).neighbor(-to.dx, -to.dy); back != c {
				t.Fatalf("%v, there and back again: %v", c, back)
			}
		}
	}
}

func TestGeo_Unsigned(t *testing.T) {
	for f, want := range map[float64]uint64{0: 0, 1.9: 1, -1: math.MaxUint64, -1.9: math.MaxUint64, 1 << 52: 1 << 52,
		1 << 63: 1 << 63, 1<<64 - 2048: 1<<64 - 2048, 1 << 64: 0, 1e300: 0, math.Inf(1): 0, -(1 << 63): 1 << 63,
		-1e300: 1 << 63, math.Inf(-1): 1 << 63} {
		if got := unsigned(f); got != want {
			t.Errorf("%v becomes %d, want %d", f, got, want)
		}
	}
}

// TestGeo_Distance checks some distances to the last digit, because all nodes
// must agree on them.
func TestGeo_Distance(t *testing.T) {
	for _, c := range []struct {
		a, b point
		want float64
	}{
		{point{13.361389338970184, 38.1155563954963}, point{15.087267458438873, 37.50266842333162}, 166274.15156960033},
		{point{-180, -geoMaxLat}, point{180, geoMaxLat}, 18919844.730045985},
		{point{0, 0}, point{180, 0}, 20020734.00000016},
		{point{10, 20}, point{10, 50}, 3336789.0000000275},
	} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != got {
			t.Errorf("from %v to %v: %v, and back %v, want %v", c.a, c.b, got, distance(c.b, c.a), c.want)
		}
	}
}

// TestGeo_Found checks that members that geoFound drops early would not be in
// the final result.
func TestGeo_Found(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, count := range []int64{0, 1, 7, 600, 3000, 20_000, math.MaxInt64} {
		for order := -1; order <= 1; order++ {
			if order == 0 && count > 0 {
				continue // parse replaces 0 with 1
			}
			f := geoFound{order: order, count: count}
			var all []geoPoint
			for n := range 10_000 {
				d := float64(rng.IntN(3000))
				f.add(&scored{member: fmt.Sprint(n)}, point{}, d)
				all = append(all, geoPoint{scored{member: fmt.Sprint(n)}, point{}, d, n})
				if count > 0 && int64(len(f.points)) > max(2*count, 1024) && count < 10_000 {
					t.Fatalf("%d points for a count of %d", len(f.points), count)
				}
			}
			f.cut()
			slices.SortStableFunc(all, func(a, b geoPoint) int { return order * int(a.distance-b.distance) })
			if count > 0 {
				all = all[:min(count, int64(len(all)))]
			}
			if !slices.Equal(f.points, all) {
				t.Errorf("order %d, count %d: %d points, want %d, or others", order, count, len(f.points), len(all))
			}
		}
	}
}

// scattered returns a sorted set of n members around a point.
func scattered(n int, middle point, degrees float64) *collection {
	rng := rand.New(rand.NewPCG(3, 3))
	v, owner := newCollection(typeZSet), &seqOwner{}
	for i := range n {
		p := point{middle.lon + degrees*(rng.Float64()*2-1), middle.lat + degrees*(rng.Float64()*2-1)}
		v.putScore(owner, fmt.Sprintf("member:%d", i), p.score())
	}
	return v
}

// TestGeo_Search checks that a search finds all members in the area, and only
// those, whichever cells it visits.
func TestGeo_Search(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	v := scattered(3000, point{10, 50}, 8)
	for range 300 {
		s := geoShape{middle: point{2 + 16*rng.Float64(), 42 + 16*rng.Float64()}, box: rng.IntN(2) == 0, unit: 1000,
			radius: math.Exp(rng.Float64() * 7), width: math.Exp(rng.Float64() * 7), height: math.Exp(rng.Float64() * 7)}
		f := geoFound{}
		if fail := s.search(new(Ctx), v, &f, geoMost); fail.IsError() {
			t.Fatal(fail.Text())
		}
		in := 0
		v.order.Ascend(0, func(m *scored) bool {
			if _, ok := s.contains(pointOf(m.score)); ok {
				in++
			}
			return true
		})
		if len(f.points) != in {
			t.Errorf("%+v: %d members, want %d", s, len(f.points), in)
		}
	}
}

// TestGeo_Most checks that a search fails once it has looked at the maximum
// number of members.
func TestGeo_Most(t *testing.T) {
	v := scattered(500, point{10, 50}, 0.01)
	s := geoShape{middle: point{10, 50}, radius: 2, unit: 1000}
	for _, c := range []struct {
		most int
		f    geoFound
		want bool
	}{{500, geoFound{}, true}, {499, geoFound{}, false}, {499, geoFound{count: 1, order: 1}, false},
		{20, geoFound{count: 1, any: true}, true}} {
		if fail := s.search(new(Ctx), v, &c.f, c.most); fail.IsError() == c.want {
			t.Errorf("%d looked at, count %d: %q, found %d", c.most, c.f.count, fail.Text(), c.f.n)
		}
	}
}

func BenchmarkGeo(b *testing.B) {
	v := scattered(200_000, point{10, 50}, 5)
	for _, km := range []float64{1, 10, 100, 2000} {
		s := geoShape{middle: point{10, 50}, radius: km, unit: 1000}
		b.Run(fmt.Sprintf("%v km", km), func(b *testing.B) {
			n := 0
			for b.Loop() {
				f := geoFound{order: 1}
				s.search(new(Ctx), v, &f, geoMost)
				n = len(f.points)
			}
			b.ReportMetric(float64(n), "found")
		})
	}
}
