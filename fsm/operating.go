package fsm

import (
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// A fencing token is a number that the machine assigns to a key with each new
// value, and to each holder of a lock. From FeatureOperate on, tokens come from one
// counter, so each new token is higher than all tokens before it. From FeatureLocks
// on, a value that is written again may keep its token: see keepsGrant.
//
// The counter has 53 bits in all, which JavaScript and Lua represent exactly.
// Its high bits, from tokenEpochBits on, are the epoch. In a new cluster, the
// counter begins at the log position of the first TermStart, so the epoch is
// close to 0. A restore or a recovery raises the epoch to the wall clock, in
// seconds since tokenEpochZero, and always above the epoch of the data. So no new
// token equals a token of the lost cluster, even if the lost cluster was itself
// restored from the same backup. This has one condition and one exception:
//
//   - The lost cluster must have assigned fewer than 2^21 tokens per second, on
//     average. Then it has not counted beyond the epoch that a later restore
//     sets. No cluster comes near that number.
//   - If the wall clock is wrong, the epoch is still above the epoch of the
//     backup. Then only two restores of the same backup could give the same
//     tokens.
//
// Below FeatureOperate, the token of a key is the log position of its value.
const (
	tokenEpochBits = 21
	// tokenEpochZero is 2020-01-01 UTC, in seconds since 1970. With 32 bits, the
	// epoch lasts until 2156.
	tokenEpochZero = 1577836800
	// MaxToken is the highest fencing token.
	MaxToken = 1<<53 - 1
)

// TokenEpochAt returns the token epoch that belongs to a wall clock time, in
// seconds since 1970.
func TokenEpochAt(unix int64) uint64 { return uint64(max(unix-tokenEpochZero, 0)) }

// operating is the part of the state that FeatureOperate and FeatureLocks added.
type operating struct {
	token uint64 // highest fencing token that was given
	// quarantine is the lease clock, in nanoseconds, until which no lock is
	// granted, 0 if there is no quarantine: see Quarantined.
	quarantine int64
	// restored is the log index of the last restore, 0 if there was none. A
	// restore may move the lease clock forward. So an entry that the leader built
	// before it had applied the restore may have a stamp before the lease clock.
	restored uint64
	locks    locks    // from FeatureLocks on: see lock.go
	staging  *staging // restore in progress, nil if there is none; replaced, never changed
}

// Token returns the highest fencing token that the cluster has given. Below
// FeatureOperate, it returns a number above all tokens.
func (m *Machine) Token() uint64 {
	if m.features < FeatureOperate {
		return uint64(keyspace.MakePos(m.applied+1, 0))
	}
	return m.token
}

// TokenEpoch returns the epoch of a fencing token.
func TokenEpoch(token uint64) uint64 { return token >> tokenEpochBits }

// nextToken returns the fencing token for the value or the holder that the current
// operation adds.
func (c *Ctx) nextToken() Pos {
	if c.m.features < FeatureOperate {
		return c.pos
	}
	c.m.token++
	return Pos(c.m.token)
}

// startTokens begins the counter of tokens above all tokens that were log
// positions.
func (m *Machine) startTokens(pos Pos) { m.token = max(m.token, uint64(pos)) }

// raiseEpoch makes the next token higher than any token that the lost cluster
// can have given. lost is the highest token in the data of the lost cluster.
// epoch is the epoch of the wall clock.
func (m *Machine) raiseEpoch(lost, epoch uint64) error {
	next := max(TokenEpoch(max(lost, m.token))+1, epoch)
	if next > TokenEpoch(MaxToken) {
		return fmt.Errorf("token epoch %d is too high", next)
	}
	m.token = next << tokenEpochBits
	return nil
}

// After a restore or a recovery, it is unknown which locks the lost cluster
// granted after the backup. Their owners may still rely on these locks. So the
// cluster grants no new lock during the quarantine. Its length should be chosen so
// that the locks of the lost cluster have expired when it ends: see
// DefaultQuarantine.
//
// These commands count as granting a lock, and fail during the quarantine:
//
//   - SET with NX, SETNX, HSETNX, MSETNX, and (from FeatureDeferred on) MSETEX
//     with NX, if they would create the key.
//   - GETSET, with which some clients take over a lock.
//   - LOCK ACQUIRE, if it would grant the lock or wait for it.
//   - A write of a script or function that would create a string or a hash with
//     one of the commands in createsLock.
//   - A native script that takes a lock, if one of its keys is absent.
//
// All other commands run: reads, deletes, renewals and releases, and SET without
// NX, which no client uses to take a lock.

const (
	nanosPerSecond = int64(1e9)
	nanosPerHour   = 3600 * nanosPerSecond

	// MaxQuarantine is the longest quarantine, in nanoseconds.
	MaxQuarantine = 24 * nanosPerHour
)

// createsLock are the commands with which a script may take a lock. The value is
// the feature version from which a command counts.
var createsLock = map[string]int{
	"set": 0, "setex": 0, "psetex": 0, "setnx": 0, "mset": 0, "msetnx": 0, "msetex": FeatureDeferred,
	"hset": 0, "hmset": 0, "hsetnx": 0, "hincrby": 0, "hincrbyfloat": 0,
}

// createsLock reports whether a script may take a lock with a command.
func (c *Ctx) createsLock(cmd *Command) bool {
	from, creates := createsLock[cmd.Name]
	return creates && c.m.features >= from
}

// lockScripts are the native scripts that take a lock if their keys are absent.
// They include scripts that extend a lock, if these scripts set an absent key.
var lockScripts = func() map[string]bool {
	set := make(map[string]bool)
	for _, sha := range []string{
		"b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", // redsync, extend
		"9f614a785a5f9ae8c6396c6b4bf94d2087342603", // RedLock.net, extend
		"175897a4e379e99e79a54937be09226f76cdcfe5", // Spring
		"80a1b5f2cfccec3b7119ba7721d2127682b691a7", // bsm/redislock
		"96da70f7716f27d278a5218544df37fd8b0a5e4c", // node-redlock 5
		"e5a322e2634ef59a516e8ea150cb085afafee684", // node-redlock 4
		"ceb2b2062e40c51a2b3963fd078bc71f11bdc65c", // redlock-rb
		"a08c9c69b7c07ae2485190873b90d128a23e502d", // Laravel
		"fa3d1aaa7e4145457755016a3d5daf72fa7a11bf", // rueidislock
		"3875d208d9e377969d2022550302cc83ad17b584", // rueidislock
		"4384ed08baff4dd7071b6c78c516a2fded4ee3e7", // rueidislock
		"c10e8119872659b926e8e28002d9b7fccbf15617", // rueidislock
		"149c5a8bf18676fd99e9e6e24923bd64d9b62f94", // Redisson
	} {
		set[sha] = true
	}
	return set
}()

// Quarantine returns the lease clock, in nanoseconds, at which the quarantine
// ends, 0 if there is none.
func (m *Machine) Quarantine() int64 { return m.quarantine }

// endQuarantine ends the quarantine if the lease clock has reached its end.
func (m *Machine) endQuarantine() (ended bool) {
	if m.quarantine == 0 || m.clock.Lease < m.quarantine {
		return false
	}
	m.quarantine = 0
	return true
}

// Quarantined returns the error of a command that would grant a lock, None
// outside a quarantine.
func (c *Ctx) Quarantined() Reply {
	if c.m.quarantine == 0 || c.now >= c.m.quarantine {
		return None
	}
	left := c.m.quarantine - c.now
	end := (c.wall*1e3 + left + nanosPerSecond - 1) / nanosPerSecond
	return Error(fmt.Sprintf("QUARANTINE no lock is granted until %s (for another %d s), because the data was "+
		"restored and locks that were granted after the backup may still be held",
		utc(end), (left+nanosPerSecond-1)/nanosPerSecond))
}

// utc formats a Unix time in seconds, at least 0, as RFC 3339 does. This package
// does not import time. The date is computed as in Howard Hinnant's
// civil_from_days.
func utc(unix int64) string {
	days, second := unix/86400, unix%86400
	z := days + 719468
	era, doe := z/146097, z%146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day, month, year := doy-(153*mp+2)/5+1, mp+3, yoe+400*era
	if month > 12 {
		month, year = month-12, year+1
	}
	return fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", year, month, day, second/3600, second/60%60, second%60)
}

// quarantinedCall is like Quarantined, for a write command of a script.
func (c *Ctx) quarantinedCall(cmd *Command, args [][]byte) Reply {
	if c.m.quarantine == 0 || !c.createsLock(cmd) {
		return None
	}
	for _, i := range cmd.KeyPositions(args) {
		if c.Lookup(args[i]) == nil {
			return c.Quarantined()
		}
	}
	return None
}

// quarantinedScript is like Quarantined, for a native script.
func (c *Ctx) quarantinedScript(sha string, keys [][]byte) Reply {
	if c.m.quarantine == 0 || !lockScripts[sha] {
		return None
	}
	for _, key := range keys {
		if c.Lookup(key) == nil {
			return c.Quarantined()
		}
	}
	return None
}
