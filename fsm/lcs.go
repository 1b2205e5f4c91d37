package fsm

import "slices"

var lcsCommands = []Command{
	{Name: "lcs", Arity: -3, Flags: ReadOnly | Slow, Keys: Keys{1, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "string", Since: "7.0.0", Complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively", Syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]", Doc: "Find longest common substring", Run: lcs},
}

const (
	msgLcsType = "ERR The specified keys must contain string values"
	msgLcsBoth = "ERR If you want both the length and indexes, please just use IDX."
	msgLcsSize = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
	// maxLcsCells bounds the table of LCS: 64 MiB, and a tenth of a second.
	maxLcsCells = 1 << 24
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
			if least, ok = parseInt(args[i]); !ok {
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
		return Int(int64(lcsLength(s[0], s[1])))
	}
	t := newLcsTable(s[0], s[1])
	total := Int(int64(t.at(len(s[0]), len(s[1]))))
	text, matches := t.trace()
	if !idx {
		return Bulk(text)
	}
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

// lcsLength returns the length of the longest common subsequence. It keeps one row
// of the table.
func lcsLength(a, b string) uint32 {
	if len(b) > len(a) {
		a, b = b, a
	}
	row := make([]uint32, len(b)+1)
	for i := range len(a) {
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

// lcsTable holds the length of the longest common subsequence of all pairs of
// beginnings of two strings.
type lcsTable struct {
	a, b  string
	cells []uint32
}

func newLcsTable(a, b string) *lcsTable {
	t := &lcsTable{a, b, make([]uint32, (len(a)+1)*(len(b)+1))}
	row := len(b) + 1
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			if a[i-1] == b[j-1] {
				t.cells[i*row+j] = t.cells[(i-1)*row+j-1] + 1
			} else {
				t.cells[i*row+j] = max(t.cells[(i-1)*row+j], t.cells[i*row+j-1])
			}
		}
	}
	return t
}

func (t *lcsTable) at(i, j int) uint32 { return t.cells[i*(len(t.b)+1)+j] }

// lcsMatch is a run of n bytes that both strings have, at a and at b.
type lcsMatch struct{ a, b, n int }

// trace walks back from the ends and returns the subsequence, and the runs that
// it is made of, the last first.
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
			if t.at(i-1, j) > t.at(i, j-1) {
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
