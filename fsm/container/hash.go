package container

// HashBits is the number of bits of a Hash.
const HashBits = 52

// Hash returns the hash of a key or of a name: FNV-1a with a final mix, cut to
// 52 bits so that clients and Lua can hold a cursor in a double without loss.
// The hash is never 0, because 0 is the first cursor. Snapshots do not contain
// the hashes, but depend on the function: they contain the keys in the order of
// their hashes, and sums of the versions of removed keys, in buckets that the
// hashes select.
func Hash(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = Mix(h) >> (64 - HashBits)
	if h == 0 {
		return 1
	}
	return h
}

// Mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
