package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/geo"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// TestGeo_Found checks that geoFound drops only members that would not be in
// the final result.
func TestGeo_Found(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, count := range []int64{0, 1, 7, 600, 3000, 20_000, math.MaxInt64} {
		for order := -1; order <= 1; order++ {
			if order == 0 && count > 0 {
				continue // with a count, parse replaces the order 0 with 1
			}
			f := geoFound{order: order, count: count}
			var all []geoPoint
			for n := range 10_000 {
				d := float64(rng.IntN(3000))
				f.add(&container.Scored{Member: fmt.Sprint(n)}, geo.Point{}, d)
				all = append(all, geoPoint{container.Scored{Member: fmt.Sprint(n)}, geo.Point{}, d, n})
				if count > 0 && int64(len(f.points)) > max(2*count, 1024) && count < 10_000 {
					t.Fatalf("geoFound keeps %d points for a count of %d, want fewer", len(f.points), count)
				}
			}
			f.cut()
			slices.SortStableFunc(all, func(a, b geoPoint) int { return order * int(a.distance-b.distance) })
			if count > 0 {
				all = all[:min(count, int64(len(all)))]
			}
			if !slices.Equal(f.points, all) {
				t.Errorf("order %d, count %d: got %d points, want %d; if the numbers are equal, the points differ",
					order, count, len(f.points), len(all))
			}
		}
	}
}

// scattered returns a sorted set of n members around a point.
func scattered(n int, middle geo.Point, degrees float64) *keyspace.Collection {
	rng := rand.New(rand.NewPCG(3, 3))
	v, owner := keyspace.NewCollection(keyspace.TypeZSet), &container.Owner{}
	for i := range n {
		p := geo.Point{Lon: middle.Lon + degrees*(rng.Float64()*2-1), Lat: middle.Lat + degrees*(rng.Float64()*2-1)}
		v.PutScore(owner, fmt.Sprintf("member:%d", i), p.Score())
	}
	return v
}

// TestGeo_Search checks that a search finds as many members as the area
// contains, whichever cells it visits.
func TestGeo_Search(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	v := scattered(3000, geo.Point{Lon: 10, Lat: 50}, 8)
	for range 300 {
		s := geo.Shape{
			Center: geo.Point{Lon: 2 + 16*rng.Float64(), Lat: 42 + 16*rng.Float64()}, Box: rng.IntN(2) == 0, Unit: 1000,
			Radius: math.Exp(rng.Float64() * 7), Width: math.Exp(rng.Float64() * 7),
			Height: math.Exp(rng.Float64() * 7),
		}
		f := geoFound{}
		if fail := searchArea(new(fsm.Ctx), &s, v, &f, geoMost); fail.IsError() {
			t.Fatal(fail.Text())
		}
		in := 0
		v.Order.Ascend(0, func(m *container.Scored) bool {
			if _, ok := s.Contains(geo.PointOf(m.Score)); ok {
				in++
			}
			return true
		})
		if len(f.points) != in {
			t.Errorf("%+v: %d members, want %d", s, len(f.points), in)
		}
	}
}

// TestGeo_Most checks that a search fails if it would have to look at more
// members than its limit, and that a search with ANY stops once it has found
// enough members.
func TestGeo_Most(t *testing.T) {
	v := scattered(500, geo.Point{Lon: 10, Lat: 50}, 0.01)
	s := geo.Shape{Center: geo.Point{Lon: 10, Lat: 50}, Radius: 2, Unit: 1000}
	for _, c := range []struct {
		most int
		f    geoFound
		want bool
	}{{500, geoFound{}, true}, {499, geoFound{}, false}, {499, geoFound{count: 1, order: 1}, false},
		{20, geoFound{count: 1, any: true}, true}} {
		if fail := searchArea(new(fsm.Ctx), &s, v, &c.f, c.most); fail.IsError() == c.want {
			t.Errorf("limit %d, count %d: got the error %q after %d members were found",
				c.most, c.f.count, fail.Text(), c.f.n)
		}
	}
}

func BenchmarkGeo(b *testing.B) {
	v := scattered(200_000, geo.Point{Lon: 10, Lat: 50}, 5)
	for _, km := range []float64{1, 10, 100, 2000} {
		s := geo.Shape{Center: geo.Point{Lon: 10, Lat: 50}, Radius: km, Unit: 1000}
		b.Run(fmt.Sprintf("%v km", km), func(b *testing.B) {
			n := 0
			for b.Loop() {
				f := geoFound{order: 1}
				searchArea(new(fsm.Ctx), &s, v, &f, geoMost)
				n = len(f.points)
			}
			b.ReportMetric(float64(n), "found")
		})
	}
}
