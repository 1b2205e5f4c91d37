package fsm

import (
	"math"
	"math/bits"
)

// A point is stored as Redis stores it, as the score of a member of a sorted
// set: 26 bits of its latitude and 26 bits of its longitude, interleaved.
//
// A score is computed by a difference, a quotient and a product with a power of
// two. A point is computed by a quotient by a power of two, a product that is
// rounded before the addition, and a sum. The results of these operations are
// the same on every machine.
const (
	geoSteps  = 26
	geoMaxLat = 85.05112878 // where the Mercator projection becomes a square
	geoMaxLon = 180
)

// point is a point on the earth, in degrees.
type point struct{ lon, lat float64 }

func (p point) valid() bool {
	return math.Abs(p.lon) <= geoMaxLon && math.Abs(p.lat) <= geoMaxLat
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

// geoCell is one of the 2^steps by 2^steps cells of the map. The zero value,
// which has no steps, is no cell.
type geoCell struct {
	bits  uint64
	steps int
}

// cellOf returns the cell that contains p. maxLat is the latitude at which the
// map ends. A point exactly on the upper or the right edge of the map gets a
// cell of its own beyond that edge.
func cellOf(p point, maxLat float64, steps int) geoCell {
	part := func(x, most float64) uint32 {
		return uint32(float64((x + most) / (most + most) * float64(uint64(1)<<steps)))
	}
	return geoCell{interleave(part(p.lat, maxLat), part(p.lon, geoMaxLon)), steps}
}

// score returns the score of a point.
func (p point) score() float64 { return float64(cellOf(p, geoMaxLat, geoSteps).bits) }

// neighbor returns the cell that is dx columns and dy rows away. The map wraps
// around: as in Redis, the cell north of the upper edge is at the lower edge.
func (c geoCell) neighbor(dx, dy int) geoCell {
	lat, lon := gather(c.bits), gather(c.bits>>1)
	mask := uint32(1)<<c.steps - 1
	if dx != 0 {
		lon = (lon + uint32(dx)) & mask
	}
	if dy != 0 {
		lat = (lat + uint32(dy)) & mask
	}
	return geoCell{interleave(lat, lon), c.steps}
}

// scores returns the half-open range [from, to) of the scores of the points in
// the cell.
func (c geoCell) scores() (from, to float64) {
	shift := 2 * (geoSteps - c.steps)
	return float64(c.bits << shift), float64((c.bits + 1) << shift)
}

// area is a part of the map, in degrees.
type area struct{ min, max point }

// area returns the area that the cell covers.
func (c geoCell) area() area {
	at := func(n uint32, most float64) float64 {
		return -most + float64(float64(n)/float64(uint64(1)<<c.steps)*(most+most))
	}
	lat, lon := gather(c.bits), gather(c.bits>>1)
	return area{point{at(lon, geoMaxLon), at(lat, geoMaxLat)}, point{at(lon+1, geoMaxLon), at(lat+1, geoMaxLat)}}
}

// pointOf returns the point that a score stands for, which is the middle of its
// cell. The score may be any number, because ZADD can set any score.
func pointOf(score float64) point {
	a := geoCell{unsigned(score), geoSteps}.area()
	middle := func(low, high, most float64) float64 { return max(min((low+high)/2, most), -most) }
	return point{middle(a.min.lon, a.max.lon, geoMaxLon), middle(a.min.lat, a.max.lat, geoMaxLat)}
}

// unsigned converts a double to an unsigned 64-bit integer as C does on amd64.
// Go leaves the result to the machine if the number does not fit.
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

// geohash returns the name of a point in the alphabet of geohash.org: eleven
// letters of five bits each. Only 52 of the 55 bits are known; as in Redis, the
// last letter is always 0.
func (p point) geohash() string {
	const letters = "0123456789bcdefghjkmnpqrstuvwxyz"
	hash := cellOf(p, 90, geoSteps).bits
	var name [11]byte
	for i := range name {
		name[i] = letters[hash>>47&31]
		hash = bits.RotateLeft64(hash, 5)
	}
	name[10] = letters[0]
	return string(name[:])
}

// geoRadius is the radius of the earth in meters that Redis uses.
const geoRadius = 6372797.560856

const radiansPerDegree = float64(math.Pi) / 180

func radians(degrees float64) float64 { return float64(degrees * radiansPerDegree) }
func degrees(radians float64) float64 { return radians / radiansPerDegree }

// latDistance returns the distance between two latitudes, in meters.
func latDistance(a, b float64) float64 {
	return float64(geoRadius * math.Abs(radians(b)-radians(a)))
}

// distance returns the great-circle distance between two points, in meters. It
// uses the haversine formula in the same steps as Redis.
func distance(a, b point) float64 {
	lonA, lonB := radians(a.lon), radians(b.lon)
	v := sin((lonB - lonA) / 2)
	if v == 0 {
		return latDistance(a.lat, b.lat)
	}
	latA, latB := radians(a.lat), radians(b.lat)
	u := sin((latB - latA) / 2)
	h := float64(u*u) + float64(float64(float64(cos(latA)*cos(latB))*v)*v)
	return float64(2 * geoRadius * asin(math.Sqrt(h)))
}
