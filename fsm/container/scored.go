package container

import "cmp"

// Scored is a member of a sorted set with its score.
type Scored struct {
	Score  float64
	Member string
}

// Compare returns -1, 0 or 1 if a is before b, equal to b or after b in a
// sorted set. It compares the scores, and the members if the scores are equal.
func (a *Scored) Compare(b *Scored) int {
	switch {
	case a.Score < b.Score:
		return -1
	case a.Score > b.Score:
		return 1
	}
	return cmp.Compare(a.Member, b.Member)
}
