package fsm

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

var lcsCommands = []Command{
	{
		Name: "lcs", Run: lcs, Arity: -3, Flags: ReadOnly | Slow, Keys: Keys{1, 2, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "string", Since: "7.0.0",
		Complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
		Syntax:     "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]",
		Doc:        "Find longest common substring",
	},
}

const (
	msgLcsType = "ERR The specified keys must contain string values"
	msgLcsBoth = "ERR If you want both the length and indexes, please just use IDX."
	msgLcsSize = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
	// maxLcsCells is the largest table that LCS computes. It takes 2 MiB and a
	// tenth of a second.
	maxLcsCells = 1 << 24
	lcsCells    = 8 // cells per step
)

func lcs(c *Ctx, args [][]byte) Reply {
	var s [2]string
	for i := range s {
		o, wrong := c.lookupString(args[1+i])
		if wrong {
			return Error(msgLcsType)
		}
		if o != nil {
			s[i] = o.str
		}
	}
	var idx, length, withLength bool
	least := int64(0)
	for i := 3; i < len(args); i++ {
		switch {
		case fold(args[i], "IDX"):
			idx = true
		case fold(args[i], "LEN"):
			length = true
		case fold(args[i], "WITHMATCHLEN"):
			withLength = true
		case fold(args[i], "MINMATCHLEN") && i+1 < len(args):
			i++
			var ok bool
			if least, ok = number.ParseInt(args[i]); !ok {
				return Error(msgNotInt)
			}
		default:
			return Error(msgSyntax)
		}
	}
	switch {
	case idx && length:
		return Error(msgLcsBoth)
	case int64(len(s[0])+1)*int64(len(s[1])+1) > maxLcsCells:
		return Error(msgLcsSize)
	}
	if length {
		return Int(int64(c.lcsLength(s[0], s[1])))
	}
	t := c.newLcsTable(s[0], s[1])
	total := Int(int64(t.length))
	text, matches := t.trace()
	if !idx {
		return Bulk(text)
	}
	c.hold(3 * replyBytes * len(matches))
	var list []Reply
	for _, m := range matches {
		if int64(m.n) < least {
			continue
		}
		span := func(from int) Reply { return Array([]Reply{Int(int64(from)), Int(int64(from + m.n - 1))}) }
		match := []Reply{span(m.a), span(m.b)}
		if withLength {
			match = append(match, Int(int64(m.n)))
		}
		list = append(list, Array(match))
	}
	return Map([]Reply{Bulk("matches"), Array(list), Bulk("len"), total})
}

// lcsLength returns the length of the longest common subsequence. It keeps only
// one row of the table.
func (c *Ctx) lcsLength(a, b string) uint32 {
	if len(b) > len(a) {
		a, b = b, a
	}
	c.hold(4 * len(b))
	row := make([]uint32, len(b)+1)
	for i := range len(a) {
		c.charge(1 + len(b)/lcsCells)
		diagonal := uint32(0) // the cell above and to the left
		for j := range len(b) {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// lcsTable is the table of the lengths of the longest common subsequences of
// all pairs of prefixes of two strings, reduced to what is needed to walk back
// through the table. Where the two bytes of a cell differ, the path back leads
// up if the cell above is greater than the cell to the left, and left
// otherwise. The table has one bit a cell for that decision; the lengths are
// kept for one row only.
type lcsTable struct {
	a, b   string
	up     []uint64
	length uint32 // of the subsequence of the whole strings
}

func (c *Ctx) newLcsTable(a, b string) *lcsTable {
	words := (len(a)*len(b) + 63) / 64
	c.hold(8*words + 4*len(b))
	t := &lcsTable{a: a, b: b, up: make([]uint64, words)}
	row := make([]uint32, len(b)+1)
	for i := range len(a) {
		c.charge(1 + len(b)/lcsCells)
		diagonal := uint32(0)
		for j := range len(b) {
			above, left := row[j+1], row[j]
			switch {
			case a[i] == b[j]:
				row[j+1] = diagonal + 1
			case above > left:
				row[j+1] = above
				at := i*len(b) + j
				t.up[at/64] |= 1 << (at % 64)
			default:
				row[j+1] = left
			}
			diagonal = above
		}
	}
	t.length = row[len(b)]
	return t
}

// upward reports whether the path back leads up from the cell of the bytes i
// and j, which differ.
func (t *lcsTable) upward(i, j int) bool {
	at := i*len(t.b) + j
	return t.up[at/64]>>(at%64)&1 != 0
}

// lcsMatch is a run of n bytes that both strings contain, at offset a of one
// and at offset b of the other.
type lcsMatch struct{ a, b, n int }

// trace walks back from the end of both strings. It returns the subsequence and
// the runs that it consists of, beginning with the last run.
func (t *lcsTable) trace() (text string, matches []lcsMatch) {
	var found []byte
	run := lcsMatch{}
	end := func() {
		if run.n > 0 {
			matches = append(matches, run)
		}
		run = lcsMatch{}
	}
	for i, j := len(t.a), len(t.b); i > 0 && j > 0; {
		if t.a[i-1] != t.b[j-1] {
			end()
			if t.upward(i-1, j-1) {
				i--
			} else {
				j--
			}
			continue
		}
		i--
		j--
		found = append(found, t.a[i])
		run = lcsMatch{i, j, run.n + 1}
	}
	end()
	slices.Reverse(found)
	return string(found), matches
}
