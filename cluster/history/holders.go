package history

import (
	"cmp"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm"
)

// addHolders adds the grants of the holders whose beginning the walk has not found.
// It is called at the newest restore and when the walk is complete. These grants
// began in a gap or in a part of the history that was removed, or a restore has
// brought them back. Or the walk ended because the answer has no room for them.
func (w *walk) addHolders() {
	var more []Grant
	for _, h := range w.holders {
		g := w.holderGrant(h)
		from := g.Acquired
		if !g.Known {
			from = w.earliest(h.Token)
		}
		if from <= w.query.To {
			more = append(more, g)
		}
	}
	w.merge(more)
}

// holderGrant describes the grant of a holder. Its beginning is known only if LOCK
// ACQUIRE made the grant.
func (w *walk) holderGrant(h *fsm.LockHolder) Grant {
	owner := h.Owner[:min(len(h.Owner), maxText)] // as in the history
	g := Grant{Token: h.Token, Owner: owner, Shared: h.Shared, Limit: h.Limit, How: StillHeld, Held: -1}
	if h.Grant == nil {
		return g
	}
	g.Known, g.LockClient, g.Meta = true, h.Grant.LockClient, h.Grant.Meta
	g.Acquired, g.Waited, g.Renewals = h.Grant.Wall, h.Grant.Waited, h.Grant.Renewals
	if !w.restored { // a restore may have moved the lease clock
		g.Held = max(w.state.Clock.Lease-h.Grant.Lease, 0)
	}
	return g
}

// earliest returns the earliest time at which a grant can have begun whose beginning
// the walk has not found: in a gap, and after the grants with lower tokens. It returns
// 0 if the beginning may have been removed, or came with a backup.
func (w *walk) earliest(token fsm.Pos) int64 {
	if w.removed || w.restored {
		return 0
	}
	from := w.gapBegin
	// Without a restore, the grants in the answer are in the order of their tokens.
	at, _ := slices.BinarySearchFunc(w.found, token, func(g Grant, t fsm.Pos) int { return cmp.Compare(t, g.Token) })
	if at < len(w.found) {
		from = max(from, w.found[at].Acquired)
	}
	return from
}
