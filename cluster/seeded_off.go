//go:build !seededbug

package cluster

import "github.com/hashicorp/raft"

// What the build with seeded mistakes does otherwise: see package
// cluster/seeded. None of it is called in this one.

func seededClock(c Clock) Clock { return c }

func (n *Node) seededOffice(uint64) {}

func seededVerify(*raft.Raft, func(bool)) {}
