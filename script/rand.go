package script

// Rand is the generator of drand48, which Redis uses for math.random. The same
// seed gives a script the same numbers as in Redis.
type Rand struct{ x uint64 }

// Seed restarts the generator with a seed.
func (r *Rand) Seed(seed int32) { r.x = uint64(uint32(seed))<<16 | 0x330e }

// next returns 31 random bits.
func (r *Rand) next() uint32 {
	r.x = (r.x*0x5deece66d + 0xb) & (1<<48 - 1)
	return uint32(r.x >> 17)
}

// float returns a number in [0, 1).
func (r *Rand) float() float64 {
	const most = 1<<31 - 1
	return float64(r.next()%most) / most
}
