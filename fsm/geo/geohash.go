// Package geo implements the geometry behind GEOADD and GEOSEARCH: points as
// scores of sorted sets, cells of the map, areas, and distances.
//
// Every node computes the same score and the same distance for the same
// arguments, to the last bit, whatever its processor is. The package therefore
// has its own sine, cosine and arcsine: see trig.go.
package geo

import (
	"math"
	"math/bits"
)

// A point is stored as Redis stores it, as the score of a member of a sorted
// set: 26 bits of its latitude and 26 bits of its longitude, interleaved.
//
// A score is computed with sums, a quotient and a product with a power of two.
// A point is computed with a quotient by a power of two, a product that is
// rounded before the addition, and sums. The results of these operations are
// the same on every machine.
const (
	maxSteps = 26
	maxLat   = 85.05112878 // up to this latitude, the Mercator projection is a square
	maxLon   = 180
)

// Point is a point on the earth, in degrees.
type Point struct{ Lon, Lat float64 }

// Valid reports whether the map contains the point.
func (p Point) Valid() bool {
	return math.Abs(p.Lon) <= maxLon && math.Abs(p.Lat) <= maxLat
}

// interleave interleaves the bits of two numbers. The bits of lon are the
// higher ones of each pair.
func interleave(lat, lon uint32) uint64 { return spread(lat) | spread(lon)<<1 }

// spread inserts a zero before each bit.
func spread(n uint32) uint64 {
	x := uint64(n)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	x = (x | x<<2) & 0x3333333333333333
	return (x | x<<1) & 0x5555555555555555
}

// gather extracts every second bit, beginning with the lowest.
func gather(x uint64) uint32 {
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// Cell is one of the 2^steps by 2^steps cells of the map. The zero value does
// not stand for a cell.
type Cell struct {
	bits  uint64
	steps int
}

// cellOf returns the cell that contains p. The map ends at the latitudes top
// and -top. A point exactly on the upper or the right edge of the map gets a
// cell beyond that edge.
func cellOf(p Point, top float64, steps int) Cell {
	part := func(x, most float64) uint32 {
		return uint32(float64((x + most) / (most + most) * float64(uint64(1)<<steps)))
	}
	return Cell{interleave(part(p.Lat, top), part(p.Lon, maxLon)), steps}
}

// Score returns the score that stands for the point.
func (p Point) Score() float64 { return float64(cellOf(p, maxLat, maxSteps).bits) }

// neighbor returns the cell that is dx columns and dy rows away. The map wraps
// around: as in Redis, the cell north of the upper edge is at the lower edge.
func (c Cell) neighbor(dx, dy int) Cell {
	lat, lon := gather(c.bits), gather(c.bits>>1)
	mask := uint32(1)<<c.steps - 1
	if dx != 0 {
		lon = (lon + uint32(dx)) & mask
	}
	if dy != 0 {
		lat = (lat + uint32(dy)) & mask
	}
	return Cell{interleave(lat, lon), c.steps}
}

// Scores returns the half-open range [from, to) of the scores of the points in
// the cell.
func (c Cell) Scores() (from, to float64) {
	shift := 2 * (maxSteps - c.steps)
	return float64(c.bits << shift), float64((c.bits + 1) << shift)
}

// rect is a part of the map, in degrees.
type rect struct{ min, max Point }

// area returns the area that the cell covers.
func (c Cell) area() rect {
	at := func(n uint32, most float64) float64 {
		return -most + float64(float64(n)/float64(uint64(1)<<c.steps)*(most+most))
	}
	lat, lon := gather(c.bits), gather(c.bits>>1)
	return rect{Point{at(lon, maxLon), at(lat, maxLat)}, Point{at(lon+1, maxLon), at(lat+1, maxLat)}}
}

// PointOf returns the point that a score stands for: the middle of the cell
// with this score. The score may be any number, because ZADD can set any score.
func PointOf(score float64) Point {
	a := Cell{unsigned(score), maxSteps}.area()
	middle := func(low, high, most float64) float64 { return max(min((low+high)/2, most), -most) }
	return Point{middle(a.min.Lon, a.max.Lon, maxLon), middle(a.min.Lat, a.max.Lat, maxLat)}
}

// unsigned converts a double to an unsigned 64-bit integer as C does on amd64.
// In Go, the result depends on the processor if the number does not fit.
func unsigned(f float64) uint64 {
	const half = 1 << 63
	switch {
	case f >= 2*half:
		return 0
	case f >= half:
		return uint64(int64(f-half)) ^ half
	case f < -half:
		return half
	}
	return uint64(int64(f))
}

// Geohash returns the name of the point in the alphabet of geohash.org: eleven
// characters of five bits each. A cell has only 52 bits, so the last character
// would have only two of its bits. As in Redis, the last character is always 0.
func (p Point) Geohash() string {
	const letters = "0123456789bcdefghjkmnpqrstuvwxyz"
	hash := cellOf(p, 90, maxSteps).bits
	var name [11]byte
	for i := range name {
		name[i] = letters[hash>>47&31]
		hash = bits.RotateLeft64(hash, 5)
	}
	name[10] = letters[0]
	return string(name[:])
}

// earthRadius is the radius of the earth that Redis uses, in meters.
const earthRadius = 6372797.560856

const radiansPerDegree = float64(math.Pi) / 180

func radians(degrees float64) float64 { return float64(degrees * radiansPerDegree) }
func degrees(radians float64) float64 { return radians / radiansPerDegree }

// latDistance returns the distance between two latitudes, in meters.
func latDistance(a, b float64) float64 {
	return float64(earthRadius * math.Abs(radians(b)-radians(a)))
}

// Distance returns the great-circle distance between two points, in meters. It
// uses the haversine formula in the same steps as Redis.
func Distance(a, b Point) float64 {
	lonA, lonB := radians(a.Lon), radians(b.Lon)
	v := sin((lonB - lonA) / 2)
	if v == 0 {
		return latDistance(a.Lat, b.Lat)
	}
	latA, latB := radians(a.Lat), radians(b.Lat)
	u := sin((latB - latA) / 2)
	h := float64(u*u) + float64(float64(float64(cos(latA)*cos(latB))*v)*v)
	return float64(2 * earthRadius * asin(math.Sqrt(h)))
}
