package pubsub

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// The matching of channels against the patterns of subscribers is charged in steps
// of a few nanoseconds each. All patterns of a node together have a budget of
// Config.PatternSteps steps per second, and of two fifths of that number at once.
// When the budget is used up, the node closes the connection whose patterns took
// the most steps in the current second, if they took at least a fiftieth of
// Config.PatternSteps. This keeps that connection from delaying the messages of
// other clients. If many connections take fewer steps each, the budget is not
// enforced.
const (
	// matchSlice is the number of steps between two reads of the clock. That
	// many steps take less than yield.Every.
	matchSlice = 1 << 14
)

// matchBudget is the budget of a node for matching. It is safe for concurrent
// use.
type matchBudget struct {
	now   func() time.Time
	rate  int64         // steps per second; 0 for no limit
	spent atomic.Uint64 // total since the start
	// pending is the number of steps that have not been subtracted from left
	// yet.
	pending atomic.Int64
	epoch   atomic.Uint32 // number of the current second of the budget; seconds without matching are not counted

	mu    sync.Mutex
	left  int64
	at    time.Time // time at which left was computed
	began time.Time // start of the epoch
	// heavy contains the connections that took at least share steps in the
	// current epoch.
	heavy []*Subscriber
}

// burst returns the number of steps that may be taken at once.
func (b *matchBudget) burst() int64 { return b.rate / 5 * 2 }

// share returns the number of steps that a connection must take in an epoch to
// be added to heavy.
func (b *matchBudget) share() uint64 { return uint64(b.rate / 50) }

// spend takes n steps from the budget. It reports whether the budget is used
// up.
func (b *matchBudget) spend(n int) (empty bool) {
	b.spent.Add(uint64(n))
	if b.rate == 0 {
		return false
	}
	if b.pending.Add(int64(n)) < matchSlice {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.now()
	if b.at.IsZero() {
		b.left, b.began = b.burst(), t
	} else if passed := t.Sub(b.at); passed > 0 {
		b.left = min(b.left+int64(min(passed, time.Second))*b.rate/int64(time.Second), b.burst())
	}
	b.at = t
	if t.Sub(b.began) >= time.Second {
		b.began, b.heavy = t, nil
		b.epoch.Add(1)
	}
	// At most matchSlice steps beyond the budget are carried over, so an excess
	// hardly reduces the later budget.
	b.left = max(b.left-b.pending.Swap(0), -matchSlice)
	return b.left < 0
}

func (b *matchBudget) addHeavy(c *Subscriber) {
	b.mu.Lock()
	b.heavy = append(b.heavy, c)
	b.mu.Unlock()
}

// heaviest returns the connection that took the most steps in the epoch. It leaves
// out connections that are being closed or that took less than share steps, and
// returns nil if there is no other.
func (b *matchBudget) heaviest() (worst *Subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.share() - 1
	for _, c := range b.heavy {
		if steps := c.matching.steps(b.epoch.Load()); steps > most && !c.conn.Closing() {
			worst, most = c, steps
		}
	}
	return worst
}

// matchAccount counts the steps of a connection's patterns. It packs the epoch
// and the steps in that epoch into one word.
type matchAccount struct{ v atomic.Uint64 }

const accountBits = 40 // the low bits contain the steps

// charge adds n steps. It reports whether this call has raised the steps of the
// epoch to at least the number share.
func (a *matchAccount) charge(epoch uint32, n int, share uint64) (heavy bool) {
	for {
		old, before := a.v.Load(), uint64(0)
		if uint32(old>>accountBits) == epoch&(1<<(64-accountBits)-1) {
			before = old & (1<<accountBits - 1)
		}
		steps := min(before+uint64(n), 1<<accountBits-1)
		if a.v.CompareAndSwap(old, uint64(epoch)<<accountBits|steps) {
			return before < share && steps >= share
		}
	}
}

// steps returns the steps that were charged in an epoch.
func (a *matchAccount) steps(epoch uint32) uint64 {
	v := a.v.Load()
	if uint32(v>>accountBits) != epoch&(1<<(64-accountBits)-1) {
		return 0
	}
	return v & (1<<accountBits - 1)
}

// match returns the patterns of lists that match a channel, in the order in
// which they were subscribed to. The caller must not hold h.mu.
func (h *Hub) match(lists [][]*topic, channel string) (found []*topic) {
	// payer is the connection to which the last n steps are charged.
	var payer *Subscriber
	n, slice := 0, 0
	var pace yield.Pace
	settle := func() {
		if payer != nil && n > 0 {
			if h.budget.rate > 0 && payer.matching.charge(h.budget.epoch.Load(), n, h.budget.share()) {
				h.budget.addHeavy(payer)
			}
		}
		slice += n
		n = 0
	}
	for _, list := range lists {
		for _, t := range list {
			if t.gone.Load() {
				continue
			}
			p := t.payer.Load()
			if p == nil || p.conn.Closing() {
				h.mu.RLock()
				p = t.choosePayer()
				h.mu.RUnlock()
				if p == nil { // all subscribers are about to be closed
					n++
					continue
				}
			}
			if p != payer {
				settle()
				payer = p
			}
			ok, steps := t.pattern.Match(channel)
			if ok {
				found = append(found, t)
			}
			if n += steps; slice+n >= matchSlice {
				settle()
				h.spend(slice)
				slice = 0
				pace.Check()
			}
		}
	}
	settle()
	h.spend(slice)
	if len(lists) > 1 {
		slices.SortFunc(found, func(a, b *topic) int { return cmp.Compare(a.seq, b.seq) })
	}
	return found
}

// spend takes n steps of matching from the node's budget. If the budget is used
// up, it closes the connection whose patterns took the most steps.
func (h *Hub) spend(n int) {
	if n == 0 || !h.budget.spend(n) {
		return
	}
	if c := h.budget.heaviest(); c != nil {
		h.cfg.Refused()
		c.conn.CutOff("its patterns took too many matching steps")
	}
}
