package geo

import "math"

// Shape is the area of a search: a circle or a box. A point in a box is at most
// Height/2 north or south of the center. It is at most Width/2 away from the
// point on the center's meridian that has the same latitude. Unit is the unit
// of the lengths.
type Shape struct {
	Center        Point
	Box           bool    // the area is a box
	Radius        float64 // radius of a circle
	Width, Height float64 // sides of a box
	Unit          float64 // in meters
}

// enclosingRadius returns the radius in meters of a circle that contains the
// area.
func (s *Shape) enclosingRadius() float64 {
	if !s.Box {
		return float64(s.Radius * s.Unit)
	}
	w, h := s.Width/2, s.Height/2
	return float64(math.Sqrt(float64(w*w)+float64(h*h)) * s.Unit)
}

// bounds returns a rectangle of parallels and meridians around the area, as Redis
// computes it. The enclosing radius must be less than an eighth of the earth's
// circumference.
func (s *Shape) bounds() rect {
	w, h := s.Radius, s.Radius
	if s.Box {
		w, h = s.Width/2, s.Height/2
	}
	dLat := degrees(float64(s.Unit*h) / earthRadius)
	end := s.Center.Lat + dLat // the parallel closer to a pole
	if s.Center.Lat < 0 {
		end = s.Center.Lat - dLat
	}
	dLon := degrees(float64(s.Unit*w) / earthRadius / cos(radians(end)))
	return rect{Point{s.Center.Lon - dLon, s.Center.Lat - dLat}, Point{s.Center.Lon + dLon, s.Center.Lat + dLat}}
}

// Contains reports whether a point is in the area. If the point is in the area,
// d is its distance from the center in meters.
func (s *Shape) Contains(p Point) (d float64, in bool) {
	lat := latDistance(s.Center.Lat, p.Lat)
	if !s.Box {
		radius := float64(s.Radius * s.Unit)
		if lat > float64(radius*(1+1e-6)) { // the margin is far larger than the rounding error
			return 0, false
		}
		d = Distance(s.Center, p)
		return d, d <= radius
	}
	if lat > float64(s.Height*s.Unit)/2 || Distance(p, Point{s.Center.Lon, p.Lat}) > float64(s.Width*s.Unit)/2 {
		return 0, false
	}
	return Distance(s.Center, p), true
}

// halfEquator is half of the circumference of the earth in the Mercator
// projection, in meters.
const halfEquator = 20037726.37

// steps estimates the number of steps (see Cell) for which cells are small, but
// still so large that one cell and its neighbors cover the area. Cells are
// narrower toward the poles.
func (s *Shape) steps(radius float64) int {
	if radius == 0 {
		return maxSteps
	}
	n := -1
	for ; radius < halfEquator; radius += radius {
		n++
	}
	if lat := math.Abs(s.Center.Lat); lat > 80 {
		n -= 2
	} else if lat > 66 {
		n--
	}
	return max(min(n, maxSteps), 1)
}

// ring has the offsets of a cell and of its neighbors, in the order in which
// Redis visits them. That order is also the order of unsorted results.
var ring = [...]struct{ dx, dy int }{{0, 0}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}, {1, 1}, {-1, 1}, {1, -1}, {-1, -1}}

// Cells returns the cells that cover the area, in the order in which Redis
// visits them. A zero value in the list replaces a cell that need not be
// searched. If the map has few cells, the same cell may be in the list several
// times.
func (s *Shape) Cells() (list [len(ring)]Cell) {
	steps := s.steps(s.enclosingRadius())
	around := func() {
		middle := cellOf(s.Center, maxLat, steps)
		for i, to := range ring {
			list[i] = middle.neighbor(to.dx, to.dy)
		}
	}
	around()
	if steps == 1 {
		return list
	}
	b := s.bounds()
	if list[1].area().max.Lat < b.max.Lat || list[2].area().min.Lat > b.min.Lat ||
		list[3].area().max.Lon < b.max.Lon || list[4].area().min.Lon > b.min.Lon {
		steps--
		around()
	}
	if steps == 1 {
		return list
	}
	a := list[0].area()
	for i, to := range ring {
		if to.dy > 0 && a.max.Lat > b.max.Lat || to.dy < 0 && a.min.Lat < b.min.Lat ||
			to.dx > 0 && a.max.Lon > b.max.Lon || to.dx < 0 && a.min.Lon < b.min.Lon {
			list[i] = Cell{}
		}
	}
	return list
}
