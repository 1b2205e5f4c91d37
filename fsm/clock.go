package fsm

import "math"

// Clock is the machine's time. All of it comes from the log.
//
// Lease is the lease clock: nanoseconds since the cluster was formed. It is the
// only source of expiry. It never goes back, and it stops while no leader
// appends entries. (Chubby stops its session timers in the same case.) Wall is
// the wall clock of the leader that stamped the last entry, in microseconds
// since 1970. It may jump, and only commands with absolute times use it.
type Clock struct {
	Lease int64
	Wall  int64
}

// advance sets the clock to the stamp of an entry. A stamp behind the lease
// clock leaves the lease clock unchanged and is reported as backwards. It
// cannot occur as long as only one leader at a time stamps entries.
func (c *Clock) advance(h Header) (backwards bool) {
	c.Wall = h.Wall
	if h.Stamp < c.Lease {
		return true
	}
	c.Lease = h.Stamp
	return false
}

// never is the deadline of a key whose time to live does not fit into an int64
// of nanoseconds (292 years). The key does not expire, and its TTL is computed
// from the wall clock.
const never = math.MaxInt64

// deadlineIn returns the deadline that is ttl milliseconds after now, on the
// lease clock.
func deadlineIn(now, ttl int64) int64 {
	if ttl > (never-now)/1e6 {
		return never
	}
	return now + ttl*1e6
}
