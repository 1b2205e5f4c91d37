package fsm

import (
	"math"
	"math/bits"
)

// A place is kept as Redis keeps it, as the score of a member of a sorted set: 26 bits
// of its latitude and 26 of its longitude, by turns. A score is made by a difference,
// a quotient and a product with a power of two, and a place by a quotient by a power
// of two, a product that is rounded before it is added to, and a sum: all of them are
// the same on every machine.
const (
	geoSteps  = 26
	geoMaxLat = 85.05112878 // where the Mercator projection becomes a square
	geoMaxLon = 180
)

// place is a point on the earth, in degrees.
type place struct{ lon, lat float64 }

func (p place) valid() bool {
	return math.Abs(p.lon) <= geoMaxLon && math.Abs(p.lat) <= geoMaxLat
}

// interleave makes one number of two: the bits of lon are the higher ones.
func interleave(lat, lon uint32) uint64 { return spread(lat) | spread(lon)<<1 }

// spread puts a zero before each bit.
func spread(n uint32) uint64 {
	x := uint64(n)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	x = (x | x<<2) & 0x3333333333333333
	return (x | x<<1) & 0x5555555555555555
}

// gather takes every other bit, from the lowest on.
func gather(x uint64) uint32 {
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// geoCell is one of the 2^steps by 2^steps parts of the map; none has no steps.
type geoCell struct {
	bits  uint64
	steps int
}

// cellOf returns the part of the map that p lies in. maxLat is where the map ends.
// What lies on the upper end is in a part of its own beyond it.
func cellOf(p place, maxLat float64, steps int) geoCell {
	part := func(x, most float64) uint32 {
		return uint32(float64((x + most) / (most + most) * float64(uint64(1)<<steps)))
	}
	return geoCell{interleave(part(p.lat, maxLat), part(p.lon, geoMaxLon)), steps}
}

// score returns the score of a place.
func (p place) score() float64 { return float64(cellOf(p, geoMaxLat, geoSteps).bits) }

// neighbour returns the cell so many columns and rows away. The map has no ends: what
// is north of its upper end is its lower end, as in Redis.
func (c geoCell) neighbour(dx, dy int) geoCell {
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

// scores returns the scores of the places in the cell: from the first, below the
// second.
func (c geoCell) scores() (from, to float64) {
	shift := 2 * (geoSteps - c.steps)
	return float64(c.bits << shift), float64((c.bits + 1) << shift)
}

// area is a part of the map, in degrees.
type area struct{ min, max place }

// area returns what the cell covers.
func (c geoCell) area() area {
	at := func(n uint32, most float64) float64 {
		return -most + float64(float64(n)/float64(uint64(1)<<c.steps)*(most+most))
	}
	lat, lon := gather(c.bits), gather(c.bits>>1)
	return area{place{at(lon, geoMaxLon), at(lat, geoMaxLat)}, place{at(lon+1, geoMaxLon), at(lat+1, geoMaxLat)}}
}

// placeOf returns the place that a score stands for: the middle of its cell. A
// score that ZADD made may be any number.
func placeOf(score float64) place {
	a := geoCell{unsigned(score), geoSteps}.area()
	middle := func(low, high, most float64) float64 { return max(min((low+high)/2, most), -most) }
	return place{middle(a.min.lon, a.max.lon, geoMaxLon), middle(a.min.lat, a.max.lat, geoMaxLat)}
}

// unsigned is C's conversion of a double to 64 bits without a sign, as amd64 does
// it. Go leaves to the machine what becomes of numbers that do not fit.
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

// geohash is the name of a place in the alphabet of geohash.org: eleven letters of
// five bits each, of which 52 are known. The last letter is said to be 0.
func (p place) geohash() string {
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

// geoRadius is the radius of the earth in metres, as Redis has it.
const geoRadius = 6372797.560856

const radiansPerDegree = float64(math.Pi) / 180

func radians(degrees float64) float64 { return float64(degrees * radiansPerDegree) }
func degrees(radians float64) float64 { return radians / radiansPerDegree }

// latDistance returns how far two latitudes are apart, in metres.
func latDistance(a, b float64) float64 {
	return float64(geoRadius * math.Abs(radians(b)-radians(a)))
}

// distance returns the way between two places over the ground of a sphere, in
// metres, by the haversine formula, step by step as Redis has it.
func distance(a, b place) float64 {
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
