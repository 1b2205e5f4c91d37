package fsm

import (
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// A fencing token is a number that the machine assigns to a key with each new
// value. From FeatureOperate on, tokens come from one counter, so each token is
// higher than all tokens that any key got before.
//
// The counter has 53 bits in all, which JavaScript and Lua represent exactly.
// Its high bits, from tokenEpochBits on, are the epoch. In a new cluster, the
// counter begins at the log position of the first TermStart, so the epoch is
// close to 0. A restore or a recovery raises the epoch to the wall clock, in
// seconds since tokenEpochZero, and always above the epoch of the data. So no
// token equals a token of the lost cluster, even if the lost cluster was itself
// restored from the same backup:
//
//   - A cluster that assigns fewer than 2^21 tokens per second, on average,
//     never counts beyond the epoch that a later restore sets. No cluster comes
//     near that number.
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
	// granted, 0 if there is no quarantine: see quarantine.go.
	quarantine int64
	// restored is the log index of the last restore, 0 if there was none. A
	// restore may move the lease clock forward. So an entry that the leader built
	// before it had applied the restore may have a time before the lease clock.
	restored uint64
	locks    locks    // from FeatureLocks on: see lock.go
	staging  *staging // restore in progress, nil if there is none; replaced, never changed
}

// Token returns the highest fencing token that the cluster has given.
func (m *Machine) Token() uint64 {
	if m.features < FeatureOperate {
		return uint64(keyspace.MakePos(m.applied+1, 0))
	}
	return m.token
}

// TokenEpoch returns the epoch of a fencing token.
func TokenEpoch(token uint64) uint64 { return token >> tokenEpochBits }

// nextToken returns the fencing token for a key that is given a value now.
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
