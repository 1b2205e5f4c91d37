package migrate

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// item is a key of the source with its value.
type item struct {
	db  int
	key string
	// payload is the value in the format of DUMP, nil if reason is set.
	payload []byte
	life    lifetime
	// reason says why the key cannot be imported. It is "" if the key can be
	// imported.
	reason string
}

// lifetime says whether a key expires, and when.
type lifetime struct {
	volatile bool
	// unixMs is the end of the lifetime in Unix milliseconds, by the wall clock
	// of the source, as an RDB file contains it. It is 0 for a running server,
	// which sends the remaining time instead.
	unixMs int64
	// If unixMs is 0, end is the end of the lifetime by the monotonic clock of this
	// process.
	end time.Time
}

// at returns the end of the lifetime in Unix milliseconds by the wall clock of the
// target, 0 if the key does not expire.
func (l lifetime) at(c targetClock) int64 {
	switch {
	case !l.volatile:
		return 0
	case l.unixMs != 0:
		return max(l.unixMs, 1)
	}
	return max(c.unixMs+int64((l.end.Sub(c.asked)+time.Millisecond-1)/time.Millisecond), 1)
}

// targetClock relates the wall clock of the target to the monotonic clock of this
// process.
type targetClock struct {
	unixMs int64
	asked  time.Time // time at which this process asked for unixMs, before the target read its clock
}

// now returns the time of the target's wall clock, in Unix milliseconds. The
// result may be too high, by at most a millisecond more than the time between
// asked and the moment at which the target read its clock.
func (c targetClock) now() int64 { return c.unixMs + time.Since(c.asked).Milliseconds() }

// lastType is the last type of a value in the RDB format of Redis 7.0. Newer
// versions of the format did not change the types up to this one.
const lastType = 19

// repack returns the payload of DUMP with the trailer of Redis 7.0, or the reason
// why the target cannot read it.
func repack(payload []byte) (repacked []byte, reason string) {
	n := len(payload) - rdb.TrailerSize
	if n < 1 {
		return nil, "the source sent a damaged value"
	}
	if rdb.Checksum(0, payload[:n+2]) != binary.LittleEndian.Uint64(payload[n+2:]) {
		return nil, "the source sent a value with a wrong checksum"
	}
	if reason := unsupported(payload[0]); reason != "" {
		return nil, reason
	}
	return rdb.Seal(payload[:n:n]), ""
}

// unsupported returns the reason why values of the given type of the RDB format
// cannot be imported, or "" if they can.
func unsupported(kind byte) string {
	switch {
	case kind == typeModuleOld, kind == typeModule:
		return "the value belongs to a module of Redis"
	case kind > lastType:
		return fmt.Sprintf("the value has type %d, which only versions of Redis newer than 7.0 write", kind)
	}
	return ""
}
