// Package member describes the members of a cluster, and records how long they
// have been away.
package member

import (
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// Member is a node in the latest configuration.
type Member struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// Find returns the member with the given id.
func Find(members []Member, id string) (m Member, ok bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// Of returns the members of a configuration in the order of their ids.
func Of(c raft.Configuration) []Member {
	var list []Member
	for _, s := range c.Servers {
		list = append(list, Member{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list
}
