package guard

import (
	"fmt"
	"time"
)

// Limits are the limits of a client connection. This package enforces them,
// except the limits on messages, subscriptions, blocking commands and client
// memory. A Listener copies them when it is created, so a change does not affect
// open connections.
//
// Where Redis has the same limit, the error is the text of Redis 7.0.15. The
// comment of each such field quotes the error.
type Limits struct {
	// MaxArgs is the maximum number of arguments of one command, including its
	// name. The error is "invalid multibulk length". Redis allows 2^31-1, which
	// no command needs. redcon spends time and memory for each announced
	// argument.
	MaxArgs int

	// MaxBulk is the maximum length in bytes of one argument. The error is
	// "invalid bulk length", as in Redis beyond proto-max-bulk-len.
	MaxBulk int

	// MaxInline is the maximum length in bytes of an inline command and of a
	// line that announces a count or a length, without its line end. The error
	// is "too big inline request", "too big mbulk count string" or "too big
	// bulk count string". In Redis, the limit is always 64 KiB.
	MaxInline int

	// MaxCommand is the maximum size in bytes of one complete command as it is
	// sent. It bounds the memory of the guard for one connection. Redis has
	// client-query-buffer-limit instead, and closes the connection without an
	// error.
	MaxCommand int

	// UnauthArgs and UnauthBulk replace MaxArgs and MaxBulk until the
	// connection has authenticated. The errors are "unauthenticated multibulk
	// length" and "unauthenticated bulk length" (redis PR #9588,
	// CVE-2021-32675).
	UnauthArgs int
	UnauthBulk int

	// MaxClients is the maximum number of open connections. A connection beyond
	// this limit receives "max number of clients reached" and is closed. 0: no
	// limit.
	MaxClients int

	// MaxUnauth is the maximum number of connections among MaxClients that have not
	// authenticated. Without this limit, clients that do not log in could displace
	// clients that have logged in. When the limit is exceeded, the node finds the
	// address with the most such connections and closes the oldest of them. The
	// limit must leave room for all clients that reconnect at once after a
	// failover. 0: no limit.
	MaxUnauth int

	// MaxUnauthAddr is the maximum number of unauthenticated connections from one
	// address. When a new connection exceeds the limit, the oldest of these
	// connections from the same address is closed. 0: no limit.
	MaxUnauthAddr int

	// UnauthRate is the number of bytes per second that all unauthenticated
	// connections may send together. A command counts as 256 additional bytes.
	// The first 16 KiB of each connection are free. While the rate is exceeded,
	// the node delays each of the connections, by up to a second at a time. 0: no
	// limit.
	UnauthRate int

	// UnauthTotal is how long a connection may stay unauthenticated. 0: no
	// limit.
	UnauthTotal time.Duration

	// HandshakeTimeout is how long an unauthenticated connection may take from
	// its first Read until its first complete command. 0: no limit.
	HandshakeTimeout time.Duration

	// UnauthIdle is how long an unauthenticated connection may take from a complete
	// command until its next complete command. It is long enough for a person who
	// types AUTH into redis-cli. 0: no limit.
	UnauthIdle time.Duration

	// CommandTimeout is how long the rest of a command may take after its first
	// bytes, on any connection. 0: no limit.
	CommandTimeout time.Duration

	// WriteTimeout is how long a client may leave replies unread. The socket
	// must accept every Write, and every further 256 KiB of a large reply,
	// within this time. Otherwise the connection is closed. 0: no limit.
	WriteTimeout time.Duration

	// PushHard and PushSoft bound the bytes of messages that wait for a
	// connection that subscribes, tracks keys or uses MONITOR. The connection is
	// closed when more than PushHard bytes wait, or when more than PushSoft bytes
	// have been waiting for PushSoftTime. The limits correspond to the pubsub
	// limits of Redis' client-output-buffer-limit. 0: no limit.
	PushHard, PushSoft int
	PushSoftTime       time.Duration

	// MaxTopics is the maximum number of channels, patterns and shard channels
	// together to which one connection may subscribe. MaxPatterns is the
	// maximum number of patterns, and of prefixes of CLIENT TRACKING. Redis has
	// no such limits. 0: no limit.
	MaxTopics, MaxPatterns int

	// PatternSteps bounds the steps per second for matching channels against the
	// patterns of all subscribers together. Beyond the limit, the connection whose
	// patterns take the most steps is closed. 0: no limit.
	PatternSteps int

	// MaxBlocked is the maximum number of connections whose blocking commands
	// wait. 0: no limit except those of package fsm.
	MaxBlocked int

	// FailedLogins is the number of logins of one user that may fail from one
	// address before further logins wait. Five times as many may fail for all
	// users of an address together. A count begins again after a minute without a
	// failure.
	FailedLogins int

	// SubscriptionBytes bounds an estimate of the memory of the subscriptions
	// and prefixes of all connections. 0: no limit.
	SubscriptionBytes int

	// ClientMemory bounds the bytes that all connections together occupy on the
	// node: replies and messages that clients have not read, incomplete commands,
	// input that is read ahead, and queued transactions. Amounts below 64 KiB are
	// free, but all messages count. Beyond the limit, a large reply waits for room,
	// and the node closes connections: first those whose clients neither read nor
	// send, and among them the ones that occupy the most. ClientMemory corresponds
	// to Redis' maxmemory-clients. 0: an eighth of the memory that the process may
	// use, or 256 MiB if that is more.
	ClientMemory int64
}

// DefaultLimits returns the default limits of the server.
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

		MaxTopics:         100_000,
		MaxPatterns:       10_000,
		PatternSteps:      50_000_000,
		FailedLogins:      20,
		SubscriptionBytes: 256 << 20,
	}
}

// limitsMaxBulk is the maximum of MaxBulk, MaxInline and MaxCommand that Validate
// accepts. It is Redis' default of proto-max-bulk-len, and far below any integer
// overflow in redcon.
const limitsMaxBulk = 512 << 20

// MinPatternSteps and MaxPatternSteps bound PatternSteps. Matching is charged in
// slices of up to 2^14 steps, so a limit below MinPatternSteps would not be exact.
// With a limit far above MaxPatternSteps, the number of steps times a second in
// nanoseconds would not fit into 64 bits.
const (
	MinPatternSteps = 1_000_000
	MaxPatternSteps = 1 << 32
)

// Validate returns an error that names the first field with an invalid value,
// or nil.
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
		{"MaxTopics", l.MaxTopics, 0, int(^uint(0) >> 1)},
		{"MaxPatterns", l.MaxPatterns, 0, int(^uint(0) >> 1)},
		{"SubscriptionBytes", l.SubscriptionBytes, 0, int(^uint(0) >> 1)},
		{"MaxClients", l.MaxClients, 0, int(^uint(0) >> 1)},
		{"MaxUnauth", l.MaxUnauth, 0, int(^uint(0) >> 1)},
		{"MaxUnauthAddr", l.MaxUnauthAddr, 0, int(^uint(0) >> 1)},
		{"UnauthRate", l.UnauthRate, 0, int(^uint(0) >> 1)},
		{"PatternSteps", l.PatternSteps, 0, MaxPatternSteps},
		{"MaxBlocked", l.MaxBlocked, 0, int(^uint(0) >> 1)},
		{"FailedLogins", l.FailedLogins, 1, 1 << 30},
	} {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("limits: %s is %d, want %d to %d", f.name, f.value, f.lo, f.hi)
		}
	}
	if n := l.PatternSteps; n > 0 && n < MinPatternSteps {
		return fmt.Errorf("limits: PatternSteps is %d, want 0 or at least %d", n, MinPatternSteps)
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
