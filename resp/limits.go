package resp

import (
	"fmt"
	"time"
)

// Limits says what one client connection may ask of the server before a Guard
// refuses it, and how long it may take. A Guard copies it when it is made, so
// that a change has no effect on connections that are open.
//
// Where Redis has such a limit too, the reply to a breach is the text of Redis
// 7.0.15; the fields name those places.
type Limits struct {
	// MaxArgs is the largest number of arguments of one command, its name
	// included. Over it: "invalid multibulk length". Redis allows 2^31-1, which
	// no command needs; the parser behind the guard spends time and memory per
	// claimed argument.
	MaxArgs int

	// MaxBulk is the largest length in bytes of one argument. Over it:
	// "invalid bulk length", as Redis answers beyond proto-max-bulk-len.
	MaxBulk int

	// MaxInline is the longest inline command, and the longest line that
	// announces a count or a length, in bytes without its line end. Over it:
	// "too big inline request", "too big mbulk count string" or "too big bulk
	// count string". Redis has 64 KiB fixed.
	MaxInline int

	// MaxCommand is the largest size in bytes of one whole command as it is on
	// the wire. It bounds the memory that a connection can pin in the guard.
	// Redis has client-query-buffer-limit instead and closes without an answer.
	MaxCommand int

	// UnauthArgs and UnauthBulk replace MaxArgs and MaxBulk until the
	// connection has authenticated. Over them: "unauthenticated multibulk
	// length" and "unauthenticated bulk length" (redis PR #9588,
	// CVE-2021-32675).
	UnauthArgs int
	UnauthBulk int

	// MaxClients is the number of connections that may be open at once. The
	// next one is told "max number of clients reached". 0: no limit.
	MaxClients int

	// MaxUnauth is how many of the MaxClients may be connections that have not
	// authenticated, so that they cannot take the places of clients that have. A
	// connection beyond it takes the place of the oldest one of the address that
	// has the most. It must leave room for all clients coming back at once after
	// a failover. 0: no limit.
	MaxUnauth int

	// MaxUnauthAddr is how many of them may come from one address. A connection
	// beyond it takes the place of the oldest one of its address. 0: no limit.
	MaxUnauthAddr int

	// UnauthRate is how many bytes a second all connections that have not
	// authenticated may send together, a command counting for 256 bytes more.
	// The first 16 KiB of each are free. While it is exceeded, each of them waits up
	// to a second before a read. 0: no limit.
	UnauthRate int

	// UnauthTotal is how long a connection may stay without authenticating. 0:
	// for ever.
	UnauthTotal time.Duration

	// HandshakeTimeout is how long a connection that has not authenticated may
	// take from its first Read until its first whole command. 0: for ever.
	HandshakeTimeout time.Duration

	// UnauthIdle is how long a connection that has not authenticated may stay
	// silent between two commands after the first. It is long enough for a
	// person who types AUTH into redis-cli. 0: for ever.
	UnauthIdle time.Duration

	// CommandTimeout is how long the rest of a command may take once its
	// first bytes are here, whoever sends it. 0: for ever.
	CommandTimeout time.Duration

	// WriteTimeout is how long a peer may leave replies unread: every Write, and
	// every further MiB of a large one, must be taken by the socket within it.
	// A connection that misses it is closed. 0: for ever.
	WriteTimeout time.Duration

	// PushHard and PushSoft bound, in bytes, what may wait for a connection that
	// has subscribed or tracks keys: it is closed when more than PushHard waits,
	// or more than PushSoft for longer than PushSoftTime. They are Redis'
	// client-output-buffer-limit of pubsub. 0: no limit.
	PushHard, PushSoft int
	PushSoftTime       time.Duration
}

// DefaultLimits returns the limits that the server ships with.
func DefaultLimits() Limits {
	return Limits{
		MaxArgs:          1024 * 1024,
		MaxBulk:          1 << 20,
		MaxInline:        64 << 10,
		MaxCommand:       8 << 20,
		UnauthArgs:       10,
		UnauthBulk:       16 << 10,
		MaxClients:       10000,
		MaxUnauth:        5000,
		MaxUnauthAddr:    1000,
		UnauthRate:       1 << 20,
		UnauthTotal:      2 * time.Minute,
		HandshakeTimeout: 5 * time.Second,
		UnauthIdle:       time.Minute,
		CommandTimeout:   10 * time.Second,
		WriteTimeout:     10 * time.Second,
		PushHard:         32 << 20,
		PushSoft:         8 << 20,
		PushSoftTime:     time.Minute,
	}
}

// limitsMaxBulk is the largest MaxBulk and MaxCommand that Validate accepts:
// the default proto-max-bulk-len of Redis, far below any integer overflow in
// the parser behind the guard.
const limitsMaxBulk = 512 << 20

// Validate returns an error that names the first field whose value cannot work.
func (l Limits) Validate() error {
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{
		{"MaxArgs", l.MaxArgs, 1, 1024 * 1024},
		{"MaxBulk", l.MaxBulk, 1, limitsMaxBulk},
		{"MaxInline", l.MaxInline, 32, limitsMaxBulk},
		{"MaxCommand", l.MaxCommand, l.MaxInline, limitsMaxBulk},
		{"UnauthArgs", l.UnauthArgs, 1, l.MaxArgs},
		{"UnauthBulk", l.UnauthBulk, 1, l.MaxBulk},
		{"PushHard", l.PushHard, 0, int(^uint(0) >> 1)},
		{"PushSoft", l.PushSoft, 0, int(^uint(0) >> 1)},
		{"MaxClients", l.MaxClients, 0, int(^uint(0) >> 1)},
		{"MaxUnauth", l.MaxUnauth, 0, int(^uint(0) >> 1)},
		{"MaxUnauthAddr", l.MaxUnauthAddr, 0, int(^uint(0) >> 1)},
		{"UnauthRate", l.UnauthRate, 0, int(^uint(0) >> 1)},
	} {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("limits: %s is %d, want %d to %d", f.name, f.value, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"HandshakeTimeout", l.HandshakeTimeout},
		{"UnauthIdle", l.UnauthIdle},
		{"UnauthTotal", l.UnauthTotal},
		{"CommandTimeout", l.CommandTimeout},
		{"WriteTimeout", l.WriteTimeout},
		{"PushSoftTime", l.PushSoftTime},
	} {
		if f.value < 0 {
			return fmt.Errorf("limits: %s is %v, want 0 or more", f.name, f.value)
		}
	}
	return nil
}
