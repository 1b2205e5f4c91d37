package fsm

import "math"

// Clock is the machine's time, all of it from the log.
//
// Lease is the lease clock: nanoseconds since the cluster's birth, the only
// source of expiry. It never goes back and stands still while no leader writes
// (Chubby stops its session timers in the same case). Wall is the wall clock
// of the leader that stamped the last entry, in microseconds since 1970: it
// may jump, and serves only the commands that speak of absolute time.
type Clock struct {
	Lease int64
	Wall  int64
}

// advance moves the clock to an entry's stamp. A stamp behind the clock leaves
// the lease clock where it is; it cannot happen while one leader at a time
// stamps, so it is reported.
func (c *Clock) advance(h Header) (backwards bool) {
	c.Wall = h.Wall
	if h.Stamp < c.Lease {
		return true
	}
	c.Lease = h.Stamp
	return false
}

// never is the deadline of a key whose time to live does not fit an int64 of
// nanoseconds (292 years): it does not expire, and its TTL is reported from
// the wall clock.
const never = math.MaxInt64

// deadlineIn returns the lease-clock deadline ttl milliseconds from now.
func deadlineIn(now, ttl int64) int64 {
	if ttl > (never-now)/1e6 {
		return never
	}
	return now + ttl*1e6
}
