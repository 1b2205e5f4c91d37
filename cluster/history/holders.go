package history

import (
	"github.com/holdfast-kv/holdfast/fsm"
)

// addHolders adds the grants of the holders whose beginning the walk has not found.
// These grants began in a gap or in a part of the history that was removed, or a
// restore has brought them back, or the walk ended before it reached their beginning.
// In the last case, the grant is behind the others that were found, and the
// answer has no room for it.
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
	if !w.restored {
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
	for i := range w.found {
		if g := &w.found[i]; g.Token < token {
			return max(from, g.Acquired)
		}
	}
	return from
}
