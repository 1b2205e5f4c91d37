package acl

import (
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm/glob"
)

// A check may take checkSteps steps, and argSteps more for each argument of the
// command. So a user with a few hundred patterns that begin with different
// texts may use any number of keys. A step takes a few nanoseconds.
const (
	checkSteps = 2 << 20
	argSteps   = 512
	// matchSlice is the number of steps between two reads of the clock. These
	// steps take less time than yield.Every.
	matchSlice = 1 << 14
)

// matching is the budget of one check. Matching a pattern with several * may
// take as many steps as the product of its length and the length of the key. A
// user may have thousands of such patterns. When the steps are used up, no
// further pattern matches, so the command is denied.
type matching struct {
	left int // steps that are left, or negative if the check needed more
	// spent is set if a pattern was not compared, or only in part, because the
	// budget was used up.
	spent bool

	// yields is set if the goroutine holds no lock. Then it may yield every
	// matchSlice steps.
	yields bool
	slice  int
	pace   yield.Pace

	listed bool // keys is set
	keys   []keyUse
}

// keyUse is a key among the arguments of a command, and the access to it that
// the command needs.
type keyUse struct {
	pos  int
	need access
}

func newMatching(args int) *matching { return &matching{left: checkSteps + args*argSteps} }

// spend takes n steps from the budget.
func (m *matching) spend(n int) {
	m.left -= n
	if m.slice += n; m.slice >= matchSlice {
		m.slice = 0
		if m.yields {
			m.pace.Check()
		}
	}
}

// match reports whether s matches a pattern. The caller has taken one step for
// this call from the budget.
func (m *matching) match(p *glob.Pattern, s string) bool {
	if m.left < 0 {
		m.spent = true
		return false
	}
	// The literal prefix excludes most patterns, which saves a full match.
	prefix := p.Prefix()
	m.spend(len(prefix) / 16)
	if !strings.HasPrefix(s, prefix) {
		return false
	}
	ok, steps, spent := p.MatchWithin(s, m.left)
	m.spend(steps)
	m.spent = m.spent || spent
	return ok
}

// denial returns DeniedSteps if a key or channel is denied because the budget
// is used up. Otherwise, it returns r.
func (m *matching) denial(r Reason) Reason {
	if m.spent || m.left < 0 {
		return DeniedSteps
	}
	return r
}

// keysOf returns the keys of a command. All selectors of a check share the
// result.
func (m *matching) keysOf(cmd *Command, args [][]byte) []keyUse {
	if m.listed {
		return m.keys
	}
	m.listed = true
	positions := cmd.KeyPositions(args)
	m.keys = make([]keyUse, 0, len(positions))
	var flags string // flags of the access to the previous key
	var access access
	for _, pos := range positions {
		how := cmd.AccessAt(args, pos)
		if how.Mode == "not_key" {
			continue // the shard channels of SPUBLISH, SSUBSCRIBE and SUNSUBSCRIBE
		}
		if how.Flags != flags {
			flags, access = how.Flags, need(how)
		}
		m.keys = append(m.keys, keyUse{pos, access})
		m.spend(1)
	}
	return m.keys
}
