package cluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

// settingVoters names the setting of the cluster that contains the number of
// voters before the first automatic removal. The setting is "" if no automatic
// removal has happened since an operator last changed the members.
const settingVoters = "voters"

// awayRetryAfter is the minimum time between an automatic removal that failed
// and the next attempt.
const awayRetryAfter = 5 * time.Second

// removeAway removes the member that has been away for the longest time, if that
// time is at least Options.RemoveAwayAfter. It removes one member at a time.
// It does not remove a voter if fewer voters than a majority of the original
// number would remain, and it removes no member whose removal checkRemoval
// refuses.
func (ms *membership) removeAway() {
	limit := ms.cfg.Options.RemoveAwayAfter
	if limit <= 0 {
		return
	}
	now := ms.clock.Wall()
	members := ms.raft.members()
	voters := 0
	for _, m := range members {
		if m.Voter {
			voters++
		}
	}
	// The leader itself must observe the absence for the whole time, by its
	// monotonic clock, so that a jump of the wall clock removes no member.
	mono := ms.clock.Mono()
	away, longest := ms.away.Note(members, mono, func(m member.Member) bool {
		return m.ID != ms.cfg.NodeID && !ms.health.Of(m.ID).Alive
	})
	maps.DeleteFunc(ms.warned, func(id, _ string) bool { _, listed := member.Find(members, id); return !listed })
	if longest < limit || mono < ms.awayRetry {
		return
	}
	original := voters
	if n, err := strconv.Atoi(ms.membersSetting(settingVoters)); err == nil {
		original = max(original, n)
	}
	if least := original/2 + 1; away.Voter && voters-1 < least {
		ms.warnOnce(away.ID, "a member is away and stays a member: without it there would be fewer voters than a "+
			"majority of the original number", "node", away.ID, "voters", voters, "original", original)
		return
	}
	if err := ms.expelAway(away, original); err != nil {
		ms.awayRetry = ms.clock.Mono() + awayRetryAfter
		ms.warnOnce(away.ID, "a member that is away was not removed", "node", away.ID, "error", err)
		return
	}
	ms.away.Forget(away.ID)
	ms.log.Warn("removed a member that was away", "node", away.ID,
		"away_since", now.Add(-longest).UTC().Format(time.RFC3339), "limit", limit,
		"remedy", "to let it in again, move its data directory away and run: "+
			fmt.Sprintf("holdfast member add %s %s", away.ID, away.Addr))
}

// expelAway removes a member that is away. original is the number of voters
// before the first automatic removal.
func (ms *membership) expelAway(m member.Member, original int) error {
	number := strconv.Itoa(original)
	if m.Voter && ms.membersSetting(settingVoters) != number { // a retry must not make the log grow
		if err := ms.setSetting(settingVoters, number); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ms.ctx, adminTimeout)
	defer cancel()
	return ms.removeOther(ctx, adminRequest{Op: opRemove, Node: m.ID, auto: true}, &adminReply{})
}

// warnOnce logs a warning about a member that is away, unless the last warning
// about this member had the same text.
func (ms *membership) warnOnce(id, text string, fields ...any) {
	if ms.warned[id] == text {
		return
	}
	ms.warned[id] = text
	ms.log.Warn(text, fields...)
}

// operatorChanged records that an operator has changed the members: from now
// on, the current number of voters counts as the original one.
func (ms *membership) operatorChanged() {
	if ms.membersSetting(settingVoters) == "" {
		return
	}
	if err := ms.setSetting(settingVoters, ""); err != nil {
		ms.log.Warn("failed to reset the number of voters that was recorded before automatic removals", "error", err)
	}
}

// warnEven warns about an even number of voters. It does not repeat the warning
// until the number has changed. A change from 3 to 5 passes through 4, so the
// number must have been stable for a while.
func (ms *membership) warnEven() {
	voters := ms.raft.voters()
	if voters != ms.even.voters {
		ms.even.voters, ms.even.since, ms.even.warned = voters, ms.clock.Mono(), false
	}
	if voters%2 != 0 || voters == 0 || ms.even.warned || ms.clock.Mono()-ms.even.since < evenAfter {
		return
	}
	ms.even.warned = true
	ms.log.Warn(evenAdvice(voters), "voters", voters)
}

// evenAfter is how long a number of voters must last before warnEven warns.
const evenAfter = 10 * time.Second

// evenAdvice is the warning about an even number of voters.
func evenAdvice(voters int) string {
	return fmt.Sprintf("the cluster has an even number of voters: %d tolerate no more failures than %d; "+
		"add a node, or remove one", voters, voters-1)
}

// evenVoters records the number of voters that warnEven saw last, the time
// since which this number has not changed, and whether warnEven has warned
// about it.
type evenVoters struct {
	voters int
	since  time.Duration
	warned bool
}
